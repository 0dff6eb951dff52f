"""``napari-saf segment``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import click
import numpy as np

from napari_saf import io
from napari_saf.batch import Job, LabelTask, plan_jobs
from napari_saf.cli import _methods as flags
from napari_saf.cli._large import JOBS, SCHEDULER, TILES, tiles_of
from napari_saf.cli._run import FORMAT, SCALING, run_jobs
from napari_saf.errors import FormatError
from napari_saf.methods import METHODS, AbstractMethod, choose_for_strokes
from napari_saf.objects import ObjectStep
from napari_saf.pipeline import Pipeline, load_recipe
from napari_saf.problem import ImageOptions
from napari_saf.regions import USUAL_LEVEL
from napari_saf.strategies import Strategy, refusal

_CAUTIONS = [f"{name}: {m.caution.reason}" for name, m in METHODS.items() if m.caution]
_OPTIONS = [
    flags.IMAGES,
    flags.output("OUT", f"A mask ({', '.join(io.MASK_SUFFIXES)}) for one image, or a folder."),
    click.Option(
        ["--method"],
        type=click.Choice(list(METHODS)),
        help=" ".join(["Method. [default: saf; af with --seeds, see --choose]", *_CAUTIONS]),
    ),
    *flags.image_options("features", "window", "weights", "channel_axis"),
    SCALING,
    *flags.image_options("max_side", "full_resolution", "mask", "no_data", "seeds", "groups"),
    click.Option(["--choose"], is_flag=True,
                 help="Let the seeds choose features, scale and how far they reach (saf.choose_for_"
                 "strokes), with the method af, as the Scribbles dock does: what --seeds do unless "
                 "--method, --recipe or --prototypes is given. Options given beside it take "
                 "precedence."),
    click.Option(["--together"], is_flag=True,
                 help="One set of labels for all images, instead of each by itself."),
    click.Option(["--regions", "level"], is_flag=False, flag_value=str(USUAL_LEVEL),
                 type=flags.ParameterValue(["level"], optional=True), metavar="[LEVEL|none]",
                 help="Numbered regions in place of labels: parts of labels cut by colour, merged "
                 f"up to a level from 0, many, to 1, few; {USUAL_LEVEL} where no level follows."),
    click.Option(["--objects"], is_flag=True,
                 help="Beside each mask the numbers of single objects and a table of what they "
                 "measure, split where they touch; a recipe may say so, too."),
    *flags.step_options(ObjectStep, "object_", without=["by_slice"]),
    *flags.PROBABILITIES,
    click.Option(["--recipe"], type=flags.PATH, metavar="FILE",
                 help="Repeat what a recipe says; options given beside it take precedence."),
    FORMAT,
    flags.overwrite("masks and recipes that are there"),
    JOBS,
    *TILES,
    SCHEDULER,
]  # fmt: skip


@flags.command("segment", flags.method_options(_OPTIONS))
def segment(given: Any) -> int:
    """Label images.

    Beside each mask goes a recipe that repeats it; a mask whose recipe says the same is not made
    again, so that a run that was stopped goes on. A large image is labelled in tiles, into a
    pyramid that holds its recipe.
    """
    paths = io.find_images(given.images)
    tiles = tiles_of(given)
    if given.together and tiles == "all":
        raise click.UsageError(str(refusal(Strategy.TILES_ON_DISK, "together")))
    own = {"suffix": given.suffix, "together": given.together}
    jobs = plan_jobs(paths, given.out, tiles=tiles, **own)
    return run_jobs(_task(given, jobs), jobs, given)


def _task(given: Any, jobs: list[Job]) -> LabelTask:
    """Return what is done with every image: as a recipe says, but for what is given."""
    values, paths = vars(given), [path for job in jobs for path in job.images]
    parameters = flags.given_parameters(values)
    prototypes = next(
        (value for value in parameters.values() if isinstance(value, io.PrototypeSet)), None
    )
    of_seeds = values["seeds"] is not None and "prototypes" not in parameters
    if values["choose"] or (of_seeds and values["method"] is None and values["recipe"] is None):
        recipe: Pipeline | None = _chosen(given, jobs)
    else:
        recipe = _recipe(values, prototypes)
    options, method = ImageOptions(), METHODS[values["method"] or "saf"]
    if recipe is not None:
        recipe = recipe.for_others() if values["seeds"] is None else recipe
        options, method = recipe.options or options, METHODS[recipe.method.name]
    made: AbstractMethod = flags.make_method(
        method, parameters, None if recipe is None else recipe.method
    )
    features = values["features"] or options.features_name
    known = None if prototypes is None else prototypes.options
    if known is not None and known.features_name != features:
        made_of = known.features_name
        raise click.UsageError(
            f"--prototypes: those of the file are made of {made_of!r}, not of {features!r}"
        )
    scaling = values["scaled_by"]
    if scaling is False and options.scaling is None:
        raise click.UsageError("--scaling first: goes with a recipe or prototypes of an image")
    options, is_new = options.for_others(scaling), values["recipe"] is None
    options, companions = flags.image_options_of(values, len(paths), options, axis_from_file=is_new)
    level = values["level"]
    if level is None:
        level = None if recipe is None else recipe.level
    if "prototype_labels" in parameters:  # a file's labels, names and colours are of other rows
        prototypes = _with_labels(made)
    elif "prototypes" not in parameters and recipe is not None and values["seeds"] is None:
        prototypes = recipe.prototypes
    maps = None if recipe is None else recipe.probabilities
    pipeline = Pipeline(
        made,
        options,
        level=level if isinstance(level, float) else None,  # the word none
        objects=_object_step(values, recipe),
        probabilities=flags.probability_step(values, maps),
        prototypes=prototypes,
    )
    return LabelTask(pipeline, companions, values["overwrite"], values["tile"] or None)


def _with_labels(method: Any) -> io.PrototypeSet | None:
    """Return the prototypes of a method with their labels, None without."""
    points, labels = method.prototypes, method.prototype_labels
    if points is None or labels is None:
        return None
    return io.PrototypeSet(points, np.ravel(labels).astype(int))


def _object_step(values: Mapping[str, Any], recipe: Pipeline | None) -> ObjectStep | None:
    before = None if recipe is None else recipe.objects
    step = flags.step_of(values, before or ObjectStep(), "object_")
    if before is not None or values["objects"]:
        return step
    if step != ObjectStep():
        raise click.UsageError("--object-...: go with --objects")
    return None


def _chosen(given: Any, jobs: list[Job]) -> Pipeline:
    """Return the settings that seeds choose on an image."""
    values, scaling, paths = vars(given), given.scaled_by, jobs[0].images
    if given.seeds is None or given.recipe is not None:
        raise click.UsageError("--choose: goes with --seeds, and without --recipe")
    deep = flags.take_deep(values)
    options, companions = flags.image_options_of(values, sum(len(job.images) for job in jobs))
    pipeline = Pipeline(METHODS["saf"](), options)
    if jobs[0].in_tiles:
        LabelTask(pipeline, companions).large_job(jobs[0])  # refuses seeds
    image, beside = companions.read_image(paths[0]), companions.read()
    chosen = companions.pipeline_for(pipeline, image).options
    assert chosen is not None
    choice = choose_for_strokes(
        image.array,
        beside["seeds"],
        channel_axis=chosen.channel_axis,
        mask=beside["mask"],
        scaling=None if isinstance(scaling, bool) else scaling,
        deep=deep,
    )
    if given.method not in (None, choice.method.name):
        raise click.UsageError(f"--choose: goes with the method {choice.method.name!r}")
    click.echo(f"{paths[0]}: {choice.summary}")
    return Pipeline(choice.method, choice.options)


def _recipe(values: Mapping[str, Any], prototypes: io.PrototypeSet | None) -> Pipeline | None:
    path, name = values["recipe"], values["method"]
    if path is not None:
        recipe = load_recipe(path)
        if name not in (None, recipe.method.name):
            raise click.UsageError(f"--method: the recipe is one of {recipe.method.name!r}")
        if recipe.options is None:
            raise FormatError(f"{path}: {refusal(Strategy.WHOLE, 'graph')}")
        return recipe
    if prototypes is None:
        return None
    options = prototypes.options or ImageOptions()
    recipe = Pipeline.from_prototypes(dataclasses.replace(prototypes, options=options))
    return recipe if name in (None, recipe.method.name) else None
