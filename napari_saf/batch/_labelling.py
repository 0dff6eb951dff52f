"""Label images with a pipeline and save masks and recipes; resumable.

The recipe next to each mask reproduces it and records digests of the settings and the labels, and
the state of the input files. A job is complete if its masks exist with a recipe of the same
settings, and the input files are unchanged. If a run is killed, each mask still belongs to its
recipe, or to the hidden recipe next to it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from napari_saf import io
from napari_saf.arrays import JsonObject
from napari_saf.batch._engine import AbstractTask, Job, OnStep
from napari_saf.errors import FormatError, InvalidInput, SafError, counted
from napari_saf.methods import Cancelled, run_to_end
from napari_saf.metrics import compare_digests, label_digest
from napari_saf.pipeline import Pipeline, load_recipe
from napari_saf.result import STATUS_TEXTS
from napari_saf.storage import hidden_name, make_folder, remove_leftovers, remove_path
from napari_saf.strategies import Strategy, refusal
from napari_saf.tiles import LargeJob, TileCount, is_done, run_large

if TYPE_CHECKING:
    from distributed import Client


_REPLACES = "--overwrite replaces it"
_LEAST_SAID = 0.0005
"""Smallest share of uncertain pixels that is reported, displayed as 0.1 %."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Companions:
    """Inputs read with the image files: the mask, ``"finite"`` or a file, and label images.

    Pixels of the value `no_data`, or of the no-data value of the file, are outside the mask. With
    `axis_from_file` the channel axis is that of the file.
    """

    mask: str | None = None
    no_data: float | None = None
    seeds: Path | None = None
    groups: Path | None = None
    axis_from_file: bool = False

    @property
    def files(self) -> dict[str, Path]:
        """The files read with the images, by role."""
        mask = None if self.mask in (None, "finite") else Path(self.mask)
        files = {"mask": mask, "seeds": self.seeds, "groups": self.groups}
        return {name: path for name, path in files.items() if path is not None}

    def notes(self) -> list[str]:
        """Return notes that map colours to labels, for seeds and groups painted in colours."""
        files = {name: path for name, path in self.files.items() if name != "mask"}
        read = {name: io.read_labels(path).colors for name, path in files.items()}
        spelled = {name: io.spelled_colors(colors) for name, colors in read.items() if colors}
        return [f"colours of {name}: {text}" for name, text in spelled.items()]

    def absolute(self) -> Companions:
        """Return the companions with absolute paths."""
        files: dict[str, Any] = {name: path.absolute() for name, path in self.files.items()}
        if "mask" in files:
            files["mask"] = str(files["mask"])
        return dataclasses.replace(self, **files)

    def read_image(self, path: Path) -> io.ImageFile:
        return io.read_image(path, no_data=self.no_data)

    def read(self) -> dict[str, Any]:
        """Return mask, seeds and groups as keyword arguments of `Pipeline.iterate`."""
        read: dict[str, Any] = {"mask": self.mask}
        for name, path in self.files.items():
            is_mask = name == "mask"
            file = io.read_image(path, in_colors=False) if is_mask else io.read_labels(path)
            read[name] = file.array
        return read

    def pipeline_for(self, pipeline: Pipeline, image: io.ImageFile) -> Pipeline:
        """Return a pipeline with the channel axis of the file, unless it is the last of RGB(A)."""
        axis, options = image.stated_channel_axis, pipeline.options
        if not self.axis_from_file or axis is None or options is None:
            return pipeline
        options = dataclasses.replace(options, channel_axis=axis)
        return dataclasses.replace(pipeline, options=options)


