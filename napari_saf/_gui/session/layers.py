"""Label layers over an image as those of a project; all of a project as it is at a moment."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels, Layer
from numpy.typing import NDArray

from napari_saf._gui.layers.live import N_COLORS, colormap_of, label_colors
from napari_saf._gui.layers.masks import read_layer
from napari_saf._gui.layers.metadata import (
    EDITED_KEY,
    FOLLOWED_KEY,
    LEVEL_KEY,
    METADATA_KEY,
    NAMES_KEY,
    OBJECTS_KEY,
    RESTORED_KEY,
    STORE_KEY,
    STROKES_KEY,
    UNCERTAINTY_KEY,
    class_names,
    colors_of,
    image_id_of,
    is_given,
    is_strokes,
    metadata_of,
    points_of,
    prototype_entries,
    raw_recipe,
)
from napari_saf._gui.layers.placement import (
    axes_entry,
    labelled_image,
    pixels_of,
    place,
    split_affine,
    world_affine,
)
from napari_saf._gui.layers.reading import fingerprint
from napari_saf._gui.layers.visibility import insert_above
from napari_saf.errors import InvalidInput
from napari_saf.io import (
    PaintedClass,
    differs_in_napari,
    file_stem,
    mask_stem,
    read_image,
)
from napari_saf.pipeline import Pipeline
from napari_saf.project import (
    DigestCache,
    EncodedLabels,
    FileReference,
    Project,
    ProjectImage,
    ProjectLayer,
)
from napari_saf.storage import atomic_write, make_folder

_logger = logging.getLogger(__name__)
Encoded = dict[str, tuple[int, EncodedLabels]]
"""The pixels of layers by their id, with a checksum, as they were encoded last."""
_MOST = 1e15
GONE = "gone"
"""In place of the hash of a file that cannot be read."""
TAUGHT = "strokes on all images"
"""Name of the recipe that strokes on several images taught together."""
Docks = dict[str, dict[str, Any]]
Transform = dict[str, tuple[Any, ...]]
ToReference = Callable[[Path | None], FileReference]


@dataclasses.dataclass(slots=True, eq=False)
class Entry:
    """An image of the project, and the layer that shows it, if one does.

    The path is None for an image in memory alone; the `layers` are those that are not on screen, as
    they last were, the `left` those still there whose image a person removed, the `stores` folders
    of labels of a large image, the `memory` data and arguments of a layer that came from no file,
    the `copies` files that were made of it, by folder and checksum. An image that is missing, or
    has changed, keeps its `file`. The picture (rows, columns, 3) is None until somebody made it.
    """

    name: str
    path: Path | None = None
    layer: Any = None
    layers: tuple[ProjectLayer, ...] = ()
    left: list[Any] = dataclasses.field(default_factory=list)
    results: tuple[FileReference, ...] = ()
    stores: list[Path] = dataclasses.field(default_factory=list)
    reader: str = ""
    transform: Transform = dataclasses.field(default_factory=dict)
    file: FileReference | None = None
    state: str = "found"
    memory: Any = None
    copies: dict[tuple[Path, int], FileReference] = dataclasses.field(default_factory=dict)
    picture: NDArray[np.uint8] | None = None

    def pixels(self) -> Any:
        """Return the pixels of an image that is in memory alone; they may be lazy."""
        held = pixels_of(self.layer) if self.memory is None else self.memory[0]
        return held[0] if isinstance(held, list | tuple) else held


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PendingLayer:
    """A label layer as it is now but for its pixels, which another thread encodes.

    The colours (256, 3) are by label, the raw recipe is that of its run, if it has one.
    """

    layer: ProjectLayer
    id: str
    data: NDArray[Any]
    colors: NDArray[np.floating]
    raw: Any

    def encode(self, known: Encoded, add_recipe: Callable[[Any], str]) -> ProjectLayer | None:
        """Return the layer of a project; pixels that are as they were are not encoded anew.

        None where labels are below 0, or above what the file of a project holds.
        """
        checksum = fingerprint(self.data, None)
        before = known.get(self.id)
        if before is None or before[0] != checksum or before[1].shape != self.data.shape:
            try:
                before = known[self.id] = (checksum, EncodedLabels.of(self.data))
            except InvalidInput:
                return None
        pixels = before[1]
        present = [n for n in pixels.labels().tolist() if n <= N_COLORS]
        named = {n: one.name for n, one in self.layer.classes.items()}
        classes = {}
        for number in sorted({*present, *named, *self.layer.prototypes}):
            red, green, blue = self.colors[(number - 1) % N_COLORS + 1].tolist()
            classes[number] = PaintedClass(named.get(number, ""), (red, green, blue))
        recipe = add_recipe(self.raw)
        return dataclasses.replace(self.layer, pixels=pixels, classes=classes, recipe=recipe)


_NO_PIXELS = EncodedLabels.of(np.zeros(1, np.uint8))


def layers_of(viewer: napari.Viewer, image: Image) -> list[Any]:
    """Return the label layers over an image that a project keeps, the lowest first."""
    own = str(image.unique_id)
    found = []
    for layer in viewer.layers:
        if not isinstance(layer, Labels) or layer.multiscale or type(layer.data) is not np.ndarray:
            continue
        if STORE_KEY in metadata_of(layer):
            continue
        known = image_id_of(layer)
        if known == own or (not known and _belongs(viewer, layer, image)):
            found.append(layer)
    return found


def is_work(layer: Labels) -> bool:
    """Tell whether labels would be lost with the viewer: a file has what was only opened."""
    is_made = is_strokes(layer) or bool(metadata_of(layer)) or _is_edited(layer)
    is_opened = layer.source.path is not None or layer.source.sample is not None
    return (is_made or not is_opened) and bool(layer.data.any())


def watch_edits(layer: Any) -> None:
    if isinstance(layer, Labels):
        layer.events.paint.connect(_mark_edited)


def _mark_edited(event: Any) -> None:
    (metadata_of(event.source) or event.source.metadata)[EDITED_KEY] = True


def _is_edited(layer: Labels) -> bool:
    return bool((metadata_of(layer) or layer.metadata).get(EDITED_KEY))


def adopt(layer: Labels, image: Image) -> None:
    """Lay labels over an image that was opened again, of which they were before."""
    if is_strokes(layer):
        layer.metadata[STROKES_KEY] = str(image.unique_id)
    elif metadata_of(layer):
        metadata_of(layer)["image"] = str(image.unique_id)


def _belongs(viewer: napari.Viewer, layer: Labels, image: Image) -> bool:
    """Tell whether labels that came from anywhere are of an image: they have its pixels."""

    def fits(other: Any) -> bool:
        shape = pixels_of(other).shape[: other.ndim]
        return is_given(other) and layer.data.shape in (shape, shape[:-1], shape[1:])

    return bool(labelled_image(viewer, layer, fits) == image)


def pending(layer: Labels) -> PendingLayer:
    """Return a layer as it is now, for another thread to encode."""
    every = np.arange(N_COLORS + 1)
    names = {n: PaintedClass(name, (1, 1, 1)) for n, name in class_names(layer).items() if n > 0}
    level = metadata_of(layer).get(LEVEL_KEY)
    known = ProjectLayer(
        "strokes" if is_strokes(layer) else "labels",
        str(layer.name),
        _NO_PIXELS,
        names,
        tuple(float(one) for one in layer.scale),
        tuple(float(one) for one in layer.translate),
        axes_entry(layer),
        level=None if level is None else float(level),
        is_edited=_is_edited(layer) and not is_strokes(layer),
        prototypes={n: np.asarray(own, np.float32) for n, own in points_of(layer).items()},
        is_visible=bool(layer.visible),
        kinds=tuple(np.asarray(layer.metadata.get(OBJECTS_KEY, ())).tolist()),
        followed=metadata_of(layer).get(FOLLOWED_KEY),
        uncertainty=metadata_of(layer).get(UNCERTAINTY_KEY),
        affine=_rows(layer),
    )
    colors = np.round(colors_of(layer, every)[:, :3], 4)
    return PendingLayer(known, str(layer.unique_id), layer.data, colors, raw_recipe(layer))


def show_layer(
    viewer: napari.Viewer, image: Image, kept: ProjectLayer, recipes: Mapping[str, Pipeline]
) -> Labels:
    """Show a layer of a project over its image; InvalidInput if it does not fit."""
    pixels = kept.pixels.to_array()
    axes = tuple(kept.place.get("axes") or range(image.ndim - pixels.ndim, image.ndim))
    if len(axes) != pixels.ndim or not all(0 <= axis < image.ndim for axis in axes):
        raise InvalidInput(f"{kept.name}: has other axes than {image.name}")
    transform = place(image, axes, {}).transform
    if _can_be_drawn(kept.scale, kept.translate):
        transform = _lying(transform, kept.scale, kept.translate, kept.affine)
    colors = {n: (*one.color, 1.0) for n, one in kept.classes.items()}
    layer = viewer.add_labels(
        pixels,
        name=kept.name,
        colormap=colormap_of(label_colors(colors)),
        metadata=_metadata(image, kept, recipes),
        visible=kept.is_visible,
        **transform,
    )
    insert_above(viewer, layer, image)
    if kept.kind == "strokes":
        layer.opacity, layer.brush_size = 1.0, max(3, round(min(pixels.shape[-2:]) / 80))
    return layer


def _can_be_drawn(scale: Sequence[float], translate: Sequence[float]) -> bool:
    """Tell whether sizes and places of pixels are known, and such that a viewer can draw."""
    sizes, places = np.abs(scale), np.abs(translate)
    known = len(sizes) == len(places) > 0
    return bool(known and 1 / _MOST <= sizes.min() and max(sizes.max(), places.max()) <= _MOST)


def _rows(layer: Layer) -> tuple[tuple[float, ...], ...]:
    """Return the affine of a layer as a project has it; () of one that no file can hold."""
    affine = world_affine(layer)
    is_usable = np.isfinite(affine).all() and np.linalg.det(affine) != 0
    return tuple(map(tuple, affine.tolist())) if is_usable else ()


def _lying(
    transform: Mapping[str, Any],
    scale: Sequence[float],
    translate: Sequence[float],
    affine: Sequence[Sequence[float]],
) -> dict[str, Any]:
    """Return the transform of a layer with another scale and translation, and affine if known."""
    found = dict(transform) | {"scale": scale, "translate": translate}
    if len(affine) == len(scale) + 1 and np.abs(affine).max() <= _MOST:
        found.pop("affine", None)
        found |= split_affine(np.array(affine), scale, translate)
    return found


def transform_of(image: Image) -> Transform:
    """Return size, place and axes of the pixels of an image, as `ProjectImage` has them."""
    kinds = {"scale": float, "translate": float, "units": str, "axis_labels": str}
    found = {name: tuple(map(kind, getattr(image, name))) for name, kind in kinds.items()}
    return found | {"affine": _rows(image)}


def set_transform(image: Image, known: Transform) -> None:
    """Give an image the pixels and axes that it had; what does not fit is left out."""
    scale, affine = known.get("scale", ()), known.get("affine", ())
    if len(scale) == image.ndim and _can_be_drawn(scale, known["translate"]):
        if affine:  # else of a file that did not hold it: it is that of the reader
            image.rotate, image.shear = np.eye(image.ndim), np.eye(image.ndim)
            image.affine = np.eye(image.ndim + 1)
        for name, value in _lying({}, scale, known["translate"], affine).items():
            setattr(image, name, value)
    for name in ("units", "axis_labels"):
        if len(known.get(name, ())) == image.ndim:
            with suppress(ValueError):  # such as no unit
                setattr(image, name, known[name])


def _metadata(image: Image, kept: ProjectLayer, recipes: Mapping[str, Pipeline]) -> dict[str, Any]:
    names = {n: one.name for n, one in kept.classes.items() if one.name}
    if kept.kind == "strokes":
        return {NAMES_KEY: names, STROKES_KEY: str(image.unique_id), RESTORED_KEY: True}
    entry: dict[str, Any] = {"image": str(image.unique_id), **kept.place}
    if kept.recipe in recipes:
        entry["recipe"] = recipes[kept.recipe].plain
    if kept.prototypes:
        entry |= prototype_entries(dict(kept.prototypes))
    if kept.level is not None:
        entry[LEVEL_KEY] = kept.level
    if kept.followed is not None:
        entry[FOLLOWED_KEY] = kept.followed
    if kept.uncertainty is not None:
        entry[UNCERTAINTY_KEY] = kept.uncertainty
    edited = {EDITED_KEY: True} if kept.is_edited else {}
    objects = {OBJECTS_KEY: np.array(kept.kinds)} if kept.kinds else {}
    if len(entry) == 1:  # labels that were not computed here
        return {NAMES_KEY: names} | edited | objects
    return {NAMES_KEY: names, METADATA_KEY: entry | edited, RESTORED_KEY: True}


def stores_of(viewer: napari.Viewer, images: Sequence[Image]) -> list[Path]:
    ids = {str(image.unique_id) for image in images}
    own = (one for one in viewer.layers if isinstance(one, Labels) and image_id_of(one) in ids)
    return [Path(metadata_of(one)[STORE_KEY]) for one in own if STORE_KEY in metadata_of(one)]


def show_store(viewer: napari.Viewer, image: Image, path: Path) -> None:
    """Show the labels of a large image from their folder; SafError if they cannot be read."""
    data, arguments, _ = read_layer(path)
    layer = viewer.add_labels(data, **arguments)
    own = {"image": str(image.unique_id), STORE_KEY: str(path)}
    layer.metadata[METADATA_KEY] = metadata_of(layer) | own
    axes = tuple(range(image.ndim - layer.ndim, image.ndim))
    if layer.ndim <= image.ndim:
        sides = [pixels_of(image).shape[axis] for axis in axes]
        where = place(image, axes, {}).transform
        lies_like_it = list(pixels_of(layer).shape) == sides
        for name in where if lies_like_it else ("axis_labels", "units"):
            setattr(layer, name, where[name])
    insert_above(viewer, layer, image)


def path_of(image: Any) -> Path | None:
    """Return the file of an image layer; None where it came from none."""
    path = image.source.path
    return Path(path).absolute() if isinstance(path, str) and Path(path).exists() else None


def open_image(viewer: napari.Viewer, path: Path, reader: str) -> Any:
    """Open an image as it was opened before; SafError if it cannot be.

    For the first time as the library reads it, where napari's own reader would show other pixels.
    """
    is_read_here = not reader and differs_in_napari(path)
    plugins = [] if is_read_here else dict.fromkeys([reader or "napari", "napari"])
    for plugin in plugins:
        try:
            opened = viewer.open(str(path), plugin=plugin)
        except Exception as error:  # noqa: BLE001 - whatever a reader raises for a damaged file
            _logger.info("%s: %s cannot open it: %s", path, plugin, error)
            continue
        images = [layer for layer in opened if isinstance(layer, Image)]
        if images:
            return images[0]
        for layer in opened:
            viewer.layers.remove(layer)
    image = read_image(path)
    is_rgb = image.channel_axis is not None and image.stated_channel_axis is None
    known = {"scale": image.scale, "units": image.units, "translate": image.origin}
    options = {key: value for key, value in known.items() if value is not None}
    return viewer.add_image(image.array, name=mask_stem(path), rgb=is_rgb, **options)


def write_pixels(folder: Path, name: str, pixels: Any) -> Path:
    """Write an image that is in memory alone into a folder, where no file of that name is."""
    make_folder(folder)
    stem, number = file_stem(name), 1
    while (path := folder / f"{stem}{f'_{number}' if number > 1 else ''}.npy").exists():
        number += 1
    with atomic_write(path) as temporary, temporary.open("wb") as stream:
        np.save(stream, np.asarray(pixels), allow_pickle=False)
    return path


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PendingImage:
    """An image with the layers that are put away, and those on screen.

    The function returns its file in a project that is saved at a path, see `Snapshot.build`.
    """

    to_reference: ToReference
    is_in_memory: bool
    away: Sequence[ProjectLayer]
    layers: Sequence[PendingLayer]
    results: tuple[FileReference, ...]
    stores: Sequence[Path]
    reader: str
    transform: Transform

    def all_results(self, digests: DigestCache) -> tuple[FileReference, ...]:
        """Return the files that were written of the image, with the labels of a large one."""
        stores = dict.fromkeys(one for one in self.stores if one.exists())
        kept = [one for one in self.results if one.path not in stores]
        return (*kept, *(reference_to(one, digests) for one in stores))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The images, recipes and docks of a viewer; dictionaries by `files` where none is open."""

    images: Sequence[PendingImage]
    current: int | None
    recipes: Mapping[str, Pipeline]
    docks: Docks
    dictionaries: Sequence[Path]
    files: Mapping[str, FileReference]
    digests: DigestCache
    encoded: Encoded
    has_work: bool

    def build(self, target: Path | None, *, only_touched: bool = False) -> Project:
        """Return the project, to be saved at a path; None: to be compared, nothing is written.

        Images that are in memory alone are written beside the path; only those with layers if
        `only_touched`.
        """
        found, images, current = SharedRecipes(self.recipes), list[ProjectImage](), None
        for k, image in enumerate(self.images):
            if only_touched and image.is_in_memory and not (image.away or image.layers):
                continue
            current = len(images) if k == self.current else current
            found.used |= {layer.recipe for layer in image.away}
            encoded = (one.encode(self.encoded, found.add) for one in image.layers)
            own = (*image.away, *(one for one in encoded if one is not None))
            file = image.to_reference(target)
            results = image.all_results(self.digests)
            images.append(ProjectImage(file, own, results, image.reader, **image.transform))
        kept, applied = found.kept()
        own_files = {one.name: reference_to(one, self.digests) for one in self.dictionaries}
        files = own_files or dict(self.files)
        return Project(tuple(images), kept, applied, files, self.docks, current)


