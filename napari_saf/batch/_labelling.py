"""Label images by a method: read, label, save masks and recipe; done before, or in the way.

Next to each mask goes the recipe that repeats it, with the state of the files that were read and a
digest of the labels. A job is done if its masks are there with a recipe that says what this run
would do, and the files are as they were then. Whenever a run is killed, each mask is one of its
recipe, or of the recipe that is still hidden next to it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from napari_saf import io
from napari_saf.batch._engine import AbstractTask, Job, OnStep
from napari_saf.errors import FormatError, InvalidInput, SafError, counted
from napari_saf.features import Scaling, channels_last
from napari_saf.graph import GraphUnion
from napari_saf.input import AUTO
from napari_saf.methods import AbstractMethod, Cancelled, run_to_end
from napari_saf.objects import ObjectStep
from napari_saf.parameters import to_plain
from napari_saf.problem import ImageOptions, Problem
from napari_saf.regions import RegionHierarchy, merge_regions
from napari_saf.result import STATUS_TEXTS, LabelMap, Segmentation, Status
from napari_saf.storage import hidden_name, make_folder, remove_leftovers, remove_path
from napari_saf.tiles import LargeJob, TileCount, is_done, run_large

if TYPE_CHECKING:
    from distributed import Client


_LEAST_SAID = 0.0005
"""Share of uncertain pixels that is more than 0.0 %."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProblemSource:
    """How image files become problems.

    The mask is ``"finite"`` or the path of a mask; seeds and groups are label images. Pixels of the
    value `no_data`, or that a file says have no data, are outside of the mask.
    """

    options: ImageOptions
    axis_from_file: bool
    mask: str | None = None
    no_data: float | None = None
    seeds: Path | None = None
    groups: Path | None = None

    @property
    def files(self) -> dict[str, Path]:
        """The files that are read with the images, by what they are for."""
        mask = None if self.mask in (None, "finite") else Path(self.mask)
        files = {"mask": mask, "seeds": self.seeds, "groups": self.groups}
        return {name: path for name, path in files.items() if path is not None}

    def notes(self) -> list[str]:
        """Return which label each colour is, of seeds and groups that were painted in colours."""
        given = {"seeds": self.seeds, "groups": self.groups}
        read = {name: io.read_labels(path) for name, path in given.items() if path is not None}
        return [
            f"colours of {name}: {io.spelled_colors(one.colors)}"
            for name, one in read.items()
            if one.colors is not None
        ]

    def absolute(self) -> ProblemSource:
        """Return the source for a process that has another working directory."""
        files: dict[str, Any] = {name: path.absolute() for name, path in self.files.items()}
        if "mask" in files:
            files["mask"] = str(files["mask"])
        return dataclasses.replace(self, **files)

    def read(self, paths: Sequence[Path]) -> tuple[list[io.ImageFile], Problem, int | None]:
        """Return images that are labelled together, their problem and their axis of channels."""
        images = [io.read_image(path, no_data=self.no_data) for path in paths]
        options = self.options_for(images[0])
        return images, self.problem(images, options), options.channel_axis

    def options_for(self, image: io.ImageFile) -> ImageOptions:
        """Return the options with the file's axis of channels, unless it is the last of RGB(A)."""
        axis = image.stated_channel_axis
        if not self.axis_from_file or axis is None:
            return self.options
        return dataclasses.replace(self.options, channel_axis=axis)

    def problem(self, images: Sequence[io.ImageFile], options: ImageOptions) -> Problem:
        """Return the problem of images that were read, with mask, seeds and groups of the files."""
        mask: Any = self.mask
        if mask is None and any(image.no_data is not None for image in images):
            mask = "finite"
        elif mask is not None and mask != "finite":
            mask = io.read_image(mask, in_colors=False).array
            inside = images[0].has_data
            if images[0].no_data is not None and mask.shape == inside.shape:
                mask = (mask != 0) & inside
        shared = options.arguments()
        if len(images) > 1:
            return Problem.from_images([image.array for image in images], masks=mask, **shared)
        seeds = None if self.seeds is None else io.read_labels(self.seeds).array
        if self.groups is not None:
            shared["groups"] = io.read_labels(self.groups).array
        return Problem.from_image(images[0].array, mask=mask, seeds=seeds, **shared)