@dataclasses.dataclass(frozen=True, slots=True)
class LabelSummary:
    """Summary of a job: number of labels or regions per image, and the status of the run as text.

    The uncertainty is the `uncertain_share` per image, empty if unknown.
    """

    n_labels: tuple[int, ...]
    ending: str
    seconds: float
    notes: tuple[str, ...]
    uncertainty: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LabelTask(AbstractTask[LabelSummary]):
    """Label images with a pipeline and save masks and recipes.

    Names and colours of the prototypes are saved in masks whose format supports them, except in
    masks of regions. `overwrite` allows replacing files of another run or a user. Objects and
    probabilities are saved beside each mask. `tile` is the side of a tile in pixels, None for the
    default. Labels of images of the recipe are compared with its `digests`.
    """

    pipeline: Pipeline
    companions: Companions = dataclasses.field(default_factory=Companions)
    overwrite: bool = False
    tile: int | None = None
    digests: Sequence[io.DigestEntry] = ()

    def absolute(self) -> LabelTask:
        return dataclasses.replace(self, companions=self.companions.absolute())

    def prepare(self, jobs: Sequence[Job]) -> set[Job]:
        """Return the completed jobs, see `AbstractTask.prepare`."""
        done = set[Job]()
        for job in jobs if not self.overwrite else ():
            if job.in_tiles:
                try:
                    large = self.large_job(job)
                except SafError:
                    continue  # the error is reported when the job runs
                if is_done(large, job.masks[0]) and all(map(Path.exists, self._outputs(job))):
                    done.add(job)
                continue
            if (
                all(path.exists() for path in self._outputs(job))
                and not _hidden_recipe(job).exists()
                and _about(job.companion).get("files") == self._files(job)
            ):
                done.add(job)
                _remove_leftovers(job)
            else:
                self._check_replaceable(job)
        return done

    def run(self, job: Job, on_step: OnStep | None, cancelled: Callable[[], bool]) -> LabelSummary:
        """Label the images of a job, see `AbstractTask.run`."""
        files = self._files(job)  # the state before reading
        images = [self.companions.read_image(path) for path in job.images]
        pipeline = self.companions.pipeline_for(self.pipeline, images[0])
        steps = pipeline.iterate(images, **self.companions.read(), cancelled=cancelled)
        labellings = run_to_end(steps, on_step)
        result = labellings[0].result
        assert result is not None
        if labellings[0].is_cancelled:
            raise Cancelled
        uncertainty = [round(labelling.uncertain_share or 0.0, 4) for labelling in labellings]
        recipe = {**(labellings[0].recipe or {}), "images": [path.name for path in job.images]}
        recipe |= {"files": files, "labels": [_digest(item.labels) for item in labellings]}
        recipe["uncertainty"] = uncertainty
        digests: list[io.DigestEntry] = []
        if self.companions.seeds is None:  # a recipe cannot reproduce labels from strokes
            for image, labelling in zip(images, labellings, strict=True):
                checksums = [*label_digest(labelling.labels)]
                digests.append(io.DigestEntry(image=_digest_of_image(image), labels=checksums))
            entries = [digest.model_dump() for digest in digests]
            recipe["versions"] = recipe.get("versions", {}) | {"digest": entries}
        with self._saving_recipe(job, recipe):
            for labelling, mask in zip(labellings, job.masks, strict=True):
                self._save(labelling, mask)
        _remove_leftovers(job)
        counts = tuple(len(io.count_labels(labelling.labels)[0]) for labelling in labellings)
        notes = [*dict.fromkeys(note for labelling in labellings for note in labelling.notes)]
        for image in images:
            lost = io.places_lost(io.mask_suffix(job.masks[0]), image)
            notes += [f"the mask does not keep {x}: {kept_by} does" for x, kept_by in lost.items()]
            notes += image.notes
        notes += self._compare_digests(digests)
        notes = [*dict.fromkeys(notes), *self.companions.notes()]
        ending = STATUS_TEXTS[result.status]
        return LabelSummary(counts, ending, result.seconds, tuple(notes), tuple(uncertainty))

    def _compare_digests(self, digests: Sequence[io.DigestEntry]) -> list[str]:
        """Return notes on images whose labels differ from those recorded in the recipe."""
        first = {entry.image: entry.labels for entry in self.digests}
        return [
            compare_digests(entry.labels, recorded)
            for entry in digests
            if len(recorded := first.get(entry.image, [])) == len(entry.labels)
            and recorded != entry.labels
        ]

    def _save(self, labelling: io.Labelling, mask: Path) -> None:
        """Save a mask, and beside it the objects and probabilities that the pipeline requests."""
        make_folder(mask.parent)
        io.save_masks(
            mask,
            labelling.labels,
            names=labelling.names,
            colors=labelling.colors,
            **labelling.placed,
        )
        if labelling.objects is not None:
            numbers, table = _object_files(mask)
            io.save_masks(numbers, labelling.objects.labels, **labelling.placed)
            io.save_table(table, labelling.measures or {"object": np.zeros(0, int)})
        step = self.pipeline.probabilities
        if step is not None:
            maps, prototypes = labelling.probabilities, labelling.prototypes
            options: Any = {"axes": labelling.axes, "scale": labelling.scale, "kind": step.kind}
            options |= {"units": labelling.units, "origin": labelling.origin}
            options |= {} if prototypes is None else prototypes.named
            images = np.stack([*maps.values()])
            io.save_probabilities(_maps_file(mask, step), images, labels=[*maps], **options)

    def large_job(self, job: Job) -> LargeJob:
        """Return the tiled job of an image; raise InvalidInput if tiles are not supported."""
        companions, step = self.companions, self.pipeline.probabilities
        if companions.seeds is not None or companions.groups is not None:
            raise refusal(Strategy.TILES_ON_DISK, "stroke files")
        if step is not None and step.suffix != io.OME_ZARR_SUFFIX:
            raise refusal(Strategy.TILES_ON_DISK, "map format")
        return LargeJob.of(
            io.url_of(job.images[0]) or job.images[0],
            self.pipeline,
            mask=companions.mask,
            no_data=companions.no_data,
            tile=self.tile,
            probability_path=None if step is None else _maps_file(job.masks[0], step),
        )

    def run_in_tiles(
        self, job: Job, on_step: OnStep | None, cancelled: Callable[[], bool], client: Client | None
    ) -> LabelSummary:
        """Label an image tile by tile, see `AbstractTask.run_in_tiles`."""
        large = run_large(
            self.large_job(job),
            job.masks[0],
            client=client,
            progress=None if on_step is None else lambda *counts: on_step(TileCount(*counts)),
            overwrite=self.overwrite,
            cancelled=cancelled,
        )
        done = f", {large.n_done_before} done before" if large.n_done_before else ""
        ending = f"{counted(large.n_tiles, 'tile')}{done}"
        return LabelSummary((len(large.sizes),), ending, large.seconds, large.notes)

    def finish(self, jobs: Sequence[Job]) -> None:
        """Concatenate the object tables of the fields of a plate, or the series of a file."""
        stores = [io.place_in_store(job.images[0]) for job in jobs]
        if self.pipeline.objects is None or None in stores or not all(job.in_tiles for job in jobs):
            return
        import pandas  # takes half a second to load

        parts = []
        for job, (_, names) in zip(jobs, filter(None, stores), strict=True):
            file = io.path_beside(job.masks[0], "objects.csv")
            if file.exists():
                columns = {"image": "/".join(names)}
                if len(names) == 3:  # of a plate
                    row, column, field = names
                    columns = {"row": row, "column": column, "well": f"{row}/{column}"}
                    columns["field"] = field
                part = pandas.read_csv(file)
                parts.append(part.assign(**columns)[[*columns, *part.columns]])
        if parts:
            joined = pandas.concat(parts, ignore_index=True)
            table = {str(name): column.to_numpy() for name, column in joined.items()}
            io.save_table(file.parent.with_name(f"{file.parent.name}.csv"), table)

    def _outputs(self, job: Job) -> list[Path]:
        """Return all output files of a job: masks, recipe, objects and probabilities."""
        outputs = list(job.outputs)
        for mask in job.masks:
            if self.pipeline.objects is not None:
                outputs += _object_files(mask, io.OME_ZARR_SUFFIX if job.in_tiles else ".tif")
            if self.pipeline.probabilities is not None:
                outputs.append(_maps_file(mask, self.pipeline.probabilities))
        return outputs

    def _files(self, job: Job) -> list[JsonObject]:
        """Return the current state of the input files of a job, as recorded in a recipe."""
        uses = [("image", path) for path in job.images] + list(self.companions.files.items())
        folder, mask = job.companion.parent, self.companions.mask
        files = [{"use": use} | io.file_state(path, folder) for use, path in uses]
        settings = _settings(self.pipeline, self.companions.axis_from_file)
        values = {"mask": mask if mask == "finite" else None, "no_data": self.companions.no_data}
        values |= {"settings": settings}
        return files + [{"use": k, "path": str(v)} for k, v in values.items() if v is not None]

    def _check_replaceable(self, job: Job) -> None:
        """Raise InvalidInput for existing outputs of other input files or settings."""
        if self.overwrite:
            return
        recipes = [_about(path) for path in (job.companion, _hidden_recipe(job))]
        inputs = _uses_and_paths(self._files(job))
        is_same_run = any(_uses_and_paths(recipe.get("files")) == inputs for recipe in recipes)
        for output in self._outputs(job):
            if output.exists() and not is_same_run:
                raise InvalidInput(f"{output}: is there already, from another run; {_REPLACES}")
        written = [recipe.get("labels") for recipe in recipes]
        digests = [x for x in written if isinstance(x, list) and len(x) == len(job.masks)]
        for k, mask in enumerate(job.masks):
            if digests and mask.exists():
                if _digest(io.read_labels(mask).array) not in [labels[k] for labels in digests]:
                    raise InvalidInput(f"{mask}: was changed since it was made; {_REPLACES}")

    @contextmanager
    def _saving_recipe(self, job: Job, recipe: JsonObject) -> Iterator[None]:
        """Save a recipe around the masks, so that a killed run leaves no mask without its recipe.

        The recipe is saved before new masks. While existing masks are overwritten, the new recipe
        has a hidden name, so each mask belongs to one of the two.
        """
        make_folder(job.companion.parent)
        self._check_replaceable(job)
        existed, states = job.companion.exists(), [_identity(mask) for mask in job.masks]
        is_first = not any(mask.exists() for mask in job.masks)
        target = job.companion if is_first else _hidden_recipe(job)
        # Of two runs started at the same time only one creates the recipe.
        io.save_recipe(target, recipe, overwrite=self.overwrite or existed)
        try:
            yield
        except BaseException:
            if [_identity(mask) for mask in job.masks] == states and not (is_first and existed):
                remove_path(target)
            raise
        if not is_first:
            io.save_recipe(job.companion, recipe)
        remove_path(_hidden_recipe(job))  # also that of a killed run whose masks were removed since


