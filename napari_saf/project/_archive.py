"""Project file: a zip archive of JSON and run lengths, with a SHA-256 of its content.

`as_model` resolves a project or another file to its recipe or dictionary.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from napari_saf import storage
from napari_saf.arrays import JsonObject, as_path, check_kind
from napari_saf.dictionary import DICTIONARY_SUFFIX, PatchDictionary
from napari_saf.errors import InvalidInput
from napari_saf.io import (
    PaintedClass,
    PrototypeSet,
    check_affine,
    check_vectors,
    load_prototypes,
    short_numbers,
)
from napari_saf.pipeline import Pipeline, load_recipe
from napari_saf.project._files import FileReference, find_files
from napari_saf.project._project import (
    Affine,
    EncodedLabels,
    LayerKind,
    Project,
    ProjectImage,
    ProjectLayer,
)

PROJECT_SUFFIX = ".napari-saf"
_KIND = "napari-saf project"
_MAIN = "project.json"
_RUNS = re.compile(r"layers/\d{1,9}\.runs")
_MOST_BYTES = 2**31
MOST_JSON_BYTES = 2**26
_N_DIGITS = 64
_ENCODED = ("pixels", "classes", "prototypes")
"""Layer fields that are stored in another form."""
_UNNAMED = PaintedClass("", (1.0, 1.0, 1.0))
_DATE = (1980, 1, 1, 0, 0, 0)
"""Fixed date of all entries, so that equal projects give equal files."""
Length = Annotated[int, Field(gt=0, le=2**48)]
Share = Annotated[float, Field(ge=0, le=1)]


class _FileEntry(storage.FileModel):
    path: storage.Text
    digest: str
    n_bytes: Annotated[int, Field(ge=0)]

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        if not path or "\0" in path:
            raise ValueError("expected a path")
        return path


class _ClassEntry(storage.FileModel):
    label: Annotated[int, Field(gt=0, lt=2**32)]
    name: storage.Text
    color: Annotated[tuple[Share, Share, Share], Field(strict=False)]
    prototypes: list[list[float]] = Field(default_factory=list)


class _PlaceEntry(storage.FileModel):
    axes: list[int] | None = None
    singletons: list[int] | None = None
    channels: int | None = None


_Number = Annotated[str, Field(pattern=r"^[1-9]\d{0,9}$")]


class _LayerEntry(storage.FileModel):
    kind: LayerKind
    name: storage.Text
    shape: Annotated[list[Length], Field(min_length=1, max_length=8)]
    runs: str
    n_runs: Annotated[int, Field(gt=0)]
    classes: list[_ClassEntry]
    scale: list[float]
    translate: list[float]
    place: _PlaceEntry
    recipe: storage.Text
    level: Share | None
    is_edited: bool
    is_visible: bool = True
    kinds: list[Annotated[int, Field(ge=0, lt=2**32)]] = Field(default_factory=list)
    object_classes: dict[_Number, storage.Text] = Field(default_factory=dict)
    clicks: dict[_Number, Annotated[int, Field(gt=0)]] = Field(default_factory=dict)
    followed: int | None = None
    uncertainty: Share | None = None
    affine: list[list[float]] = Field(default_factory=list)


class _ImageEntry(storage.FileModel):
    file: _FileEntry
    layers: list[_LayerEntry]
    results: list[_FileEntry]
    reader: str = ""
    scale: list[float] = Field(default_factory=list)
    translate: list[float] = Field(default_factory=list)
    units: list[storage.Text] = Field(default_factory=list)
    axis_labels: list[storage.Text] = Field(default_factory=list)
    affine: list[list[float]] = Field(default_factory=list)
    exported: str = ""


class _ProjectFile(storage.VersionedModel):
    """Content of a project file."""

    kind: Literal["napari-saf project"]
    software: str
    images: list[_ImageEntry]
    recipes: dict[storage.Text, JsonObject]
    applied: storage.Text
    dictionaries: dict[storage.Text, _FileEntry]
    docks: dict[str, JsonObject]
    current: Annotated[int, Field(ge=0)] | None


def save_project(path: str | os.PathLike[str], project: Project) -> Path:
    """Save a project.

    Parameters
    ----------
    path : path
        Ends in ``.napari-saf``. References are stored relative to its folder.
    project : Project
        The project.

    Raises
    ------
    InvalidInput
        If the suffix differs, or dock settings are not JSON-compatible.
    SafError
        If the file cannot be written.

    Examples
    --------
    >>> np.save("image.npy", np.eye(8))
    >>> project = saf.Project((saf.ProjectImage(saf.FileReference.of("image.npy")),))
    >>> saf.save_project("cells.napari-saf", project).name
    'cells.napari-saf'
    """
    target = as_path(path)
    if target.suffix.lower() != PROJECT_SUFFIX:
        raise InvalidInput(f"{target}: expected a name that ends in {PROJECT_SUFFIX}")
    check_kind(project, Project, "project", "a Project")
    content = _to_bytes(project, Path(os.path.abspath(target)).parent)
    with storage.atomic_write(target) as temporary, temporary.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())  # otherwise a system crash may leave an empty file
    return target


def load_project(path: str | os.PathLike[str]) -> Project:
    """Load a project; no code is executed, and no referenced file is opened.

    Raises
    ------
    FormatError
        Naming the file and its fault: damaged, of an unknown version, or with an unknown, missing
        or invalid entry.

    Examples
    --------
    >>> np.save("image.npy", np.eye(8))
    >>> project = saf.Project((saf.ProjectImage(saf.FileReference.of("image.npy")),))
    >>> loaded = saf.load_project(saf.save_project("cells.napari-saf", project))
    >>> [found.state for found in loaded.find_images()]
    ['found']
    """
    file = as_path(path)
    with storage.format_errors(file, "a project"):
        content = storage.read_limited(file, _MOST_BYTES)
        return _from_bytes(content, Path(os.path.abspath(file)).parent)


def project_digest(project: Project) -> str:
    """Return a hash of image contents, layers and recipes, to detect unsaved work."""
    root = Path(os.path.abspath(os.sep))
    images = []
    for image in project.images:
        file = dataclasses.replace(image.file, path=root / "image")
        results = tuple(dataclasses.replace(file, path=root / "result") for file in image.results)
        images.append(ProjectImage(file, image.layers, results, image.reader))
    work = dataclasses.replace(project, images=tuple(images), docks={}, current=None)
    return _to_bytes(work, root)[-_N_DIGITS:].decode()


def _to_bytes(project: Project, home: Path) -> bytes:
    """Serialise a project to be saved in the folder `home`."""
    contents: list[bytes] = []

    def file_entry(file: FileReference) -> JsonObject:
        try:
            path = Path(os.path.relpath(file.path, home)).as_posix()
        except ValueError:  # on different Windows drives
            path = file.path.as_posix()
        return {"path": path, "digest": file.digest, "n_bytes": file.n_bytes}

    def layer_entry(layer: ProjectLayer) -> JsonObject:
        contents.append(layer.pixels.content)
        entry = {name: value for name, value in _fields(layer).items() if name not in _ENCODED}
        return entry | {
            "shape": layer.pixels.shape,
            "classes": _plain_classes(layer),
            "runs": _runs_name(len(contents) - 1),
            "n_runs": layer.pixels.n_runs,
        }

    images = [
        _fields(image)
        | {
            "file": file_entry(image.file),
            "layers": [layer_entry(layer) for layer in image.layers],
            "results": [file_entry(file) for file in image.results],
        }
        for image in project.images
    ]
    main = {
        "kind": _KIND,
        "schema": _ProjectFile.newest,
        "software": storage.VERSION,
        "images": images,
        "recipes": {name: recipe.plain for name, recipe in project.recipes.items()},
        "applied": project.applied,
        "dictionaries": {name: file_entry(file) for name, file in project.dictionaries.items()},
        "docks": project.docks,
        "current": project.current,
    }
    try:
        text = json.dumps(main, allow_nan=False, ensure_ascii=False, indent=1)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"project: expected values that JSON can hold: {error}") from error
    return _archive(text.encode("utf-8", "backslashreplace"), contents)


def _fields(value: ProjectImage | ProjectLayer) -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _plain_classes(layer: ProjectLayer) -> list[JsonObject]:
    """Return rows of label, name, colour and prototypes; names are empty if unset."""
    rows = []
    for label in sorted({*layer.classes, *layer.prototypes}):
        painted = layer.classes.get(label, _UNNAMED)
        numbers = short_numbers(layer.prototypes.get(label, ()))
        row = {"label": int(label), "name": painted.name, "color": list(painted.color)}
        rows.append(row | {"prototypes": numbers})
    return rows


def _runs_name(number: int) -> str:
    return f"layers/{number}.runs"


def _archive(text: bytes, contents: Sequence[bytes]) -> bytes:
    """Return a zip archive whose comment is the hash of everything before it."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        main = zipfile.ZipInfo(_MAIN, _DATE)
        archive.writestr(main, text, zipfile.ZIP_DEFLATED, compresslevel=1)
        for number, content in enumerate(contents):
            archive.writestr(zipfile.ZipInfo(_runs_name(number), _DATE), content)
        archive.comment = b"0" * _N_DIGITS
    body = stream.getvalue()[:-_N_DIGITS]
    return body + hashlib.sha256(body).hexdigest().encode()


