"""Names and colours of labels; axes, pixel sizes and units of label images."""

from __future__ import annotations

import colorsys
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import as_dict, as_list, own_floats
from napari_saf.errors import InvalidInput
from napari_saf.features import channels_last
from napari_saf.io._paths import keeps_origin, printable
from napari_saf.result import Color, LabelMap

_GOLDEN = 0.618034
"""Hue step between consecutive labels, which keeps their hues far apart."""
_MOST_COUNTED = 2**24
_MOST_COLORS = 255
_BLEND, _SOLID, _MOST_BLENDS = 0.01, 4, 4
"""Detection of blends: maximum detour over the blend between two colours (RGB, 0 to 1), minimum
ratio of their frequencies to that of the blend, and maximum number of apparent blends."""
_PENCIL = "paint with a hard brush, without anti-aliasing, and save as PNG or TIFF"
_ORDER = "tzyx"
"""The axes of a label image in the order required by OME."""
_ORTHOGONAL = 1e-5
"""Maximum cosine between orthogonal axes; files store affines as float32."""
_ROUNDING = 1e-9
"""Tolerance for an affine to count as the identity."""
_SYMBOLS = {
    **{"picometer": "pm", "angstrom": "Å", "nanometer": "nm", "micrometer": "µm"},
    **{"millimeter": "mm", "centimeter": "cm", "meter": "m", "kilometer": "km"},
    **{"inch": "in", "foot": "ft", "millisecond": "ms", "second": "s", "minute": "min"},
    **{"microsecond": "µs", "nanosecond": "ns", "hour": "h", "day": "d"},
}
"""Full names of units for OME-Zarr; OME-TIFF uses symbols."""
_METERS = {
    **{"picometer": 1e-12, "angstrom": 1e-10, "nanometer": 1e-9, "micrometer": 1e-6},
    **{"millimeter": 1e-3, "centimeter": 1e-2, "inch": 0.0254, "foot": 0.3048, "meter": 1.0},
    "kilometer": 1e3,
}
_SPELLED_OUT = {symbol: name for name, symbol in _SYMBOLS.items()} | {
    **{"um": "micrometer", "micron": "micrometer", "microns": "micrometer", "pixels": "pixel"},
    **{"sec": "second", "msec": "millisecond", "usec": "microsecond", "hr": "hour"},
}


