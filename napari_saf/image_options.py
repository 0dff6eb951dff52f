"""How images become a problem: the choices that a recipe keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from napari_saf.arrays import as_whole
from napari_saf.errors import InvalidInput
from napari_saf.features import FEATURES, Scaling
from napari_saf.groups import check_group_source
from napari_saf.parameters import check_bounds, from_plain, parameter

__all__ = ["WEIGHTS", "ImageOptions"]

Weights = Literal["uniform", "nonlocal", "contrast"]
WEIGHTS: tuple[str, ...] = get_args(Weights)
_GIVEN = "array"
"""Stands for features that were given as arrays; nobody can choose it by name."""


@dataclasses.dataclass(frozen=True, slots=True)
class ImageOptions:
    """How images become a problem; with it a recipe does the same again.

    Parameters
    ----------
    features : str
        Name of the features, ``"array"`` for features that were given.
    window : int or tuple of int
        Odd side length of the averaging window.
    weights : {"uniform", "nonlocal", "contrast"}
        Weights within the window.
    channel_axis : int or None
        Axis of the channels; None if a last axis of 3 or 4 is RGB(A), others have none.
    scaling : (low, high) or Scaling or None
        Values that become 0 and 1; None: found from the image.
    groups : str or None
        What makes the groups, see `Problem.from_image`; None if there are none, or arrays.
    max_side : int or None
        Longest side at which to work; None: that of the image.
    rescale : bool
        Whether `scaling` was found from the image, so that any other image is scaled by its own
        values; False: others are scaled as this one.

    Raises
    ------
    InvalidInput
        If one is not among the choices or not a whole number.
    """

    features: str = parameter(
        "intensity",
        label="Features",
        help="What describes a pixel.",
        choices=tuple(FEATURES),
        words={
            "intensity": "intensity or colour",
            "lab": "perceived colour (L*a*b*)",
            "multiscale": "edges and texture",
            "position": "colour and position",
        },
    )
    window: int | tuple[int, ...] = parameter(
        3,
        label="Scale",
        help="Side of the averaging window in pixels, the scale (N).",
        minimum=1,
        step=2,
    )
    weights: Weights = parameter(
        "uniform",
        label="Neighbours",
        help="How much each pixel in the window counts (N).",
        words={
            "uniform": "all count alike",
            "nonlocal": "similar places more",
            "contrast": "similar pixels more",
        },
    )
    channel_axis: int | None = parameter(
        None,
        label="Channel axis",
        help="The axis that holds channels, not space, if the file does not say it.",
        none="none",
    )
    scaling: Scaling | None = parameter(
        None,
        label="Scaling",
        help="Values that become 0 and 1; by default the 0.1 and 99.9 percentiles.",
        in_form=False,
    )
    groups: str | None = parameter(
        None,
        label="Groups",
        help="What each label should be spread over: the images, the slices along an axis, the "
        "pixels above a threshold in a channel (V).",
        none="none",
    )
    max_side: int | None = parameter(
        None,
        label="Work at",
        help="Work at a reduced size, no side longer: faster, and the window reaches farther; "
        "labels still come out at the size of the image.",
        minimum=1,
        none="the size of the image",
    )
    rescale: bool = parameter(
        False,
        label="Scale by itself",
        help="Whether another image is scaled by its own values.",
        in_form=False,
    )

    def __post_init__(self) -> None:
        """Take whole numbers that are written as floats, and a scaling given by two values."""
        for name in ("channel_axis", "max_side"):
            number = as_whole(getattr(self, name))
            object.__setattr__(self, name, getattr(self, name) if number is None else number)
        object.__setattr__(self, "window", _sides(self.window))
        object.__setattr__(self, "scaling", _scaling_of(self.scaling))
        if not isinstance(self.features, str) or self.features not in (*FEATURES, _GIVEN):
            raise InvalidInput(
                f"features: expected {', '.join(FEATURES)} or an array, got {self.features!r}"
            )
        check_bounds(self)
        if self.groups is not None:
            check_group_source(self.groups)

    @classmethod
    def from_arguments(cls, features: object, groups: object, **others: Any) -> ImageOptions:
        """Return the options for arguments of `Problem.from_image`, some of which may be arrays.

        Raises
        ------
        InvalidInput
            As the constructor.
        """
        name = features if isinstance(features, str) else _GIVEN
        return cls(features=name, groups=groups if isinstance(groups, str) else None, **others)

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
            If an entry is unknown or malformed, as ``input.NAME``.
        """
        scaling = plain.get("scaling") if isinstance(plain, dict) else None
        if scaling is not None and (
            not isinstance(scaling, dict) or set(scaling) != {"low", "high"}
        ):
            raise InvalidInput(f"input.scaling: expected low and high, got {scaling!r}")
        if isinstance(plain, dict) and scaling is not None:
            plain = plain | {"scaling": (scaling["low"], scaling["high"])}
        try:
            return from_plain(cls, plain, "input")
        except InvalidInput as error:
            text = str(error)
            raise InvalidInput(text if text.startswith("input") else f"input.{text}") from error


def _sides(window: Any) -> Any:
    """Return a window as whole numbers, if it is like that."""
    try:
        given = np.asarray(window)
    except ValueError:
        return window
    sides = list(map(as_whole, given.ravel().tolist()))
    if given.ndim > 1 or None in sides:
        return window
    return tuple(sides) if given.ndim else sides[0]


def _scaling_of(given: Any) -> Scaling | None:
    if given is None:
        return None
    if isinstance(given, Scaling):
        return Scaling.given(given.low, given.high)
    bounds = np.asarray(given) if isinstance(given, (Sequence, np.ndarray)) else np.empty(0)
    is_range = bounds.shape == (2,) and bounds.dtype.kind in "iuf" and np.isfinite(bounds).all()
    if not is_range or bounds[0] >= bounds[1]:
        raise InvalidInput(
            f"scaling: expected the values that become 0 and 1, such as (0, 255), got {given!r}"
        )
    return Scaling.given(float(bounds[0]), float(bounds[1]))
