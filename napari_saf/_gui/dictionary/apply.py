"""A dictionary applied to an image, compared with another, applied to a folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf._gui.layers.placement import Plane
from napari_saf._gui.layers.reading import read_pixels
from napari_saf.batch import DictionaryTask, ImageMeasures, Outcome, run_batch
from napari_saf.dictionary import PatchDictionary, PatchSegmentation
from napari_saf.io import find_images
from napari_saf.result import LabelImage

_PERCENTILE = 99.5
"""Of the errors; larger ones have the same colour."""
_MOST_NAMED = 3


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ApplyOptions:
    """The options of applying a dictionary."""

    window: int
    reconstruction: Any
    device: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Applied:
    """What a dictionary makes of an image, as layers take it.

    The reconstruction has the values and the axes of what was read of the image. The difference is
    image less reconstruction, of several channels the root of the sum of squares; most differences
    are below the limit. The usage is the pixels of each atom.
    """

    labels: LabelImage
    reconstruction: NDArray[Any]
    difference: NDArray[np.float32]
    limit: float
    psnr: float
    usage: NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """The comparison of two dictionaries on an image.

    The gain is the error of the other less that of this one: above 0 where this one is closer.
    Most sizes of the gain are below the limit.
    """

    gain: NDArray[np.float32]
    limit: float
    psnr: float
    other_psnr: float


def apply_to_plane(
    dictionary: PatchDictionary,
    plane: Plane,
    data: Any,
    options: ApplyOptions,
    cancelled: Callable[[], bool],
) -> Applied:
    """Apply a dictionary to the plane of a layer; `data` is what the layer holds."""
    pixels = read_pixels(data, plane.index, cancelled)
    found = _apply(dictionary, plane, pixels, options, cancelled)
    rebuilt = found.reconstruction
    if pixels.dtype.kind in "iu":
        limits = np.iinfo(pixels.dtype)
        rebuilt = np.clip(np.round(rebuilt), limits.min, limits.max).astype(pixels.dtype)
    if pixels.ndim == 2:
        rebuilt = rebuilt.reshape(pixels.shape)
        difference = found.difference.reshape(pixels.shape)
    else:
        if plane.channel_axis is not None:
            rebuilt = np.moveaxis(rebuilt, -1, plane.channel_axis)
        difference = _norm(found.difference)
    return Applied(found.labels, rebuilt, difference, _limit(difference), found.psnr, found.usage)


def compare_on_plane(
    dictionaries: tuple[PatchDictionary, PatchDictionary],
    plane: Plane,
    data: Any,
    options: ApplyOptions,
    cancelled: Callable[[], bool],
) -> Compared:
    """Apply two dictionaries to the plane of a layer and compare their errors."""
    pixels = read_pixels(data, plane.index, cancelled)
    one, other = (_apply(own, plane, pixels, options, cancelled) for own in dictionaries)
    gain = np.asarray(_norm(other.difference) - _norm(one.difference))
    return Compared(gain, _limit(gain), one.psnr, other.psnr)


def _apply(
    dictionary: PatchDictionary,
    plane: Plane,
    pixels: NDArray[Any],
    options: ApplyOptions,
    cancelled: Callable[[], bool],
) -> PatchSegmentation:
    return dictionary.apply(
        pixels,
        window=options.window,
        channel_axis=plane.channel_axis,
        reconstruction=options.reconstruction,
        device=options.device,
        cancelled=cancelled,
    )


def _norm(difference: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the size of a difference at each pixel, over its channels."""
    if difference.ndim == 2:
        return np.asarray(np.abs(difference), dtype=np.float32)
    return np.asarray(np.linalg.norm(difference, axis=-1), dtype=np.float32)


def _limit(values: NDArray[np.floating]) -> float:
    """Return what most sizes are below, above 0."""
    return float(max(np.percentile(np.abs(values), _PERCENTILE), 1e-6))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class FolderSummary:
    """The outcomes of the images of a folder that were reached, and how many there are."""

    outcomes: tuple[Outcome[ImageMeasures], ...]
    n_images: int

    def of(self, state: str) -> list[Outcome[ImageMeasures]]:
        return [outcome for outcome in self.outcomes if outcome.state == state]

    @property
    def text(self) -> str:
        """The summary as text, with the names of images that failed."""
        done, skipped, failed = (self.of(state) for state in ("done", "skipped", "failed"))
        lines = [f"{len(done)} of {self.n_images} images done"]
        psnrs = [outcome.result.psnr for outcome in done if outcome.result is not None]
        if psnrs:
            lines[0] += f", {sum(psnrs) / len(psnrs):.1f} dB on average"
        if skipped:
            lines.append(f"{len(skipped)} skipped: results were there")
        if len(self.outcomes) < self.n_images:
            lines.append(f"stopped, {self.n_images - len(self.outcomes)} left")
        if failed:
            named = ", ".join(outcome.job.title for outcome in failed[:_MOST_NAMED])
            more = f" and {len(failed) - _MOST_NAMED} more" if len(failed) > _MOST_NAMED else ""
            lines.append(f"failed: {named}{more} ({failed[0].error})")
        return "\n".join(lines)


def apply_to_folder(
    dictionary: PatchDictionary,
    folders: tuple[Path, Path],
    options: ApplyOptions,
    overwrite: bool,
    report: Callable[[object], None],
    cancelled: Callable[[], bool],
) -> FolderSummary:
    """Apply a dictionary to the images of one folder; report a fraction and a text."""
    source, results = folders
    paths = find_images([source])
    report((0.0, f"0 of {len(paths)}"))
    task = DictionaryTask(
        dictionary=dictionary,
        folder=results,
        window=options.window,
        reconstruction=options.reconstruction,
        device=options.device,
        overwrite=overwrite,
    )
    outcomes: list[Outcome[ImageMeasures]] = []
    for outcome in run_batch(task, task.plan(paths), cancelled=cancelled):
        outcomes.append(outcome)
        text = f"{len(outcomes)} of {len(paths)}: {outcome.job.title} {outcome.state}"
        report((len(outcomes) / len(paths), text))
    return FolderSummary(tuple(outcomes), len(paths))
