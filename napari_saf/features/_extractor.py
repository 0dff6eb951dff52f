"""What makes features of the pixels of images: the protocol of all of them."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from napari_saf.parameters import check_bounds, to_plain

Image = NDArray[np.float32]
Axes = Sequence[int] | None
Mask = NDArray[np.bool_] | None


@dataclasses.dataclass(frozen=True)
class FeatureExtractor(ABC):
    """What makes features of the pixels of an image; `FEATURES` has those with a name.

    A frozen dataclass of its parameters, fields that are made by `parameter`: form, options and
    recipe come from them.

    Attributes
    ----------
    name : str
        In options and recipes.
    title : str
        In forms.
    channels : int or None
        How many an image must have; None: any number.
    normalisation : {"fixed", "image"}
        Whether values depend on what is close to a pixel alone, so that any part of an image has
        the features that it has in the whole; or on all of the image.
    is_portable : bool
        Whether features of one image stand for the same in another.
    is_equivariant : bool
        Whether an image that is shifted, turned by a quarter or mirrored has its features shifted,
        turned or mirrored.

    Examples
    --------
    >>> class Gradient(saf.FeatureExtractor):
    ...     name = title = "gradient"
    ...     def features(self, image, axes=None, mask=None):
    ...         return np.hypot(*np.gradient(image[..., 0]))[..., None]
    >>> image = np.kron([[0.0, 1.0]], np.ones((8, 8)))
    >>> saf.Problem.from_image(image, features=Gradient()).features.shape
    (128, 1)
    """

    name: ClassVar[str]
    title: ClassVar[str]
    channels: ClassVar[int | None] = None
    normalisation: ClassVar[Literal["fixed", "image"]] = "fixed"
    is_portable: ClassVar[bool] = True
    is_equivariant: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    def receptive_field(self) -> int:
        """How many pixels away from a pixel its features look."""
        return 0

    @property
    def stride(self) -> int:
        """Pixels from one place where features are computed to the next.

        Parts of an image that begin at multiples of it have the features of the whole.
        """
        return 1

    @abstractmethod
    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        """Return the features (..., n_features) of an image (..., channels) in [0, 1].

        `axes` are those along which pixels are neighbours, by default all.
        """

    def refined(self, features: Image, average: Callable[[Image], Image]) -> Image:
        """Return features that follow the edges of an image; `average` takes means within them."""
        return features

    def fitted(self, images: Iterable[tuple[Image, Axes, Mask]]) -> Self:
        """Return the extractor with what it learns from images, for others to be described alike.

        `images` are the arguments of `features`.
        """
        return self

    def for_parts(self, images: Iterable[tuple[Image, Axes, Mask]]) -> Self:
        """Return the extractor that describes parts of a large image alike, as learned from some.

        `images` are as in `fitted`.
        """
        return self.fitted(images)

    def placed(self, start: Sequence[int], shape: Sequence[int]) -> Self:
        """Return what describes a part, from a first pixel on, of an image as in the whole."""
        return self

    def is_fit_of(self, other: FeatureExtractor) -> bool:
        """Return whether this is the other, or what it became by `fitted`."""
        return self == other

    def colours(self, points: NDArray[np.floating]) -> NDArray[np.floating] | None:
        """Return the colours (n_points, 3), 0 to 1, of features; None if they have none."""
        return None

    def channels_of(self, n_features: int) -> int | None:
        """Return how many channels an image has that has so many features, if that is known."""
        return self.channels

    def to_plain(self) -> str | dict[str, Any]:
        """Return what a recipe holds: the name, with the parameters if there are any."""
        own = to_plain(self)
        return {"kind": self.name, **own} if own else self.name