@dataclasses.dataclass(frozen=True, slots=True)
class LabelSummary:
    """What a job came to: labels, or regions, of each image, and how the run ended in words.

    The uncertainty is `uncertain_share` of each image; empty where that is not known.
    """

    n_labels: tuple[int, ...]
    ending: str
    seconds: float
    notes: tuple[str, ...]
    uncertainty: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LabelTask(AbstractTask[LabelSummary]):
    """Label images, save masks and recipes.

    What was `taught` names and colours labels in masks whose format keeps that; `overwrite` is
    about what another run, or a person, has made. At a `level` the masks are of numbered regions,
    see `merge_regions`, without names and colours. With `objects` an image of their numbers and a
    table of their measures lie beside each mask, with `probabilities` the maps of the labels that
    were taught, or of those of the image. Tiles have the side `tile`, None for the usual.
    """

    method: AbstractMethod
    source: ProblemSource
    taught: io.PrototypeSet | None = None
    overwrite: bool = False
    level: float | None = None
    objects: ObjectStep | None = None
    probabilities: io.ProbabilityStep | None = None
    tile: int | None = None

    @classmethod
    def repeating(
        cls,
        recipe: io.Recipe,
        scaling: bool | Scaling | None,
        mask: str | None,
        no_data: float | None = None,
        **own: Any,
    ) -> LabelTask:
        """Return what labels image files without strokes by a recipe; see `Recipe.for_others`."""
        recipe = recipe.for_others()
        if recipe.options is None:
            raise InvalidInput("recipe: is of a run on a graph, not on an image")
        source = ProblemSource(recipe.options.for_others(scaling), False, mask, no_data)
        step = ObjectStep.of_recipe(recipe.objects)
        return cls(recipe.method, source, recipe.taught, level=recipe.level, objects=step, **own)

    @property
    def _named(self) -> dict[str, Any]:
        """The names and colours of labels, as `save_masks` takes them."""
        taught = self.taught
        return {} if taught is None else {"names": taught.names, "colors": taught.colors}

    def absolute(self) -> LabelTask:
        return dataclasses.replace(self, source=self.source.absolute())

    def prepare(self, jobs: Sequence[Job]) -> set[Job]:
        """Return the jobs that are done, see `AbstractTask.prepare`."""
        done = set[Job]()
        for job in jobs if not self.overwrite else ():
            if job.in_tiles:
                done |= {job} if self._is_done_in_tiles(job) else set()
                continue
            recipe = _load(job.companion)
            if (
                all(path.exists() for path in self._outputs(job))
                and not _hidden_recipe(job).exists()
                and recipe is not None
                and self._is_of_same_settings(recipe)
                and recipe.raw.get("files") == self._files(job)
            ):
                done.add(job)
                _remove_leftovers(job)
            else:
                self._check_own(job)
        return done

    def run(self, job: Job, on_step: OnStep | None, cancelled: Callable[[], bool]) -> LabelSummary:
        """Label the images of a job, see `AbstractTask.run`."""
        files = self._files(job)  # as they are before they are read
        images, problem, channel_axis = self.source.read(job.images)
        result = self._label(problem, on_step, cancelled)
        if result.status is Status.CANCELLED:
            raise Cancelled
        labels: list[Any] = result.labels if isinstance(result.labels, list) else [result.labels]
        kinds, step, named, notes = labels, self.objects, self._named, list(result.notes)
        recipe = result.recipe
        if problem.seeds is not None and len(images) == 1:
            recipe = io.with_taught(recipe, io.PrototypeSet.taught_by(problem, labels[0]))
        if self.level is not None:
            trees = [
                merge_regions(one, image.array, channel_axis=channel_axis, cancelled=cancelled)
                for one, image in zip(labels, images, strict=True)
            ]
            labels, named = [tree.at_level(self.level) for tree in trees], {}
            notes += _notes_of(trees) if step is None else []
        recipe = io.with_level(recipe, self.level) | (
            {} if step is None else {"objects": step.plain}
        )
        if self.probabilities is not None:
            recipe["probabilities"] = self.probabilities.plain
        recipe |= {
            "images": [path.name for path in job.images],
            "files": files,
            "labels": [_digest(one) for one in labels],
            "uncertainty": (uncertainty := _uncertain_shares(problem, result)),
        }
        with self._saving_recipe(job, recipe):
            for image, one, mask in zip(images, labels, job.masks, strict=True):
                save_labels(image, one, mask, channel_axis, **named)
            if step is not None:
                # That of labels without strokes on the image does not tell where objects touch.
                doubt: Any = None
                if step.by_uncertainty and problem.seeds is not None:
                    doubt = problem.graph.to_image(result.uncertainty)  # type: ignore[arg-type]
                for image, one, mask in zip(images, kinds, job.masks, strict=True):
                    names = self._named.get("names")
                    _save_objects(step, image, one, doubt, mask, channel_axis, names)
            if self.probabilities is not None:
                self._save_maps(self.probabilities, job, images, problem, result, channel_axis)
        _remove_leftovers(job)
        counts = tuple(len(io.count_labels(one)[0]) for one in labels)
        notes += [*_lost_by(job.masks[0], images), *self.source.notes()]
        ending, known = STATUS_TEXTS[result.status], tuple(uncertainty)
        return LabelSummary(counts, ending, result.seconds, tuple(notes), known)

    def large_job(self, job: Job) -> LargeJob:
        """Return the job of an image in tiles; InvalidInput if it cannot be done in tiles."""
        source, step, mask = self.source, self.probabilities, job.masks[0]
        if source.seeds is not None or source.groups is not None:
            raise InvalidInput(
                "--seeds, --groups: files are not read in tiles; let strokes on a part of the "
                "image teach a recipe, and give that"
            )
        if step is not None and step.suffix != io.OME_ZARR_SUFFIX:
            raise InvalidInput(f"--probabilities: in tiles they are {io.OME_ZARR_SUFFIX}")
        objects = None if self.objects is None else self.objects.plain
        recipe = io.Recipe(self.method, source.options, {}, self.level, self.taught, objects)
        return LargeJob.of(
            io.url_of(job.images[0]) or job.images[0],
            recipe,
            mask=source.mask,
            no_data=source.no_data,
            tile=self.tile,
            probabilities=step,
            probability_path=None if step is None else _maps_file(mask, step),
        )

    def _is_done_in_tiles(self, job: Job) -> bool:
        """Tell whether a job in tiles is done; InvalidInput if another mask is in the way."""
        try:
            large = self.large_job(job)
        except SafError:
            return False  # told when its turn comes
        return is_done(large, job.masks[0]) and all(map(Path.exists, self._outputs(job)))

    def run_in_tiles(
        self,
        job: Job,
        on_step: OnStep | None,
        cancelled: Callable[[], bool],
        client: Client | None,
    ) -> LabelSummary:
        """Label an image tile by tile, see `AbstractTask.run_in_tiles`."""
        show = None if on_step is None else lambda *counts: on_step(TileCount(*counts))
        shared: dict[str, Any] = {"overwrite": self.overwrite, "cancelled": cancelled}
        large = run_large(self.large_job(job), job.masks[0], client=client, progress=show, **shared)
        done = f", {large.n_done_before} done before" if large.n_done_before else ""
        ending = f"{counted(large.n_tiles, 'tile')}{done}"
        return LabelSummary((len(large.sizes),), ending, large.seconds, large.notes)

    def _label(
        self, problem: Problem, on_step: OnStep | None, cancelled: Callable[[], bool]
    ) -> Segmentation:
        """Return the result, with labels numbered as the seeds are, which may leave gaps."""
        if problem.seeds is None or self.method.labels_are_given:
            return run_to_end(self.method.iterate(problem, cancelled=cancelled), on_step)
        classes = LabelMap.from_seeds(problem.seeds)
        numbered = problem.with_seeds(classes.unpaint(problem.seeds))
        result = run_to_end(self.method.iterate(numbered, cancelled=cancelled), on_step)
        columns = result.label_map.numbers
        shown = classes.extended(int(columns.max(initial=0)))
        return dataclasses.replace(
            result,
            labels=shown.paint(np.asarray(result.labels)),
            label_map=LabelMap(np.append(0, shown.numbers)[columns]),
        )

    def finish(self, jobs: Sequence[Job]) -> None:
        """Join the tables of objects of the fields of a plate, or the series of a file."""
        places = [io.place_in_store(job.images[0]) for job in jobs]
        if self.objects is None or None in places or not all(job.in_tiles for job in jobs):
            return
        import pandas  # takes half a second to load

        parts = []
        for job, (_, names) in zip(jobs, filter(None, places), strict=True):
            file = io.path_beside(job.masks[0], "objects.csv")
            if file.exists():
                columns = _columns_of_plate(names)
                part = pandas.read_csv(file)
                parts.append(part.assign(**columns)[[*columns, *part.columns]])
        if parts:
            joined = pandas.concat(parts, ignore_index=True)
            table = {str(name): column.to_numpy() for name, column in joined.items()}
            io.save_table(file.parent.with_name(f"{file.parent.name}.csv"), table)

    def _outputs(self, job: Job) -> list[Path]:
        """Return masks and recipe of a job, and the files of objects and probabilities."""
        outputs = list(job.outputs)
        for mask in job.masks:
            if self.objects is not None:
                outputs += _object_files(mask, io.OME_ZARR_SUFFIX if job.in_tiles else ".tif")
            if self.probabilities is not None:
                outputs.append(_maps_file(mask, self.probabilities))
        return outputs

    def _save_maps(
        self,
        step: io.ProbabilityStep,
        job: Job,
        images: Sequence[io.ImageFile],
        problem: Problem,
        result: Segmentation,
        channel_axis: int | None,
    ) -> None:
        """Save how much each pixel of the images is of each label."""
        known = () if self.taught is None else tuple(self.taught.by_label())
        labels = step.labels or known or io.labels_of(result)
        maps = io.probability_maps(problem, result, labels)
        several = maps if isinstance(maps, list) else [maps]
        for image, own, mask in zip(images, several, job.masks, strict=True):
            placed = _placed(image, own[0], channel_axis)
            path = _maps_file(mask, step)
            io.save_probabilities(path, own, labels=labels, kind=step.kind, **self._named, **placed)

    def _files(self, job: Job) -> list[dict[str, Any]]:
        """Return what a job reads, in the state in which it is now, as a recipe keeps it."""
        uses = [("image", path) for path in job.images] + list(self.source.files.items())
        folder = job.companion.parent
        return [{"use": use} | io.file_state(path, folder) for use, path in uses]

    def _check_own(self, job: Job) -> None:
        """Refuse to overwrite what did not come from these files by these settings."""
        if self.overwrite:
            return
        known = [one for one in map(_load, (job.companion, _hidden_recipe(job))) if one is not None]
        places = _uses_and_paths(self._files(job))
        is_own = any(
            self._is_of_same_settings(recipe) and _uses_and_paths(recipe.raw.get("files")) == places
            for recipe in known
        )
        for output in self._outputs(job):
            if output.exists() and not is_own:
                raise InvalidInput(
                    f"{output}: is there already, from another run; --overwrite replaces it"
                )
        written = [recipe.raw.get("labels") for recipe in known]
        digests = [one for one in written if isinstance(one, list) and len(one) == len(job.masks)]
        for k, mask in enumerate(job.masks):
            if digests and mask.exists():
                found = _digest(io.read_labels(mask).array)
                if found not in [one[k] for one in digests]:
                    raise InvalidInput(
                        f"{mask}: was changed since it was made; --overwrite replaces it"
                    )

    @contextmanager
    def _saving_recipe(self, job: Job, recipe: dict[str, Any]) -> Iterator[None]:
        """Save a recipe around the masks, so that a killed run leaves none without its recipe.

        Where there are no masks, it is saved before them. Where there are, it is hidden until
        they are overwritten: each mask is then one of the recipe, or of the hidden one.
        """
        make_folder(job.companion.parent)
        self._check_own(job)
        existed, before = job.companion.exists(), [_identity(mask) for mask in job.masks]
        is_first = not any(mask.exists() for mask in job.masks)
        target = job.companion if is_first else _hidden_recipe(job)
        # Of two runs that begin at the same time only one makes the recipe.
        io.save_recipe(target, recipe, overwrite=self.overwrite or existed)
        try:
            yield
        except BaseException:
            if [_identity(mask) for mask in job.masks] == before and not (is_first and existed):
                remove_path(target)
            raise
        if not is_first:
            io.save_recipe(job.companion, recipe)
        remove_path(_hidden_recipe(job))  # also that of a killed run whose masks were removed since

    def _is_of_same_settings(self, recipe: io.Recipe) -> bool:
        """Compare method and input, but for what is found in each image by itself."""
        if type(recipe.method) is not type(self.method) or recipe.options is None:
            return False
        step = ObjectStep.of_recipe(recipe.objects)
        if (recipe.level, step) != (self.level, self.objects):
            return False
        maps = None if self.probabilities is None else self.probabilities.plain
        if recipe.raw.get("probabilities") != maps:
            return False
        plain = (json.dumps(to_plain(one), sort_keys=True) for one in (recipe.method, self.method))
        found, own = recipe.options.for_others(), self.source.options
        if own.scaling is None:
            found = dataclasses.replace(found, scaling=None)
        left = [field.name for field in dataclasses.fields(own) if getattr(own, field.name) == AUTO]
        found = dataclasses.replace(found, **dict.fromkeys(left, AUTO))  # type: ignore[arg-type]
        if found.extractor and own.extractor and found.extractor.is_fit_of(own.extractor):
            found = dataclasses.replace(found, features=own.features)
        if self.source.axis_from_file:
            found = dataclasses.replace(found, channel_axis=own.channel_axis)
        return next(plain) == next(plain) and found == own


