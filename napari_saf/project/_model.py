"""Model of an open project: images with stored layers, recipes and files, without any viewer."""

from __future__ import annotations

import dataclasses
import json
import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import JsonObject
from napari_saf.errors import InvalidInput
from napari_saf.io import PaintedClass, file_stem
from napari_saf.pipeline import Pipeline
from napari_saf.project._files import DigestCache, FileReference, FileState, FoundFile
from napari_saf.project._project import EncodedLabels, Project, ProjectImage, ProjectLayer
from napari_saf.storage import atomic_write, make_folder

_logger = logging.getLogger(__name__)
TAUGHT = "strokes on all images"
"""Name of the recipe learned jointly from strokes on several images."""
NO_PIXELS = EncodedLabels.of(np.zeros(1, np.uint8))
UNREADABLE = "gone"
"""Digest of an unreadable file; also stored in existing project files."""
_REASONS = {
    "missing": 'is missing: press "Find …", or search in a folder',
    "changed": 'has changed since strokes were painted on it: press "Use as it is" to keep them',
}
TRANSFORM = ("scale", "translate", "units", "axis_labels", "affine")
"""Fields of a `ProjectImage` with the placement of its pixels."""
Transform = Mapping[str, tuple[Any, ...]]
EncodingCache = dict[str, tuple[int, EncodedLabels]]
"""Checksum and encoded pixels of layers, by their id."""
DockValues = dict[str, JsonObject]


