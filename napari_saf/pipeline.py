"""The pipeline from pixels to labels, regions, objects and probabilities, as a frozen dataclass.

A recipe is a pipeline on disk. `napari_saf.tiles.label_large` runs it in tiles,
`napari_saf.batch` on folders.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic_core import to_jsonable_python

from napari_saf import io, storage
from napari_saf.arrays import JsonObject, as_path, check_kind
from napari_saf.errors import InvalidInput
from napari_saf.features import Scaling, channels_last
from napari_saf.graph import GraphUnion
from napari_saf.input import ImageOptions
from napari_saf.methods import (
    METHODS,
    AbstractMethod,
    method_with_prototypes,
    not_cancelled,
    run_to_end,
)
from napari_saf.objects import ObjectStep, with_bounds
from napari_saf.parameters import from_plain, to_plain
from napari_saf.problem import Problem
from napari_saf.regions import merge_regions
from napari_saf.result import LabelImage, LabelMap, Segmentation, Snapshot, Status
from napari_saf.strategies import Strategy, refusal

Source = ArrayLike | io.ImageFile
"""An image in memory, alone or with the metadata of its file."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """Settings of a run from image to labels, regions and objects: the content of a recipe.

    Parameters
    ----------
    method : AbstractMethod
        Labelling method.
    options : ImageOptions or None
        Conversion of an image to a problem; None for a run on a graph.
    level : float, optional
        0 to 1: labels are divided into regions, merged up to this level (`merge_regions`).
    objects : ObjectStep, optional
        Splitting of labels into measured objects.
    probabilities : ProbabilityStep, optional
        Probability maps to compute.
    prototypes : PrototypeSet, optional
        Prototypes learned from strokes, with names and colours; label images without strokes.
    about : mapping
        Provenance: versions, and the files and labels of the run.

    Examples
    --------
    >>> image = np.kron([[0.1, 0.9], [0.9, 0.1]], np.ones((8, 8)))
    >>> step = saf.ObjectStep(smallest=4, kinds="all")
    >>> pipeline = saf.Pipeline(saf.SLK(n_clusters=2), objects=step)
    >>> labelling = pipeline.run(image)
    >>> labelling.labels.shape, len(labelling.measures["object"])
    ((16, 16), 4)
    """

    method: AbstractMethod
    options: ImageOptions | None = dataclasses.field(default_factory=ImageOptions)
    _: dataclasses.KW_ONLY
    level: float | None = None
    objects: ObjectStep | None = None
    probabilities: io.ProbabilityStep | None = None
    prototypes: io.PrototypeSet | None = None
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise InvalidInput for a field of the wrong type, or a level out of range."""
        check_kind(self.method, AbstractMethod, "method", "a method, such as saf.SLK()")
        types: dict[str, type] = {"options": ImageOptions, "objects": ObjectStep}
        types |= {"prototypes": io.PrototypeSet, "probabilities": io.ProbabilityStep}
        for name, expected in types.items():
            if (value := getattr(self, name)) is not None:
                check_kind(value, expected, name, f"a value of {expected.__name__}")
        if self.level is not None and not (
            isinstance(self.level, int | float) and 0 <= self.level <= 1
        ):
            raise InvalidInput(f"level: expected a number from 0 to 1, got {self.level!r}")

    @classmethod
    def from_plain(cls, raw: object) -> Pipeline:
        """Return the pipeline of a `Segmentation.recipe` or a recipe file.

        Errors are those of `load_recipe`.
        """
        file = io.check_recipe(raw)
        options = file.options
        if options is not None:
            io.check_repeatable(options)
        objects, maps = file.objects, file.probabilities
        return cls(
            from_plain(METHODS[file.method], file.parameters),
            options,
            level=None if file.regions is None else file.regions.level,
            objects=None if objects is None else from_plain(ObjectStep, objects, "objects"),
            probabilities=None
            if maps is None
            else from_plain(io.ProbabilityStep, maps, "probabilities"),
            prototypes=file.prototypes,
            about=file.about,
        )

    @classmethod
    def from_prototypes(cls, prototypes: io.PrototypeSet) -> Pipeline:
        """Return the pipeline that labels images by prototypes, with their features and scaling.

        InvalidInput if the features of the prototypes are unknown.
        """
        if prototypes.options is None:
            raise InvalidInput("the features of the prototypes are unknown")
        method = method_with_prototypes(prototypes.vectors, labels=prototypes.labels)
        return cls(method, prototypes.options, prototypes=prototypes)

    @property
    def plain(self) -> JsonObject:
        """The recipe as JSON-compatible values, the inverse of `from_plain`."""
        plain: JsonObject = {
            "schema": 1,
            "method": self.method.name,
            "parameters": to_plain(self.method),
            "input": None if self.options is None else self.options.to_plain(),
        }
        return dict(to_jsonable_python(self._with_steps({**plain, **self.about})))

    def _with_steps(self, recipe: Mapping[str, Any]) -> JsonObject:
        """Return the recipe of a run of the method with the further steps of the pipeline."""
        steps = {"objects": self.objects, "probabilities": self.probabilities}
        added = {name: to_plain(step) for name, step in steps.items() if step is not None}
        return io.with_prototypes(io.with_level({**recipe}, self.level), self.prototypes) | added

    def with_rescale(self, rescale: bool) -> Pipeline:
        """Return the pipeline with another `rescale`; unchanged without a scaling."""
        if self.options is None or self.options.scaling is None:
            return self
        options = dataclasses.replace(self.options, rescale=rescale)
        prototypes = self.prototypes and dataclasses.replace(self.prototypes, options=options)
        return dataclasses.replace(self, options=options, prototypes=prototypes)

    def for_others(self) -> Pipeline:
        """Return the pipeline that labels images by the prototypes, without strokes.

        On the painted image its labels may differ from those of the strokes. Return the pipeline
        itself if it has no prototypes, or if its method has.
        """
        if self.prototypes is None or self.options is None or self.method.labels_are_given:
            return self
        prototypes = dataclasses.replace(self.prototypes, options=self.options)
        method = method_with_prototypes(prototypes.vectors, labels=prototypes.labels)
        return dataclasses.replace(self, method=method, prototypes=prototypes)

    def problem(
        self,
        source: Source | list[Source],
        *,
        mask: Any = None,
        seeds: Any = None,
        groups: Any = None,
        rescale: bool | Scaling | None = None,
    ) -> Problem:
        """Convert an image to a problem by the options; the number of channels must agree.

        Arguments and errors are those of `Problem.from_image`, or, for a list of images, of
        `Problem.from_images`; recipes contain neither mask nor seeds. With `rescale` the 0.1 and
        99.9 percentiles of this image become 0 and 1, for images of other brightness, otherwise
        the values of the first image; None: as in the options, True unless a scaling was given.
        InvalidInput for the pipeline of a run on a graph.
        """
        if self.options is None:
            raise refusal(Strategy.WHOLE, "graph")
        io.check_repeatable(self.options)
        arguments = self.options.for_others(rescale).arguments()
        if groups is not None:
            arguments["groups"] = groups
        sources = source if isinstance(source, list) else [source]
        arrays = [*map(_array_of, sources)]
        if len(arrays) == 1:
            mask = _with_data(sources[0], mask)
            return Problem.from_image(arrays[0], mask=mask, seeds=seeds, **arguments)
        masks: Any = [mask] * len(arrays) if mask is None or isinstance(mask, str) else mask
        masks = [*map(_with_data, sources, masks)] if len(masks) == len(arrays) else masks
        return Problem.from_images(arrays, masks=masks, seeds=seeds, **arguments)

    def run(self, source: Source, **arguments: Any) -> io.Labelling:
        """Label an image and return the labelling; arguments are those of `iterate`."""
        (labelling,) = run_to_end(self.iterate([source], **arguments))
        return labelling

    def iterate(
        self,
        sources: Sequence[Source],
        *,
        mask: Any = None,
        seeds: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        rescale: bool | Scaling | None = None,
        cancelled: Callable[[], bool] = not_cancelled,
    ) -> Generator[Snapshot, None, list[io.Labelling]]:
        """Yield the snapshots of a run; return the labelling of each image.

        Several images are labelled as one problem. Without seeds the prototypes are used, see
        `for_others`; labels have the numbers of the seeds. A cancelled run returns labels alone,
        see `Labelling.result`. Further arguments are those of `problem`.
        """
        problem = self.problem([*sources], mask=mask, seeds=seeds, groups=groups, rescale=rescale)
        pipeline = self if seeds is not None else self.for_others()
        run = NumberedRun(pipeline.method, problem)
        result = run.finish((yield from run.iterate(cancelled)))
        result = dataclasses.replace(result, label_map=run.label_map(result))
        if seeds is not None and len(sources) == 1:
            prototypes = io.PrototypeSet.fit(problem, result.labels)
            pipeline = dataclasses.replace(pipeline, prototypes=prototypes)
        return list(pipeline._labellings(sources, problem, result, cancelled))

    def _labellings(
        self,
        sources: Sequence[Source],
        problem: Problem,
        result: Segmentation,
        cancelled: Callable[[], bool],
    ) -> Generator[io.Labelling, None, None]:
        """Yield each image's labels with regions, objects and probabilities."""
        assert problem.options is not None
        images = result.labels if isinstance(result.labels, list) else [result.labels]
        nodes = problem.graph.slices if isinstance(problem.graph, GraphUnion) else [slice(None)]
        is_done = result.status is not Status.CANCELLED
        maps = self._maps(problem, result, len(images)) if is_done else [{} for _ in images]
        recipe = self._with_steps(result.recipe) if is_done else result.recipe
        axis, named = problem.options.channel_axis, self.prototypes
        uncertainties: list[Any] = [None for _ in images]
        if self.objects is not None and self.objects.by_uncertainty and problem.seeds is not None:
            # Without strokes on the image the uncertainty does not indicate where objects touch.
            spread: Any = problem.graph.to_image(result.uncertainty)  # type: ignore[arg-type]
            uncertainties = spread if len(images) > 1 else [spread]
        for k, (source, labels) in enumerate(zip(sources, images, strict=True)):
            labelling = dataclasses.replace(
                placed_labels(source, labels, axis),
                **({} if named is None else named.named),
                prototypes=named,
                recipe=recipe,
                probabilities=maps[k],
                result=result,
                uncertain_share=result.uncertain_share(nodes[k]),
                notes=result.notes,
            )
            if is_done and self.objects is not None:
                labelling = _with_objects(labelling, self.objects, uncertainties[k])
            if is_done and self.level is not None:
                array: Any = labelling.image
                together = problem.options.averaged_axes(labels.shape)
                tree = merge_regions(
                    labels, array, channel_axis=axis, axes=together, cancelled=cancelled
                )
                has_note = self.objects is None and tree.separate.note
                labelling = dataclasses.replace(
                    labelling,
                    labels=tree.at_level(self.level),
                    kinds=labels,
                    names={},
                    colors={},
                    notes=(*labelling.notes, *[tree.separate.note] * bool(has_note)),
                )
            yield labelling

    def _maps(
        self, problem: Problem, result: Segmentation, n_images: int
    ) -> list[dict[int, NDArray[np.float32]]]:
        """Return the probability maps of each image by label; empty if not requested."""
        if self.probabilities is None:
            return [{} for _ in range(n_images)]
        labels: Sequence[int] | None = self.probabilities.labels
        if not labels:
            prototypes = self.prototypes
            labels = io.labels_of(result) if prototypes is None else [*prototypes.by_label()]
        maps = io.probability_maps(problem, result, labels)
        images = maps if isinstance(maps, list) else [maps]
        return [dict(zip(labels, image, strict=True)) for image in images]


