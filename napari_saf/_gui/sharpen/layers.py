"""Sharpened labels of a layer: computed in a thread, written to the layer, and undone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from napari.layers import Labels
from numpy.typing import NDArray

from napari_saf._gui.layers import metadata
from napari_saf._gui.layers.placement import image_region
from napari_saf._gui.layers.reading import Pixels
from napari_saf.arrays import all_finite
from napari_saf.features import channels_last
from napari_saf.methods import Cancelled
from napari_saf.sharpening import sharpen_labels

MOST_UNDONE = 2**22
"""Maximum number of pixels in a step of napari's undo history, at about 30 bytes each."""
_KEPT = metadata.EDITED_KEY, metadata.EDITS_KEY, metadata.SOFT_KEY
_NO_LABELS = "no labels: run Segment, or open a Labels layer"
_NOT_IN_MEMORY = (
    "multiscale labels, or labels not in memory, cannot be sharpened here; use a terminal: "
    "napari-saf sharpen MASK IMAGE -o OUT"
)
_READ_ONLY = "these labels cannot be changed: duplicate the layer"
_NO_IMAGE = "open an image with the shape and scale of these labels"
Change = tuple[tuple[NDArray[np.int64], ...], NDArray[Any], NDArray[Any]]
"""Index of pixels of a layer, with their labels before and after."""


@dataclasses.dataclass(frozen=True)
class SharpenState:
    """Properties of labels and image that decide whether borders can be sharpened."""

    has_labels: bool = True
    are_strokes: bool = False
    is_in_memory: bool = True
    can_change: bool = True
    image_fits: bool = True

    @classmethod
    def of(cls, labels: Any, image: Any) -> SharpenState:
        if labels is None:
            return cls(has_labels=False)
        if labels.multiscale or type(labels.data) is not np.ndarray:
            return cls(are_strokes=metadata.is_strokes(labels), is_in_memory=False)
        return cls(
            are_strokes=metadata.is_strokes(labels),
            can_change=labels.data.flags.writeable,
            image_fits=image is not None and image_region(labels, image) is not None,
        )


def why_disabled(state: SharpenState) -> str:
    """Return why labels cannot be sharpened; empty if they can."""
    reasons = {
        _NO_LABELS: not state.has_labels,
        metadata.ARE_STROKES: state.are_strokes,
        _NOT_IN_MEMORY: not state.is_in_memory,
        _READ_ONLY: not state.can_change,
        _NO_IMAGE: not state.image_fits,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def sharpen_parts(
    labels: NDArray[Any],
    report: Callable[[object], None],
    cancelled: Callable[[], bool],
    *,
    shape: Sequence[int],
    image: Pixels,
    channel_axis: int | None,
    n_axes: int,
    reach: int | None,
    strength: float | None,
) -> NDArray[Any]:
    """Return labels sharpened plane by plane, or volume by volume, along the last `n_axes` axes.

    `shape` excludes axes that the image lacks. Pixels that are not finite keep their labels.
    """
    pixels, squeezed = image.read(cancelled), labels.reshape(shape)
    channels = pixels[..., None] if channel_axis is None else channels_last(pixels, channel_axis)[0]
    finite, sharpened = all_finite(channels), squeezed.copy()
    parts = [at for at in np.ndindex(squeezed.shape[:-n_axes]) if finite[at].any()]
    for k, at in enumerate(parts):
        if cancelled():
            raise Cancelled
        report((k / len(parts), f"sharpening, {k} of {len(parts)} done"))
        sharpened[at] = sharpen_labels(
            squeezed[at],
            channels[at],
            channel_axis=-1,
            mask=finite[at],
            reach=reach,
            strength=strength,
        )
    return sharpened.reshape(labels.shape)


class SharpenedLabels:
    """Changed pixels of a layer, with their labels before and after sharpening.

    The change is one step of napari's undo history, unless it is too large.
    """

    def __init__(self, layer: Labels) -> None:
        self.layer, self.words = layer, ""
        self._pixels: Any = layer.data
        nothing = np.zeros(0, self._pixels.dtype)
        self._change: Change = tuple(np.zeros((layer.ndim, 0), np.int64)), nothing, nothing
        self._kept: dict[str, object] = {}
        self._is_noted = self._is_undoable = False

    def _has(self, k: int) -> bool:
        index, labels, pixels = self._change[0], self._change[k], self._pixels
        return self.layer.data is pixels and all(  # compare a sample first, for speed
            (pixels[tuple(axis[::step] for axis in index)] == labels[::step]).all()
            for step in (1000, 1)
        )

    @property
    def is_shown(self) -> bool:
        """Whether the changed pixels have the sharpened labels."""
        return len(self._change[2]) > 0 and self._has(2)

    @property
    def is_known(self) -> bool:
        """Whether the changed pixels have the original or the sharpened labels."""
        return self._has(1) or self._has(2)

    def find_change(
        self,
        sharpen: Callable[..., NDArray[Any]],
        report: Callable[[object], None],
        cancelled: Callable[[], bool],
    ) -> Change:
        """Return the change of the original labels by `sharpen`, a bound `sharpen_parts`."""
        labels = np.array(self._pixels)
        if self.is_shown:
            labels[self._change[0]] = self._change[1]
        sharpened = sharpen(labels, report, cancelled)
        index = np.nonzero(labels != sharpened)
        return index, labels[index], sharpened[index]

    def show(self, change: Change, words: str) -> bool:
        """Apply a change to the original labels; return False if they were edited since."""
        self.take_back()
        index, old, new = change
        if self.layer.data is not self._pixels or not (self._pixels[index] == old).all():
            return False
        self._change, self.words = change, words
        entry = metadata.metadata_of(self.layer) or self.layer.metadata
        self._kept = {key: entry[key] for key in _KEPT if key in entry}
        if not self.layer.visible:  # not if visible already: setting it would reset the mode
            self.layer.visible = True
        self._assign(new)
        self.note()
        return True

    def take_back(self) -> None:
        """Restore the original labels of the layer."""
        if self.is_shown and self._is_undoable:
            self.layer.undo()
            if self.is_shown:
                self.layer.redo()  # the last step was a later stroke
                self._kept[metadata.EDITED_KEY] = True
        if self.is_shown:
            self._assign(self._change[1])
        self.note()

    def _assign(self, labels: NDArray[Any]) -> None:
        # napari may have no slice to write to in a hidden layer.
        self._is_undoable = len(labels) <= MOST_UNDONE and bool(self.layer.visible)
        if self._is_undoable:
            self.layer.data_setitem(self._change[0], labels, refresh=False)
        else:
            self._pixels[self._change[0]] = labels
        self.layer.refresh(extent=False)  # napari cannot draw parts of hidden slices

    def note(self) -> None:
        """Record the sharpening in the metadata of the layer, or remove the record if undone."""
        is_shown = self.is_shown
        if is_shown == self._is_noted or not self.is_known:
            return
        self._is_noted = is_shown
        entry = metadata.metadata_of(self.layer) or self.layer.metadata
        for key in _KEPT:
            entry.pop(key, None)
        entry.update(self._kept)
        if is_shown:
            entry.pop(metadata.SOFT_KEY, None)  # probabilities of the labels before
            edits = (*entry.get(metadata.EDITS_KEY, ()), self.words)
            entry.update({metadata.EDITED_KEY: True, metadata.EDITS_KEY: edits})
