"""What is done with all images of a project, in a thread: pictures, teaching, labels, masks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf._gui.layers.masks import large_levels
from napari_saf._gui.layers.placement import origin_of, scale_of, split_affine
from napari_saf._gui.session.layers import TAUGHT, Entry
from napari_saf.errors import Cancelled, InvalidInput, SafError
from napari_saf.features import is_rgb
from napari_saf.io import (
    MASK_MARK,
    ImageFile,
    ImageSource,
    PaintedClass,
    PrototypeSet,
    Steps,
    is_zarr,
    label_axes,
    mask_stem,
    read_image,
    save_masks,
)
from napari_saf.methods import AbstractMethod, run_to_end
from napari_saf.pipeline import Pipeline
from napari_saf.problem import ImageOptions
from napari_saf.project import (
    EncodedLabels,
    FileReference,
    Project,
    ProjectImage,
    ProjectLayer,
    content_digest,
    find_files,
    fit_jointly,
)
from napari_saf.storage import make_folder

Asked = Callable[[], bool]
Settings = tuple[AbstractMethod, ImageOptions]
_SIDE = 40
NO_PICTURE = np.zeros((0, 0, 3), np.uint8)
"""Of an image that cannot be read, or not soon."""
_MOST_BYTES = 2**27
"""Of files that are read for a picture in the list alone."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Work:
    """An image of the list, as it is saved, with its pixels where they are in memory alone."""

    entry: Entry
    image: ProjectImage
    pixels: Any = None

    def read(self) -> ImageFile:
        if self.pixels is not None:
            return ImageFile(np.asarray(self.pixels))
        assert self.entry.path is not None
        # As napari's own reader has shown it.
        return read_image(self.entry.path, upright=self.entry.reader != "napari")

    def layers(self, kind: str) -> list[ProjectLayer]:
        return [layer for layer in self.image.layers if layer.kind == kind]


def find_stores(image: ProjectImage, home: Path | None, **how: Any) -> list[Path]:
    """Return where labels of an image are that are too large to be kept, see `find_files`."""
    folders = [one for one in image.results if one.path.suffix == ".zarr"]
    found = (one.path for one in find_files(folders, home, **how))
    with suppress(SafError):  # what is damaged is no store
        return [path for path in found if path is not None and large_levels(path)]
    return []


def works_of(entries: Sequence[Entry], project: Project, pixels: Mapping[int, Any]) -> list[Work]:
    """Return the images that are at hand; of some the pixels, by number, are in memory alone."""
    pairs = zip(entries, project.images, strict=True)
    works = [Work(entry, image, pixels.get(k)) for k, (entry, image) in enumerate(pairs)]
    return [work for work in works if work.entry.state == "found"]