def _uncertain_shares(problem: Problem, result: Segmentation) -> list[float]:
    """Return `uncertain_share` of each image, rounded as a recipe keeps it."""
    graph = problem.graph
    slices = graph.slices if isinstance(graph, GraphUnion) else [slice(None)]
    return [round(result.uncertain_share(nodes), 4) for nodes in slices]


def least_certain(jobs: Sequence[Job], count: int = 3) -> str:
    """Name the images whose labels are least certain, of those that have some beside their recipe.

    Empty where it is of no more than one.
    """
    shares = dict[str, float]()
    for job in jobs:
        recipe = _load(job.companion)
        known = [] if recipe is None else recipe.raw.get("uncertainty")
        if isinstance(known, list) and len(known) == len(job.images):
            shares |= {path.name: one for path, one in zip(job.images, known, strict=True)}
    uncertain = [name for name, share in shares.items() if share >= _LEAST_SAID]
    names = sorted(uncertain, key=lambda name: -shares[name])[:count]
    listed = ", ".join(f"{name} ({100 * shares[name]:.1f} %)" for name in names)
    return f"least certain: {listed}" if listed and len(shares) > 1 else ""


def save_labels(
    image: io.ImageFile,
    labels: NDArray[Any],
    mask: Path,
    channel_axis: int | None,
    **named: Any,
) -> None:
    """Save a mask with the axes and pixel sizes that its image has."""
    make_folder(mask.parent)
    placed = _placed(image, labels, channel_axis)
    where: dict[str, Any] = {"affine": image.affine, "georeference": image.georeference}
    io.save_masks(mask, labels, **placed, **where, **named)


