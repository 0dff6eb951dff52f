"""Result of strokes on one region of an image: labels, uncertainty and locked pixels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from napari_saf._gui.forms.choices import PlainValues
from napari_saf._gui.layers.live import LiveLayer, UncertaintyLayer
from napari_saf._gui.layers.metadata import FOLLOWED_KEY, metadata_of
from napari_saf._gui.layers.placement import Placement
from napari_saf._gui.layers.reading import Index
from napari_saf._gui.runs.run import WarmStart
from napari_saf.errors import InvalidInput
from napari_saf.io import count_labels
from napari_saf.problem import Problem
from napari_saf.result import LabelImage, Segmentation, Status

TITLE = "from strokes"
_RIM = 0.03
"""Width of the image margin, relative to its sides, where neighbourhoods are incomplete."""
_NEAR = 1e-3
"""Share of painted pixels in a neighbourhood above which its centre counts as painted."""


class StrokeResult:
    """The layers of the result of strokes on one region (`index`) of an image.

    `checksum` is that of the strokes of the last run; None if another run replaced it. `settings`
    are the values of its forms, None if unknown; `choice` is its automatic choice of settings,
    `summary` its final status, or what is missing; `shares` are those of the classes.
    """

    def __init__(
        self,
        viewer: napari.Viewer,
        image: Image,
        strokes: Labels,
        index: Index,
        placement: Placement,
    ) -> None:
        self.image, self.strokes, self.index = image, strokes, index
        self.live = LiveLayer(viewer, image, TITLE, placement, strokes)
        self.uncertainty = UncertaintyLayer(viewer, image, "uncertainty", placement, strokes)
        self.warm_start: WarmStart | None = None
        self.checksum: int | None = None
        self.settings: tuple[PlainValues, PlainValues] | None = None
        self.choice, self.summary, self.shares = "", "", dict[int, float]()
        self.last: tuple[Problem, Segmentation] | None = None
        self.has_labels = False
        self.locked: LabelImage | None = None  # 0 at free pixels

    def update(
        self, problem: Problem, result: Segmentation, numbers: NDArray[np.int64], summary: str
    ) -> None:
        """Store the outcome of a run on the classes `numbers`."""
        if result.status is not Status.CANCELLED:
            self.last, self.has_labels = (problem, result), True
            self.warm_start = WarmStart.after(problem, result, numbers, self.warm_start)
        self.summary, self.shares = summary, shares_of(np.asarray(result.labels))
        metadata_of(self.live.layer)[FOLLOWED_KEY] = self.checksum

    def clear(self, summary: str) -> None:
        self.summary, self.shares = summary, {}
        self.live.clear()
        self.uncertainty.hide()
        self.last, self.warm_start, self.has_labels = None, None, False

    def uncertainty_image(self) -> NDArray[np.floating]:
        assert self.last is not None
        problem, result = self.last
        assert result.uncertainty is not None
        return np.asarray(problem.graph.to_image(result.uncertainty))

    def show_uncertainty(self, visible: bool) -> None:
        if visible and self.last is not None:
            self.uncertainty.show(self.uncertainty_image())
        else:
            self.uncertainty.hide()

    def lock(self, numbers: Iterable[int]) -> None:
        """Lock the current pixels of these classes; unlock all others.

        Pixels of a class without any are locked after the first run that assigns some.
        """
        if not self.has_labels:
            return
        labels, previous = self.live.labels(), 0 if self.locked is None else self.locked
        locked = np.zeros_like(labels)
        for number in numbers:
            locked = np.where(labels == number, labels, locked)
        if (locked != previous).any():
            self.locked = locked if locked.any() else None
            self.warm_start = None  # it is of other pixels


def shares_of(labels: LabelImage) -> dict[int, float]:
    present, sizes = count_labels(labels)
    shares = (sizes / max(1, int(sizes.sum()))).tolist()
    return dict(zip(present.tolist(), shares, strict=True))


def follow_strokes(
    base: NDArray[np.unsignedinteger[Any]], strokes: NDArray[np.unsignedinteger[Any]]
) -> NDArray[np.int64]:
    """Return the labels of an earlier result, merged and split by strokes.

    A label painted with one class becomes that class; a label painted with several classes becomes
    0, to be divided between them; other labels are unchanged.
    """
    if base.shape != strokes.shape:
        of_base, of_strokes = (" x ".join(map(str, labels.shape)) for labels in (base, strokes))
        raise InvalidInput(
            f"start from: expected labels of {of_strokes} pixels, the shape of the strokes, "
            f"got {of_base}"
        )
    becomes = base.astype(np.int64)
    both = (base > 0) & (strokes > 0)
    for label in np.unique(base[both]):
        painted = np.unique(strokes[both & (base == label)])
        becomes[base == label] = painted[0] if len(painted) == 1 else 0
    return becomes


def most_uncertain_pixel(
    uncertainty: NDArray[np.floating], strokes: NDArray[np.unsignedinteger[Any]]
) -> tuple[int, ...] | None:
    """Return the index of the pixel with the most uncertain, unpainted neighbourhood.

    Pixels at the margin count only if all others are certain. None if nothing is uncertain.
    """
    sigma = [max(1.0, side / 100) if side > 1 else 0.0 for side in uncertainty.shape]
    around = gaussian_filter(np.asarray(uncertainty, dtype=np.float32), sigma)
    around[gaussian_filter((strokes > 0).astype(np.float32), sigma) > _NEAR] = 0
    rim = [round(_RIM * side) if side > 1 else 0 for side in around.shape]
    inner = tuple(slice(width, side - width) for width, side in zip(rim, around.shape, strict=True))
    if around[inner].any():
        interior, around = around[inner].copy(), np.zeros_like(around)
        around[inner] = interior
    best = int(around.argmax())
    if around.flat[best] <= 0:
        return None
    return tuple(int(at) for at in np.unravel_index(best, around.shape))
