"""Pixel descriptors, and the finest regions, which are labels cut by colour."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import (
    distance_transform_edt,
    gaussian_filter,
    gaussian_gradient_magnitude,
    maximum_filter,
    minimum_filter,
)
from scipy.spatial.distance import cdist
from skimage.color import rgb2lab
from skimage.measure import label as label_components

from napari_saf.arrays import Array, Float32s, Floats, Integers
from napari_saf.features import Scaling
from napari_saf.points import sampled_means

_SMOOTH, _AROUND, _WIDTHS = 1.5, 4.0, (1.5, 3.0, 6.0)
"""Gaussian widths in pixels: blur of colours, texture window, edge scales."""
ABSORBED = 0.15
"""Share of the least size below which components join the nearest one at once."""
MOST_COMPONENTS = 2000
_N_COLOURS, _BLUR, _LEAST_WIDTH = 8, 2.0, 7
"""Number of mean colours by which labels are cut, blur of the colours, and least piece width."""

Report = Callable[[float], object]


def ignore(share: float) -> None:
    """Discard a progress report."""


def describe(channels: Array, report: Report = ignore) -> tuple[list[Floats], Float32s]:
    """Return lightness, two colour axes and texture, and gradients (n_scales, *shape)."""
    finite = np.isfinite(channels)
    finite_values = channels if finite.all() else channels[finite]
    image = Scaling.of([finite_values]).apply(np.where(finite, channels, finite_values.min()))
    n_axes = image.ndim - 1
    report(0.03)
    if image.shape[-1] == 3:
        colour = rgb2lab(image) / 100
    else:
        light = image.mean(axis=-1, keepdims=True)
        chroma = (image - light).reshape(-1, image.shape[-1])
        n_axes_of_colour = min(2, chroma.shape[1] - 1)
        scores = chroma[:, :0]
        if n_axes_of_colour:
            from sklearn.decomposition import PCA  # takes half a second to load

            scores = PCA(n_axes_of_colour, random_state=0).fit_transform(chroma)
        scores = np.pad(scores, ((0, 0), (0, 2 - n_axes_of_colour)))
        colour = np.concatenate([light, scores.reshape(*image.shape[:-1], 2)], axis=-1)
    report(0.15)
    light = colour[..., 0]
    mean = gaussian_filter(light, _AROUND)
    variance = gaussian_filter(light**2, _AROUND) - mean**2
    texture = np.log(np.sqrt(np.maximum(variance, 0)) + 0.01)
    report(0.25)
    smooth = gaussian_filter(colour, (_SMOOTH,) * n_axes + (0,))
    differing = [plane for plane in np.moveaxis(colour, -1, 0) if plane.any()]  # one if grey
    sought = [(k, plane, width) for k, width in enumerate(_WIDTHS) for plane in differing]
    sought.append((len(_WIDTHS), texture, _AROUND))
    gradients = np.zeros((len(_WIDTHS) + 1, *light.shape), np.float32)
    for n, (k, plane, width) in enumerate(sought):
        report(0.3 + 0.7 * n / len(sought))
        gradients[k] += gaussian_gradient_magnitude(plane, width) ** 2
    for width, squares in zip((*_WIDTHS, _AROUND), gradients, strict=True):
        np.sqrt(squares, out=squares)
        squares *= width
    return [smooth[..., 0], smooth[..., 1], smooth[..., 2], texture], gradients


def cut_by_colour(labels: Integers, colours: Sequence[Floats], report: Report) -> NDArray[np.int32]:
    """Return components cut by nearest mean colour; narrow pieces join the nearest one."""
    components = np.asarray(label_components(labels, background=0, connectivity=1), dtype=np.int32)
    cut = components * np.int32(_N_COLOURS) + _nearest_means(labels, colours, report)
    is_wide = minimum_filter(cut, _LEAST_WIDTH) == maximum_filter(cut, _LEAST_WIDTH)
    report(0.7)
    if not is_wide.any():
        return components
    n_components = int(components.max()) + 1
    counts = np.bincount(cut[is_wide], minlength=_N_COLOURS * n_components)
    usual = np.arange(n_components, dtype=np.int32) * _N_COLOURS
    usual += counts.reshape(-1, _N_COLOURS).argmax(axis=1)
    nearest = distance_transform_edt(~is_wide, return_distances=False, return_indices=True)
    wide = cut[tuple(nearest)]
    return np.where(wide // _N_COLOURS == components, wide, usual[components]) * (components > 0)


def _nearest_means(
    labels: Integers, colours: Sequence[Floats], report: Report
) -> NDArray[np.int32]:
    blurred = np.stack([gaussian_filter(plane, _BLUR) for plane in colours], axis=-1)
    report(0.2)
    means = sampled_means(blurred[labels > 0], _N_COLOURS)
    indices = np.empty(labels.shape, np.int32)
    for k, (nearest, colour) in enumerate(zip(indices, blurred, strict=True)):
        report(0.2 + 0.4 * k / len(indices))
        apart = cdist(colour.reshape(-1, len(colours)), means, "sqeuclidean")
        nearest[...] = apart.argmin(axis=1).reshape(nearest.shape)
    return indices


def connected_components(labels: Integers, least: float) -> NDArray[np.int32]:
    """Return the largest components; those below `least` pixels join the nearest one."""
    components = np.asarray(label_components(labels, background=0, connectivity=1), dtype=np.int32)
    sizes = np.bincount(components.ravel())
    order = 1 + np.argsort(-sizes[1:], kind="stable")
    n_large = min(max(1, int((sizes[1:] >= least).sum())), MOST_COMPONENTS)
    small = np.ones(len(sizes), bool)
    small[order[:n_large]] = False
    if n_large < len(order):
        nearest = distance_transform_edt(
            small[components], return_distances=False, return_indices=True
        )
        components = np.where(components > 0, components[tuple(nearest)], 0)
    is_present = np.bincount(components.ravel()) > 0
    is_present[0] = False
    return np.asarray(is_present.cumsum(dtype=np.int32)[components])