def picture(path: Path | None, cancelled: Asked) -> NDArray[np.uint8]:
    """Return a small picture (rows, columns, 3) of an image file."""
    if path is None or cancelled():
        return NO_PICTURE
    try:
        if is_zarr(path):
            pixels = np.asarray(ImageSource.open(path).levels()[-1])
        elif path.stat().st_size > _MOST_BYTES:
            return NO_PICTURE
        else:
            pixels = read_image(path).array
    except (SafError, OSError, MemoryError):
        return NO_PICTURE
    if pixels.ndim < 2:
        return NO_PICTURE
    n_before = pixels.ndim - (3 if is_rgb(pixels.shape) else 2)
    plane = np.atleast_3d(pixels[tuple(side // 2 for side in pixels.shape[:n_before])])
    step = max(1, max(plane.shape[:2]) // _SIDE)
    small = np.nan_to_num(plane[::step, ::step, :3].astype(np.float32))
    low, high = np.percentile(small, (1, 99))
    shown = np.clip((small - low) / max(high - low, 1e-12), 0, 1)
    return np.round(255 * np.broadcast_to(shown, (*shown.shape[:2], 3))).astype(np.uint8)


def teach(works: Sequence[Work], settings: Settings, cancelled: Asked) -> Pipeline | None:
    """Return what strokes on all images teach together; None where there are too few."""
    method, options = settings
    images, seeds = [], []
    classes = dict[int, PaintedClass]()
    for work in works:
        for layer in work.layers("strokes"):
            painted = layer.pixels.labels()
            if not len(painted):
                continue
            if cancelled():
                raise Cancelled
            pixels = work.read().array
            own, shape = layer.pixels.to_array(), layer.pixels.shape
            if len(shape) >= pixels.ndim:  # an axis of one pixel stands for all channels
                own = own.reshape([side for side in shape if side > 1])
            images.append(pixels)
            seeds.append(own)
            classes = dict(layer.classes) | classes
    if len({int(n) for one in seeds for n in np.unique(one) if n}) < 2:
        return None
    found = fit_jointly(images, seeds, method, options, cancelled=cancelled)
    known: dict[str, Any] = {
        "names": {n: one.name for n, one in classes.items() if one.name},
        "colors": {n: one.color for n, one in classes.items()},
    }
    taught = PrototypeSet.from_points(found.by_label(), options=found.options, **known)
    return Pipeline.from_prototypes(taught)


def label_all(
    settings: Settings,
    works: Sequence[Work],
    project: Project,
    report: Callable[[object], None],
    cancelled: Asked,
) -> tuple[int, list[str]]:
    """Label all images by what their strokes teach together, or the recipe where they are few.

    Report text and fraction, then the name of the recipe with it, and each image with its layer.
    Return how many were labelled, and what is to be said of others.
    """
    report(("learning from the strokes", 0.0))
    taught = teach(works, settings, cancelled)
    if taught is None and not project.recipes:
        raise InvalidInput("paint strokes of two classes on some image first")
    used = project.recipe if taught is None else taught
    name = next((own for own, one in project.recipes.items() if one is used), TAUGHT)
    report((name, used))
    n_done, notes = 0, list[str]()
    for k, work in enumerate(works):
        if cancelled():
            raise Cancelled
        if any(layer.is_edited for layer in work.layers("labels")):
            notes.append(f"{work.entry.name}: corrected by hand, left as it is")
            continue
        report((f"{k + 1} of {len(works)}: {work.entry.name}", k / len(works)))
        try:
            report((work.entry, label_image(used, work, name, cancelled)))
            n_done += 1
        except SafError as error:
            notes.append(f"{work.entry.name}: {error}")
    return n_done, notes


def label_image(pipeline: Pipeline, work: Work, name: str, cancelled: Asked) -> ProjectLayer:
    """Label an image as `Pipeline.run` does."""
    image = work.read()
    (labelling,) = run_to_end(pipeline.iterate([image], cancelled=cancelled))
    if labelling.is_cancelled:
        raise Cancelled
    taught, classes = pipeline.prototypes, dict[int, PaintedClass]()
    if taught is not None and pipeline.level is None:
        for n, color in taught.colors.items():
            red, green, blue = map(float, color[:3])
            classes[n] = PaintedClass(taught.names.get(n, ""), (red, green, blue))
    maker = name if name == TAUGHT else pipeline.for_others().method.name.upper()
    title = f"{mask_stem(work.entry.name)} [{maker}]"
    encoded = EncodedLabels.of(labelling.labels)
    known = {} if taught is None else taught.by_label()
    made = ProjectLayer("labels", title, encoded, classes, recipe=name, prototypes=known)
    return dataclasses.replace(made, level=pipeline.level, uncertainty=labelling.uncertain_share)


def export_all(
    folder: Path,
    works: Sequence[Work],
    project: Project,
    report: Callable[[object], None],
    cancelled: Asked,
) -> tuple[int, list[str]]:
    """Write the labels of each image that has some as a mask; report each image with its file.

    What is there already stays, unless it is as it was when this project wrote it.
    """
    n_done, notes, taken, left_out = 0, list[str](), set[str](), dict[str, None]()
    make_folder(folder)
    written = {one.path: one.digest for work in works for one in work.image.results}
    labelled = [(work, work.layers("labels")) for work in works if work.layers("labels")]
    for k, (work, layers) in enumerate(labelled):
        if cancelled():
            raise Cancelled
        layer = next((one for one in reversed(layers) if one.is_visible), layers[-1])
        stem, number = mask_stem(work.entry.name), 1
        while (name := f"{stem}{f'-{number}' if number > 1 else ''}{MASK_MARK}.tif") in taken:
            number += 1
        taken.add(name)
        report((f"{k + 1} of {len(labelled)}: {name}", k / len(labelled)))
        try:
            path = folder.absolute() / name
            if path.exists() and written.get(path) != content_digest(path):
                raise InvalidInput(f"{name} is there already, choose another folder")
            file, words = _save(path, layer, work.image, project.recipes)
            report((work.entry, file))
            left_out |= dict.fromkeys(words)
            n_done += 1
        except SafError as error:
            notes.append(f"{work.entry.name}: {error}")
    return n_done, [*notes, *[f".tif without {', '.join(left_out)}"] * bool(left_out)]


def _save(
    path: Path, layer: ProjectLayer, image: ProjectImage, recipes: Mapping[str, Pipeline]
) -> tuple[FileReference, tuple[str, ...]]:
    """Write the labels of a layer; return the file, and what of their place it does not hold."""
    recipe, points = recipes.get(layer.recipe), dict(layer.prototypes)
    classes = {n: one for n, one in layer.classes.items() if n > 0}
    labels = layer.pixels.to_array()
    alone = tuple(k for k in layer.place.get("singletons", ()) if labels.shape[k] == 1)
    kept = [k for k in range(labels.ndim) if k not in alone]
    lying = _lying(layer, image, kept)
    save_masks(
        path,
        np.squeeze(labels, axis=alone),
        **lying,
        names={n: one.name for n, one in classes.items() if one.name},
        colors={n: one.color for n, one in classes.items()},
        prototypes=PrototypeSet.from_points(points) if points else None,
        recipe=None if recipe is None else recipe.plain,
    )
    known = {name: lying.get(name) for name in ("scale", "units", "origin")}
    return FileReference.of(path), label_axes(len(kept), None, **known).left_out(path.suffix)


def _lying(layer: ProjectLayer, image: ProjectImage, kept: Sequence[int]) -> dict[str, Any]:
    """Return how some axes of a layer lie, as arguments of `save_masks`."""
    n_axes, n_image = len(layer.pixels.shape), len(image.units)
    axes = layer.place.get("axes") or range(n_image - n_axes, n_image)
    units = [image.units[axis] if 0 <= axis < n_image else "pixel" for axis in axes]
    affine = np.array(layer.affine or image.affine)
    if not layer.affine and len(affine) > max(axes, default=0) and min(axes, default=-1) >= 0:
        affine = affine[np.ix_([*axes, -1], [*axes, -1])]
    if len(affine) != n_axes + 1:  # of a file that did not hold it
        return {"scale": [abs(layer.scale[k]) for k in kept] if layer.scale else None}
    scale = np.abs(layer.scale) if layer.scale else np.array(Steps(affine[:-1, :-1]).sizes)
    place = split_affine(affine, scale, layer.translate or affine[:-1, -1])
    return {
        "scale": scale_of(affine, kept),
        "units": [units[k] for k in kept],
        "origin": origin_of(affine, kept),
        "place": {key: value.tolist() for key, value in place.items()}
        | {"shape": list(layer.pixels.shape), "units": units}
        | dict(layer.place),
    }