def _with_data(source: Source, mask: Any) -> Any:
    """Return the mask of an image without pixels that lack data in its file."""
    if not isinstance(source, io.ImageFile) or source.no_data is None or isinstance(mask, str):
        return mask
    if mask is None:
        return "finite"
    inside = source.has_data
    return (np.asarray(mask) != 0) & inside if np.shape(mask) == inside.shape else mask


def without_gaps(problem: Problem) -> tuple[Problem, LabelMap]:
    """Return the problem with seeds renumbered 1, 2, ... and their original labels."""
    if problem.seeds is None:
        return problem, LabelMap.identity(0)
    classes = LabelMap.from_seeds(problem.seeds)
    return problem.with_seeds(classes.unpaint(problem.seeds)), classes


class RunStart:
    """Start of a run without initial labels, numbered as the seeds; subclasses start otherwise."""

    is_recorded: ClassVar[bool] = True

    def begin(self, problem: Problem, method: AbstractMethod) -> tuple[Problem, LabelMap]:
        """Return the problem to solve, and the labels of its first columns."""
        return (problem, LabelMap.identity(0)) if method.labels_are_given else without_gaps(problem)

    def initial(
        self, problem: Problem, classes: LabelMap, method: AbstractMethod
    ) -> NDArray[np.float32] | Segmentation | None:
        """Return the initial state, see `iterate`; None for the default of the method."""
        return None

    def paint(self, columns: LabelImage, classes: LabelMap) -> LabelImage:
        """Return labels for columns numbered from 1; 0 stays 0."""
        return classes.extended(int(columns.max(initial=0))).paint(columns)

    def finish(self, result: Segmentation, classes: LabelMap) -> Segmentation:
        """Return the result with painted labels."""
        images = result.labels if isinstance(result.labels, list) else [result.labels]
        painted = [self.paint(image, classes) for image in images]
        labels = painted if isinstance(result.labels, list) else painted[0]
        return dataclasses.replace(result, labels=labels)


