"""The picture of a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from napari_saf.io import ImageFile, atomic_write, middle_plane, show_image
from napari_saf.result import Segmentation

__all__ = ["save_run_figure"]


def save_run_figure(path: Path, image: ImageFile, result: Segmentation, title: str) -> None:
    """Save image, labels, prototypes and entropy side by side as PNG.

    Parameters
    ----------
    path : Path
        Ends in ``.png``.
    image : ImageFile
        Grey or RGB, 2-D, or a stack, of which the middle plane is shown.
    result : Segmentation
        Of that image, with its intensities as features.
    title : str
        Words above the image.

    Raises
    ------
    SafError
        If the file cannot be written.
    """
    labels = np.asarray(result.labels)
    colours = _colours(result.prototypes)
    figure = Figure(figsize=(14, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 4)
    show_image(axes[0], middle_plane(image.array, labels.ndim), title)
    _show_labels(axes[1], middle_plane(labels, labels.ndim), colours, result.n_labels)
    _show_prototypes(axes[2], labels, colours)
    _show_entropy(axes[3], result)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")


def _colours(prototypes: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return a row of RGB for each prototype: its own colour, or grey by its first value."""
    points = np.clip(prototypes, 0, 1)
    return points if points.shape[1] == 3 else np.repeat(points[:, :1], 3, axis=1)


def _show_labels(
    axes: Axes, plane: NDArray[Any], colours: NDArray[np.floating], count: int
) -> None:
    table = np.vstack([np.zeros((1, 3)), colours])
    axes.imshow(table[plane])
    axes.set_title(f"{count} labels, colours of the prototypes")
    axes.set_axis_off()


def _show_prototypes(axes: Axes, labels: NDArray[Any], colours: NDArray[np.floating]) -> None:
    shares = np.bincount(labels.ravel(), minlength=len(colours) + 1)[1:] / labels.size
    positions = np.arange(1, len(colours) + 1)
    axes.barh(positions, 100 * shares, color=colours, edgecolor="0.5", height=0.9)
    axes.set(xlabel="share of the pixels (%)", ylabel="label", title="prototypes")
    axes.set_yticks(positions)
    axes.invert_yaxis()


def _show_entropy(axes: Axes, result: Segmentation) -> None:
    axes.semilogy(result.history.time, result.history.entropy)
    axes.set(xlabel="flow time", ylabel="mean entropy (nats)", title="certainty of the labels")