def _unarchive(content: bytes) -> tuple[object, dict[str, bytes]]:
    """Return the JSON values and the other entries of an archive; InvalidInput if damaged."""
    digest = hashlib.sha256(content[:-_N_DIGITS]).hexdigest().encode()
    if digest != content[-_N_DIGITS:]:
        raise InvalidInput("no project, or one that is damaged or was changed by another program")
    entries: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for info in archive.infolist():
            is_main = info.filename == _MAIN
            if info.filename in entries or not (is_main or _RUNS.fullmatch(info.filename)):
                raise InvalidInput(f"unknown entry {info.filename!r:.60}")
            # Uncompressed entries cannot be larger than the archive.
            is_packed = info.compress_type == zipfile.ZIP_DEFLATED and is_main
            if not is_packed and info.compress_type != zipfile.ZIP_STORED:
                raise InvalidInput(f"{info.filename}: packed in an unknown way")
            most = MOST_JSON_BYTES if is_main else info.compress_size
            if info.file_size > most or info.compress_size > len(content):
                raise InvalidInput(f"{info.filename}: too large")
            entries[info.filename] = archive.read(info)
            if is_main:  # first entry; later schemas may add unknown ones
                storage.check_not_newer(_ProjectFile, storage.parse_json(entries[_MAIN]))
    if _MAIN not in entries:
        raise InvalidInput(f"missing entry {_MAIN!r}")
    return storage.parse_json(entries.pop(_MAIN)), entries