@functools.lru_cache(maxsize=1)
def _settings(pipeline: Pipeline, axis_from_file: bool) -> str:
    """Return a digest of all settings that determine the labels, without the files."""
    plain = dataclasses.replace(pipeline, about={}).plain | {"axis_from_file": axis_from_file}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def least_certain(jobs: Sequence[Job], count: int = 3) -> str:
    """Return text naming the images with the most uncertain pixels, from their recipes.

    Empty for a single image.
    """
    shares = dict[str, float]()
    for job in jobs:
        uncertainty = _about(job.companion).get("uncertainty")
        if isinstance(uncertainty, list) and len(uncertainty) == len(job.images):
            names = (path.name for path in job.images)
            shares |= dict(zip(names, uncertainty, strict=True))
    uncertain = [name for name, share in shares.items() if share >= _LEAST_SAID]
    uncertain = sorted(uncertain, key=lambda name: -shares[name])[:count]
    listed = ", ".join(f"{name} ({100 * shares[name]:.1f} %)" for name in uncertain)
    return f"least certain: {listed}" if listed and len(shares) > 1 else ""


def _object_files(mask: Path, suffix: str = ".tif") -> tuple[Path, Path]:
    """Return the paths of the object image and the object table of a mask."""
    suffix = io.mask_suffix(mask, io.NIFTI_SUFFIXES) or suffix  # on the grid of a scan
    return io.path_beside(mask, f"objects{suffix}"), io.path_beside(mask, "objects.csv")


