"""``napari-saf demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
from matplotlib.figure import Figure

from napari_saf import io
from napari_saf.cli import _methods as flags
from napari_saf.cli import has_screen, run_with_progress
from napari_saf.features import extractor_of
from napari_saf.methods import SelfAssignmentFlow
from napari_saf.problem import Problem
from napari_saf.result import STATUS_TEXTS, Segmentation
from napari_saf.samples import SAMPLES, read_sample
from napari_saf.storage import atomic_write, make_folder


@flags.command("demo", [
    flags.output("FOLDER", "Where mask, figure and recipe go.",
                 required=False, default="demo", show_default=True),
    click.Option(["--sample"], type=click.Choice(list(SAMPLES)), default="astronaut",
                 show_default=True, help="Which sample image."),
    click.Option(["--headless"], is_flag=True, help="Open no window, even if there is a screen."),
])  # fmt: skip
def demo(args: Any) -> None:
    """Label a sample image with the defaults and show what came out."""
    out, sample = args.out, args.sample
    make_folder(out)
    image = read_sample(sample)
    click.echo(f"{SAMPLES[sample].title}: {' × '.join(map(str, image.array.shape))}")
    steps = SelfAssignmentFlow().iterate(Problem.from_image(image.array))
    result = run_with_progress(steps, sample)
    click.echo(f"{result.n_labels} labels, {STATUS_TEXTS[result.status]}, {result.seconds:.1f} s")
    mask = out / f"{sample}_labels.tif"
    figure, recipe = out / f"{sample}.png", out / f"{sample}_labels.recipe.json"
    io.save_masks(mask, result.labels, scale=image.scale, units=image.units, axes=image.label_axes)
    save_run_figure(figure, image, result, SAMPLES[sample].title)
    io.save_recipe(recipe, result.recipe)
    click.echo(f"mask    {mask}\nfigure  {figure}\nrecipe  {recipe}")
    if args.headless or not has_screen():
        click.echo("no screen: napari stays closed")
        return
    try:
        from napari_saf._gui.demo import show
    except ImportError as error:
        click.echo(f"napari cannot be opened ({error}); pip install 'napari-saf[app]'", err=True)
        return
    show(image, result, sample)


def save_run_figure(path: Path, image: io.ImageFile, result: Segmentation, title: str) -> None:
    """Save image, labels, prototypes and entropy of the middle plane side by side as PNG."""
    labels, points = np.asarray(result.labels), result.prototypes
    extractor = extractor_of(result.recipe["input"]["features"])
    colours = None if extractor is None else extractor.colours(points)
    assert colours is not None
    figure = Figure(figsize=(14, 3.8), layout="constrained")
    original, labelled, prototypes, entropy = figure.subplots(1, 4)
    middle = tuple(side // 2 for side in labels.shape[:-2])
    io.show_image(original, image.array[middle], title)
    labelled.imshow(np.vstack([np.zeros((1, 3)), colours])[labels[middle]])
    labelled.set_title(f"{result.n_labels} labels, colours of the prototypes")
    labelled.set_axis_off()
    shares = np.bincount(labels.ravel(), minlength=len(colours) + 1)[1:] / labels.size
    positions = np.arange(1, len(colours) + 1)
    prototypes.barh(positions, 100 * shares, color=colours, edgecolor="0.5", height=0.9)
    prototypes.set(xlabel="share of the pixels (%)", ylabel="label", title="prototypes")
    prototypes.set_yticks(positions)
    prototypes.invert_yaxis()
    entropy.semilogy(result.history.time, result.history.entropy)
    entropy.set(xlabel="flow time", ylabel="mean entropy (nats)", title="certainty of the labels")
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")
