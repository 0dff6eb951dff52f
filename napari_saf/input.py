"""Conversion of images to the nodes of a problem: options, scaling and features."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import JsonObject, as_whole, check_window
from napari_saf.device import raise_if_interrupted
from napari_saf.errors import InvalidInput
from napari_saf.features import (
    FEATURES,
    FeatureExtractor,
    Foreground,
    Ground,
    Pixels,
    Scaling,
    check_group_source,
    extractor_of,
    ground_of_looks,
    looked_at,
    middle_of,
    perceived,
    smoothed,
)
from napari_saf.graph import GridGraph, coarse_shape
from napari_saf.parameters import check_bounds, documented, from_plain, parameter

Weights = Literal["auto", "uniform", "nonlocal", "contrast"]
Place = tuple[Sequence[int], Sequence[int]]
"""First pixel of a part of an image, and the shape of the whole image."""
AUTO = "auto"
PLAIN: dict[str, Any] = {"features": "intensity", "weights": "uniform", "max_side": None}
"""Options that keep pixels unchanged, at full size."""
GIVEN_FEATURES = "array"
"""Marks features given as arrays; not a choice by name."""

_PATCH_RHO = 0.02
"""Bandwidth of the non-local weights, per value of a patch."""
_CONTRAST_RHO = 0.005
"""Bandwidth of the contrast weights, per value of a patch; tuned on photographs with strokes."""
_NOISE_DEVIATIONS = 3.0
"""Contrast counts beyond this number of standard deviations of the noise. 2 is as good for nuclei
and photographs with strokes, but leaves isolated pixels at a step in strong noise."""
_WIDE_WINDOW = 9
"""Window side from which contrast is computed with every second pixel, averaged with its neighbours
to include the pixels between: a quarter of the work, and with a side of 13 no loss of accuracy for
objects from strokes."""
_SMOOTHING = 0.5
"""Width of the Gaussian, over three pixels, that smooths images before such a subsampled window:
labels depend less on the first pixel, without loss of region overlap."""
_MOST_NEIGHBOURS = 256
"""Maximum number of subsampled pixels; above it, mainly in volumes, contrast is computed with every
third pixel or fewer: 125 for 343 with a side of 13, without loss of accuracy for objects."""


@documented
@dataclasses.dataclass(frozen=True, slots=True)
class ImageOptions:
    """Options of the conversion of images to a problem, as stored in recipes.

    The arguments of `Problem.from_image`, with ``"array"`` for given features and None for given
    groups. `rescale` means that `scaling` was computed from the image, so that other images are
    scaled by their own values.
    """

    # fmt: off
    features: str | FeatureExtractor = parameter(
        AUTO, label="Features", choices=(AUTO, *FEATURES),
        choice_labels={AUTO: "automatic"} | {name: entry.title for name, entry in FEATURES.items()},
        help="Features of a pixel; perceived colour is CIE L*a*b*.")
    window: int | tuple[int, ...] | Literal["auto"] = parameter(
        AUTO, label="Scale", minimum=1, step=2,
        help="Side of the averaging window in pixels, the scale (N).")
    weights: Weights = parameter(
        AUTO, label="Edges",
        choice_labels={AUTO: "automatic", "uniform": "ignored",
                       "nonlocal": "by texture", "contrast": "by colour"},
        help="Whether pixels of the window that lie across an edge count less: all alike, less "
        "where the texture around them differs, or less where their colour does (N).")
    channel_axis: int | None = parameter(
        None, label="Channel axis", none="none",
        help="The axis that holds channels, not space, if the file does not say it.")
    scaling: Scaling | None = parameter(
        None, label="Scaling", in_form=False,
        help="Values that become 0 and 1; by default the 0.1 and 99.9 percentiles.")
    groups: str | None = parameter(
        None, label="Groups", none="none",
        help="What each label should be spread over: the images, the slices along an axis, the "
        "pixels above a threshold in a channel (V).")
    max_side: int | Literal["auto"] | None = parameter(
        AUTO, label="Compute at", minimum=1, none="full size", choice_labels={AUTO: "automatic"},
        suggestions=(240, 480, 960),
        help="Compute at a reduced size, no side longer: faster, and the window reaches farther; "
        "labels still come out at the size of the image.")
    rescale: bool = parameter(
        False, label="Scale by itself", in_form=False,
        help="Whether another image is scaled by its own values.")
    full_resolution: bool = parameter(
        True, label="Full resolution",
        help="After labels at a reduced size, move their borders onto the edges of the image and "
        "label what is too small for that size.")
    # fmt: on

    def __post_init__(self) -> None:
        """Convert whole numbers given as floats, and a scaling given as two values."""
        for name in ("channel_axis", "max_side"):
            number = as_whole(getattr(self, name))
            object.__setattr__(self, name, getattr(self, name) if number is None else number)
        object.__setattr__(self, "window", _sides(self.window))
        object.__setattr__(self, "scaling", _scaling_of(self.scaling))
        made = self.extractor
        if made is None and self.features not in (AUTO, GIVEN_FEATURES):
            expected = ", ".join((AUTO, *FEATURES))
            raise InvalidInput(f"features: expected {expected} or an array, got {self.features!r}")
        if made is not None:  # by name if it has default parameters
            plain = made.to_plain()
            is_known = isinstance(plain, str) and plain in FEATURES
            object.__setattr__(self, "features", plain if is_known else made)
        check_bounds(self)
        if self.groups is not None:
            check_group_source(self.groups)

    @property
    def extractor(self) -> FeatureExtractor | None:
        """The feature extractor; None for given or undecided features."""
        return extractor_of(self.features)

    @property
    def features_name(self) -> str:
        """The name of the features, one of the choices."""
        return self.features if isinstance(self.features, str) else self.features.name

    def averaged_axes(self, shape: Sequence[int]) -> list[int]:
        """Return the axes of an image without channels along which labels are averaged."""
        return _averaged_axes(self.window, shape)

    def for_others(self, scaling: bool | Scaling | None = None) -> ImageOptions:
        """Return the options for another image, scaled by its own values (True) or those given.

        False: by the stored scaling; None: according to `rescale`.
        """
        if not isinstance(scaling, Scaling):
            by_itself = self.rescale if scaling is None else scaling
            scaling = None if by_itself else self.scaling
        return dataclasses.replace(self, scaling=scaling, rescale=False)

    def resolve(
        self,
        shapes: Sequence[tuple[int, ...]],
        n_channels: int,
        axes: Sequence[int] | None = None,
        ground: Ground | None = None,
    ) -> ImageOptions:
        """Return the options with "auto" values resolved for images of these shapes.

        Shapes are without channels; `axes` are those along which labels are averaged, by default
        from the window. Planes are labelled by colour and texture, with contrast weights, at half
        their size if that leaves enough pixels; planes with objects on a `ground` (`ground_of`) by
        the difference from it, with a small window; other images by their values, at full size
        except for volumes and stacks of more than 4 million nodes. `benchmarks/defaults.py` and
        `benchmarks/first_click.py` measure the accuracy.
        """
        averaged = [
            _averaged_axes(self.window, shape) if axes is None else list(axes) for shape in shapes
        ]
        # Only a window of 1 fits an axis of 2 pixels, which is then not reduced.
        thin = {axis for axis in range(len(shapes[0])) if min(shape[axis] for shape in shapes) < 3}
        windowed = [[axis for axis in image if axis not in thin] for image in averaged]
        is_plane = all(len(image) == 2 for image in averaged)
        features: str | FeatureExtractor = "lab" if n_channels == 3 else "intensity"
        longest = max(
            (shape[k] for shape, image in zip(shapes, averaged, strict=True) for k in image),
            default=1,
        )
        max_side, side = None, _UNIFORM_SIDE
        if is_plane and ground is not None and self.features == AUTO:
            features, side = Foreground(ground), _SMALL_SIDE
            max_side = _MOST_SIDE if longest > _MOST_SIDE else None
        elif is_plane:
            features = "texture"
            half = min(max(longest // 2, _LEAST_SIDE), _MOST_SIDE)
            max_side = half if longest >= _FULL_BELOW else None
        for shape, image in zip(shapes, windowed, strict=True):
            most_side = max_side or longest
            n_nodes = math.prod(shape) * (min(most_side, longest) / longest) ** len(image)
            if image and n_nodes > _MOST_NODES:
                max_side = int(most_side * (_MOST_NODES / n_nodes) ** (1 / len(image)))
        weights: Weights = "contrast" if is_plane else "uniform"
        options = dataclasses.replace(
            self,
            features=features if self.features == AUTO else self.features,
            weights=weights if self.weights == AUTO else self.weights,
            max_side=max_side if self.max_side == AUTO else self.max_side,
        )
        if self.window != AUTO:
            return options
        if side == _UNIFORM_SIDE and options.weights == "contrast":
            side = _CONTRAST_SIDE
        return dataclasses.replace(options, window=_fitting_window(side, shapes, windowed, options))

    def arguments(self) -> dict[str, Any]:
        """Return the options as arguments of `Problem.from_image`."""
        names = {field.name for field in dataclasses.fields(self)} - {"rescale"}
        return {name: getattr(self, name) for name in names}

    def to_plain(self) -> JsonObject:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        scaling = None if self.scaling is None else dataclasses.asdict(self.scaling)
        features = self.features if self.extractor is None else self.extractor.to_plain()
        return values | {"features": features, "scaling": scaling}

    @classmethod
    def from_plain(cls, plain: object) -> ImageOptions:
        """Return the options that `to_plain` wrote; errors name an entry as ``input.NAME``."""
        # Files without this entry predate automatic choices.
        plain = {"window": 3} | PLAIN | plain if isinstance(plain, dict) else plain
        try:
            return from_plain(cls, plain, "input")
        except InvalidInput as error:
            text = str(error)
            raise InvalidInput(text if text.startswith("input") else f"input.{text}") from error


def _fitting_window(
    side: int,
    shapes: Sequence[tuple[int, ...]],
    axes: Sequence[Sequence[int]],
    options: ImageOptions,
) -> int | tuple[int, ...]:
    """Return a window of at most the given side that fits images at the size of the options."""
    for shape, image in zip(shapes, axes, strict=True):
        least_window = tuple(3 if axis in image else 1 for axis in range(len(shape)))
        most_side = max(shape) if options.max_side is None else int(options.max_side)
        small = coarse_shape(shape, most_side, least_window)
        least = min((small[axis] for axis in image), default=side)
        side = min(side, least - 1 + least % 2)
    shape, image = shapes[-1], axes[-1]
    if all(axis in image or n == 1 for axis, n in enumerate(shape)):
        return side
    return tuple(side if axis in image else 1 for axis in range(len(shape)))


def _sides(window: Any) -> Any:
    """Return a window as whole numbers, if possible."""
    try:
        array = np.asarray(window)
    except ValueError:
        return window
    sides = tuple(map(as_whole, array.ravel().tolist()))
    if array.ndim > 1 or None in sides:
        return window
    return sides if array.ndim else sides[0]


def _scaling_of(value: Any) -> Scaling | None:
    if value is None:
        return None
    if isinstance(value, Scaling):
        value = value.low, value.high
    if isinstance(value, dict) and set(value) == {"low", "high"}:  # from a file
        value = value["low"], value["high"]
    bounds = np.asarray(value) if isinstance(value, (Sequence, np.ndarray)) else np.empty(0)
    is_range = bounds.shape == (2,) and bounds.dtype.kind in "iuf" and np.isfinite(bounds).all()
    if not is_range or bounds[0] >= bounds[1]:
        raise InvalidInput(
            f"scaling: expected two increasing values, such as (0, 255), got {value!r}"
        )
    return Scaling.given(float(bounds[0]), float(bounds[1]))


def nodes_of(
    pixels: Sequence[Pixels],
    shapes: Sequence[tuple[int, ...]],
    options: ImageOptions,
    arrays: Sequence[NDArray[np.floating]] | None = None,
    noise: NDArray[np.float64] | None = None,
    origins: Sequence[Place] | None = None,
) -> tuple[list[GridGraph], list[NDArray[np.generic]], ImageOptions]:
    """Return grids of the shapes for images, the features of their nodes, and the extractor.

    The options must be resolved, with a scaling; features are the given `arrays` or computed.
    """
    scaling, extractor = options.scaling, None if arrays is not None else options.extractor
    assert scaling is not None
    # Edges and textures depend on the alignment of blocks. Colours do not, and strokes on
    # objects follow sharper edges further.
    is_smoothed = extractor is not None and extractor.receptive_field > 0

    @functools.lru_cache(maxsize=1)
    def scaled(k: int) -> tuple[NDArray[np.float32], list[int], NDArray[np.bool_] | None]:
        """Return an image at working size, the axes of its windows, and the mask."""
        image, small = scaling.apply_to(pixels[k], shapes[k], is_smoothed)
        return image, _averaged_axes(options.window, shapes[k]), small

    if extractor is not None:
        extractor = extractor.fitted(map(scaled, range(len(pixels))))
        options = dataclasses.replace(options, features=extractor)
    grids: list[GridGraph] = []
    rows: list[NDArray[np.generic]] = []
    for k in range(len(pixels)):
        image, axes, small = scaled(k)
        if arrays is None:
            assert extractor is not None
            placed = extractor if origins is None else extractor.placed(*origins[k])
            features = placed.features(image, axes, small)
        else:
            features = arrays[k]
        raise_if_interrupted()
        grid = _grid_of(image, small, options, noise)
        if extractor is not None and options.weights != "uniform":
            features = extractor.refined(features, partial(_average, grid))
        grids.append(grid)
        rows.append(grid.gather(features))
    return grids, rows, options


def survey_image(
    pixels: Pixels, options: ImageOptions, axes: Sequence[int] | None = None
) -> tuple[tuple[int, ...], ImageOptions, NDArray[np.float64]]:
    """Return the working shape, the resolved options, and sampled pixels of an image read in parts.

    Pixels have shape (n, channels); n is 0 if the options need no values of the image.
    `axes` as for `ImageOptions.resolve`.
    """
    ground, rows, shape = None, np.empty((0, pixels.n_channels)), pixels.shape
    survey = None
    if options.features == AUTO or options.scaling is None or options.groups is not None:
        survey = pixels.survey(looked_at(shape))
        rows = survey.rows
        if not survey.n_values:
            raise InvalidInput("mask: expected pixels to label, none of them is within it")
    if survey is not None and options.features == AUTO:
        middle = pixels.read(middle_of(shape))[0]
        ground = ground_of_looks([survey.look], [middle])
    options = options.resolve([shape], pixels.n_channels, axes, ground)
    if survey is not None and options.scaling is None:
        sample = survey.low, survey.high, survey.n_values, rows.ravel()
        options = dataclasses.replace(options, scaling=Scaling.between(*sample), rescale=True)
    return working_shape(shape, options), options, rows


def fitting_shape(
    shape: tuple[int, ...], options: ImageOptions, most: int
) -> tuple[tuple[int, ...], ImageOptions]:
    """Return the working shape, of at most `most` nodes if possible, and the options."""
    small = working_shape(shape, options)
    while math.prod(small) > most:
        axes = _averaged_axes(options.window, small)
        longest = max((small[axis] for axis in axes), default=1)
        share = (most / math.prod(small)) ** (1 / max(1, len(axes)))
        most_side = max(1, min(int(longest * share), longest - 1))
        fewer = dataclasses.replace(options, max_side=most_side)
        if working_shape(shape, fewer) == small:
            break
        small, options = working_shape(shape, fewer), fewer
    return small, options


def _average(grid: GridGraph, image: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the means over the windows of a grid, 0 outside its mask."""
    rows = np.asarray(grid.gather(image), np.float32)
    return np.asarray(grid.spread(grid.average(rows)), np.float32)