class NumberedRun:
    """A run of a method on a problem whose seed labels may have gaps.

    The method solves `problem`, renumbered without gaps; `classes` are the labels of its first
    columns.
    """

    def __init__(
        self, method: AbstractMethod, problem: Problem, start: RunStart | None = None
    ) -> None:
        self.method, self.start = method, start or RunStart()
        self.problem, self.classes = self.start.begin(problem, method)

    def iterate(self, cancelled: Callable[[], bool]) -> Generator[Snapshot, None, Segmentation]:
        """Yield the snapshots, return the result; both in the numbering of the method."""
        initial = self.start.initial(self.problem, self.classes, self.method)
        return (yield from self.method.iterate(self.problem, initial, cancelled=cancelled))

    def finish(self, result: Segmentation) -> Segmentation:
        """Return the result with labels numbered as the seeds."""
        return self.start.finish(result, self.classes)

    def label_map(self, result: Segmentation) -> LabelMap:
        """Return the column of each label returned by `finish`."""
        columns = result.label_map.numbers
        shown = self.classes.extended(int(columns.max(initial=0)))
        return LabelMap(np.append(0, shown.numbers)[columns])

    def by_label(self, result: Segmentation) -> Segmentation:
        """Return the result with prototypes, exemplars and columns ordered by the final labels."""
        rows, nodes = result.prototypes, result.exemplars
        if nodes is not None:
            most = max(len(rows), int(result.label_map.numbers.max(initial=0)))
            columns = self.classes.extended(most).columns
            nodes = np.where(columns < 0, -1, nodes[columns.clip(max=len(nodes) - 1)])
        rows = self.classes.extended(len(rows)).rows(rows)
        label_map = self.label_map(result)
        return dataclasses.replace(result, prototypes=rows, exemplars=nodes, label_map=label_map)