def _placed(image: io.ImageFile, labels: NDArray[Any], channel_axis: int | None) -> dict[str, Any]:
    """Return axes, scale and units of labels of an image, as far as they are known."""
    _, used = channels_last(image.array, channel_axis)
    if used == image.channel_axis:
        letters, axes = image.label_axes, list(range(labels.ndim))
    elif image.channel_axis is None:
        axes = [axis for axis in range(image.array.ndim) if axis != used]
        letters = "".join(image.axes[axis] for axis in axes) if image.axes else ""
    else:
        letters, axes = "", []
    places: dict[str, Any] = {"axes": letters}
    for name in ("scale", "units", "origin"):
        values = getattr(image, name)
        places[name] = values and tuple(values[axis] for axis in axes)
    return {key: value or None for key, value in places.items()}


def _object_files(mask: Path, suffix: str = ".tif") -> tuple[Path, Path]:
    """Return where the image and the table of the objects of a mask go."""
    return io.path_beside(mask, f"objects{suffix}"), io.path_beside(mask, "objects.csv")


def _maps_file(mask: Path, step: io.ProbabilityStep) -> Path:
    """Return where the probability maps of a mask go."""
    return io.path_beside(mask, f"{io.PROBABILITY_MARK[1:]}{step.suffix}")


def _save_objects(
    step: ObjectStep,
    image: io.ImageFile,
    labels: NDArray[Any],
    uncertainty: NDArray[Any] | None,
    mask: Path,
    channel_axis: int | None,
    names: Mapping[int, str] | None,
) -> None:
    """Split labels; save the numbers of the objects, and what they measure."""
    placed, (numbers, table) = _placed(image, labels, channel_axis), _object_files(mask)
    _, used = channels_last(image.array, channel_axis)
    sizes = {name: value for name, value in placed.items() if name != "origin"}
    found, measured = step.run(
        labels, image.array, uncertainty=uncertainty, names=names, channel_axis=used, **sizes
    )
    io.save_masks(numbers, found.labels, **placed, georeference=image.georeference)
    io.save_table(table, measured or {"object": np.zeros(0, int)})