def _from_bytes(content: bytes, home: Path) -> Project:
    """Parse a project file in the folder `home`."""
    plain, entries = _unarchive(content)
    main = storage.validated(_ProjectFile, plain)
    recipes = {name: _recipe(name, raw) for name, raw in main.recipes.items()}
    used = [layer.runs for image in main.images for layer in image.layers]
    if sorted(used) != sorted(entries):
        raise InvalidInput("layers: expected the runs of each, once")
    named = {layer.recipe for image in main.images for layer in image.layers} | {main.applied}
    unknown = named - {"", *recipes}
    if unknown:
        raise InvalidInput(f"recipes: missing entry {min(unknown)!r}")
    if main.current is not None and main.current >= len(main.images):
        raise InvalidInput(f"current: expected the number of an image, got {main.current}")
    images = tuple(
        ProjectImage(
            _reference(image.file, home),
            tuple(_layer(layer, entries[layer.runs]) for layer in image.layers),
            tuple(_reference(file, home) for file in image.results),
            image.reader,
            image.exported,
            tuple(image.scale),
            tuple(image.translate),
            tuple(image.units),
            tuple(image.axis_labels),
            _affine(image.affine, "images"),
        )
        for image in main.images
    )
    files = {name: _reference(file, home) for name, file in main.dictionaries.items()}
    return Project(images, recipes, main.applied, files, main.docks, main.current, home)


def _reference(entry: _FileEntry, home: Path) -> FileReference:
    path = Path(os.path.normpath(os.path.join(home, entry.path)))
    return FileReference(path, entry.digest, entry.n_bytes)


