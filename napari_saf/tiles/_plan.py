"""The plan of a large image: its labels at a reduced size, and how tiles are labelled by them.

Whatever hangs on more than the surroundings of a pixel is decided here, once, as it is in memory:
the scaling, the reduced labels, the means that stand for them, and the steps of the flow. A tile is
then labelled as it would be within the whole image.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from napari_saf import io, storage
from napari_saf.arrays import check_window
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
from napari_saf.parts import cut, grown
from napari_saf.pipeline import Pipeline
from napari_saf.problem import Problem
from napari_saf.project import as_model
from napari_saf.result import LabelMap, Segmentation
from napari_saf.sharpening import Sharpener
from napari_saf.strategies import Strategy, refusal
from napari_saf.tiles._job import (
    AbstractLargeJob,
    Work,
    check_count,
    inside_of,
    opened_with_mask,
    pixels_of,
)
from napari_saf.tiles._tiling import Tiling, blocks_within, fitting_tile, sides_of

LEARN_PIXELS = 2**22
"""Pixels, of a reduced size, that a method labels at once."""
_MOST_FIELDS = 5 * 2**28
"""Bytes of its fields; at a smaller size it needs less."""
_LEAST_NODES = 2**14
_FAR, _MOST_DOUBLINGS = 4.0, 3
"""Voxels a side of a node, from which on labels of volumes are learned from blocks: with 9 balls of
5 to 9 voxels radius have F1 .84 to .90 in place of .98; and how often rho is halved or doubled."""
_MOST_READ = 2**20
"""Pixels of blocks that tell what a flow with prototypes takes, where it labels in full."""


class Packed(storage.FileModel):
    """An array as JSON holds it, compressed."""

    shape: list[int]
    dtype: str
    content: str

    @classmethod
    def of(cls, array: NDArray[Any]) -> Packed:
        content = base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 6))
        return cls(shape=list(array.shape), dtype=str(array.dtype), content=content.decode())

    def array(self) -> NDArray[Any]:
        return _unpacked(tuple(self.shape), self.dtype, self.content)


@functools.lru_cache(maxsize=4)
def _unpacked(shape: tuple[int, ...], dtype: str, content: str) -> NDArray[Any]:
    raw = zlib.decompress(base64.b64decode(content))
    return np.frombuffer(raw, dtype).reshape(shape)


class Plan(Tiling):
    """How a large image is labelled, as JSON holds it; positions and sizes are in pixels.

    `recipe` is that of the run at a reduced size, and `nodes` are its labels; `shares` are its soft
    labels, where they are asked for and no flow labels tiles. By `borders` the enlarged labels are
    moved onto edges; by the recipe `flow`, if there is one, all pixels are labelled.
    """

    kind: Literal["tiles"]
    recipe: dict[str, Any]
    nodes: Packed
    shares: Packed | None = None
    borders: dict[str, Any] | None = None
    flow: dict[str, Any] | None = None
    noise: list[float] | None = None
    steps: list[float] = Field(default_factory=list)
    has_prior: bool = True
    maps: dict[str, Any] | None = None

    def region_flow(self) -> RegionFlow | None:
        """Return what labels any region."""
        if self.flow is None:
            return None
        recipe = Pipeline.from_plain(self.flow)
        assert isinstance(recipe.method, AssignmentFlow) and recipe.options is not None
        flow = scheduled(recipe.method, self.steps)
        return RegionFlow(flow, recipe.options, self.noise, self.has_prior)

    def image(self, pixels: Pixels) -> ReducedImage:
        """Return an image of the shape of the plan with its reduced labels."""
        nodes = self.nodes.array()
        grid = CoarseGrid(GridGraph(nodes.shape, window=1), self.shape)
        sharpener = None if self.borders is None else Sharpener(**self.borders)
        return ReducedImage(grid, pixels, nodes, sharpener=sharpener)

    def label_map_of(self) -> io.PrototypeSet:
        """Return what the labels stand for, with their names."""
        recipe = Pipeline.from_plain(self.recipe)
        assert recipe.prototypes is not None
        return recipe.prototypes

    @property
    def most_label(self) -> int:
        """The largest label that may come out."""
        return max(self.label_map_of().by_label())

    @property
    def decided(self) -> str:
        steps = f"in {len(self.steps)} steps"
        if not self.has_prior:
            return f"by prototypes, {steps}"
        sides = " x ".join(map(str, self.nodes.shape))
        return f"decided at {sides}" + (f", then {steps}" if self.steps else "")

    def describe(self, axes: io.Axes, numbers: list[int]) -> tuple[LabelMap, str]:
        taught = self.label_map_of()
        known = io.map_labels(np.array(numbers), taught.names, taught.colors)
        return known, io.write_note(axes, taught.names, taught.colors, taught, self.recipe)

    def surroundings(self, region: io.Region) -> io.Region:
        """Return a region with all around it that its labels depend on."""
        image, flow = self.image(unread_pixels(self.shape)), self.region_flow()
        return image.surroundings(region) if flow is None else flow.surroundings(region, image)

    def label(
        self,
        values: NDArray[Any],
        mask: NDArray[np.bool_] | Literal["finite"] | None,
        crop: io.Region | None = None,
        region: io.Region | None = None,
    ) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.float32] | None]:
        """Return the labels of a region, by default all; 0 outside of the mask.

        `values`, channels last, and mask are those of `crop`, its `surroundings`. And its soft
        labels (n_labels, ...), where `maps` asks for them.
        """
        kind = np.min_scalar_type(self.most_label)
        wanted: list[int] = [] if self.maps is None else self.maps["labels"]
        whole = tuple(slice(0, n) for n in self.shape)
        around, region = whole if crop is None else crop, whole if region is None else region
        sides = [side.stop - side.start for side in region]
        inside = inside_of(values, mask)
        labels: NDArray[Any] = np.zeros(sides, kind)
        maps = np.zeros((len(wanted), *sides), np.float32)
        if inside is None or cut(inside, around, region).any():
            labels, maps = self._label(values, inside, around, region, wanted)
        return labels.astype(kind), maps if wanted else None

    def _label(
        self,
        values: NDArray[Any],
        inside: NDArray[np.bool_] | None,
        crop: io.Region,
        region: io.Region,
        wanted: list[int],
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        def read(part: io.Region) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
            return cut(values, crop, part), None if inside is None else cut(inside, crop, part)

        pixels = Pixels(tuple(self.shape), values.shape[-1], read, inside is not None)
        image, flow = self.image(pixels), self.region_flow()
        found: Any = np.empty((0, *(side.stop - side.start for side in region)), np.float32)
        if flow is None:
            labels = image.sharpened(region)
            if wanted:
                assert self.shares is not None
                shares = self.shares.array().astype(np.float32) / 255
                found = np.stack([image.grid.enlarged(one, region) for one in shares])
            return labels, np.asarray(found if inside is None else found * (labels > 0))
        outcome = flow.label(image, region)
        assert outcome is not None
        labels, problem, result = outcome
        around = grown(region, flow.halo, self.shape)
        if wanted:
            maps: Any = io.probability_maps(problem, result, wanted)
            maps = maps[0] if isinstance(maps, list) else maps
            found = np.stack([cut(one, around, region) for one in maps])
        return cut(labels, around, region), found


def unread_pixels(shape: Sequence[int]) -> Pixels:
    """Return an image of a shape of which nothing is read."""

    def read(region: io.Region) -> Any:
        raise AssertionError("no pixels are there")

    return Pixels(tuple(shape), 1, read, has_mask=False)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LargeJob(AbstractLargeJob):
    """A job of a method, or of what was taught."""

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
        **more: Any,
    ) -> LargeJob:
        """Open the image and its mask, and check that they fit; see `opened_with_mask`.

        Maps of soft labels go to `probability_path`, as `probabilities` say.
        """
        is_method = isinstance(recipe, AbstractMethod)
        found = Pipeline(recipe) if is_method else as_model(recipe)
        if not isinstance(found, Pipeline):
            raise InvalidInput("recipe: a dictionary labels by a job of its own")
        if channel_axis is None and found.options is not None:
            channel_axis = found.options.channel_axis
        own = opened_with_mask(source, channel_axis, **more)
        check_count("learn_pixels", learn_pixels, 1)
        _checked(found.for_others())
        if probability_path is not None:
            io.check_suffix(probability_path, [".ome.zarr"])
            step = found.probabilities or io.ProbabilityStep()
            found = dataclasses.replace(found, probabilities=step)
        return cls(*own, found, learn_pixels, probability_path)

    @property
    def recipe_of_run(self) -> Pipeline:
        return self.recipe

    @property
    def _asked_maps(self) -> io.ProbabilityStep | None:
        return None if self.probability_path is None else self.recipe.probabilities

    @property
    def request(self) -> dict[str, Any]:
        recipe, options = self.recipe, self.recipe.options
        plain = {
            "method": recipe.method.name,
            "parameters": to_plain(recipe.method),
            "input": None if options is None else options.to_plain(),
            "taught": None if recipe.prototypes is None else recipe.prototypes.entries(),
            "tile": self.tile,
            "learn_pixels": self.learn_pixels,
            "probabilities": None if self._asked_maps is None else to_plain(self._asked_maps),
        }
        return dict(json.loads(json.dumps(plain)))

    def plan(self) -> Plan:
        """Label the image at a reduced size, and learn how its labels look; see `label_large`."""
        wait_for_kernels()
        recipe, image = _checked(self.recipe.for_others()), self.image
        pixels = pixels_of(image, self.auxiliary)
        shape, options, rows = survey_image(pixels, *_asked(recipe, image))
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
        """Return the plan by which tiles have the labels of a run at a reduced size."""
        options, graph, nodes = problem.options, problem.graph, np.asarray(result.labels)
        assert options is not None and isinstance(graph, GridGraph)
        image = ReducedImage(CoarseGrid(graph, pixels.shape), pixels, nodes)
        flow, n_features = None, 0
        window = list(check_window(options.window, nodes.shape))  # type: ignore[arg-type]
        fields: dict[str, Any] = {"nodes": Packed.of(nodes)}
        if options.full_resolution and nodes.shape != pixels.shape:
            asked = full_options(options, pixels.shape)
            learn_all_borders([image], asked)
            borders = image.sharpener
            fields["borders"] = None if borders is None else dataclasses.asdict(borders)
            if recipe.method.labels_look_alike and can_be_learned(options):
                shared, noise = fitted_to([image], asked)
                make = functools.partial(_problem_at, image, shared, noise)
                taught, blocks = learn_labels(recipe.method, [image], shared, make)
                history = taught.run(blocks).history
                fields["steps"] = np.diff(history.time).tolist()
                flow = RegionFlow(scheduled(taught, fields["steps"]), shared, noise)
                fields |= {"flow": _recipe_of(taught, shared), "noise": noise}
                n_features = blocks.features.shape[1]
        known = recipe.prototypes
        if known is None:
            known = io.PrototypeSet(np.atleast_2d(result.prototypes).astype(np.float32))
        maps = self._maps(known)
        if maps is not None and flow is None:
            numbers = result.label_map.numbers
            columns = [result.assignment[:, numbers == n].sum(axis=1) for n in maps["labels"]]
            shares = np.stack([graph.spread(one) for one in columns])
            fields["shares"] = Packed.of(np.rint(255 * shares).astype(np.uint8))
        own = dataclasses.replace(options, channel_axis=self._channel_axis)
        plain = result.recipe | {"input": own.to_plain()}
        fields |= {"recipe": io.with_prototypes(plain, known), "maps": maps}
        return self._tiled(fields, image, flow, window, len(known.by_label()), n_features, notes)

    def _plan_of_prototypes(
        self,
        recipe: Pipeline,
        pixels: Pixels,
        options: ImageOptions,
        notes: Sequence[str] = (),
    ) -> Plan:
        """Return the plan by which tiles are labelled by prototypes alone, in full.

        They are given, or those that the method finds in blocks.
        """
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
        flow, known = recipe.method, recipe.prototypes
        if not flow.labels_are_given:
            flow, known = _flow_like(flow, problem), None
        assert isinstance(flow, AssignmentFlow)
        if known is None:
            points = np.atleast_2d(np.asarray(flow.prototypes, np.float32))
            labels = flow.prototype_labels
            known = io.PrototypeSet(points, None if labels is None else np.asarray(labels, int))
        result = flow.run(problem)
        steps = np.diff(result.history.time).tolist()
        region_flow = RegionFlow(scheduled(flow, steps), shared, noise, has_prior=False)
        own = dataclasses.replace(shared, channel_axis=self._channel_axis)
        fields = {
            "nodes": Packed.of(nodes),
            "recipe": io.with_prototypes(result.recipe | {"input": own.to_plain()}, known),
            "flow": _recipe_of(flow, shared),
            "noise": noise,
            "steps": steps,
            "has_prior": False,
            "maps": self._maps(known),
        }
        sizes = len(known.by_label()), problem.features.shape[1]
        return self._tiled(fields, image, region_flow, list(window), *sizes, list(notes))

    @property
    def _channel_axis(self) -> int | None:
        return None if self.recipe.options is None else self.recipe.options.channel_axis

    def _maps(self, known: io.PrototypeSet) -> dict[str, Any] | None:
        """Return which maps of soft labels are written."""
        if self._asked_maps is None:
            return None
        maps = to_plain(self._asked_maps)
        return maps if maps["labels"] else maps | {"labels": list(known.by_label())}

    def _tiled(
        self,
        fields: dict[str, Any],
        image: ReducedImage,
        flow: RegionFlow | None,
        window: list[int],
        n_labels: int,
        n_features: int,
        notes: list[str],
    ) -> Plan:
        """Return the plan with tiles that suit the memory."""
        middle = tuple(slice(n // 2, n // 2 + 1) for n in image.shape)
        crop = image.surroundings(middle) if flow is None else flow.surroundings(middle, image)
        around = [
            max(k.start - c.start, c.stop - k.stop) for k, c in zip(middle, crop, strict=True)
        ]
        halo = [0] * len(window) if flow is None else flow.halo
        reach = [a - h for a, h in zip(around, halo, strict=True)]
        sides = fitting_tile(image.shape, window, self.tile, halo, n_labels, n_features, reach)
        chunk, tile, more = sides
        return Plan(kind="tiles", **fields, **self.tiling(chunk, tile, [*notes, *more], around))

    def work(self, plan: Any, out: Path, is_sent: bool) -> Work:
        store = None
        if self.probability_path is not None:
            step = io.ProbabilityStep(".ome.zarr", plan.maps["kind"], tuple(plan.maps["labels"]))
            taught, axes = plan.label_map_of(), self.image.label_axes()
            place = self.probability_path.absolute()
            store = io.ProbabilityStore(place, step, plan.shape, axes, taught.names, taught.colors)
        return Work(plan, *self.sent(is_sent), out.absolute(), maps=store)


def _checked(recipe: Pipeline) -> Pipeline:
    """Refuse what couples distant pixels, by name and with a way on."""
    method, options = recipe.method, recipe.options
    if options is None:
        raise refusal(Strategy.TILES_ON_DISK, "graph")
    if options.groups is not None and not options.groups.startswith("channel"):
        raise refusal(Strategy.TILES_ON_DISK, "groups", groups=options.groups)
    if method.follows_seeds:
        raise refusal(Strategy.TILES_ON_DISK, "strokes", method=method.title)
    return recipe


def _asked(recipe: Pipeline, image: io.ImageSource) -> tuple[ImageOptions, Sequence[int] | None]:
    """Return the options for an image with channels last, and the axes of its windows if known."""
    assert recipe.options is not None
    options = dataclasses.replace(recipe.options.for_others(), channel_axis=-1)
    # What is next to each other in time is not so in space.
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
    """Return the problem of an image at a reduced shape, and what a method makes of it."""
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
    """Return whether nodes are so many voxels that labels in full hardly follow from theirs."""
    ratios = np.divide(shape, small)
    return bool(np.count_nonzero(ratios > 1) >= 3 and ratios.max() > _FAR)


def _flow_like(method: AbstractMethod, problem: Problem) -> AssignmentFlow:
    """Return the flow with the prototypes that a method finds, as selective (rho) as agrees best.

    With what it finds, if rho is halved or doubled.
    """
    result = run_to_end(method.iterate(problem, cancelled=is_interrupted))
    raise_if_interrupted()
    wanted = result.label_map.numbers[result.assignment.argmax(axis=1)]
    flow = method_with_prototypes(result.prototypes, like=method)
    assert isinstance(flow, AssignmentFlow)

    def agreement(flow: AssignmentFlow) -> float:
        found = flow.run(problem)
        return float((found.label_map.numbers[found.assignment.argmax(axis=1)] == wanted).mean())

    rhos = [flow.rho * 2.0**k for k in range(-_MOST_DOUBLINGS, _MOST_DOUBLINGS + 1)]
    flows = [dataclasses.replace(flow, rho=rho) for rho in rhos if 1e-3 <= rho <= 100]
    return max(flows, key=agreement)


def _groups(
    pixels: Pixels, shape: tuple[int, ...], source: str, rows: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return at each node the group that most pixels of its block have, of those of a channel."""
    number, threshold = channel_of_groups(source, pixels.n_channels)
    threshold = channel_threshold(rows, number) if threshold is None else threshold
    counts = np.zeros((2, *shape), np.int64)
    for region in pixels.regions():
        values, inside = pixels.read(region)
        above = values[..., number] > threshold
        both = np.stack([~above, above]).astype(np.int64)
        both = both if inside is None else both * inside
        near: list[slice] = []
        sides = zip(region, shape, pixels.shape, strict=True)
        for axis, (side, small, large) in enumerate(sides, start=1):
            at = np.arange(side.start, side.stop) * small // large
            firsts = np.flatnonzero(np.diff(at, prepend=-1))
            both = np.add.reduceat(both, firsts, axis=axis)
            near.append(slice(int(at[0]), int(at[-1]) + 1))
        counts[(slice(None), *near)] += both
    return np.where(counts.any(axis=0), 1 + (counts[1] > counts[0]), 0)


def _problem_at(
    image: ReducedImage,
    options: ImageOptions,
    noise: list[float] | None,
    k: int,
    region: io.Region,
) -> Problem | None:
    return region_problem(image, [region], options, noise)


def _recipe_of(flow: AssignmentFlow, options: ImageOptions) -> dict[str, Any]:
    """Return a flow and its options as JSON holds them."""
    plain = {"schema": 1, "method": flow.name, "parameters": to_plain(flow)}
    return plain | {"input": options.to_plain()}