def checksum(array: NDArray[Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


@dataclasses.dataclass(slots=True, eq=False)
class ImageEntry:
    """Image of an open project.

    Attributes
    ----------
    name : str
    path : Path or None
        None for an image that is in memory only.
    layers : tuple of ProjectLayer
        Strokes and labels that are not on screen.
    results : tuple of FileReference
        Exported masks and tables.
    exported : str
        Digest of the layers as they were exported; empty if unknown.
    stores : list of Path
        Folders of labels of a large image.
    reader : str
    transform : mapping
        Placement of its pixels, as last displayed.
    file : FileReference or None
        Known content, kept for a missing or changed image.
    state : {"found", "changed", "missing"}
    memory : tuple or None
        Layer data, arguments and type of an image without a file that is not displayed.
    copies : dict
        Files written for such an image, by folder and checksum.
    picture : array of shape (rows, columns, 3) or None
        Thumbnail; None until it was made.
    layer, removed : object, list of object
        The layer that shows the image, if one does, and label layers still on screen whose image
        was removed; opaque here.
    """

    name: str
    path: Path | None = None
    layers: tuple[ProjectLayer, ...] = ()
    results: tuple[FileReference, ...] = ()
    exported: str = ""
    stores: list[Path] = dataclasses.field(default_factory=list)
    reader: str = ""
    transform: Transform = dataclasses.field(default_factory=dict)
    file: FileReference | None = None
    state: FileState = "found"
    memory: tuple[Any, Mapping[str, Any], str] | None = None
    copies: dict[tuple[Path, int], FileReference] = dataclasses.field(default_factory=dict)
    picture: NDArray[np.uint8] | None = None
    layer: Any = None
    removed: list[Any] = dataclasses.field(default_factory=list)

    def pixels(self) -> Any:
        """Return the pixels of an image without a file, at the finest level; may be lazy."""
        data = self.memory[0] if self.layer is None and self.memory else self.layer.data
        return data[0] if isinstance(data, Sequence) else data

    def check_found(self) -> None:
        """Raise InvalidInput if the image is missing or changed."""
        if self.state != "found":
            raise InvalidInput(f"{self.name} {_REASONS[self.state]}")


def encoded_pixels(
    layer_id: str, data: NDArray[Any], encodings: EncodingCache
) -> EncodedLabels | None:
    """Return the encoded pixels of a layer; None if a project cannot store them."""
    key, cached = checksum(data), encodings.get(layer_id)
    if cached is None or cached[0] != key or cached[1].shape != data.shape:
        try:
            cached = encodings[layer_id] = (key, EncodedLabels.of(data))
        except InvalidInput:
            return None
    return cached[1]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LayerState:
    """Snapshot of a label layer: a `ProjectLayer` whose pixels are encoded later.

    The colours (n_labels + 1, 3) are cyclic by label; `recipe` is the plain recipe or None.
    """

    layer: ProjectLayer
    id: str
    data: NDArray[Any]
    colors: NDArray[np.floating]
    recipe: Any

    def encode(
        self, encodings: EncodingCache, add_recipe: Callable[[Any], str]
    ) -> ProjectLayer | None:
        """Return the layer of a project; unchanged pixels are not encoded again.

        None if labels are negative, or above the maximum of a project file.
        """
        pixels = encoded_pixels(self.id, self.data, encodings)
        if pixels is None:
            return None
        n_colors = len(self.colors) - 1
        names = {label: painted.name for label, painted in self.layer.classes.items()}
        present = [label for label in pixels.labels().tolist() if label <= n_colors]
        classes = {}
        for label in sorted({*present, *names, *self.layer.prototypes}):
            red, green, blue = self.colors[(label - 1) % n_colors + 1].tolist()
            classes[label] = PaintedClass(names.get(label, ""), (red, green, blue))
        recipe = add_recipe(self.recipe)
        return dataclasses.replace(self.layer, pixels=pixels, classes=classes, recipe=recipe)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _ImageState:
    """Snapshot of an image, with its stored and displayed layers."""

    entry: ImageEntry
    stored: Sequence[ProjectLayer]
    shown: Sequence[LayerState]
    results: tuple[FileReference, ...]
    exported: str
    stores: Sequence[Path]
    transform: Transform


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ProjectState:
    """Snapshot of an open project; `build` encodes it in any thread."""

    images: Sequence[_ImageState]
    current: int | None
    recipes: Mapping[str, Pipeline]
    docks: DockValues
    dictionaries: Sequence[Path]
    dictionary_files: Mapping[str, FileReference]
    digests: DigestCache
    encodings: EncodingCache
    has_work: bool

    def build(self, target: Path | None, *, only_with_layers: bool = False) -> Project:
        """Return the project to save at `target`; None: for comparison, writes nothing.

        Images in memory are written beside the target; with `only_with_layers` others are left out.
        """
        recipes, images, current = SharedRecipes(self.recipes), list[ProjectImage](), None
        for number, image in enumerate(self.images):
            entry, has_layers = image.entry, bool(image.stored or image.shown)
            if only_with_layers and entry.path is None and not has_layers:
                continue
            current = len(images) if number == self.current else current
            recipes.used |= {layer.recipe for layer in image.stored}
            encoded = [layer.encode(self.encodings, recipes.add) for layer in image.shown]
            layers = (*image.stored, *(layer for layer in encoded if layer is not None))
            stores = dict.fromkeys(store for store in image.stores if store.exists())
            results = [file for file in image.results if file.path not in stores]
            results += [reference_to(store, self.digests) for store in stores]
            file = _reference(entry, target, self.digests)
            reader, exported, transform = entry.reader, image.exported, image.transform
            images.append(ProjectImage(file, layers, tuple(results), reader, exported, **transform))
        in_use, applied = recipes.in_use()
        files = {path.name: reference_to(path, self.digests) for path in self.dictionaries}
        files = files or dict(self.dictionary_files)
        return Project(tuple(images), in_use, applied, files, self.docks, current)


def reference_to(path: Path, digests: DigestCache) -> FileReference:
    """Return a reference to a file, even if unreadable, so that the project can be saved."""
    try:
        return FileReference.of(path, digests)
    except InvalidInput:
        return FileReference(path, UNREADABLE, 0)


class SharedRecipes:
    """Recipes of a project by name; equal ones are stored once."""

    def __init__(self, recipes: Mapping[str, Pipeline]) -> None:
        self.recipes, self.used = dict(recipes), set[str]()
        self._names = {_text(recipe.plain): name for name, recipe in recipes.items()}

    def add(self, plain: Any) -> str:
        """Add a plain recipe and return its name; empty if it is invalid."""
        text = _text(plain)
        if text not in self._names:
            try:
                recipe = Pipeline.from_plain(plain)
            except (TypeError, ValueError, ArithmeticError):
                return ""
            stem, number = recipe.method.name, 1
            while (name := f"{stem}{f' {number}' if number > 1 else ''}") in self.recipes:
                number += 1
            name = self._names.setdefault(_text(recipe.plain), name)
            self.recipes.setdefault(name, recipe)
            self._names[text] = name
        name = self._names[text]
        self.used.add(name)
        return name

    def in_use(self) -> tuple[dict[str, Pipeline], str]:
        """Return the recipes in use, and the name of the one that labels other images."""
        names = self.used | {TAUGHT}
        recipes = {name: recipe for name, recipe in self.recipes.items() if name in names}
        if TAUGHT in recipes:
            return recipes, TAUGHT
        learned = [name for name, recipe in recipes.items() if recipe.prototypes is not None]
        return recipes, next(iter([*reversed(learned), *recipes]), "")


def _text(plain: Any) -> str:
    try:
        return json.dumps(plain, sort_keys=True)
    except (TypeError, ValueError):
        return ""


class ProjectModel:
    """Images, recipes and dictionaries of an open project.

    Displayed layers belong to a viewer, which passes in their states. `on_changed` is
    called after each change of the list of images.
    """

    def __init__(self, on_changed: Callable[[], None] = lambda: None) -> None:
        self.entries: list[ImageEntry] = []
        self.recipes: dict[str, Pipeline] = {}
        self.dictionaries: dict[str, FileReference] = {}
        self.digests = DigestCache()
        self.encodings: EncodingCache = {}
        self.on_changed = on_changed

    def clear(self) -> None:
        self.entries, self.recipes, self.dictionaries = [], {}, {}
        self.on_changed()

    def add_files(self, paths: Sequence[Path]) -> None:
        """Add image files that are not in the project yet; they are opened when first shown."""
        paths_in_project = {entry.path for entry in self.entries}
        new = [path for path in map(Path.absolute, paths) if path not in paths_in_project]
        self.entries += [ImageEntry(path.name, path) for path in new]
        self.on_changed()

    def remove(self, entry: ImageEntry) -> None:
        """Remove an image from the project; displayed layers stay."""
        self.entries.remove(entry)
        self.on_changed()

    def load(
        self, project: Project, files: Sequence[FoundFile], stores: Sequence[list[Path]]
    ) -> None:
        """Replace the content by a loaded project and the results of its file search."""
        self.recipes, self.dictionaries = dict(project.recipes), dict(project.dictionaries)
        self.entries = []
        for image, location, folders in zip(project.images, files, stores, strict=True):
            path = location.path or image.file.path
            stored = image.layers, image.results, image.exported
            entry = ImageEntry(path.name, path, *stored, folders, image.reader)
            entry.transform = {name: getattr(image, name) for name in TRANSFORM}
            entry.file, entry.state = dataclasses.replace(image.file, path=path), location.state
            self.entries.append(entry)
        self.on_changed()

    def relocate(self, entries: Sequence[ImageEntry], files: Sequence[FoundFile]) -> None:
        """Set new locations of missing or changed images."""
        for entry, location in zip(entries, files, strict=True):
            if location.path is not None:
                assert entry.file is not None
                entry.path, entry.name = location.path, location.path.name
                entry.state = location.state
                entry.file = dataclasses.replace(entry.file, path=location.path)
        self.on_changed()

    def accept(self, entry: ImageEntry) -> None:
        """Accept the changed content of an image, and keep its layers."""
        if entry.state == "changed":
            entry.file, entry.state = None, "found"
            self.on_changed()

    def check_content(self, entry: ImageEntry) -> None:
        """Raise InvalidInput if an image is missing, or its content has changed."""
        entry.check_found()
        file, path = entry.file, entry.path
        if file is not None and path is not None and self.digests(path) != file.digest:
            entry.state = "changed"
            entry.check_found()

    def load_copies(self, folder: Path) -> None:
        """Read images of a folder into memory, before the folder is deleted."""
        for entry in self.entries:
            if entry.path is not None and entry.path.parent == folder and entry.state == "found":
                try:
                    pixels = np.load(entry.path, allow_pickle=False)
                except (OSError, ValueError) as error:
                    _logger.warning("%s cannot be read: %s", entry.path, error)
                    continue
                entry.memory = (pixels, {"name": entry.path.stem}, "image")
                entry.name, entry.path, entry.file = entry.path.stem, None, None

    def store(self, entry: ImageEntry, layers: Sequence[LayerState]) -> list[bool]:
        """Store layers before they are hidden; return for each whether a project can store it."""
        recipes = SharedRecipes(self.recipes)
        stored = [layer.encode(self.encodings, recipes.add) for layer in layers]
        entry.layers += tuple(layer for layer in stored if layer is not None)
        self.recipes = recipes.recipes
        return [layer is not None for layer in stored]

    def replace_stored(self, entry: ImageEntry, made: ProjectLayer) -> None:
        """Replace stored labels of the same name, and hide other stored labels."""
        key = (made.kind, made.name)
        layers = [layer for layer in entry.layers if (layer.kind, layer.name) != key]
        hidden = (dataclasses.replace(x, is_visible=x.kind == "strokes") for x in layers)
        entry.layers = (*hidden, made)

    def add_results(
        self, entry: ImageEntry, written: Sequence[FileReference], exported: str
    ) -> None:
        """Add exported files; `exported` is the digest of the layers of the image."""
        entry.exported = exported
        files = {file.path: file for file in (*entry.results, *written)}
        entry.results = tuple(files.values())
        self.on_changed()

    def forget_encodings(self, ids: set[str]) -> None:
        """Drop the cached encodings of layers other than those with the given ids."""
        cached = list(self.encodings.items())  # another thread may add entries
        self.encodings = {key: value for key, value in cached if key in ids}

    def pixels_in_memory(self) -> dict[int, Any]:
        """Return the pixels of images without a file, by index of the image."""
        return {k: entry.pixels() for k, entry in enumerate(self.entries) if entry.path is None}

    def state(
        self,
        shown: Sequence[tuple[Sequence[LayerState], Sequence[Path], Transform]],
        current: int | None,
        docks: DockValues,
        dictionaries: Sequence[Path],
        has_work: bool,
    ) -> ProjectState:
        """Return a snapshot of the project.

        `shown` are the displayed layers, displayed stores and transform of each image. Without
        open `dictionaries` those of the project are kept.
        """
        images = []
        for entry, (layers, stores, transform) in zip(self.entries, shown, strict=True):
            all_stores = [*entry.stores, *stores]
            results = entry.results, entry.exported
            images.append(_ImageState(entry, entry.layers, layers, *results, all_stores, transform))
        return ProjectState(
            images,
            current,
            dict(self.recipes),
            docks,
            dictionaries,
            dict(self.dictionaries),
            self.digests,
            self.encodings,
            has_work,
        )


def _reference(entry: ImageEntry, target: Path | None, digests: DigestCache) -> FileReference:
    """Return the file of an image; one in memory is written beside the project at `target`.

    It is written to each new folder, as a project is moved together with the files beside it.
    """
    if entry.file is not None:
        return entry.file
    if entry.path is not None:
        file = reference_to(entry.path, digests)
        entry.file = None if file.digest == UNREADABLE else file
        return file
    pixels = entry.pixels()
    key = checksum(pixels) if isinstance(pixels, np.ndarray) else 0  # may be replaced
    if target is None:
        return FileReference(Path(entry.name), f"memory:{key}", 0)
    folder = target.parent / f"{target.stem}_images"
    copy = entry.copies.get((folder, key))
    if copy is None or not copy.path.exists():
        written = _write_pixels(folder, entry.name, pixels)
        copy = entry.copies[folder, key] = FileReference.of(written, digests)
    return copy


def _write_pixels(folder: Path, name: str, pixels: Any) -> Path:
    """Write an image into a folder, under an unused name."""
    make_folder(folder)
    stem, number = file_stem(name), 1
    while (path := folder / f"{stem}{f'_{number}' if number > 1 else ''}.npy").exists():
        number += 1
    with atomic_write(path) as temporary, temporary.open("wb") as stream:
        np.save(stream, np.asarray(pixels), allow_pickle=False)
    return path