def _affine(rows: list[list[float]], location: str, n_axes: int | None = None) -> Affine:
    if not rows:
        return ()
    try:
        check_affine(rows, len(rows) - 1 if n_axes is None else n_axes)
    except ValueError as error:
        raise InvalidInput(f"{location}: {error}") from error
    return tuple(map(tuple, rows))


def _recipe(name: str, raw: JsonObject) -> Pipeline:
    try:
        return Pipeline.from_plain(raw)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InvalidInput(f"recipes.{name}: {error}") from error


def _layer(entry: _LayerEntry, runs: bytes) -> ProjectLayer:
    pixels = EncodedLabels(tuple(entry.shape), runs, entry.n_runs)
    try:
        pixels.check()
    except InvalidInput as error:
        raise InvalidInput(f"{entry.runs}: {error}") from error
    n_axes = len(entry.shape)
    lengths = {len(entry.scale), len(entry.translate)}
    if lengths not in ({0}, {n_axes}):
        raise InvalidInput(f"{entry.runs}: expected scale and place for each axis")
    if not all(0 <= axis < n_axes for axis in entry.place.singletons or ()):
        raise InvalidInput(f"{entry.runs}: expected singletons below {n_axes}")
    classes = {item.label: PaintedClass(item.name, item.color) for item in entry.classes}
    if len(classes) < len(entry.classes):
        raise InvalidInput(f"{entry.runs}: expected each class once")
    prototypes = {}
    for item in (item for item in entry.classes if item.prototypes):
        try:
            prototypes[item.label] = check_vectors(item.prototypes)
        except InvalidInput as error:
            raise InvalidInput(f"{entry.runs}: label {item.label}: {error}") from error
    if len({vectors.shape[1] for vectors in prototypes.values()}) > 1:
        raise InvalidInput(f"{entry.runs}: expected as many numbers for each label")
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in entry
        if name not in ("shape", "runs", "n_runs")
    }
    fields |= {"pixels": pixels, "classes": classes, "prototypes": prototypes}
    for name in ("object_classes", "clicks"):
        fields[name] = {int(number): value for number, value in getattr(entry, name).items()}
    fields["place"] = entry.place.model_dump(exclude_none=True)
    fields["affine"] = _affine(entry.affine, entry.runs, n_axes)
    return ProjectLayer(**fields)


Model = Pipeline | PatchDictionary
ModelSource = Pipeline | PrototypeSet | PatchDictionary | Project | str | os.PathLike[str]
"""Anything that resolves to a recipe or a dictionary, or its file."""


def as_model(source: ModelSource, name: str = "learned") -> Model:
    """Resolve an object or a file to its recipe or dictionary.

    FormatError for a file of another type; InvalidInput if it has no recipe, or the features of
    prototypes are unknown.
    """
    if isinstance(source, str | os.PathLike):
        loaded = _load(Path(source))
        try:
            return as_model(loaded, name)
        except InvalidInput as error:
            raise InvalidInput(f"{os.fspath(source)}: {error}") from error
    if isinstance(source, Project):
        if not source.recipes and len(source.dictionaries) == 1:
            ((name, file),) = source.dictionaries.items()
            (location,) = find_files([file], source.home)
            if location.path is None or location.state != "found":
                raise InvalidInput(f"the dictionary {name} is not at {file.path}")
            return PatchDictionary.load(location.path)
        return source.recipe
    if isinstance(source, PrototypeSet):
        return Pipeline.from_prototypes(source)
    if isinstance(source, Pipeline | PatchDictionary):
        return source
    raise InvalidInput(
        f"{name}: expected a project, recipe, prototypes, dictionary or the path of one, got "
        f"{source!r:.60}"
    )


def _load(path: Path) -> Pipeline | PrototypeSet | PatchDictionary | Project:
    suffix = path.suffix.lower()
    if suffix == PROJECT_SUFFIX:
        return load_project(path)
    if suffix == DICTIONARY_SUFFIX:
        return PatchDictionary.load(path)
    with storage.format_errors(path, "a project, recipe, file of prototypes or dictionary"):
        plain = storage.read_json(path)
    is_prototypes = isinstance(plain, dict) and plain.get("kind") == "prototypes"
    return load_prototypes(path) if is_prototypes else load_recipe(path)
