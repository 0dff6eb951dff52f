"""``napari-saf segment``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click
import numpy as np

from napari_saf import io
from napari_saf.batch import Job, LabelTask, plan_jobs
from napari_saf.cli._options import (
    Given,
    GivenMethods,
    ParameterValue,
    argument,
    method_options,
    option,
    output,
    step_options,
)
from napari_saf.cli._run import GivenImages, PipelineCommand, image_options
from napari_saf.errors import FormatError
from napari_saf.methods import METHODS, AbstractMethod, choose_for_strokes
from napari_saf.objects import ObjectStep
from napari_saf.pipeline import Pipeline, load_recipe
from napari_saf.problem import ImageOptions
from napari_saf.regions import USUAL_LEVEL
from napari_saf.strategies import Strategy, refusal

_CAUTIONS = [f"{name}: {m.caution.reason}" for name, m in METHODS.items() if m.caution]


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment(PipelineCommand):
    """Label images.

    A recipe that reproduces the mask is saved beside it; a mask with an equal recipe is kept, so an
    interrupted run can be resumed. A large image is labelled in tiles, into a pyramid that
    contains its recipe.
    """

    images: tuple[Path, ...] = argument("IMAGE...")
    out: Path = output(
        "OUT", f"A mask ({', '.join(io.MASK_SUFFIXES)}) for one image, or a folder.")
    method: str | None = option(
        None, " ".join(["Method. [default: saf; af with --seeds, see --choose]", *_CAUTIONS]),
        choices=list(METHODS))
    image: GivenImages = image_options(
        "features", "window", "weights", "channel_axis", "max_side", "full_resolution", "mask",
        "no_data", "seeds", "groups")
    choose: bool = option(
        False, "Choose features, scale and reach by the seeds "
        "(saf.choose_for_strokes), with the method af, as the Scribbles dock does; the default "
        "with --seeds unless --method, --recipe or --prototypes is given. Other options take "
        "precedence.")
    together: bool = option(
        False, "Label all images jointly, with one set of labels.")
    level: float | str | None = option(
        None, "Save numbered regions instead of labels: labels divided by colour, merged up to a "
        f"level from 0, many, to 1, few; {USUAL_LEVEL} if omitted.", "--regions",
        is_flag=False, flag_value=str(USUAL_LEVEL), metavar="[LEVEL|none]",
        type=ParameterValue(["level"], optional=True))
    objects: bool = option(
        False, "Save numbered objects, split where they touch, and a table of their measures "
        "beside each mask; a recipe may include this.")
    object_step: Given = step_options(ObjectStep, "object_", without=["by_slice"])
    recipe: Path | None = option(
        None, "Run a recipe; other options take precedence.",
        metavar="FILE")
    parameters: GivenMethods = method_options()
    # fmt: on

    def run(self) -> int:
        paths = io.find_images(self.images)
        if self.together and self.tiles == "all":
            raise click.UsageError(str(refusal(Strategy.TILES_ON_DISK, "together")))
        jobs = plan_jobs(paths, self.out, self.suffix, self.together, self.tiles)
        pipeline, companions, digests = self._pipeline(jobs)
        task = LabelTask(pipeline, companions, self.overwrite, self.tile or None, digests)
        return self.run_jobs(task, jobs)

    def _pipeline(self, jobs: list[Job]) -> tuple[Pipeline, Any, Any]:
        """Return the pipeline by options and recipe, its companions, and digests.

        The digests are those of a recipe that is repeated without changes.
        """
        prototypes = self.parameters.prototypes
        has_seeds = "seeds" in self.image.values
        is_new = self.method is None and self.recipe is None
        images = self.image
        if self.choose or (has_seeds and is_new and "prototypes" not in self.parameters.values):
            deep, images = self.image.take_deep()
            base: Pipeline | None = self._chosen(jobs, images, deep)
        else:
            base = self._base(prototypes)
        options, method, base_method = ImageOptions(), METHODS[self.method or "saf"], None
        if base is not None:
            base = base if has_seeds else base.for_others()
            options, method = base.options or options, METHODS[base.method.name]
            base_method = base.method
        made: AbstractMethod = self.parameters.make(method, base_method)
        features = images.values.get("features", options.features_name)
        if prototypes is not None and prototypes.options is not None:
            expected = prototypes.options.features_name
            if expected != features:
                raise click.UsageError(f"--prototypes: are made of {expected!r}, not {features!r}")
        if self.scaling is False and options.scaling is None:
            raise click.UsageError("--scaling first: requires a recipe or prototypes of an image")
        n_images = sum(len(job.images) for job in jobs)
        options, has_recipe = options.for_others(self.scaling), self.recipe is not None
        options, companions = images.on(options, n_images, axis_from_file=not has_recipe)
        level = self.level
        if base is not None and level is None:
            level = base.level
        if "prototype_labels" in self.parameters.values:  # names and colours belong to other rows
            prototypes = _with_labels(made)
        elif "prototypes" not in self.parameters.values and base is not None and not has_seeds:
            prototypes = base.prototypes
        pipeline = Pipeline(
            made,
            options,
            level=level if isinstance(level, float) else None,  # the word none
            objects=self._object_step(base),
            probabilities=self.probability_step(None if base is None else base.probabilities),
            prototypes=prototypes,
        )
        is_repeated = base is not None and not (images.values or self.parameters.values)
        provenance = base.about if base is not None and is_repeated else {}
        return pipeline, companions, io.DigestEntry.of_recipe(provenance)

    def _object_step(self, base: Pipeline | None) -> ObjectStep | None:
        step = None if base is None else base.objects
        if step is not None or self.objects:
            return self.object_step.on(step or ObjectStep())
        if self.object_step.values:
            raise click.UsageError("--object-...: requires --objects")
        return None

    def _chosen(self, jobs: list[Job], images: GivenImages, deep: Any) -> Pipeline:
        """Return the settings chosen by the seeds of an image."""
        paths = jobs[0].images
        if "seeds" not in images.values or self.recipe is not None:
            raise click.UsageError("--choose: requires --seeds, and no --recipe")
        options, companions = images.on(n_images=sum(len(job.images) for job in jobs))
        pipeline = Pipeline(METHODS["saf"](), options)
        if jobs[0].in_tiles:
            LabelTask(pipeline, companions).large_job(jobs[0])  # refuses seeds
        image, files = companions.read_image(paths[0]), companions.read()
        options = companions.pipeline_for(pipeline, image).options or options
        choice = choose_for_strokes(
            image.array,
            files["seeds"],
            channel_axis=options.channel_axis,
            mask=files["mask"],
            scaling=None if isinstance(self.scaling, bool) else self.scaling,
            deep=deep,
        )
        if self.method not in (None, choice.method.name):
            raise click.UsageError(f"--choose: goes with the method {choice.method.name!r}")
        click.echo(f"{paths[0]}: {choice.summary}")
        return Pipeline(choice.method, choice.options)

    def _base(self, prototypes: io.PrototypeSet | None) -> Pipeline | None:
        """Return the pipeline of the recipe, or of the file of prototypes."""
        if self.recipe is not None:
            recipe = load_recipe(self.recipe)
            if self.method not in (None, recipe.method.name):
                raise click.UsageError(f"--method: the recipe is one of {recipe.method.name!r}")
            if recipe.options is None:
                raise FormatError(f"{self.recipe}: {refusal(Strategy.WHOLE, 'graph')}")
            return recipe
        if prototypes is None:
            return None
        options = prototypes.options or ImageOptions()
        recipe = Pipeline.from_prototypes(dataclasses.replace(prototypes, options=options))
        return recipe if self.method in (None, recipe.method.name) else None


def _with_labels(method: Any) -> io.PrototypeSet | None:
    """Return the prototypes of a method with their labels, None without."""
    points, labels = method.prototypes, method.prototype_labels
    if points is None or labels is None:
        return None
    return io.PrototypeSet(points, np.ravel(labels).astype(int))
