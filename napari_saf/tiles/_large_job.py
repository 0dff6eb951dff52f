"""Planning of a large image: labels at a reduced size, and the rule that labels tiles.

All that depends on distant pixels is computed here once, as in memory: the scaling, the reduced
labels, their means, and the steps of the flow.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf import io
from napari_saf.arrays import JsonObject, check_window
from napari_saf.device import is_interrupted, memory_limit, raise_if_interrupted
from napari_saf.errors import ComputeError, InvalidInput
from napari_saf.features import Pixels, channel_of_groups, channel_threshold
from napari_saf.flow import wait_for_kernels
from napari_saf.graph import CoarseGrid, GridGraph
from napari_saf.input import AUTO, ImageOptions, fitting_shape, nodes_of, survey_image
from napari_saf.methods import (
    AbstractMethod,
    AssignmentFlow,
    ReducedImage,
    RegionFlow,
    can_be_learned,
    fitted_to,
    full_options,
    learn_all_borders,
    learn_labels,
    method_with_prototypes,
    region_problem,
    run_to_end,
    scheduled,
)
from napari_saf.parameters import to_plain
from napari_saf.pipeline import Pipeline
from napari_saf.problem import Problem
from napari_saf.project import as_model
from napari_saf.result import Segmentation
from napari_saf.strategies import Strategy, refusal
from napari_saf.tiles._job import AbstractLargeJob, Work, check_count, opened_with_mask, pixels_of
from napari_saf.tiles._plan import Packed, Plan
from napari_saf.tiles._tiling import blocks_within, fitting_tile, reduced_to_blocks, sides_of

LEARN_PIXELS = 2**22
"""Maximum number of nodes at the reduced size."""
_MOST_FIELDS = 5 * 2**28
"""Maximum bytes of the fields at the reduced size."""
_LEAST_NODES = 2**14
_FAR, _MOST_DOUBLINGS = 4.0, 3
"""Voxels per side of a node above which labels of volumes are learned from blocks: with 9, balls of
5 to 9 voxels radius have F1 .84 to .90 in place of .98; and how often rho is halved or doubled."""
_MOST_READ = 2**20
"""Pixels of the blocks that fit the features and steps of a flow with given prototypes."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LargeJob(AbstractLargeJob):
    """Job that labels a large image by a pipeline."""

    plan_type = Plan

    recipe: Pipeline
    learn_pixels: int = LEARN_PIXELS
    probability_path: Path | None = None

    @classmethod
    def of(
        cls,
        source: Any,
        recipe: Any,
        *,
        channel_axis: int | None = None,
        learn_pixels: int = LEARN_PIXELS,
        probability_path: Path | None = None,
        mask: Any = None,
        tile: int | None = None,
        no_data: float | None = None,
    ) -> LargeJob:
        """Open and check the image and its mask; see `opened_with_mask`.

        Maps of soft labels are written to `probability_path` according to `probabilities`.
        """
        is_method = isinstance(recipe, AbstractMethod)
        pipeline = Pipeline(recipe) if is_method else as_model(recipe)
        if not isinstance(pipeline, Pipeline):
            raise InvalidInput("recipe: a dictionary requires a DictionaryJob")
        if channel_axis is None and pipeline.options is not None:
            channel_axis = pipeline.options.channel_axis
        opened = opened_with_mask(source, channel_axis, mask, tile, no_data)
        check_count("learn_pixels", learn_pixels, 1)
        _checked(pipeline.for_others())
        if probability_path is not None:
            io.check_suffix(probability_path, [".ome.zarr"])
            step = pipeline.probabilities or io.ProbabilityStep()
            pipeline = dataclasses.replace(pipeline, probabilities=step)
        return cls(*opened, pipeline, learn_pixels, probability_path)

    @property
    def recipe_of_run(self) -> Pipeline:
        return self.recipe

    @property
    def _map_step(self) -> io.ProbabilityStep | None:
        return None if self.probability_path is None else self.recipe.probabilities

    @property
    def request(self) -> JsonObject:
        recipe, options = self.recipe, self.recipe.options
        plain = {
            "method": recipe.method.name,
            "parameters": to_plain(recipe.method),
            "input": None if options is None else options.to_plain(),
            "taught": None if recipe.prototypes is None else recipe.prototypes.entries(),
            "tile": self.tile,
            "learn_pixels": self.learn_pixels,
            "probabilities": None if self._map_step is None else to_plain(self._map_step),
        }
        return dict(json.loads(json.dumps(plain)))

    def plan(self) -> Plan:
        """Label the image at a reduced size, and learn the prototypes of its labels."""
        wait_for_kernels()
        recipe, image = _checked(self.recipe.for_others()), self.image
        pixels = pixels_of(image, self.auxiliary)
        shape, options, rows = survey_image(pixels, *options_of(recipe, image))
        is_whole = shape == pixels.shape
        if recipe.method.labels_are_given and is_whole and math.prod(shape) > self.learn_pixels:
            return self._plan_of_prototypes(recipe, pixels, options)
        small = fitting_shape(pixels.shape, options, self.learn_pixels)[0]
        if options.groups is None and _is_far(pixels.shape, small):
            note = "labels are learned from blocks: the image is too large for a reduced size"
            return self._plan_of_prototypes(recipe, pixels, options, [note])
        notes, most = list[str](), self.learn_pixels
        while True:
            shape, smaller = fitting_shape(pixels.shape, options, most)
            try:
                problem, result = _run_reduced(recipe.method, pixels, shape, smaller, rows)
                break
            except ComputeError:
                if math.prod(shape) < 2 * _LEAST_NODES:
                    raise
                most = math.prod(shape) // 2
        if smaller != options:
            sides = " x ".join(map(str, shape))
            notes.append(f"labels are decided at {sides}: more nodes at once are not allowed")
        return self._plan_of_run(recipe, pixels, problem, result, notes)

    def _plan_of_run(
        self,
        recipe: Pipeline,
        pixels: Pixels,
        problem: Problem,
        result: Segmentation,
        notes: list[str],
    ) -> Plan:
        """Return the plan that extends the labels of a run at a reduced size to all pixels."""
        options, graph, nodes = problem.options, problem.graph, np.asarray(result.labels)
        assert options is not None and isinstance(graph, GridGraph)
        image = ReducedImage(CoarseGrid(graph, pixels.shape), pixels, nodes)
        flow, n_features = None, 0
        window = list(check_window(options.window, nodes.shape))  # type: ignore[arg-type]
        fields: dict[str, Any] = {"nodes": Packed.of(nodes)}
        if options.full_resolution and nodes.shape != pixels.shape:
            full = full_options(options, pixels.shape)
            learn_all_borders([image], full)
            borders = image.sharpener
            fields["borders"] = None if borders is None else dataclasses.asdict(borders)
            if recipe.method.labels_look_alike and can_be_learned(options):
                shared, noise = fitted_to([image], full)

                def problem_at(k: int, region: io.Region) -> Problem | None:
                    return region_problem(image, [region], shared, noise)

                learned, blocks = learn_labels(recipe.method, [image], shared, problem_at)
                history = learned.run(blocks).history
                fields["steps"] = np.diff(history.time).tolist()
                flow = RegionFlow(scheduled(learned, fields["steps"]), shared, noise)
                fields |= {"flow": _recipe_of(learned, shared), "noise": noise}
                n_features = blocks.features.shape[1]
        prototypes = recipe.prototypes
        if prototypes is None:
            prototypes = io.PrototypeSet(np.atleast_2d(result.prototypes).astype(np.float32))
        maps = self._maps(prototypes)
        if maps is not None and flow is None:
            numbers = result.label_map.numbers
            columns = [result.assignment[:, numbers == n].sum(axis=1) for n in maps["labels"]]
            shares = np.stack([graph.spread(column) for column in columns])
            fields["shares"] = Packed.of(np.rint(255 * shares).astype(np.uint8))
        options = dataclasses.replace(options, channel_axis=self._channel_axis)
        plain = result.recipe | {"input": options.to_plain()}
        fields |= {"recipe": io.with_prototypes(plain, prototypes), "maps": maps}
        n_labels = len(prototypes.by_label())
        return self._tiled(fields, image, flow, window, n_labels, n_features, notes)

    def _plan_of_prototypes(
        self, recipe: Pipeline, pixels: Pixels, options: ImageOptions, notes: Sequence[str] = ()
    ) -> Plan:
        """Return the plan that labels all pixels by prototypes, given or found in blocks."""
        options = dataclasses.replace(options, max_side=None, groups=None)
        window = check_window(options.window, pixels.shape)  # type: ignore[arg-type]
        options = dataclasses.replace(options, window=window)
        block = sides_of(pixels.shape, window, None)[0]
        regions = blocks_within(pixels, block, max(1, _MOST_READ // math.prod(block)))
        if not regions:
            raise InvalidInput("mask: expected pixels to label, none of them is within it")
        nodes = np.zeros([1] * len(window), np.uint8)
        grid = CoarseGrid(GridGraph(nodes.shape, window=1), pixels.shape)
        image = ReducedImage(grid, pixels, nodes)
        shared, noise = fitted_to([image], options, [regions])
        problem = region_problem(image, regions, shared, noise)
        assert problem is not None
        flow, prototypes = recipe.method, recipe.prototypes
        if not flow.labels_are_given:
            flow, prototypes = _flow_like(flow, problem), None
        assert isinstance(flow, AssignmentFlow)
        if prototypes is None:
            points = np.atleast_2d(np.asarray(flow.prototypes, np.float32))
            labels = flow.prototype_labels
            prototypes = io.PrototypeSet(
                points, None if labels is None else np.asarray(labels, int)
            )
        result = flow.run(problem)
        steps = np.diff(result.history.time).tolist()
        region_flow = RegionFlow(scheduled(flow, steps), shared, noise, has_prior=False)
        plain = dataclasses.replace(shared, channel_axis=self._channel_axis).to_plain()
        fields = {
            "nodes": Packed.of(nodes),
            "recipe": io.with_prototypes(result.recipe | {"input": plain}, prototypes),
            "flow": _recipe_of(flow, shared),
            "noise": noise,
            "steps": steps,
            "has_prior": False,
            "maps": self._maps(prototypes),
        }
        sizes = len(prototypes.by_label()), problem.features.shape[1]
        return self._tiled(fields, image, region_flow, list(window), *sizes, list(notes))

    @property
    def _channel_axis(self) -> int | None:
        return None if self.recipe.options is None else self.recipe.options.channel_axis

    def _maps(self, prototypes: io.PrototypeSet) -> JsonObject | None:
        """Return the fields of the maps of soft labels that are written."""
        if self._map_step is None:
            return None
        maps = to_plain(self._map_step)
        return maps if maps["labels"] else maps | {"labels": list(prototypes.by_label())}

    def _tiled(
        self,
        fields: Mapping[str, Any],
        image: ReducedImage,
        flow: RegionFlow | None,
        window: list[int],
        n_labels: int,
        n_features: int,
        notes: list[str],
    ) -> Plan:
        """Return the plan with tiles that fit into memory."""
        middle = tuple(slice(n // 2, n // 2 + 1) for n in image.shape)
        crop = image.surroundings(middle) if flow is None else flow.surroundings(middle, image)
        pairs = zip(middle, crop, strict=True)
        around = [max(k.start - c.start, c.stop - k.stop) for k, c in pairs]
        halo = [0] * len(window) if flow is None else flow.halo
        reach = [a - h for a, h in zip(around, halo, strict=True)]
        sides = fitting_tile(image.shape, window, self.tile, halo, n_labels, n_features, reach)
        chunk, tile, tile_notes = sides
        tiling = self.tiling(chunk, tile, [*notes, *tile_notes], around)
        return Plan(kind="tiles", **fields, **tiling)

    def work(self, plan: Any, out: Path, is_sent: bool) -> Work:
        store = None
        if self.probability_path is not None:
            step = io.ProbabilityStep(".ome.zarr", plan.maps["kind"], tuple(plan.maps["labels"]))
            prototypes, axes = plan.prototypes(), self.image.label_axes()
            labels = prototypes.names, prototypes.colors
            path = self.probability_path.absolute()
            store = io.ProbabilityStore(path, step, plan.shape, axes, *labels)
        return Work(plan, *self.sent(is_sent), out.absolute(), maps=store)


def _checked(recipe: Pipeline) -> Pipeline:
    """Raise InvalidInput for settings that depend on distant pixels, with an alternative."""
    method, options = recipe.method, recipe.options
    if options is None:
        raise refusal(Strategy.TILES_ON_DISK, "graph")
    if options.groups is not None and not options.groups.startswith("channel"):
        raise refusal(Strategy.TILES_ON_DISK, "groups", groups=options.groups)
    if method.follows_seeds:
        raise refusal(Strategy.TILES_ON_DISK, "strokes", method=method.title)
    return recipe


def options_of(
    recipe: Pipeline, image: io.ImageSource
) -> tuple[ImageOptions, Sequence[int] | None]:
    """Return the options for an image with channels last, and the axes of its windows if fixed."""
    assert recipe.options is not None
    options = dataclasses.replace(recipe.options.for_others(), channel_axis=-1)
    # Frames of a series are not adjacent in space.
    alone = [n == 1 or image.axes[k : k + 1] == "t" for k, n in enumerate(image.shape)]
    if isinstance(options.window, int) and any(alone):
        side = options.window
        window = tuple(1 if is_alone else side for is_alone in alone)
        options = dataclasses.replace(options, window=window)
    axes = [k for k, is_alone in enumerate(alone) if not is_alone]
    return options, axes if options.window == AUTO and axes else None


def _run_reduced(
    method: AbstractMethod,
    pixels: Pixels,
    shape: tuple[int, ...],
    options: ImageOptions,
    rows: NDArray[np.float64],
) -> tuple[Problem, Segmentation]:
    """Return the problem of an image at a reduced shape, and the result of a method."""
    grids, features, options = nodes_of([pixels], [shape], options)
    groups = None
    if options.groups is not None:
        groups = grids[0].gather(_groups(pixels, shape, options.groups, rows)).astype(np.int64)
    nodes: Any = features[0]
    problem = Problem(features=nodes, graph=grids[0], groups=groups, options=options)
    with memory_limit(_MOST_FIELDS):
        result = run_to_end(method.iterate(problem, cancelled=is_interrupted))
    raise_if_interrupted()
    return problem, result


def _is_far(shape: Sequence[int], small: Sequence[int]) -> bool:
    """Return whether nodes are too large for labels of volumes, see `_FAR`."""
    ratios = np.divide(shape, small)
    return bool(np.count_nonzero(ratios > 1) >= 3 and ratios.max() > _FAR)


def _flow_like(method: AbstractMethod, problem: Problem) -> AssignmentFlow:
    """Return the flow with the prototypes that a method finds, and the rho that agrees best."""
    result = run_to_end(method.iterate(problem, cancelled=is_interrupted))
    raise_if_interrupted()
    expected = result.label_map.numbers[result.assignment.argmax(axis=1)]
    flow = method_with_prototypes(result.prototypes, like=method)
    assert isinstance(flow, AssignmentFlow)

    def agreement(flow: AssignmentFlow) -> float:
        outcome = flow.run(problem)
        labels = outcome.label_map.numbers[outcome.assignment.argmax(axis=1)]
        return float((labels == expected).mean())

    rhos = [flow.rho * 2.0**k for k in range(-_MOST_DOUBLINGS, _MOST_DOUBLINGS + 1)]
    flows = [dataclasses.replace(flow, rho=rho) for rho in rhos if 1e-3 <= rho <= 100]
    return max(flows, key=agreement)


def _groups(
    pixels: Pixels, shape: tuple[int, ...], source: str, rows: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the most frequent group of a channel in the block of each node."""
    number, threshold = channel_of_groups(source, pixels.n_channels)
    threshold = channel_threshold(rows, number) if threshold is None else threshold
    counts = np.zeros((2, *shape), np.int64)
    for region in pixels.regions():
        values, inside = pixels.read(region)
        above = values[..., number] > threshold
        both = np.stack([~above, above], axis=-1).astype(np.int64)
        both = both if inside is None else both * inside[..., None]
        numbers = [
            np.arange(side.start, side.stop) * small // large
            for side, small, large in zip(region, shape, pixels.shape, strict=True)
        ]
        sums, blocks = reduced_to_blocks(np.add, both, numbers)
        counts[(slice(None), *blocks)] += np.moveaxis(sums, -1, 0)
    return np.where(counts.any(axis=0), 1 + (counts[1] > counts[0]), 0)


def _recipe_of(flow: AssignmentFlow, options: ImageOptions) -> JsonObject:
    """Return the recipe of a flow with options."""
    plain = {"schema": 1, "method": flow.name, "parameters": to_plain(flow)}
    return plain | {"input": options.to_plain()}
