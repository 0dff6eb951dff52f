"""The plan of a large image: what is learned from blocks of it, and how tiles are labelled by that.

Whatever hangs on more than the surroundings of a pixel is decided here, once: the scaling, the
level of noise, the prototypes, and the steps and end of the flow. A tile is then labelled as it
would be within the whole image.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from napari_saf import io
from napari_saf.arrays import check_window
from napari_saf.errors import InvalidInput
from napari_saf.features import FeatureExtractor, Ground, Scaling, ground_of
from napari_saf.flow import (
    AdamsBashforthMoulton,
    AdamsSchedule,
    StoppingRule,
    wait_for_kernels,
)
from napari_saf.input import AUTO, ImageOptions
from napari_saf.methods import AbstractMethod, AssignmentFlow, method_with_prototypes
from napari_saf.parameters import to_plain
from napari_saf.parts import ImageParts, cut, grown, halo_of
from napari_saf.pipeline import Pipeline
from napari_saf.problem import Problem
from napari_saf.project import as_learned
from napari_saf.result import LabelMap, Segmentation
from napari_saf.tiles._blocks import (
    choose_blocks,
    fitting_tile,
    read_mask,
    region_of,
    sides_of,
    spread_regions,
)
from napari_saf.tiles._engine import Auxiliary
from napari_saf.tiles._job import AbstractLargeJob, Work, check_count, opened_with_mask
from napari_saf.tiles._tiling import Tiling

LEARN_PIXELS = 2**20
_Scaled = tuple[NDArray[np.float32], list[int], NDArray[np.bool_] | None]
"""A part of an image as extractors are fitted to it."""
_MATCHED_PIXELS, _MOST_DOUBLINGS = 2**17, 4
"""Pixels on which tiles are matched with what was learned; how often rho is halved or doubled."""
_LOOKED_AT = 2**20
"""Pixels of blocks by which it is seen what things lie on."""
_MOST_MEASURED = 2**22
"""Pixels by which features are standardized that a run of the whole standardizes by all."""


class Plan(Tiling):
    """How a large image is labelled, as JSON holds it; positions and sizes are in pixels.

    The recipe is that of the assignment flow with the prototypes.
    """

    kind: Literal["tiles"]
    recipe: dict[str, Any]
    steps: list[float]
    noise: list[float] | None
    block: list[int]
    blocks: list[list[int]]
    maps: dict[str, Any] | None = None

    def method(self) -> AssignmentFlow:
        """Return what labels a tile: the flow with the steps of the plan."""
        flow = Pipeline.from_plain(self.recipe).method
        assert isinstance(flow, AssignmentFlow)
        return dataclasses.replace(
            flow,
            stepper=AdamsSchedule(tuple(self.steps)),
            stop=StoppingRule(entropy=0, changed=0, max_steps=max(1, len(self.steps))),
        )

    def label_map_of(self) -> io.PrototypeSet:
        """Return what the labels stand for, with their names."""
        recipe = Pipeline.from_plain(self.recipe)
        assert recipe.taught is not None
        return recipe.taught

    @property
    def most_label(self) -> int:
        """The largest label that may come out."""
        return max(self.label_map_of().by_label())

    def describe(self, axes: io.Axes, numbers: list[int]) -> tuple[LabelMap, str]:
        taught = self.label_map_of()
        known = io.map_labels(np.array(numbers), taught.names, taught.colors)
        return known, io.write_note(axes, taught.names, taught.colors, taught, self.recipe)

    def surroundings(self, region: io.Region) -> io.Region:
        """Return a region with its halo, from where features begin as in the whole image."""
        options = Pipeline.from_plain(self.recipe).options
        assert options is not None and options.extractor is not None
        step, crop = options.extractor.stride, super().surroundings(region)
        pairs = zip(crop, self.halo, strict=True)
        return tuple(slice(r.start - r.start % step if h else r.start, r.stop) for r, h in pairs)

    def label(
        self,
        values: NDArray[Any],
        mask: NDArray[np.bool_] | Literal["finite"] | None,
        start: Sequence[int] = (0,),
    ) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.float32] | None]:
        """Return the labels of pixels from `start` on, channels last; 0 outside of the mask.

        And their soft labels (n_labels, ...), where `maps` asks for them.
        """
        kind = np.min_scalar_type(self.most_label)
        wanted: list[int] = [] if self.maps is None else self.maps["labels"]
        inside = np.isfinite(values).all(axis=-1) if isinstance(mask, str) else mask
        if inside is not None and not inside.any():
            empty = np.zeros(values.shape[:-1], kind)
            return empty, np.zeros((len(wanted), *empty.shape), np.float32) if wanted else None
        options = Pipeline.from_plain(self.recipe).options
        assert options is not None
        options = dataclasses.replace(options, groups=None)
        block = ImageParts([values], [inside], [(start, self.shape)])
        problem = block.problem(options, self.noise)
        result, maps = self.method().run(problem), None
        labels = result.labels[0] if isinstance(result.labels, list) else result.labels
        if wanted:
            found = io.probability_maps(problem, result, wanted)
            maps = found[0] if isinstance(found, list) else found
        return np.asarray(labels).astype(kind), maps


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
        found = Pipeline(recipe) if is_method else as_learned(recipe)
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
    def _maps(self) -> io.ProbabilityStep | None:
        return None if self.probability_path is None else self.recipe.probabilities

    @property
    def request(self) -> dict[str, Any]:
        recipe, options = self.recipe, self.recipe.options
        plain = {
            "method": recipe.method.name,
            "parameters": to_plain(recipe.method),
            "input": None if options is None else options.to_plain(),
            "taught": None if recipe.taught is None else recipe.taught.entries(),
            "tile": self.tile,
            "learn_pixels": self.learn_pixels,
            "probabilities": None if self._maps is None else to_plain(self._maps),
        }
        return dict(json.loads(json.dumps(plain)))

    def plan(self) -> Plan:
        """Learn what the recipe asks for from blocks of the image; see `label_large`."""
        wait_for_kernels()
        image, mask, learn_pixels = self.image, self.auxiliary, self.learn_pixels
        recipe = _checked(self.recipe.for_others())
        options = _resolved(recipe, image, mask)
        window = check_window(options.window, image.shape)  # type: ignore[arg-type]
        block = sides_of(image.shape, window, None)[0]
        if math.prod(image.shape) <= learn_pixels:
            block = list(image.shape)  # the flow ends when that of the whole does
        places, seen = choose_blocks(image, mask, block, max(1, learn_pixels // math.prod(block)))
        if options.scaling is None:
            options = dataclasses.replace(options, scaling=Scaling.of([seen]), rescale=True)
        blocks = _read(image, mask, [region_of(at, block, image.shape) for at in places])
        noise = blocks.noise(options) if options.weights == "contrast" else None
        extractor = _fitted(image, mask, blocks, window, options)
        options = dataclasses.replace(options, features=extractor)
        flow, taught = _learn(recipe, blocks, options, noise)
        if len(places) > 1:  # blocks that differ most end sooner or later than the whole
            regions = spread_regions(image.shape, window, learn_pixels)
            spread = _read(image, mask, regions)
            if 4 * len(spread.values) >= 3 * len(blocks.values):  # fewer tell less
                blocks = spread
        history = flow.run(blocks.problem(options, noise)).history
        halo = halo_of(extractor, window, has_weights=options.weights != "uniform")
        sides = fitting_tile(image.shape, window, self.tile, halo, *taught.vectors.shape)
        plain = {"schema": 1, "method": flow.name, "parameters": to_plain(flow)}
        maps = None if self._maps is None else to_plain(self._maps)
        if maps is not None and not maps["labels"]:
            maps["labels"] = list(taught.by_label())
        return Plan(
            kind="tiles",
            recipe=io.with_taught(plain | {"input": options.to_plain()}, taught),
            steps=np.diff(history.time).tolist(),
            noise=noise,
            block=block,
            blocks=[list(place) for place in places],
            maps=maps,
            **self.tiling(*sides, halo),
        )

    def work(self, plan: Any, out: Path, is_sent: bool) -> Work:
        store = None
        if self.probability_path is not None:
            step = io.ProbabilityStep(".ome.zarr", plan.maps["kind"], tuple(plan.maps["labels"]))
            taught, axes = plan.label_map_of(), self.image.label_axes()
            place = self.probability_path.absolute()
            store = io.ProbabilityStore(place, step, plan.shape, axes, taught.names, taught.colors)
        return Work(plan, *self.sent(is_sent), out.absolute(), maps=store)


def _read(image: io.ImageSource, mask: Auxiliary, regions: Sequence[io.Region]) -> ImageParts:
    """Return the regions of an image that have pixels within the mask."""

    def read(region: io.Region) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        values = image.read(region)
        return values, read_mask(image, mask, values, region)

    return ImageParts.read(regions, image.shape, read)


def _checked(recipe: Pipeline) -> Pipeline:
    """Refuse what couples distant pixels, by name and with a way on."""
    method, options = recipe.method, recipe.options
    if options is None:
        raise InvalidInput("recipe: is of a run on a graph, not on an image")
    if options.groups is not None and not options.groups.startswith("channel"):
        raise InvalidInput(
            f"groups: {options.groups!r} of blocks are not those of the whole image; take a "
            "channel (channel:N), or cluster a smaller image and give the prototypes of its result"
        )
    if method.follows_seeds:
        raise InvalidInput(
            f"method: {method.title} needs strokes; paint on a part of the image, save its "
            "classifier or recipe, which hold what the strokes taught, and give that"
        )
    return recipe


def _resolved(recipe: Pipeline, image: io.ImageSource, mask: Auxiliary) -> ImageOptions:
    """Return the options for an image with channels last, at its full size."""
    assert recipe.options is not None
    options = dataclasses.replace(recipe.options.for_others(), channel_axis=-1, max_side=None)
    window = options.window
    if isinstance(window, int) or window == "auto":
        # What is next to each other in time is not so in space.
        alone = [n == 1 or image.axes[k : k + 1] == "t" for k, n in enumerate(image.shape)]
        inner = tuple(1 if is_alone else 3 for is_alone in alone)
        axes = [k for k, is_alone in enumerate(alone) if not is_alone]
        ground = _ground_of(image, mask, inner) if options.features == AUTO else None
        options = options.resolve([image.shape], image.n_channels, axes or None, ground)
        if isinstance(options.window, int):
            side = options.window
            options = dataclasses.replace(
                options, window=tuple(side if n > 1 else 1 for n in inner)
            )
    return options.resolve([image.shape], image.n_channels)


def _ground_of(image: io.ImageSource, mask: Auxiliary, window: Sequence[int]) -> Ground | None:
    """Return what things lie on, as `ground_of` says of all or of evenly spaced blocks."""
    regions = [tuple(slice(0, side) for side in image.shape)]
    if math.prod(image.shape) > _LOOKED_AT:
        regions = spread_regions(image.shape, window, _LOOKED_AT)
    parts = _read(image, mask, regions)
    return ground_of(parts.values, parts.masks) if parts.values else None


def _fitted(
    image: io.ImageSource,
    mask: Auxiliary,
    blocks: ImageParts,
    window: Sequence[int],
    options: ImageOptions,
) -> FeatureExtractor:
    """Return the features of an image, fitted to blocks of it, or to what stands for all of it."""
    assert options.extractor is not None
    parts = blocks.scaled(window, options)
    if options.extractor.normalisation == "image":
        parts = _spread_parts(image, mask, window, options)
    # A part may be too small for features that the whole has.
    return options.extractor.placed((0,), image.shape).for_parts(parts)


def _learn(
    recipe: Pipeline, blocks: ImageParts, options: ImageOptions, noise: list[float] | None
) -> tuple[AssignmentFlow, io.PrototypeSet]:
    """Return the flow with the prototypes that a method finds in blocks, or that it has."""
    flow, taught = recipe.method, recipe.taught
    learned = None
    if not flow.labels_are_given:
        learned = flow.run(blocks.problem(options, noise))
        flow, taught = method_with_prototypes(learned.prototypes, like=flow), None
    assert isinstance(flow, AssignmentFlow)
    tolerance = getattr(flow.stepper, "tolerance", AdamsBashforthMoulton().tolerance)
    flow = dataclasses.replace(flow, stepper=AdamsBashforthMoulton(tolerance), connected=False)
    if learned is not None:
        n_few = _MATCHED_PIXELS // math.prod(blocks.values[0].shape[:-1]) + 1
        some = blocks.problem(options, noise, n_few)
        flow = _matched(flow, some, _nodes(learned)[: some.n_nodes])
    if taught is None:
        assert flow.prototypes is not None
        labels = None if flow.prototype_labels is None else np.asarray(flow.prototype_labels, int)
        taught = io.PrototypeSet(np.atleast_2d(flow.prototypes).astype(np.float32), labels)
    return flow, dataclasses.replace(taught, options=None)


def _matched(flow: AssignmentFlow, problem: Problem, wanted: NDArray[Any]) -> AssignmentFlow:
    """Return a flow with the selectivity (rho) by which its labels of a problem are as wanted."""

    def agreement(one: AssignmentFlow) -> float:
        return float((_nodes(one.run(problem)) == wanted).mean())

    best, first = agreement(flow), flow.rho
    for factor in (0.5, 2.0):
        for _ in range(_MOST_DOUBLINGS):
            other = dataclasses.replace(flow, rho=flow.rho * factor)
            found = agreement(other)
            if found <= best:
                break
            flow, best = other, found
        if flow.rho != first:
            break
    return flow


def _nodes(result: Segmentation) -> NDArray[Any]:
    """Return the label of each node."""
    return np.asarray(result.label_map.numbers[result.assignment.argmax(axis=1)])


def _spread_parts(
    image: io.ImageSource, mask: Auxiliary, window: Sequence[int], options: ImageOptions
) -> Iterator[_Scaled]:
    """Yield what stands for all of an image, scaled: all of it, or evenly spaced blocks.

    With what features see around them; the masks are of the parts themselves.
    """
    assert options.extractor is not None
    reach = options.extractor.receptive_field
    for region in spread_regions(image.shape, window, _MOST_MEASURED):
        crop = grown(region, [reach * (side > 1) for side in window], image.shape)
        values = image.read(crop)
        own = ImageParts([values], [read_mask(image, mask, values, crop)], [])
        ((scaled, axes, _),) = own.scaled(window, options)
        inside = np.zeros(scaled.shape[:-1], bool)
        cut(inside, crop, region)[...] = True
        yield scaled, axes, inside