def reference_to(path: Path, digests: DigestCache) -> FileReference:
    """Refer to a file; where it is gone all else is kept all the same."""
    try:
        return FileReference.of(path, digests)
    except InvalidInput:
        return FileReference(path, GONE, 0)


class SharedRecipes:
    """The recipes of a project while it is put together: those that are the same are one."""

    def __init__(self, known: Mapping[str, Pipeline]) -> None:
        self.recipes, self.used = dict(known), set[str]()
        self._names = {_text(recipe.plain): name for name, recipe in known.items()}

    def add(self, raw: Any) -> str:
        """Return the name of a recipe; empty for what none can repeat."""
        text = _text(raw)
        if text not in self._names:
            try:
                recipe = Pipeline.from_plain(raw)
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

    def kept(self) -> tuple[dict[str, Pipeline], str]:
        """Return the recipes that are in use, and which of them labels other images."""
        wanted = self.used | {TAUGHT}
        kept = {name: one for name, one in self.recipes.items() if name in wanted}
        from_strokes = [name for name, one in kept.items() if one.taught is not None]
        return kept, next(iter([TAUGHT] * (TAUGHT in kept) + from_strokes[::-1] + [*kept]), "")


def _text(raw: Any) -> str:
    try:
        return json.dumps(raw, sort_keys=True)
    except (TypeError, ValueError):
        return ""
