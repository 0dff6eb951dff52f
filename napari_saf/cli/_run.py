"""``napari-saf run``, the options of images, and labelling of many images or in tiles."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import click

from napari_saf import batch, io
from napari_saf.batch import Companions
from napari_saf.cli import note, print_failure, progress_bar
from napari_saf.cli._options import (
    PATH,
    AbstractCommand,
    Given,
    ParameterValue,
    argument,
    described_by,
    dest_of,
    flag_of,
    given_values,
    option,
    option_group,
    output,
    parameter_option,
    step_options,
)
from napari_saf.device import size_text
from napari_saf.errors import counted
from napari_saf.features import (
    FEATURES,
    DeepFeatures,
    FeatureExtractor,
    Scaling,
    check_group_source,
)
from napari_saf.parameters import describe
from napari_saf.problem import ImageOptions
from napari_saf.project import as_model
from napari_saf.strategies import Strategy, refusal
from napari_saf.tiles import AbstractLargeJob, TileCount, connected, local_client, run_large

GROUPS = (
    "Groups over which each label is spread: the images, the slices along an axis, the pixels "
    "above a threshold in a channel (T, or automatic), or a label image."
)
_FILES: Mapping[str, Mapping[str, Any]] = {
    "mask": {
        "metavar": "FILE|finite",
        "help": "Label only where the file is not 0, or where pixels are finite.",
    },
    "no_data": {
        "type": float,
        "metavar": "VALUE",
        "help": "Value of pixels without data (such as -9999), which are not labelled. "
        "[default: from the file]",
    },
    "seeds": {
        "type": PATH,
        "metavar": "FILE",
        "help": "Strokes: labels 1, 2, ... in an image of the same size, 0 elsewhere.",
    },
    "groups": {"metavar": "image|axis:N|channel:N[:T]|FILE", "help": GROUPS},
}
"""Image options that may be files."""
_IMAGE_NAMES = ("features", "window", "weights", "channel_axis", "scaling", "max_side",
                "full_resolution")  # fmt: skip


_EXTRACTOR_ITEMS = {
    name: items
    for name, items in described_by(FEATURES).items()
    if all(item.in_form for item in items.values())
}
"""Feature parameters available as options, by extractor name."""


@dataclasses.dataclass(frozen=True, slots=True)
class _ImageOptions:
    names: tuple[str, ...]
    texts: Mapping[str, str]

    def params(self, name: str, taken: Collection[str]) -> list[click.Parameter]:
        parameters = {item.name: item for item in describe(ImageOptions)}
        options: list[click.Option] = []
        for key in self.names:
            flags = [flag_of(key), dest_of(name, key)]
            if key in _FILES:
                options.append(click.Option(flags, **_FILES[key]))
            else:
                options.append(parameter_option(flags, {"": parameters[key]}, is_shared=True))
            if key in self.texts:
                options[-1].help = self.texts[key]
            for extra, items in _EXTRACTOR_ITEMS.items() if key == "features" else ():
                flags = [flag_of(extra), dest_of(name, extra)]
                options.append(
                    parameter_option(flags, items, is_shared=False, takes_other_texts=True)
                )
        return [*options]

    def read(self, name: str, values: Mapping[str, Any]) -> GivenImages:
        extractors = _EXTRACTOR_ITEMS if "features" in self.names else ()
        return GivenImages(given_values(name, [*self.names, *extractors], values))


def image_options(*names: str, **texts: str) -> Any:
    """Return a field of type `GivenImages` for the conversion of images to problems.

    `names` are fields of `ImageOptions`, or mask, no_data, seeds and groups, by default all;
    `texts` replace help texts by name.
    """
    return option_group(_ImageOptions(names or (*_IMAGE_NAMES, *_FILES), texts))


@dataclasses.dataclass(frozen=True, slots=True)
class GivenImages:
    """Values given for images, by name: options, files and feature parameters."""

    values: Mapping[str, Any]

    def take_deep(self) -> tuple[DeepFeatures | None, GivenImages]:
        """Return a network given without features, for --choose, and the other values."""
        if "features" in self.values or "weights_file" not in self.values:
            return None, self
        names = {item.name for item in describe(DeepFeatures) if item.in_form}
        network = {name: value for name, value in self.values.items() if name in names}
        images = {name: value for name, value in self.values.items() if name not in names}
        return DeepFeatures(**network), GivenImages(images)

    def on(
        self, base: ImageOptions | None = None, n_images: int = 1, *, axis_from_file: bool = True
    ) -> tuple[ImageOptions, Companions]:
        """Return the conversion of images to problems: the given options, else those of `base`.

        `axis_from_file` is whether to use the channel axis of the file if none is given.
        Raise UsageError if a file for one image is given with several images.
        """
        options = base or ImageOptions()
        changes = {name: self.values[name] for name in _IMAGE_NAMES if name in self.values}
        changes["features"] = self._features(options)
        groups, groups_file = self.values.get("groups"), None
        if groups is not None and groups.partition(":")[0] in ("image", "axis", "channel"):
            changes["groups"] = check_group_source(groups)
        elif groups is not None:
            changes["groups"], groups_file = None, Path(groups)
        options = dataclasses.replace(options, **changes)
        companions = Companions(
            mask=self.values.get("mask"),
            no_data=self.values.get("no_data"),
            seeds=self.values.get("seeds"),
            groups=groups_file,
            axis_from_file=axis_from_file and options.channel_axis is None,
        )
        for name in companions.files if n_images > 1 else ():
            only = "; only 'finite' applies to several" if name == "mask" else ""
            raise click.UsageError(f"--{name}: one file for {n_images} images{only}")
        return options, companions

    def _features(self, options: ImageOptions) -> str | FeatureExtractor:
        """Return the features with the given parameters; UsageError for parameters of others."""
        changes = {name: self.values[name] for name in _EXTRACTOR_ITEMS if name in self.values}
        name = self.values.get("features", options.features_name)
        features = options.features if name == options.features_name else name
        for parameter in changes:
            owners = _EXTRACTOR_ITEMS[parameter]
            if name not in owners:
                names = " or ".join(owners)
                raise click.UsageError(f"{flag_of(parameter)}: goes with --features {names}")
        if isinstance(features, FeatureExtractor):
            return dataclasses.replace(features, **changes)
        return FEATURES[name](**changes) if changes else features


@dataclasses.dataclass(frozen=True, kw_only=True)
class WritingCommand(AbstractCommand):
    """A command that writes files."""

    overwrite: bool = option(False, "Replace existing files.")


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelCommand(WritingCommand):
    """A command whose images or tiles are processed by several workers."""

    n_processes: int = option(
        1, "Number of processes, one image or tile each, which share the threads; starting one "
        "takes seconds; other numbers of threads round differently, which can change pixels.",
        "--jobs", minimum=1, metavar="N")
    scheduler: str | None = option(
        None, "Use the workers of a dask scheduler, such as tcp://host:8786, for images or tiles, "
        "in place of --jobs; they need access to the same files.", metavar="ADDRESS")
    # fmt: on

    @contextmanager
    def workers(self, n_processes: int | None = None) -> Iterator[Any]:
        """Yield a client of the scheduler or of `n_processes` processes; None for this process."""
        count = n_processes or self.n_processes
        if self.scheduler is None and count == 1:
            yield None
            return
        with connected(self.scheduler) if self.scheduler else local_client(count) as client:
            if client.dashboard_link:
                click.echo(f"dashboard: {client.dashboard_link}")
            yield client


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelCommand(ParallelCommand):
    """A command that labels images, large ones in tiles."""

    suffix: str = option(
        ".tif", "Format of the masks in a folder.", "--format", choices=list(io.MASK_SUFFIXES))
    tile: int | None = option(
        None, "Label in tiles with a side of N pixels, for images of any size, into a pyramid "
        "OUT.ome.zarr or IMAGE.ome.zarr/labels/NAME; 0: never. [default: from 16 million pixels, "
        "if OUT is one of these or a folder; 512 in planes, 96 in volumes]",
        type=click.IntRange(min=0), metavar="N")
    dry_run: bool = option(
        False, "For an image in tiles: print tiles, memory, time and disk space, write nothing.")
    # fmt: on

    @property
    def tiles(self) -> batch.Tiles:
        """Which images are labelled in tiles."""
        if self.tile == 0:
            return "none"
        return "all" if self.tile or self.dry_run else "auto"

    def run_jobs(self, task: batch.AbstractTask[Any], jobs: Sequence[batch.Job]) -> int:
        """Run jobs, and print the outcome of each; return the exit code."""
        if self.dry_run and isinstance(task, batch.LabelTask):
            for job in jobs:
                _print_plan(task.large_job(job), self.n_processes)
            return 0
        began, outcomes = time.perf_counter(), []
        with self.workers(1) as client:
            for outcome in batch.run_batch(
                task, jobs, n_processes=self.n_processes, client=client, progress=_job_bar
            ):
                _print_outcome(task, outcome)
                outcomes.append(outcome)
        failed = [outcome.job.path for outcome in outcomes if outcome.state == "failed"]
        if len(jobs) > 1 or outcomes[0].state == "skipped":
            counts = Counter[str](failed=len(failed))
            for outcome in outcomes:
                if outcome.state != "failed":
                    counts[outcome.state] += len(outcome.job.images)
            states = {"done": "labelled", "skipped": "done before", "failed": "failed"}
            text = ", ".join(f"{counts[key]} {states[key]}" for key in states if counts[key])
            images, seconds = counted(counts.total(), "image"), time.perf_counter() - began
            click.echo(f"{images}: {text}, {seconds:.1f} s")
            if uncertain := batch.least_certain(jobs):
                click.echo(uncertain)
            for path in failed:
                click.echo(f"failed: {path}")
        return 1 if failed else 0

    def run_in_tiles(self, job: AbstractLargeJob, out: Path) -> None:
        """Label an image in tiles; or print the plan."""
        if self.dry_run:
            _print_plan(job, self.n_processes)
            return
        with self.workers() as client, tile_bar(job.image.source) as progress:
            labels = run_large(
                job, out, client=client, overwrite=self.overwrite, progress=progress
            )
        done = f", {labels.n_done_before} done before" if labels.n_done_before else ""
        counts = f"{counted(len(labels.sizes), 'label')}, {counted(labels.n_tiles, 'tile')}"
        click.echo(f"{labels.path}: {counts}{done}, {labels.seconds:.1f} s")
        for text in labels.notes:
            note(text)


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineCommand(LabelCommand):
    """A command that labels images by a pipeline."""

    scaling: bool | Scaling | None = option(
        None, "Values that become 0 and 1: the 0.1 and 99.9 percentiles of each image, those of "
        "the first image of a recipe or prototypes, or two numbers for all images. "
        "[default: from the recipe, else each]",
        type=ParameterValue(["range"], choices=["each", "first"]),
        callback=lambda ctx, param, value: {"each": True, "first": False}.get(value, value))
    probabilities: str | None = option(
        None, "Save maps of the probability of each label beside each mask (W).",
        choices=io.PROBABILITY_SUFFIXES)
    probability: Given = step_options(io.ProbabilityStep, "probability_", without=["suffix"])
    # fmt: on

    def probability_step(self, base: io.ProbabilityStep | None) -> io.ProbabilityStep | None:
        """Return the maps to save, by the options, else those of the recipe, `base`."""
        step = self.probability.on(base or io.ProbabilityStep())
        if self.probabilities is not None:
            return dataclasses.replace(step, suffix=self.probabilities)
        if base is None and self.probability.values:
            raise click.UsageError("--probability-...: requires --probabilities")
        return None if base is None else step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(PipelineCommand):
    """Label images with a model learned on others.

    PROJECT is a project (.napari-saf), a recipe, a file of prototypes or a patch dictionary.
    Images may be files, folders or patterns. Masks of an interrupted run are kept. Large images
    are labelled in tiles, into pyramids, except with a dictionary.
    """

    model: Path = argument("PROJECT")
    images: tuple[Path, ...] = argument("IMAGE...")
    out: Path = output("OUT", "A mask for one image, or a folder.")
    image: GivenImages = image_options("mask", "no_data")

    def run(self) -> int:
        options = batch.ApplyOptions(
            scaling=self.scaling,
            suffix=self.suffix,
            mask=self.image.values.get("mask"),
            no_data=self.image.values.get("no_data"),
            probabilities=self.probability_step(None),
            overwrite=self.overwrite,
            tiles=self.tiles,
            tile=self.tile or None,
        )
        paths = io.find_images(self.images)
        task, jobs = options.plan(as_model(self.model), paths, self.out)
        if isinstance(task, batch.DictionaryTask) and (self.tile or self.dry_run):
            raise click.UsageError(str(refusal(Strategy.FOLDER, "dictionary in tiles")))
        return self.run_jobs(task, jobs)


def _job_bar(job: batch.Job, number: int, count: int) -> AbstractContextManager[Any]:
    return progress_bar(job.title if count == 1 else f"{job.title} ({number} of {count})")


def _print_outcome(task: batch.AbstractTask[Any], outcome: batch.Outcome[Any]) -> None:
    job, result = outcome.job, outcome.result
    if isinstance(result, batch.LabelSummary) and isinstance(task, batch.LabelTask):
        noun = "label" if task.pipeline.level is None else "region"
        shares = result.uncertainty or (None,) * len(job.masks)
        for mask, count, share in zip(job.masks, result.n_labels, shares, strict=True):
            ending = "" if share is None else f", {100 * share:.1f} % uncertain"
            ending = f"{result.ending}, {result.seconds:.1f} s{ending}"
            click.echo(f"{mask}: {counted(count, noun)}, {ending}")
        for text in result.notes:
            note(f"{job.path}: {text}")
    elif result is not None:  # the reconstruction quality of a dictionary
        click.echo(f"{job.masks[0]}: {result:.1f} dB, {outcome.seconds:.1f} s")
    if outcome.state == "failed":
        print_failure(outcome)


def _print_plan(job: AbstractLargeJob, n_processes: int) -> None:
    def sides(numbers: Sequence[int]) -> str:
        return " x ".join(map(str, numbers))

    plan, image = job.plan(), job.image
    seconds, n_bytes = job.probe(plan)
    seconds_in_all = seconds * len(plan.tiles()) / n_processes
    duration = f"{seconds_in_all / 3600:.1f} h"
    if seconds_in_all < 7200:
        is_short = seconds_in_all < 120
        duration = f"{seconds_in_all:.0f} s" if is_short else f"{seconds_in_all / 60:.0f} min"
    levels = plan.level_shapes()
    lines = [
        f"image: {image.source}, {sides(image.shape)}, channels {image.n_channels}, {image.dtype}",
        f"labels: {plan.most_label}, {plan.decided}",
        f"tiles: {len(plan.tiles())} of {sides(plan.tile)}, with {sides(plan.halo)} around them",
        f"levels: {len(levels)}, the last one {sides(levels[-1])}",
        f"memory: about {size_text(n_bytes)} a process",
        f"time: about {duration}, {seconds:.2g} s a tile",
        f"disk: at most {size_text(plan.n_bytes)}, before compression",
    ]
    for line in [*lines, *(f"note: {text}" for text in plan.notes)]:
        click.echo(line)


@contextmanager
def tile_bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a callback for the numbers of completed and all tiles; None without a terminal."""
    with progress_bar(title, has_remaining=True) as show:
        yield None if show is None else lambda done, count: show(TileCount(done, count))
