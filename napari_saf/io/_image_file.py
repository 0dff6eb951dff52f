"""What reading an image from a file gives."""

from __future__ import annotations

import dataclasses
from typing import Any

from numpy.typing import NDArray

__all__ = ["ImageFile"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ImageFile:
    """An image as read from a file.

    Attributes
    ----------
    array : array
        The pixels; axes of length 1 beside y and x are left out, but for those of ``.npy``.
    channel_axis : int or None
        Axis of the channels; None if there are none.
    axes : str
        A lower-case letter for each axis, ``c`` for the channels.
    scale : tuple of float or None
        Size of a pixel along each axis except the channels; None if the file does not say.
    units : tuple of str or None
        Unit of each entry of `scale`; None if the file does not say.
    """

    array: NDArray[Any]
    channel_axis: int | None = None
    axes: str = ""
    scale: tuple[float, ...] | None = None
    units: tuple[str, ...] | None = None

    def without_single_planes(self) -> ImageFile:
        """Return the image without axes of length 1 beside y and x."""
        sides = zip(self.axes, self.array.shape, strict=True)
        kept = [k for k, (name, side) in enumerate(sides) if side > 1 or name in "yx"]
        axes = "".join(self.axes[k] for k in kept)
        spatial = [k - self.axes[:k].count("c") for k in kept if self.axes[k] != "c"]
        return ImageFile(
            self.array.reshape([self.array.shape[k] for k in kept]),
            axes.index("c") if "c" in axes else None,
            axes,
            self.scale and tuple(self.scale[k] for k in spatial),
            self.units and tuple(self.units[k] for k in spatial),
        )

    @property
    def stated_channel_axis(self) -> int | None:
        """The axis of channels, None also where it is the last of RGB(A), known by its length."""
        axis = self.channel_axis
        is_last = axis == self.array.ndim - 1 and self.array.shape[-1] in (3, 4)
        return None if is_last else axis

    @property
    def label_axes(self) -> str:
        """Letters of the axes that a label image of this image has."""
        return self.axes.replace("c", "")