def contrast_noise(
    image: NDArray[np.generic], mask: NDArray[np.bool_] | None, options: ImageOptions
) -> NDArray[np.float64]:
    """Return the noise variances of an image for contrast weights.

    Channels are last; the options must be resolved, with a scaling.
    """
    assert options.scaling is not None
    scaled, _ = options.scaling.apply_to(Pixels.of(image, mask), image.shape[:-1])
    return _guide_and_noise(scaled, mask, options)[1]


def _guide_and_noise(
    scaled: NDArray[np.float32], mask: NDArray[np.bool_] | None, options: ImageOptions
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    window = check_window(options.window, scaled.shape[:-1])  # type: ignore[arg-type]
    if max(window) >= _WIDE_WINDOW:
        scaled = smoothed(scaled, [_SMOOTHING * (side > 1) for side in window], mask)
        raise_if_interrupted()
    guide = perceived(scaled)
    return guide, _noise_variances(guide, [side > 1 for side in window], mask)


def _grid_of(
    scaled: NDArray[np.float32],
    mask: NDArray[np.bool_] | None,
    options: ImageOptions,
    noise: NDArray[np.float64] | None,
) -> GridGraph:
    assert not isinstance(options.window, str)
    shape, n_channels = scaled.shape[:-1], scaled.shape[-1]
    if options.weights == "uniform":
        return GridGraph(shape, window=options.window, mask=mask)
    window, guide, noise_variance = check_window(options.window, shape), scaled, 0.0
    stride, patch = 1, (3,) * len(shape)
    rho = _PATCH_RHO * math.prod(patch) * n_channels
    if options.weights == "contrast":  # only contrast above the noise
        guide, noise_here = _guide_and_noise(scaled, mask, options)
        variances = noise_here if noise is None else noise
        stride = 1 if max(window) < _WIDE_WINDOW else 2
        while stride > 1 and (
            math.prod(side // 2 // stride * 2 + 1 for side in window) > _MOST_NEIGHBOURS
        ):
            stride += 1
        patch = tuple(3 if stride > 1 and side > 1 else 1 for side in window)
        # A squared difference of two noisy values has the variance 8 sigma^4.
        deviation = (8 * math.prod(patch) * np.square(variances).sum()) ** 0.5
        rho = _CONTRAST_RHO * math.prod(patch) + _NOISE_DEVIATIONS * deviation
        noise_variance = float(variances.sum())
    return GridGraph.nonlocal_means(
        guide,
        window=window,
        patch_size=patch,
        rho=rho,
        stride=stride,
        channel_axis=-1,
        mask=mask,
        noise_variance=noise_variance,
    )


def _noise_variances(
    image: NDArray[np.floating], along: Sequence[bool], mask: NDArray[np.bool_] | None
) -> NDArray[np.float64]:
    """Return the variance of the noise in each channel of an image, channels last.

    From second differences along some axes, which vanish in smooth areas: Immerkaer,
    https://doi.org/10.1006/cviu.1996.0060, with the median instead of the mean, which is robust
    to edges.
    """
    axes = [axis for axis, counts in enumerate(along) if counts and image.shape[axis] > 2]
    if not axes:
        return np.zeros(image.shape[-1])
    inner = tuple(slice(1, -1) if axis in axes else slice(None) for axis in range(len(along)))
    variances = []
    for channel in np.moveaxis(image, -1, 0):
        for axis in axes:
            channel = np.diff(channel, n=2, axis=axis)
            raise_if_interrupted()
        size = np.abs(channel if mask is None or not mask[inner].any() else channel[mask[inner]])
        # The median of |x| for a normal x is 0.6745 sigma; (1, -2, 1) has the norm sqrt(6).
        variances.append(float(np.median(size)) ** 2 / (0.6745**2 * 6 ** len(axes)))
    return np.array(variances)


def _averaged_axes(window: Any, shape: Sequence[int]) -> list[int]:
    """Return the axes of an image without channels along which labels are averaged."""
    sides = window if isinstance(window, tuple) and len(window) == len(shape) else (0,) * len(shape)
    return [axis for axis, side in enumerate(sides) if side != 1 and shape[axis] > 1]


_FULL_BELOW, _LEAST_SIDE, _MOST_SIDE = 400, 240, 640
"""Longest side from which planes are labelled at half size, and bounds of that half."""
_MOST_NODES = 2**22
"""Maximum number of nodes of volumes and stacks; a node takes 150 to 180 bytes."""
_CONTRAST_SIDE, _UNIFORM_SIDE, _SMALL_SIDE = 13, 3, 7


def working_shape(shape: tuple[int, ...], options: ImageOptions) -> tuple[int, ...]:
    """Return the shape at which an image is labelled, by resolved options."""
    assert not isinstance(options.window, str) and not isinstance(options.max_side, str)
    if options.max_side is not None:
        window = options.window if isinstance(options.window, tuple) else (options.window,)
        widths = window if len(window) == len(shape) else window[:1] * len(shape)
        shape = coarse_shape(shape, options.max_side, widths)
    check_window(options.window, shape)
    return shape
