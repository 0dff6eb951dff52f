"""Conversion between layers of a viewer and layers of a project."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels, Layer
from numpy.typing import ArrayLike

from napari_saf._gui.layers import metadata
from napari_saf._gui.layers.live import N_COLORS, colormap_of, label_colors
from napari_saf._gui.layers.metadata import image_id_of, is_given, is_strokes, metadata_of
from napari_saf._gui.layers.placement import (
    axes_entry,
    image_region,
    labelled_image,
    pixels_of,
    place,
    world_affine,
)
from napari_saf._gui.layers.reader import read_layer
from napari_saf._gui.layers.view import insert_above, is_shown_with_image, visibility_of
from napari_saf.errors import InvalidInput
from napari_saf.io import PaintedClass, differs_in_napari, mask_stem, read_image, split_affine
from napari_saf.pipeline import Pipeline
from napari_saf.project import NO_PIXELS, LayerState, ProjectLayer, Transform

_logger = logging.getLogger(__name__)
_LARGEST = 1e15
"""Bound of the scale and translation that a viewer can draw, in units."""


def layers_of(viewer: napari.Viewer, image: Image) -> list[Any]:
    """Return the label layers of an image that a project stores, the lowest first."""

    def is_of_image(layer: Layer) -> bool:
        if not isinstance(layer, Labels) or type(layer.data) is not np.ndarray:
            return False
        if metadata.STORE_KEY in metadata_of(layer):
            return False
        if image_id := image_id_of(layer):
            return image_id == str(image.unique_id)

        def fits(candidate: Any) -> bool:
            shape = pixels_of(candidate).shape[: candidate.ndim]
            return is_given(candidate) and layer.data.shape in (shape, shape[:-1], shape[1:])

        return bool(labelled_image(viewer, layer, fits) == image)

    return [layer for layer in viewer.layers if is_of_image(layer)]


def is_work(layer: Labels) -> bool:
    """Return whether labels exist only in the viewer, not in a file."""
    is_made = is_strokes(layer) or metadata_of(layer) or _is_edited(layer)
    is_opened = layer.source.path is not None or layer.source.sample is not None
    return bool((is_made or not is_opened) and layer.data.any())


def watch(layer: Any) -> None:
    """Mark labels as edited when painted on, and draw strokes in the thumbnail of their layer."""
    if isinstance(layer, Labels):
        layer.events.paint.connect(_mark_edited)
        if is_strokes(layer):
            layer.events.thumbnail.connect(_draw_strokes)


def _draw_strokes(event: Any) -> None:
    """Draw the largest label of each block as thumbnail, since sampling would miss thin strokes.

    Planes smaller than a thumbnail, and stacks, keep the thumbnail of napari.
    """
    layer = event.source
    if type(layer.data) is not np.ndarray:
        return
    plane, n_rows = np.squeeze(layer.data), len(layer.thumbnail)
    if plane.ndim != 2 or max(plane.shape) <= n_rows:
        return
    step = max(plane.shape) / n_rows
    for axis, side in enumerate(plane.shape):
        starts = np.arange(max(1, round(side / step))) * step
        plane = np.maximum.reduceat(plane, starts.astype(int), axis=axis)
    with layer.events.thumbnail.blocker():
        layer.thumbnail = layer.colormap.map(plane)


def _mark_edited(event: Any) -> None:
    (metadata_of(event.source) or event.source.metadata)[metadata.EDITED_KEY] = True


def _is_edited(layer: Labels) -> bool:
    return bool((metadata_of(layer) or layer.metadata).get(metadata.EDITED_KEY))


def assign_image(layer: Labels, image: Image) -> None:
    """Assign labels to a new layer of their image."""
    if is_strokes(layer):
        layer.metadata[metadata.STROKES_KEY] = str(image.unique_id)
    elif metadata_of(layer):
        metadata_of(layer)["image"] = str(image.unique_id)


def state_of(layer: Labels) -> LayerState:
    """Return the state of a layer, to be encoded in another thread."""
    names, points = metadata.class_names(layer), metadata.points_of(layer)
    entry, classes = metadata_of(layer), layer.metadata.get(metadata.CLASSES_KEY, {})
    level = entry.get(metadata.LEVEL_KEY)
    fields = ProjectLayer(
        "strokes" if is_strokes(layer) else "labels",
        str(layer.name),
        NO_PIXELS,
        {n: PaintedClass(name, (1, 1, 1)) for n, name in names.items() if n > 0},
        tuple(map(float, layer.scale)),
        tuple(map(float, layer.translate)),
        axes_entry(layer),
        level=None if level is None else float(level),
        is_edited=_is_edited(layer) and not is_strokes(layer),
        prototypes={n: np.asarray(rows, np.float32) for n, rows in points.items()},
        is_visible=is_shown_with_image(layer),
        kinds=tuple(np.asarray(layer.metadata.get(metadata.OBJECTS_KEY, ())).tolist()),
        object_classes=classes.get("names", {}),
        clicks=classes.get("clicks", {}),
        followed=entry.get(metadata.FOLLOWED_KEY),
        uncertainty=entry.get(metadata.UNCERTAINTY_KEY),
        affine=_affine_rows(layer),
    )
    colors = np.round(metadata.colors_of(layer, np.arange(N_COLORS + 1))[:, :3], 4)
    return LayerState(fields, str(layer.unique_id), layer.data, colors, metadata.raw_recipe(layer))


def show_layer(
    viewer: napari.Viewer, image: Image, stored: ProjectLayer, recipes: Mapping[str, Pipeline]
) -> Labels:
    """Show a layer of a project above its image; raise InvalidInput if it does not fit."""
    pixels = stored.pixels.to_array()
    axes = tuple(stored.place.get("axes") or range(image.ndim - pixels.ndim, image.ndim))
    if len(axes) != pixels.ndim or not all(0 <= axis < image.ndim for axis in axes):
        raise InvalidInput(f"{stored.name}: has other axes than {image.name}")
    transform = place(image, axes, {}).transform
    if _can_be_drawn(stored.scale, stored.translate):
        if _is_usable(stored.affine, stored.scale):
            transform.pop("affine", None)
        transform |= _arguments(stored.scale, stored.translate, stored.affine)
    colors = {n: (*painted.color, 1.0) for n, painted in stored.classes.items()}
    layer = viewer.add_labels(
        pixels,
        name=stored.name,
        colormap=colormap_of(label_colors(colors)),
        metadata=_metadata(image, stored, recipes),
        visible=stored.is_visible,
        **transform,
    )
    insert_above(viewer, layer, image)
    if stored.kind == "strokes":
        layer.opacity, layer.brush_size = 1.0, max(3, round(min(pixels.shape[-2:]) / 80))
    elif not is_given(layer) or metadata.OBJECTS_KEY in layer.metadata:
        region = image_region(layer, image)
        visibility_of(viewer).register(image, layer, () if region is None else region[0])
    return layer


def _metadata(
    image: Image, stored: ProjectLayer, recipes: Mapping[str, Pipeline]
) -> metadata.Metadata:
    names = {n: painted.name for n, painted in stored.classes.items() if painted.name}
    entries: metadata.Metadata = {metadata.NAMES_KEY: names, metadata.RESTORED_KEY: True}
    if stored.kind == "strokes":
        return entries | {metadata.STROKES_KEY: str(image.unique_id)}
    values = {
        "recipe": recipes[stored.recipe].plain if stored.recipe in recipes else None,
        metadata.LEVEL_KEY: stored.level,
        metadata.FOLLOWED_KEY: stored.followed,
        metadata.UNCERTAINTY_KEY: stored.uncertainty,
    }
    result = {**stored.place} | {key: value for key, value in values.items() if value is not None}
    if stored.prototypes:
        result |= metadata.prototype_entries(dict(stored.prototypes))
    edited = {metadata.EDITED_KEY: True} if stored.is_edited else {}
    if result:
        result["image"] = str(image.unique_id)
        return entries | {metadata.METADATA_KEY: result | edited}
    del entries[metadata.RESTORED_KEY]  # not computed by this plugin
    if stored.kinds:
        entries[metadata.OBJECTS_KEY] = np.array(stored.kinds)
    if stored.object_classes:
        clicked = {"names": dict(stored.object_classes), "clicks": dict(stored.clicks)}
        entries[metadata.CLASSES_KEY] = clicked
    return entries | edited


def _can_be_drawn(scale: Sequence[float], translate: Sequence[float]) -> bool:
    """Return whether scale and translation are known and in the range that a viewer can draw."""
    sizes, shifts = np.abs(scale), np.abs(translate)
    is_known = len(sizes) == len(shifts) > 0
    return bool(
        is_known and sizes.min() >= 1 / _LARGEST and max(sizes.max(), shifts.max()) <= _LARGEST
    )


def _affine_rows(layer: Layer) -> tuple[tuple[float, ...], ...]:
    """Return the affine of a layer as stored in a project; () if it cannot be stored."""
    affine = world_affine(layer)
    is_regular = np.isfinite(affine).all() and np.linalg.det(affine) != 0
    return tuple(map(tuple, affine.tolist())) if is_regular else ()


def _is_usable(affine: Sequence[Sequence[float]], scale: Sequence[float]) -> bool:
    return len(affine) == len(scale) + 1 and bool(np.abs(affine).max() <= _LARGEST)


def _arguments(
    scale: Sequence[float], translate: Sequence[float], affine: Sequence[Sequence[float]]
) -> Mapping[str, ArrayLike]:
    """Return layer arguments for scale, translation and, if usable, the affine."""
    if _is_usable(affine, scale):
        return split_affine(np.array(affine), scale, translate)
    return {"scale": scale, "translate": translate}


def transform_of(image: Image) -> Transform:
    """Return the transform of an image as stored in `ProjectImage`."""
    casts = {"scale": float, "translate": float, "units": str, "axis_labels": str}
    values = {name: tuple(map(cast, getattr(image, name))) for name, cast in casts.items()}
    return values | {"affine": _affine_rows(image)}


def set_transform(image: Image, transform: Transform) -> None:
    """Restore the transform of an image, except the parts that do not fit."""
    scale, affine = transform.get("scale", ()), transform.get("affine", ())
    if len(scale) == image.ndim and _can_be_drawn(scale, transform["translate"]):
        if affine:  # without one the transform of the reader is kept
            image.rotate, image.shear = np.eye(image.ndim), np.eye(image.ndim)
            image.affine = np.eye(image.ndim + 1)
        for name, value in _arguments(scale, transform["translate"], affine).items():
            setattr(image, name, value)
    for name in ("units", "axis_labels"):
        if len(transform.get(name, ())) == image.ndim:
            with suppress(ValueError):  # e.g. an unknown unit
                setattr(image, name, transform[name])


def stores_of(viewer: napari.Viewer, images: Sequence[Image]) -> list[Path]:
    """Return the folders of the displayed labels of large images."""
    ids = {str(image.unique_id) for image in images}
    entries = [metadata_of(layer) for layer in viewer.layers if image_id_of(layer) in ids]
    return [Path(entry[metadata.STORE_KEY]) for entry in entries if metadata.STORE_KEY in entry]


def show_store(viewer: napari.Viewer, image: Image, path: Path) -> None:
    """Show labels of a large image from their folder; raise SafError if they cannot be read."""
    data, arguments, _ = read_layer(path)
    layer = viewer.add_labels(data, **arguments)
    entry = metadata_of(layer) | {"image": str(image.unique_id), metadata.STORE_KEY: str(path)}
    layer.metadata[metadata.METADATA_KEY] = entry
    if layer.ndim <= image.ndim:
        axes = tuple(range(image.ndim - layer.ndim, image.ndim))
        transform = place(image, axes, {}).transform
        sides = [pixels_of(image).shape[axis] for axis in axes]
        is_aligned = list(pixels_of(layer).shape) == sides
        for name in transform if is_aligned else ("axis_labels", "units"):
            setattr(layer, name, transform[name])
    insert_above(viewer, layer, image)
    visibility_of(viewer).register(image, layer)


def path_of(image: Any) -> Path | None:
    """Return the file of an image layer, or None."""
    path = image.source.path
    return Path(path).absolute() if isinstance(path, str) and Path(path).exists() else None


def open_image(viewer: napari.Viewer, path: Path, reader: str) -> Any:
    """Open an image with its previous reader; raise SafError if it cannot be read.

    Without a previous reader, the library reads files that napari would show with other pixels.
    """
    is_read_here = not reader and differs_in_napari(path)
    for plugin in [] if is_read_here else dict.fromkeys([reader or "napari", "napari"]):
        try:
            opened = viewer.open(str(path), plugin=plugin)
        except Exception as error:  # noqa: BLE001 - any error of a reader plugin
            _logger.info("%s: %s cannot open it: %s", path, plugin, error)
            continue
        images = [layer for layer in opened if isinstance(layer, Image)]
        if images:
            return images[0]
        for layer in opened:
            viewer.layers.remove(layer)
    image = read_image(path)
    is_rgb = image.channel_axis is not None and image.stated_channel_axis is None
    arguments = {"scale": image.scale, "units": image.units, "translate": image.origin}
    arguments = {name: value for name, value in arguments.items() if value is not None}
    return viewer.add_image(image.array, name=mask_stem(path), rgb=is_rgb, **arguments)
