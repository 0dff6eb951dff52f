"""What a dictionary makes of an image: computed in a thread, shown as three layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray

from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.layers.placement import Plane
from napari_saf._gui.layers.reading import read_pixels
from napari_saf.dictionary import PatchDictionary, PatchSegmentation
from napari_saf.result import LabelImage

__all__ = [
    "Applied",
    "Compared",
    "How",
    "apply_to_plane",
    "compare_on_plane",
    "create_difference_layer",
    "create_gain_layer",
    "create_partition_layer",
    "create_reconstruction_layer",
]

_PERCENTILE = 99.5
"""Of the errors; larger ones have the same colour."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class How:
    """The options of applying a dictionary."""

    window: int
    reconstruction: Any
    device: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Applied:
    """What comes of a dictionary on an image, as layers take it.

    Attributes
    ----------
    labels : array of unsigned int of shape (height, width)
    reconstruction : array
        In the values and with the axes of what was read of the image.
    difference : array of float32
        Image less reconstruction; of several channels the root of the sum of squares.
    limit : float
        What most differences are below.
    psnr : float
    usage : array of int of shape (n_atoms,)
    """

    labels: LabelImage
    reconstruction: NDArray[Any]
    difference: NDArray[np.float32]
    limit: float
    psnr: float
    usage: NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """What tells two dictionaries apart on an image.

    Attributes
    ----------
    gain : array of float32 of shape (height, width)
        Error of the other less error of this one: above 0 where this one is closer.
    limit : float
        What most sizes of the gain are below.
    psnr, other_psnr : float
    """

    gain: NDArray[np.float32]
    limit: float
    psnr: float
    other_psnr: float


def apply_to_plane(
    dictionary: PatchDictionary, plane: Plane, data: Any, how: How, cancelled: Callable[[], bool]
) -> Applied:
    """Apply a dictionary to the picture of a layer; `data` is what the layer holds.

    Raises
    ------
    Cancelled, InvalidInput, ComputeError
        As `PatchDictionary.apply`.
    """
    pixels = read_pixels(data, plane.index, cancelled)
    found = _apply(dictionary, plane, pixels, how, cancelled)
    made = found.reconstruction
    if pixels.dtype.kind in "iu":
        limits = np.iinfo(pixels.dtype)
        made = np.clip(np.round(made), limits.min, limits.max).astype(pixels.dtype)
    if pixels.ndim == 2:
        made = made.reshape(pixels.shape)
        difference = found.difference.reshape(pixels.shape)
    else:
        made = made if plane.channel_axis is None else np.moveaxis(made, -1, plane.channel_axis)
        difference = _size(found.difference)
    return Applied(found.labels, made, difference, _limit(difference), found.psnr, found.usage)


def compare_on_plane(
    one: PatchDictionary,
    other: PatchDictionary,
    plane: Plane,
    data: Any,
    how: How,
    cancelled: Callable[[], bool],
) -> Compared:
    """Apply two dictionaries to the picture of a layer and compare their errors.

    Raises
    ------
    Cancelled, InvalidInput, ComputeError
        As `PatchDictionary.apply`.
    """
    pixels = read_pixels(data, plane.index, cancelled)
    first = _apply(one, plane, pixels, how, cancelled)
    second = _apply(other, plane, pixels, how, cancelled)
    gain = np.asarray(_size(second.difference) - _size(first.difference))
    return Compared(gain, _limit(gain), first.psnr, second.psnr)


def create_reconstruction_layer(applied: Applied, plane: Plane) -> Image:
    """Return the layer of the image made anew, with the colours of the image."""
    image, shown = plane.layer, applied.reconstruction
    options: dict[str, Any] = {"name": f"{image.name} [reconstruction]", "metadata": _mark()}
    if image.rgb:
        shape = (*plane.placement.shape(shown.shape[:-1]), shown.shape[-1])
        return Image(shown.reshape(shape), rgb=True, **plane.placement.transform, **options)
    place = plane.placement_with_channels
    return Image(
        shown.reshape(place.shape(shown.shape)),
        colormap=image.colormap.name,
        contrast_limits=image.contrast_limits,
        **place.transform,
        **options,
    )


def create_difference_layer(applied: Applied, plane: Plane) -> Image:
    """Return the layer of the difference; green where the image is brighter than made anew."""
    is_signed = applied.difference.min(initial=0) < 0
    return Image(
        applied.difference.reshape(plane.placement.shape(applied.difference.shape)),
        name=f"{plane.layer.name} [difference]",
        colormap="PiYG" if is_signed else "magma",
        contrast_limits=(-applied.limit if is_signed else 0, applied.limit),
        visible=False,
        metadata=_mark(),
        **plane.placement.transform,
    )


def create_partition_layer(applied: Applied, plane: Plane) -> Labels:
    """Return the layer of labels."""
    return Labels(
        applied.labels.reshape(plane.placement.shape(applied.labels.shape)),
        name=f"{plane.layer.name} [partition]",
        visible=False,
        metadata=_mark(),
        **plane.placement.transform,
    )


def _mark() -> dict[str, Any]:
    """Return metadata that tell that a layer was computed here."""
    return {METADATA_KEY: {}}


def create_gain_layer(compared: Compared, plane: Plane) -> Image:
    """Return the layer of a comparison: green where this dictionary is closer."""
    return Image(
        compared.gain.reshape(plane.placement.shape(compared.gain.shape)),
        name=f"{plane.layer.name} [compared]",
        colormap="PiYG",
        contrast_limits=(-compared.limit, compared.limit),
        metadata=_mark(),
        **plane.placement.transform,
    )


def _apply(
    dictionary: PatchDictionary,
    plane: Plane,
    pixels: NDArray[Any],
    how: How,
    cancelled: Callable[[], bool],
) -> PatchSegmentation:
    return dictionary.apply(
        pixels,
        window=how.window,
        channel_axis=plane.channel_axis,
        reconstruction=how.reconstruction,
        device=how.device,
        cancelled=cancelled,
    )


def _size(difference: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the size of a difference at each pixel, over its channels."""
    if difference.ndim == 2:
        return np.asarray(np.abs(difference), dtype=np.float32)
    return np.asarray(np.linalg.norm(difference, axis=-1), dtype=np.float32)


def _limit(values: NDArray[np.floating]) -> float:
    """Return what most sizes are below, never 0."""
    return float(max(np.percentile(np.abs(values), _PERCENTILE), 1e-6))
