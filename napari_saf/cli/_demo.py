"""``napari-saf demo``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from napari_saf.cli._options import HELP_NAMES, PATH
from napari_saf.cli._progress import run_with_progress
from napari_saf.io import (
    ImageFile,
    atomic_write,
    make_folder,
    middle_plane,
    save_masks,
    save_recipe,
    show_image,
)
from napari_saf.methods import SelfAssignmentFlow
from napari_saf.problem import Problem
from napari_saf.result import STATUS_WORDS, Segmentation
from napari_saf.samples import SAMPLES, read_sample


@click.command("demo", context_settings=HELP_NAMES)
@click.option(
    "-o",
    "--output",
    "out",
    type=PATH,
    default="demo",
    show_default=True,
    metavar="FOLDER",
    help="Where mask, figure and recipe go.",
)
@click.option(
    "--sample",
    type=click.Choice(list(SAMPLES)),
    default="astronaut",
    show_default=True,
    help="Which sample image.",
)
@click.option("--headless", is_flag=True, help="Open no window, even if there is a screen.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def command(out: Path, sample: str, headless: bool) -> None:
    """Label a sample image with the defaults and show what came out."""
    image = read_sample(sample)
    click.echo(f"{SAMPLES[sample].title}: {' × '.join(map(str, image.array.shape))}")
    steps = SelfAssignmentFlow().iterate(Problem.from_image(image.array))
    result = run_with_progress(steps, sample)
    click.echo(f"{result.n_labels} labels, {STATUS_WORDS[result.status]}, {result.seconds:.1f} s")
    make_folder(out)
    mask = out / f"{sample}_labels.tif"
    figure, recipe = out / f"{sample}.png", out / f"{sample}_labels.recipe.json"
    save_masks(mask, result.labels, scale=image.scale, units=image.units, axes=image.label_axes)
    save_run_figure(figure, image, result, SAMPLES[sample].title)
    save_recipe(recipe, result.recipe)
    for words, path in (("mask", mask), ("figure", figure), ("recipe", recipe)):
        click.echo(f"{words:<7} {path}")
    if headless or not has_screen():
        click.echo("no screen: napari stays closed")
        return
    _open_napari(image, result, sample)


def has_screen() -> bool:
    """Tell whether a window can be opened."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _open_napari(image: ImageFile, result: Segmentation, name: str) -> None:
    try:
        from napari_saf._gui.demo import show
    except ImportError as error:
        click.echo(f"napari cannot be opened ({error}); pip install 'napari-saf[pyqt6]'", err=True)
        return
    show(image, result, name)


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
