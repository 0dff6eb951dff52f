"""``napari-saf demo``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from napari_saf.cli._progress import run_with_progress
from napari_saf.io import ImageFile, make_folder, save_masks, save_recipe
from napari_saf.methods import SelfAssignmentFlow
from napari_saf.problem import Problem
from napari_saf.result import STATUS_WORDS, Segmentation
from napari_saf.samples import SAMPLES, read_sample

__all__ = ["command", "has_screen"]


@click.command("demo", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(path_type=Path),
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
    from napari_saf.cli._figure import save_run_figure

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