def _array_of(source: Source) -> Any:
    return source.array if isinstance(source, io.ImageFile) else source


def _with_objects(
    labelling: io.Labelling, step: ObjectStep, uncertainty: NDArray[Any] | None
) -> io.Labelling:
    """Return a labelling with its objects, their measures and notes."""
    objects, measures = step.run(
        labelling.labels,
        labelling.image,
        uncertainty=uncertainty,
        names=labelling.names,
        channel_axis=labelling.channel_axis,
        axes=labelling.axes,
        scale=labelling.scale,
        units=labelling.units,
    )
    measures = with_bounds(measures, objects, labelling.probabilities, smallest=step.smallest)
    notes = (*labelling.notes, *step.notes_on(objects))
    return dataclasses.replace(labelling, objects=objects, measures=measures, notes=notes)


def placed_labels(source: Source, labels: NDArray[Any], channel_axis: int | None) -> io.Labelling:
    """Return labels with the spatial metadata of their image."""
    array = np.asanyarray(_array_of(source))
    _, used = channels_last(array, channel_axis)
    if not isinstance(source, io.ImageFile):
        return io.Labelling(labels, array, used)
    letters, axes = "", list[int]()
    if used == source.channel_axis:
        letters, axes = source.label_axes, list(range(labels.ndim))
    elif source.channel_axis is None:
        axes = [axis for axis in range(array.ndim) if axis != used]
        letters = "".join(source.axes[axis] for axis in axes) if source.axes else ""

    def along(values: Sequence[Any] | None) -> Any:
        return (values and tuple(values[axis] for axis in axes)) or None

    return io.Labelling(
        labels,
        array,
        used,
        axes=letters or None,
        scale=along(source.scale),
        units=along(source.units),
        origin=along(source.origin),
        affine=source.affine,
        georeference=source.georeference,
    )


def load_recipe(path: str | os.PathLike[str]) -> Pipeline:
    """Load a recipe.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it: not JSON, an unknown version of the schema,
        an unknown method or parameter, a value of the wrong kind or out of bounds, or
        something that a recipe cannot repeat.

    Examples
    --------
    >>> image = np.kron([[0.0, 1.0]], np.ones((8, 8)))
    >>> result = saf.SLK(n_clusters=2).run(saf.Problem.from_image(image))
    >>> pipeline = saf.load_recipe(saf.save_recipe("labels.recipe.json", result.recipe))
    >>> np.array_equal(pipeline.run(image).labels, result.labels)
    True
    """
    file = as_path(path)
    with storage.format_errors(file, "a recipe"):
        return Pipeline.from_plain(storage.read_json(file))