def _maps_file(mask: Path, step: io.ProbabilityStep) -> Path:
    """Return the path of the probability maps of a mask."""
    return io.path_beside(mask, f"{io.PROBABILITY_MARK[1:]}{step.suffix}")


def _digest(labels: NDArray[Any]) -> str:
    """Return a digest of labels, independent of data type and axes of length 1."""
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes()).hexdigest()[:16]


def _digest_of_image(image: io.ImageFile) -> str:
    """Return a digest of the pixels and data type of an image."""
    kind = repr((image.array.shape, str(image.array.dtype))).encode()
    digest = hashlib.blake2b(kind, digest_size=8)
    digest.update(np.ascontiguousarray(image.array).data)
    return digest.hexdigest()


def _hidden_recipe(job: Job) -> Path:
    """Return the path of the new recipe while masks of an earlier run are overwritten."""
    return job.companion.with_name(f"{hidden_name(job.companion)}.recipe.json")


def _remove_leftovers(job: Job) -> None:
    """Remove temporary files of killed runs next to the files of a job."""
    for path in (*job.outputs, _hidden_recipe(job)):
        remove_leftovers(path)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return a value that changes when a file is replaced; None if there is no file."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns


def _about(path: Path) -> Mapping[str, Any]:
    """Return the provenance of a recipe; empty if there is no readable recipe."""
    try:
        return load_recipe(path).about if path.exists() else {}
    except FormatError:
        return {}


def _uses_and_paths(files: Any) -> list[tuple[object, object]] | None:
    """Return role and path of each recorded file."""
    try:
        return [(file["use"], file["path"]) for file in files]
    except (TypeError, KeyError):
        return None
