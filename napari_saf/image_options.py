"""How images become a problem: the choices that a recipe keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from napari_saf.arrays import as_whole
from napari_saf.errors import InvalidInput
from napari_saf.features import FEATURES, Scaling
from napari_saf.groups import check_group_source

__all__ = ["WEIGHTS", "ImageOptions", "check_options"]

WEIGHTS = ("uniform", "nonlocal", "contrast")


@dataclasses.dataclass(frozen=True, slots=True)
class ImageOptions:
    """How images became a problem; with it a recipe does the same again.

    Attributes
    ----------
    features : str
        Name of the features, ``"array"`` for features that were given.
    window : int or tuple of int
        Odd side length of the averaging window.
    weights : {"uniform", "nonlocal", "contrast"}
        Weights within the window.
    channel_axis : int or None
        Axis of the channels; None if a last axis of 3 or 4 is RGB(A), others have none.
    scaling : Scaling or None
        Values that became 0 and 1; None: found from the image.
    rescale : bool
        Whether `scaling` was found from the image, so that any other image is scaled by its own
        values; False: others are scaled as this one.
    groups : str or None
        What made the groups, see `Problem.from_image`; None if there are none, or arrays.
    max_side : int or None
        Longest side at which to work; None: that of the image.
    """

    features: str = "intensity"
    window: int | tuple[int, ...] = 3
    weights: str = "uniform"
    channel_axis: int | None = None
    scaling: Scaling | None = None
    groups: str | None = None
    max_side: int | None = None
    rescale: bool = False

    def for_others(self, rescale: bool | None = None) -> ImageOptions:
        """Return the options with which another image becomes a problem.

        Parameters
        ----------
        rescale : bool, optional
            Whether it is scaled by its own values; None: as `rescale` says.
        """
        by_itself = self.rescale if rescale is None else rescale
        return dataclasses.replace(self, scaling=None if by_itself else self.scaling, rescale=False)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments with which `Problem.from_image` does the same again."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "rescale"]
        return {name: getattr(self, name) for name in names}

    def to_plain(self) -> dict[str, Any]:
        """Return the options as values that JSON can hold."""
        return dataclasses.asdict(self)

    @classmethod
    def from_plain(cls, plain: object) -> ImageOptions:
        """Return the options that `to_plain` wrote.

        Raises
        ------
        InvalidInput
            If an entry is unknown or malformed.
        """
        if not isinstance(plain, dict):
            raise InvalidInput(f"input: expected an object, got {plain!r}")
        unknown = sorted(set(plain) - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise InvalidInput(f"input: unknown entry {unknown[0]!r}")
        entries = dict(plain)
        if isinstance(entries.get("window"), list):
            entries["window"] = tuple(entries["window"])
        scaling = entries.get("scaling")
        if scaling is not None:
            if not isinstance(scaling, dict) or set(scaling) != {"low", "high"}:
                raise InvalidInput(f"input.scaling: expected low and high, got {scaling!r}")
            entries["scaling"] = Scaling.given(
                float(scaling["low"]), float(scaling["high"]), "input.scaling"
            )
        return cls(**entries)


def check_options(
    features: object,
    window: object,
    weights: str,
    channel_axis: int | None,
    scaling: Any,
    groups: object,
    max_side: int | None,
) -> ImageOptions:
    """Return the arguments of `Problem.from_image` as options.

    Raises
    ------
    InvalidInput
        If one is not among the choices or not a whole number.
    """
    name = features if isinstance(features, str) else "array"
    if isinstance(features, str) and features not in FEATURES:
        raise InvalidInput(
            f"features: expected {', '.join(FEATURES)} or an array, got {features!r}"
        )
    if not isinstance(weights, str) or weights not in WEIGHTS:
        raise InvalidInput(f"weights: expected one of {', '.join(WEIGHTS)}, got {weights!r}")
    given = np.asarray(window)
    sides = [side for side in map(as_whole, given.ravel().tolist()) if side is not None]
    if given.ndim > 1 or len(sides) < given.size:
        raise InvalidInput(f"window: expected whole numbers, got {window!r}")
    if channel_axis is not None and as_whole(channel_axis) is None:
        raise InvalidInput(f"channel_axis: expected a whole number, got {channel_axis!r}")
    scaling = None if scaling is None else _scaling_of(scaling)
    if max_side is not None and (as_whole(max_side) or 0) < 1:
        raise InvalidInput(f"max_side: expected a whole number of 1 or more, got {max_side!r}")
    source = check_group_source(groups) if isinstance(groups, str) else None
    return ImageOptions(
        name,
        tuple(sides) if given.ndim else sides[0],
        weights,
        as_whole(channel_axis),
        scaling,
        source,
        as_whole(max_side),
    )


def _scaling_of(given: Any) -> Scaling:
    if isinstance(given, Scaling):
        return Scaling.given(given.low, given.high)
    bounds = np.asarray(given) if isinstance(given, (Sequence, np.ndarray)) else np.empty(0)
    is_range = bounds.shape == (2,) and bounds.dtype.kind in "iuf" and np.isfinite(bounds).all()
    if not is_range or bounds[0] >= bounds[1]:
        raise InvalidInput(
            f"scaling: expected the values that become 0 and 1, such as (0, 255), got {given!r}"
        )
    return Scaling.given(float(bounds[0]), float(bounds[1]))
