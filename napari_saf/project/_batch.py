"""Operations on all images of a project: thumbnails, learning from strokes, labels, masks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.errors import Cancelled, InvalidInput, SafError, raise_if
from napari_saf.features import is_rgb
from napari_saf.io import (
    LABELS_MARK,
    ImageFile,
    ImageSource,
    PaintedClass,
    PrototypeSet,
    Steps,
    is_zarr,
    label_axes,
    mask_stem,
    origin_of,
    read_image,
    save_masks,
    scale_of,
    split_affine,
)
from napari_saf.methods import AbstractMethod, run_to_end
from napari_saf.pipeline import Pipeline
from napari_saf.problem import ImageOptions
from napari_saf.project._files import FileReference, content_digest
from napari_saf.project._model import TAUGHT, ImageEntry
from napari_saf.project._project import (
    EncodedLabels,
    Project,
    ProjectImage,
    ProjectLayer,
    fit_jointly,
    layers_digest,
)
from napari_saf.storage import make_folder

Report = Callable[[object], None]
IsCancelled = Callable[[], bool]
_SIDE = 40
NO_THUMBNAIL = np.zeros((0, 0, 3), np.uint8)
"""Placeholder thumbnail of an unreadable or large image."""
_MOST_BYTES = 2**27
"""Largest file, in bytes, that is read for a thumbnail."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ImageTask:
    """A saved image of a project, with its pixels if it has no file."""

    entry: ImageEntry
    image: ProjectImage
    pixels: Any = None

    def read(self) -> ImageFile:
        if self.pixels is not None:
            return ImageFile(np.asarray(self.pixels))
        assert self.entry.path is not None
        # As displayed by the reader of napari.
        return read_image(self.entry.path, upright=self.entry.reader != "napari")

    def layers(self, kind: str) -> list[ProjectLayer]:
        return [layer for layer in self.image.layers if layer.kind == kind]


def image_tasks(
    entries: Sequence[ImageEntry], project: Project, pixels: Mapping[int, Any]
) -> list[ImageTask]:
    """Return a task per existing image; `pixels` of images in memory are by image index."""
    pairs = zip(entries, project.images, strict=True)
    tasks = [ImageTask(entry, image, pixels.get(k)) for k, (entry, image) in enumerate(pairs)]
    return [task for task in tasks if task.entry.state == "found"]


