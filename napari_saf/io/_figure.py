"""Figures of label images: image and labels side by side, label names, a scale bar."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import as_labels, as_path
from napari_saf.errors import InvalidInput, counted
from napari_saf.features import Scaling
from napari_saf.io._labels import (
    Axes,
    color_labels,
    color_table,
    count_labels,
    image_channels,
    label_axes,
    map_labels,
)
from napari_saf.io._paths import FIGURE_SUFFIXES, check_suffix, printable
from napari_saf.result import LabelMap
from napari_saf.storage import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Panel
    from matplotlib.figure import Figure

_MOST_PIXELS = 1600
"""Maximum sides of a drawn plane in pixels; larger planes are subsampled."""
_MOST_ENTRIES = 24
_ENTRY_INCHES = 0.19
_PANEL_INCHES = 4.6
_NAMES_INCHES = 2.4
_TITLE_LETTERS = 36
"""Characters per line of a title; capitals then fill the width of the panel."""
_NAME_LETTERS = 28
"""Maximum characters of a name in the legend, to leave space for image and labels."""
_TITLE_INCHES = 0.2
_DPI = 150


def save_figure(
    path: str | os.PathLike[str],
    labels: ArrayLike,
    image: ArrayLike | None = None,
    *,
    scale: Sequence[float] | None = None,
    units: Sequence[str] | str | None = None,
    axes: str | None = None,
    names: Mapping[int, str] | None = None,
    colors: Mapping[int, Sequence[float]] | None = None,
    channel_axis: int | None = None,
    plane: Sequence[int] | None = None,
    title: str = "",
) -> Path:
    """Save image and labels side by side, with a legend and, if the scale is known, a scale bar.

    Parameters
    ----------
    path : path
        Ends in ``.png``, ``.svg`` or ``.pdf``.
    labels, scale, units, axes, names, colors
        As in `save_masks`.
    image : array, optional
        Image of the same spatial shape, with or without channels.
    channel_axis : int, optional
        Channel axis of the image; None: the last axis, if the image has one more than the labels.
    plane : sequence of int, optional
        Positions along the axes before the last two; by default the middle.
    title : str
        Text above the image.

    Raises
    ------
    InvalidInput
        If the suffix is unknown, or the image has another shape.
    SafError
        If the file cannot be written.

    Examples
    --------
    >>> labels = np.kron([[1, 2], [2, 3]], np.ones((16, 16), int))
    >>> saf.save_figure("figure.svg", labels, image=labels / 3, names={3: "core"}).name
    'figure.svg'
    """
    target, array = as_path(path), as_labels(labels, "labels")
    suffix = check_suffix(target, FIGURE_SUFFIXES)
    if array.ndim < 2:
        raise InvalidInput(f"labels: expected an image, got shape {array.shape}")
    placed = label_axes(array.ndim, axes, scale, units)
    index = tuple(side // 2 for side in array.shape[:-2]) if plane is None else tuple(plane)
    shown = None
    if image is not None:
        shown = displayed_plane(np.asarray(image), array, channel_axis, index)
    label_map, (_, sizes) = map_labels(array, names, colors), count_labels(array)
    figure = _draw(array[index], shown, label_map, placed, title)
    _draw_names(figure, label_map, sizes)
    with atomic_write(target) as temporary:
        figure.savefig(temporary, dpi=_DPI, format=suffix[1:])
    return target


def show_image(panel: Panel, plane: NDArray[Any], title: str) -> None:
    panel.imshow(plane, cmap="gray", interpolation="nearest")
    panel.set_title(textwrap.fill(printable(title), _TITLE_LETTERS), parse_math=False)
    panel.set_axis_off()


def displayed_plane(
    image: NDArray[Any], labels: NDArray[Any], channel_axis: int | None, index: tuple[int, ...]
) -> NDArray[Any]:
    """Return a plane of the image in [0, 1], grey or with up to three channels."""
    plane = thinned(image_channels(image, labels, channel_axis)[index])[..., :3]
    values = np.where(np.isfinite(plane), plane, 0) if plane.dtype.kind == "f" else plane
    if values.dtype == np.uint8 and values.shape[-1] == 3:
        return np.asarray(values)
    shown = np.full((*values.shape[:2], 3 if values.shape[-1] > 1 else 1), 0.5, np.float32)
    shown[..., values.shape[-1] :] = 0
    for k, channel in enumerate(np.moveaxis(values, -1, 0)):
        if channel.min() < channel.max():
            shown[..., k] = Scaling.of([channel]).apply(channel)
    return shown[..., 0] if shown.shape[-1] == 1 else shown


def thinned(plane: NDArray[Any]) -> NDArray[Any]:
    step = -(-max(plane.shape[:2]) // _MOST_PIXELS)
    return plane[::step, ::step]


def _draw(
    labels: NDArray[Any], image: NDArray[Any] | None, label_map: LabelMap, axes: Axes, title: str
) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure  # matplotlib takes half a second to load

    n_panels = 1 if image is None else 2
    # Physical sides, not numbers of pixels.
    sizes = [axes.scale.get(name, 1.0) for name in axes.names[-2:]]
    height, width = (side * size for side, size in zip(labels.shape, sizes, strict=True))
    above = _TITLE_INCHES * max(1, len(textwrap.wrap(title, _TITLE_LETTERS)))
    high = min(max(_PANEL_INCHES * height / width, 1.8), 8.0) + 0.3 + above
    figure = Figure((n_panels * _PANEL_INCHES + _NAMES_INCHES, high), layout="constrained")
    FigureCanvasAgg(figure)
    ratios = [_PANEL_INCHES] * n_panels + [_NAMES_INCHES]
    panels = figure.subplots(1, n_panels + 1, width_ratios=ratios, squeeze=False)[0]
    if image is not None:
        show_image(panels[0], image, title)
    count = counted(label_map.n_columns, "label")
    painted = color_labels(thinned(labels), label_map)
    show_image(panels[-2], painted, count if n_panels > 1 else title)
    for panel in panels[:-1]:
        panel.set_aspect(sizes[0] / sizes[1])
        # Centred, it would not leave enough space for the lines of the title.
        panel.set_anchor("N")
    _draw_bar(panels[0], labels, axes)
    return figure


def _draw_names(figure: Figure, label_map: LabelMap, sizes: NDArray[np.int64]) -> None:
    from matplotlib.patches import Patch

    panel = figure.axes[-1]
    panel.set_axis_off()
    colors, shares = color_table(label_map)[1:] / 255, 100 * sizes / max(1, int(sizes.sum()))
    rows = []
    # A longer legend would reduce the space of image and labels.
    n_lines = int(figure.get_figheight() / _ENTRY_INCHES) - 3
    for k in np.argsort(-sizes, kind="stable")[: min(_MOST_ENTRIES, n_lines)]:
        name = " ".join(label_map.names[int(label_map.numbers[k])].split())
        shown = name if len(name) <= _NAME_LETTERS else f"{name[: _NAME_LETTERS - 1]}…"
        text = f"{shown}   {shares[k]:.1f} %"
        rows.append(Patch(facecolor=colors[k], edgecolor="0.5", linewidth=0.5, label=text))
    if len(sizes) > len(rows):
        rows.append(Patch(facecolor="none", label=f"and {len(sizes) - len(rows)} more"))
    if rows:
        legend = panel.legend(
            handles=rows, loc="center left", frameon=False, borderaxespad=0, fontsize=9
        )
        for entry in legend.get_texts():
            entry.set_parse_math(False)


def _draw_bar(panel: Panel, labels: NDArray[Any], axes: Axes) -> None:
    """Draw a bar of 1, 2, 5, 10, 20, ... units, at most a fifth of the width."""
    from matplotlib.font_manager import FontProperties
    from mpl_toolkits.axes_grid1.anchored_artists import AnchoredSizeBar

    unit = axes.common_unit
    if not axes.scale or unit in (None, "", "px"):
        return
    size = axes.scale[axes.names[-1]]
    longest = labels.shape[1] * size / 5
    power = 10.0 ** np.floor(np.log10(longest))
    length = float(power * max(step for step in (1, 2, 5) if step * power <= longest * 1.000001))
    step = -(-max(labels.shape) // _MOST_PIXELS)
    span, height = length / size / step, 0.015 * labels.shape[0] / step
    style = {"pad": 0.3, "borderpad": 1, "color": "white", "fontproperties": FontProperties(size=9)}
    text, corner = f"{length:g} {unit}", "lower left"
    bar = AnchoredSizeBar(
        panel.transData, span, text, corner, size_vertical=height, label_top=True, **style
    )
    bar.patch.set(facecolor="black", alpha=0.5, linewidth=0)
    panel.add_artist(bar)