def _digest(labels: NDArray[Any]) -> str:
    """Return a short name for labels, whatever their type and axes of length 1."""
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes()).hexdigest()[:16]


def _columns_of_plate(names: Sequence[str]) -> dict[str, str]:
    """Return the columns that say where in a plate, or in a converted file, an image is."""
    if len(names) != 3:
        return {"image": "/".join(names)}
    row, column, field = names
    return {"row": row, "column": column, "well": f"{row}/{column}", "field": field}


def _lost_by(mask: Path, images: Sequence[io.ImageFile]) -> list[str]:
    """Return what the format of a mask does not keep of its image."""
    suffix, lost = io.mask_suffix(mask), []
    if any(image.origin for image in images) and not io.keeps_origin(suffix):
        lost.append("the mask does not keep where the image lies: .ome.zarr does")
    if any(image.georeference for image in images) and suffix not in (".tif", ".tiff"):
        lost.append("the mask does not keep where the image lies on earth: .tif does")
    return lost


def _notes_of(trees: Sequence[RegionHierarchy]) -> list[str]:
    return list(dict.fromkeys(filter(None, (tree.separate.note for tree in trees))))


def _hidden_recipe(job: Job) -> Path:
    """Return where the recipe is while masks of an earlier run are overwritten."""
    return job.companion.with_name(f"{hidden_name(job.companion)}.recipe.json")


def _remove_leftovers(job: Job) -> None:
    """Remove what killed runs have left next to the files of a job."""
    for path in (*job.outputs, _hidden_recipe(job)):
        remove_leftovers(path)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what differs once a file is overwritten; None where there is none."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns


def _load(path: Path) -> io.Recipe | None:
    try:
        return io.load_recipe(path) if path.exists() else None
    except FormatError:
        return None


def _uses_and_paths(files: Any) -> list[tuple[object, object]] | None:
    """Return what each file is for and where it lies, whatever became of it."""
    try:
        return [(file["use"], file["path"]) for file in files]
    except (TypeError, KeyError):
        return None