def thumbnail_of(path: Path | None, cancelled: IsCancelled) -> NDArray[np.uint8]:
    """Return a thumbnail (rows, columns, 3) of an image file."""
    if path is None or cancelled():
        return NO_THUMBNAIL
    try:
        if is_zarr(path):
            pixels = np.asarray(ImageSource.open(path).levels()[-1])
        elif path.stat().st_size > _MOST_BYTES:
            return NO_THUMBNAIL
        else:
            pixels = read_image(path).array
    except (SafError, OSError, MemoryError):
        return NO_THUMBNAIL
    if pixels.ndim < 2:
        return NO_THUMBNAIL
    n_before = pixels.ndim - (3 if is_rgb(pixels.shape) else 2)
    plane = np.atleast_3d(pixels[tuple(side // 2 for side in pixels.shape[:n_before])])
    step = max(1, max(plane.shape[:2]) // _SIDE)
    small = np.nan_to_num(plane[::step, ::step, :3].astype(np.float32))
    low, high = np.percentile(small, (1, 99))
    scaled = np.clip((small - low) / max(high - low, 1e-12), 0, 1)
    return np.round(255 * np.broadcast_to(scaled, (*scaled.shape[:2], 3))).astype(np.uint8)


def learn_from_strokes(
    tasks: Sequence[ImageTask],
    method: AbstractMethod,
    options: ImageOptions,
    cancelled: IsCancelled,
) -> Pipeline | None:
    """Return a recipe learned from the strokes on all images; None for fewer than two classes."""
    images, seeds = [], []
    classes = dict[int, PaintedClass]()
    for task in tasks:
        for layer in task.layers("strokes"):
            if not len(layer.pixels.labels()):
                continue
            raise_if(cancelled)
            pixels = task.read().array
            strokes, shape = layer.pixels.to_array(), layer.pixels.shape
            if len(shape) >= pixels.ndim:  # an axis of length 1 stands for all channels
                strokes = strokes.reshape([side for side in shape if side > 1])
            images.append(pixels)
            seeds.append(strokes)
            classes = dict(layer.classes) | classes
    if len({int(label) for strokes in seeds for label in np.unique(strokes) if label}) < 2:
        return None
    learned = fit_jointly(images, seeds, method, options, cancelled=cancelled)
    return Pipeline.from_prototypes(
        PrototypeSet.from_points(
            learned.by_label(),
            options=learned.options,
            names={label: painted.name for label, painted in classes.items() if painted.name},
            colors={label: painted.color for label, painted in classes.items()},
        )
    )


def label_all(
    method: AbstractMethod,
    options: ImageOptions,
    tasks: Sequence[ImageTask],
    project: Project,
    report: Report,
    cancelled: IsCancelled,
) -> tuple[int, list[str]]:
    """Label all images by the prototypes of all strokes, or else by the project's recipe.

    Report messages with a completed fraction, the recipe with its name, and each entry with its
    layer. Return the number of labelled images, and notes on the others.
    """
    report(("learning from the strokes", 0.0))
    learned = learn_from_strokes(tasks, method, options, cancelled)
    if learned is None and not project.recipes:
        raise InvalidInput("paint strokes of two classes on some image first")
    recipe = project.recipe if learned is None else learned
    name = next((key for key, value in project.recipes.items() if value is recipe), TAUGHT)
    report((name, recipe))
    n_done, notes = 0, list[str]()
    for k, task in enumerate(tasks):
        raise_if(cancelled)
        if any(layer.is_edited for layer in task.layers("labels")):
            notes.append(f"{task.entry.name}: corrected by hand, left as it is")
            continue
        report((f"{k + 1} of {len(tasks)}: {task.entry.name}", k / len(tasks)))
        try:
            report((task.entry, label_image(recipe, task, name, cancelled)))
            n_done += 1
        except SafError as error:
            notes.append(f"{task.entry.name}: {error}")
    return n_done, notes


def label_image(
    recipe: Pipeline, task: ImageTask, name: str, cancelled: IsCancelled
) -> ProjectLayer:
    """Return the layer of an image labelled as by `Pipeline.run`."""
    (labelling,) = run_to_end(recipe.iterate([task.read()], cancelled=cancelled))
    if labelling.is_cancelled:
        raise Cancelled
    prototypes, classes = recipe.prototypes, dict[int, PaintedClass]()
    if prototypes is not None and recipe.level is None:
        for label, color in prototypes.colors.items():
            red, green, blue = map(float, color[:3])
            classes[label] = PaintedClass(prototypes.names.get(label, ""), (red, green, blue))
    maker = name if name == TAUGHT else recipe.for_others().method.name.upper()
    return ProjectLayer(
        "labels",
        f"{mask_stem(task.entry.name)} [{maker}]",
        EncodedLabels.of(labelling.labels),
        classes,
        recipe=name,
        prototypes={} if prototypes is None else prototypes.by_label(),
        level=recipe.level,
        uncertainty=labelling.uncertain_share,
    )


def export_all(
    folder: Path,
    tasks: Sequence[ImageTask],
    project: Project,
    report: Report,
    cancelled: IsCancelled,
) -> tuple[int, list[str]]:
    """Write the labels of all images as masks; report each entry with its file.

    An existing file is replaced only if it is unchanged since this project wrote it.
    """
    n_done, notes, names, left_out = 0, list[str](), set[str](), dict[str, None]()
    make_folder(folder)
    written = {file.path: file.digest for task in tasks for file in task.image.results}
    labelled = [(task, task.layers("labels")) for task in tasks if task.layers("labels")]
    for k, (task, layers) in enumerate(labelled):
        raise_if(cancelled)
        layer = next((layer for layer in reversed(layers) if layer.is_visible), layers[-1])
        stem, number = mask_stem(task.entry.name), 1
        while (name := f"{stem}{f'-{number}' if number > 1 else ''}{LABELS_MARK}.tif") in names:
            number += 1
        names.add(name)
        report((f"{k + 1} of {len(labelled)}: {name}", k / len(labelled)))
        try:
            path = folder.absolute() / name
            if path.exists() and written.get(path) != content_digest(path):
                raise InvalidInput(f"{name} is there already, choose another folder")
            lost = _save_mask(path, layer, task.image, project.recipes)
            exported = layers_digest((one.kind, one.pixels) for one in task.image.layers)
            report((task.entry, (FileReference.of(path), exported)))
            left_out |= dict.fromkeys(lost)
            n_done += 1
        except SafError as error:
            notes.append(f"{task.entry.name}: {error}")
    return n_done, [*notes, *[f".tif without {', '.join(left_out)}"] * bool(left_out)]


def _save_mask(
    path: Path, layer: ProjectLayer, image: ProjectImage, recipes: Mapping[str, Pipeline]
) -> tuple[str, ...]:
    """Write the labels of a layer; return properties of its axes that the file cannot store."""
    recipe, points = recipes.get(layer.recipe), dict(layer.prototypes)
    classes = {label: painted for label, painted in layer.classes.items() if label > 0}
    labels = layer.pixels.to_array()
    singletons = tuple(k for k in layer.place.get("singletons", ()) if labels.shape[k] == 1)
    axes = [k for k in range(labels.ndim) if k not in singletons]
    geometry = _geometry(layer, image, axes)
    save_masks(
        path,
        np.squeeze(labels, axis=singletons),
        **geometry,
        names={label: painted.name for label, painted in classes.items() if painted.name},
        colors={label: painted.color for label, painted in classes.items()},
        prototypes=PrototypeSet.from_points(points) if points else None,
        recipe=None if recipe is None else recipe.plain,
    )
    properties = {name: geometry.get(name) for name in ("scale", "units", "origin")}
    return label_axes(len(axes), None, **properties).left_out(path.suffix)


def _geometry(layer: ProjectLayer, image: ProjectImage, kept_axes: Sequence[int]) -> dict[str, Any]:
    """Return scale, units, origin and place of axes of a layer as arguments of `save_masks`."""
    n_axes, n_image = len(layer.pixels.shape), len(image.units)
    axes = layer.place.get("axes") or range(n_image - n_axes, n_image)
    units = [image.units[axis] if 0 <= axis < n_image else "pixel" for axis in axes]
    affine = np.array(layer.affine or image.affine)
    if not layer.affine and len(affine) > max(axes, default=0) and min(axes, default=-1) >= 0:
        affine = affine[np.ix_([*axes, -1], [*axes, -1])]
    if len(affine) != n_axes + 1:  # missing in the project file
        return {"scale": [abs(layer.scale[k]) for k in kept_axes] if layer.scale else None}
    scale = np.abs(layer.scale) if layer.scale else np.array(Steps(affine[:-1, :-1]).sizes)
    parts = split_affine(affine, scale, layer.translate or affine[:-1, -1])
    return {
        "scale": scale_of(affine, kept_axes),
        "units": [units[k] for k in kept_axes],
        "origin": origin_of(affine, kept_axes),
        "place": {name: part.tolist() for name, part in parts.items()}
        | {"shape": list(layer.pixels.shape), "units": units}
        | dict(layer.place),
    }