def count_labels(labels: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the labels above 0 in a label image, ascending, and the pixel count of each."""
    if labels.size and labels.min() >= 0 and labels.max() < _MOST_COUNTED:
        counts = np.bincount(labels.ravel())
        present = np.flatnonzero(counts)
        sizes = counts[present]
    else:
        present, sizes = np.unique(labels, return_counts=True)
    is_label = present > 0
    return present[is_label].astype(np.int64), sizes[is_label].astype(np.int64)


def image_channels(
    image: NDArray[Any], labels: NDArray[Any], channel_axis: int | None
) -> NDArray[Any]:
    """Return an image with its channels last, one channel if it has none; check its shape."""
    if channel_axis is None and image.ndim == labels.ndim + 1:
        channel_axis = -1
    channels = image[..., None] if channel_axis is None else channels_last(image, channel_axis)[0]
    if channels.shape[:-1] != labels.shape:
        raise InvalidInput(f"image: expected the shape {labels.shape}, got {image.shape}")
    return channels


def map_labels(
    labels: NDArray[Any],
    names: Mapping[int, str] | None = None,
    colors: Mapping[int, Sequence[float]] | None = None,
) -> LabelMap:
    """Return the labels above 0 of an image, ascending, each with a name and a colour.

    Missing names become ``"label 3"``, missing colours a distinct default.
    """
    colors_given = {} if colors is None else as_dict(colors, "colors")
    present, all_colors = count_labels(labels)[0], {}
    for n in present.tolist():
        color = (*colorsys.hsv_to_rgb(n * _GOLDEN % 1, 0.65, 0.95), 1.0)
        all_colors[n] = check_color(colors_given[n]) if n in colors_given else color
    return LabelMap(present, name_labels(present, names), all_colors)


def name_labels(labels: NDArray[np.int64], names: Mapping[int, str] | None) -> dict[int, str]:
    """Return the names of labels, with the defaults of `map_labels`."""
    texts = {} if names is None else as_dict(names, "names")
    full = {n: texts.get(n, f"label {n}") for n in labels.tolist()}
    return {n: printable(check_name(n, name)) for n, name in full.items()}


def check_name(label: int, name: object) -> str:
    """Return the stripped name of a label; raise InvalidInput if it is no text."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(f"names: expected a text for label {label}, got {name!r}")
    return name.strip()


def check_color(value: object) -> Color:
    """Return a colour with alpha 1; raise InvalidInput if it is invalid."""
    color = np.asarray(value)
    is_color = color.ndim == 1 and len(color) >= 3 and color.dtype.kind in "iuf"
    if not is_color or not ((color >= 0) & (color <= 1)).all():
        raise InvalidInput(f"colors: expected red, green, blue from 0 to 1, got {value!r:.60}")
    red, green, blue = map(float, color[:3])
    return red, green, blue, 1.0


def color_table(label_map: LabelMap) -> NDArray[np.uint8]:
    """Return the colours (n_columns + 1, 3) of a map from `map_labels`, after black."""
    colors = [label_map.colors[label][:3] for label in label_map.numbers.tolist()]
    return np.round(255 * np.array([(0.0, 0.0, 0.0), *colors])).astype(np.uint8)


def color_labels(labels: NDArray[Any], label_map: LabelMap) -> NDArray[np.uint8]:
    """Return an image (..., 3) in the colours of the labels, black for 0."""
    columns = np.searchsorted(label_map.numbers, labels.astype(np.int64)) + 1
    return np.asarray(color_table(label_map)[np.where(labels > 0, columns, 0)])


Scale = Sequence[float] | NDArray[np.floating[Any]]
"""Sizes of a pixel along each axis, or the columns of `Steps`."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """World displacement per pixel step along each axis, as columns (n_world, n_axes)."""

    columns: NDArray[np.floating[Any]]

    @property
    def sizes(self) -> tuple[float, ...]:
        """The size of a pixel along each axis."""
        if (np.count_nonzero(self.columns, axis=0) == 1).all():
            return tuple(map(float, np.abs(self.columns).sum(axis=0)))
        return tuple(float(f"{size:.12g}") for size in np.linalg.norm(self.columns, axis=0))

    @property
    def upright(self) -> NDArray[np.float64] | None:
        """The steps rotated to upper triangular form; None for orthogonal axes."""
        sizes = np.array(self.sizes)
        angles = self.columns.T @ self.columns / np.outer(sizes, sizes)
        if np.allclose(angles, np.eye(len(sizes)), rtol=0, atol=_ORTHOGONAL):
            return None
        try:
            return np.asarray(np.linalg.cholesky(angles).T * sizes)
        except np.linalg.LinAlgError as error:
            raise InvalidInput("scale: expected linearly independent columns") from error

    @property
    def beyond_sizes(self) -> tuple[str, ...]:
        """Names of the components beyond pixel sizes: rotation, reflection, shear."""
        upright, sizes = self.upright, np.array(self.sizes)
        turned = self.columns @ np.linalg.inv(np.diag(sizes) if upright is None else upright)
        order = np.abs(turned).argmax(axis=0)
        along = turned[order, range(len(sizes))]
        is_along = (np.abs(along) > 1 - _ORTHOGONAL**2).all() and (np.diff(order) > 0).all()
        n_turned = np.count_nonzero(along < 0)
        words = {
            "rotation": not is_along or n_turned in (2, 4),
            "reflection": is_along and n_turned in (1, 3),
            "shear": upright is not None,
        }
        return tuple(word for word, is_so in words.items() if is_so)


def scale_of(affine: NDArray[np.float64], axes: Sequence[int]) -> Scale:
    """Return the scale of axes of an affine: sizes, or `Steps.columns` if sizes do not suffice."""
    steps = Steps(affine[:-1, list(axes)])
    return steps.columns if steps.beyond_sizes else steps.sizes


def origin_of(affine: NDArray[np.float64], axes: Sequence[int]) -> tuple[float, ...]:
    """Return the world position of the first pixel along axes of an affine."""
    return tuple(map(float, affine[list(axes), -1]))


def split_affine(
    affine: NDArray[np.float64], scale: ArrayLike, translate: ArrayLike
) -> dict[str, NDArray[np.float64]]:
    """Return scale, translation and, unless it is the identity, the remaining affine."""
    sizes, shift = np.array(scale, float), np.array(translate, float)
    remainder = affine.copy()
    remainder[:-1, :-1] /= sizes
    remainder[:-1, -1] -= remainder[:-1, :-1] @ shift
    has_remainder = not np.allclose(remainder, np.eye(len(remainder)), rtol=0, atol=_ROUNDING)
    return {"scale": sizes, "translate": shift} | ({"affine": remainder} if has_remainder else {})


def labels_of_colors(
    pixels: NDArray[Any],
) -> tuple[NDArray[np.uint8], dict[int, tuple[float, float, float]]]:
    """Return labels for colours (..., 3 or 4), in the order of `read_labels`, and their colours.

    Raise InvalidInput for more than 255 colours, or blends of others.
    """
    if pixels.dtype not in (np.uint8, np.uint16) or pixels.shape[-1] not in (3, 4):
        got = f"{pixels.dtype} with {pixels.shape[-1]} channels"
        raise InvalidInput(f"expected whole numbers, or colours of 8 or 16 bits, got {got}")
    colors, inverse, sizes = _distinct(pixels)
    is_clear = colors[:, 3] < np.iinfo(pixels.dtype).max / 2
    scaled = colors[:, :3] / np.iinfo(pixels.dtype).max
    if len(colors) - is_clear.sum() > _MOST_COLORS + 1:
        raise InvalidInput(f"expected at most {_MOST_COLORS} colours, got {len(colors)}; {_PENCIL}")
    largest, is_black = int(sizes.argmax()), np.asarray(~scaled.any(axis=1))
    if is_clear.any():
        is_ground = is_clear
    elif is_black.any() and scaled[largest].min() < 1:
        is_ground = is_black
    else:
        is_ground = np.asarray(np.arange(len(colors)) == largest)
    values = scaled.tolist()
    order = sorted(np.flatnonzero(~is_ground).tolist(), key=lambda k: _hue_order(values[k]))
    table = np.zeros(len(colors), np.uint8)
    table[order] = np.arange(1, len(order) + 1)
    labels = table[inverse].reshape(pixels.shape[:-1])
    _check_blends(labels, np.concatenate([scaled[is_ground][:1], scaled[order]]))
    return labels, {n: tuple(values[k]) for n, k in enumerate(order, start=1)}


def spelled_colors(colors: Mapping[int, Sequence[float]]) -> str:
    """Return the label of each colour as text, such as ``#ff0000 is label 1``."""
    codes = {n: bytes(round(255 * value) for value in color).hex() for n, color in colors.items()}
    return ", ".join(f"#{code} is label {n}" for n, code in codes.items())


def _distinct(pixels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct colours with alpha, their index at each pixel, and pixel counts."""
    flat = pixels.reshape(-1, pixels.shape[-1])
    keys = np.zeros(len(flat), np.uint64)
    for channel in flat.T:
        keys = keys << np.uint64(16) | channel
    _, first, inverse, sizes = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    colors = flat[first]
    if colors.shape[1] < 4:
        colors = np.insert(colors, 3, np.iinfo(colors.dtype).max, axis=1)
    return colors, inverse, sizes


def _hue_order(color: Sequence[float]) -> tuple[float, ...]:
    hue, saturation, value = colorsys.rgb_to_hsv(*color)
    return (-1.0, value, 0.0) if not saturation else (hue, saturation, value)


def _check_blends(labels: NDArray[np.uint8], colors: NDArray[np.float64]) -> None:
    """Raise InvalidInput for labels with a colour between others and no block of 2 x 2 pixels."""
    is_block = (labels[..., 1:, 1:] == labels[..., :-1, :-1]) & (
        labels[..., 1:, :-1] == labels[..., :-1, 1:]
    )
    is_block &= labels[..., 1:, 1:] == labels[..., 1:, :-1]
    sizes = np.bincount(labels.ravel(), minlength=len(colors))
    is_thin = ~np.isin(np.arange(len(colors)), labels[..., 1:, 1:][is_block])
    n_blends = 0
    for k in np.flatnonzero(is_thin):
        solid = colors[sizes > _SOLID * sizes[k]]
        apart = np.linalg.norm(solid - colors[k], axis=1)
        between = apart[:, None] + apart - np.linalg.norm(solid[:, None] - solid, axis=2)
        n_blends += bool((between < _BLEND)[~np.eye(len(solid), dtype=bool)].any())
    if n_blends > _MOST_BLENDS:
        raise InvalidInput(f"{n_blends} of {len(colors)} colours are blends of others; {_PENCIL}")


@dataclasses.dataclass(frozen=True, slots=True)
class Axes:
    """The axes of a label image, with scale, units and origin if known.

    The steps describe rotated, reflected or sheared axes.
    """

    names: str  # letters in the order tzyx
    scale: dict[str, float]  # size of a pixel by letter
    units: dict[str, str]  # symbols by letter
    origin: dict[str, float] = dataclasses.field(default_factory=dict)  # of the first pixel
    steps: Steps | None = None

    def left_out(self, suffix: str) -> tuple[str, ...]:
        """Return properties that a format cannot store: "rotation", "shear", "origin"."""
        beyond = () if self.steps is None else self.steps.beyond_sizes
        return (*beyond, *["origin"] * (bool(self.origin) and not keeps_origin(suffix)))

    @property
    def of_frame(self) -> Axes:
        """The axes of one image of a series in time."""
        scale = {name: size for name, size in self.scale.items() if name != "t"}
        units = {name: unit for name, unit in self.units.items() if name != "t"}
        origin = {name: first for name, first in self.origin.items() if name != "t"}
        names = self.names.removeprefix("t")
        steps = None if self.steps is None else Steps(self.steps.columns[:, -len(names) :])
        return Axes(names, scale, units, origin, steps)

    @property
    def common_unit(self) -> str | None:
        """Symbol of the common unit of all axes; None if they differ.

        ``"px"`` for pixels, ``""`` for a scale of unknown unit.
        """
        symbols = set(self.units.values()) or {"pixel"}
        if not self.scale or symbols == {"pixel"}:
            return "" if set(self.scale.values()) - {1.0} else "px"
        return symbols.pop() if len(symbols) == 1 else None


def label_axes(
    n_axes: int,
    axes: str | None,
    scale: Scale | None,
    units: Sequence[str] | str | None,
    origin: Sequence[float] | None = None,
) -> Axes:
    """Check axes, scale, units and origin against the number of axes of a label image.

    Axes unknown to OME, or in another order, are renamed by position.
    """
    if not isinstance(axes, str | None):
        raise InvalidInput(f"axes: expected letters, got {axes!r}")
    units = [units] * n_axes if isinstance(units, str) else units
    steps = None
    if isinstance(scale, np.ndarray) and scale.ndim == 2:
        steps = Steps(own_floats(scale, "scale"))
        scale = steps.sizes
    sizes = None if scale is None else own_floats(as_list(scale, "scale"), "scale")
    unit_names = None if units is None else as_list(units, "units")
    first = None if origin is None else own_floats(as_list(origin, "origin"), "origin")
    by_argument = {"axes": axes, "scale": sizes, "units": unit_names, "origin": first}
    for argument, value in by_argument.items():
        if value is not None and len(value) != n_axes:
            plain = value.tolist() if isinstance(value, np.ndarray) else value
            raise InvalidInput(f"{argument}: expected {n_axes}, one for each axis, got {plain!r}")
    if sizes is not None and not (np.isfinite(sizes) & (sizes > 0)).all():
        raise InvalidInput(f"scale: expected sizes above 0, got {sizes.tolist()!r}")
    if first is not None and not np.isfinite(first).all():
        raise InvalidInput(f"origin: expected finite numbers, got {first.tolist()!r}")
    names = (axes or "").lower()
    if not names or names != "".join(name for name in _ORDER if name in names):
        names = _ORDER[-n_axes:]
    begin = () if first is None else first
    words = [spelled_out(str(unit)) for unit in unit_names or ()]
    return Axes(
        names,
        {} if sizes is None else dict(zip(names, map(float, sizes), strict=False)),
        {name: _SYMBOLS.get(word, word) for name, word in zip(names, words, strict=False)},
        {name: float(at) for name, at in zip(names, begin, strict=False) if at},
        steps,
    )


def in_unit_of_x(
    sizes: Mapping[str, tuple[float, str]], origin: Mapping[str, float]
) -> tuple[dict[str, tuple[float, str]], dict[str, float]]:
    """Return sizes of a pixel with their units, and origin, along z and y in the unit of x."""
    lengths, first = dict(sizes), dict(origin)
    of_x = lengths.get("x", (0.0, ""))[1]
    for name in [name for name in "zy" if name in sizes]:
        size, unit = sizes[name]
        factors = [_METERS.get(spelled_out(symbol)) for symbol in (unit, of_x)]
        if factors[0] and factors[1] and factors[0] != factors[1]:
            factor = factors[0] / factors[1]
            lengths[name] = (float(f"{size * factor:.12g}"), of_x)
            if name in first:
                first[name] *= factor
    return lengths, first


def spelled_out(unit: str) -> str:
    return _SPELLED_OUT.get(unit.replace("μ", "µ"), unit)  # a Greek mu, a micro sign


def check_vectors(vectors: ArrayLike) -> NDArray[np.float32]:
    """Return prototypes, a row each, or raise InvalidInput."""
    try:
        array = np.asarray(vectors)
    except ValueError as error:
        raise InvalidInput("prototypes: expected as many numbers each") from error
    if array.dtype.kind not in "biuf" or array.ndim != 2 or not array.size:
        got = f"{array.dtype} of shape {array.shape}"
        raise InvalidInput(f"prototypes: expected a row of numbers for each, got {got}")
    with np.errstate(over="ignore"):
        rows = array.astype(np.float32)
    if not np.isfinite(rows).all():
        raise InvalidInput("prototypes: expected finite numbers")
    return rows


def short_numbers(vectors: ArrayLike) -> list[list[float]]:
    """Return rows of the shortest decimals that are equal in float32."""
    return [[float(str(value)) for value in row] for row in np.asarray(vectors, np.float32)]
