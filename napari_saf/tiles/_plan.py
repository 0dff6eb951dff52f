"""The plan of a large image: what is learned from blocks of it, and how tiles are labelled by that.

Whatever hangs on more than the surroundings of a pixel is decided here, once: the scaling, the
level of noise, the prototypes, and the steps and end of the flow. A tile is then labelled as it
would be within the whole image.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import check_window
from napari_saf.errors import InvalidInput
from napari_saf.features import FEATURES, Scaling
from napari_saf.flow import (
    AdamsBashforthMoulton,
    AdamsSchedule,
    StoppingRule,
    kernels_key,
    wait_for_kernels,
)
from napari_saf.graph import GraphUnion, GridGraph
from napari_saf.input import ImageOptions, contrast_noise, prepare_images
from napari_saf.io import (
    Axes,
    LazyImage,
    PrototypeSet,
    Recipe,
    Region,
    label_axes,
    map_labels,
    with_taught,
    write_note,
)
from napari_saf.methods import AssignmentFlow, method_with_prototypes
from napari_saf.parameters import to_plain
from napari_saf.problem import Problem
from napari_saf.result import LabelMap
from napari_saf.tiles._tiling import Tiling

WINDOWS_OF_HALO = {1: 3, 2: 3, 3: 4}
"""Beside what features see, a tile is labelled with so many windows around it: in volumes of noise
flows take longer, and what is farther away counts."""
_BLOCK = {1: 4096, 2: 128, 3: 32}
_TILE = {1: 2**18, 2: 512, 3: 96}
_CHUNK = {1: 2**16, 2: 256, 3: 48}
"""Sides, by the number of axes along which labels are averaged, as above; 1 along the others."""
_BLOCK_WINDOWS = 3
_LEAST_CANDIDATES, _MOST_CANDIDATES = 256, 4096
_MOST_READ = 2**29
"""Blocks to choose from, as many as are read with so many pixels of the pieces of a file."""
_MOST_COARSE = 2**24
_MOST_SAMPLED = 2**20
"""Values of a level that is looked at whole; values from which the scaling is taken."""


class Plan(Tiling):
    """How a large image is labelled, as JSON holds it; positions and sizes are in pixels.

    The recipe is that of the assignment flow with the prototypes.
    """

    kind: Literal["tiles"]
    recipe: dict[str, Any]
    steps: list[float]
    kernels: str
    noise: list[float] | None
    block: list[int]
    blocks: list[list[int]]

    def method(self) -> AssignmentFlow:
        """Return what labels a tile: the flow with the steps of the plan."""
        flow = Recipe.from_plain(self.recipe).method
        assert isinstance(flow, AssignmentFlow)
        return dataclasses.replace(
            flow,
            stepper=AdamsSchedule(tuple(self.steps), self.kernels),
            stop=StoppingRule(entropy=0, changed=0, max_steps=max(1, len(self.steps))),
        )

    def label_map_of(self) -> PrototypeSet:
        """Return what the labels stand for, with their names."""
        recipe = Recipe.from_plain(self.recipe)
        assert recipe.taught is not None
        return recipe.taught

    @property
    def most_label(self) -> int:
        """The largest label that may come out."""
        return max(self.label_map_of().by_label())

    def describe(self, axes: Axes, numbers: list[int]) -> tuple[LabelMap, str]:
        taught = self.label_map_of()
        known = map_labels(np.array(numbers), taught.names, taught.colors)
        return known, write_note(axes, taught.names, taught.colors, taught, self.recipe)

    def surroundings(self, region: Region) -> Region:
        """Return a region with its halo, from where features begin as in the whole image."""
        options = Recipe.from_plain(self.recipe).options
        assert options is not None and options.extractor is not None
        step, crop = options.extractor.stride, super().surroundings(region)
        pairs = zip(crop, self.halo, strict=True)
        return tuple(slice(r.start - r.start % step if h else r.start, r.stop) for r, h in pairs)

    def label(
        self, values: NDArray[Any], mask: NDArray[np.bool_] | Literal["finite"] | None
    ) -> NDArray[np.unsignedinteger[Any]]:
        """Return the labels of pixels, channels last; 0 outside of the mask."""
        kind = np.min_scalar_type(self.most_label)
        inside = np.isfinite(values).all(axis=-1) if isinstance(mask, str) else mask
        if inside is not None and not inside.any():
            return np.zeros(values.shape[:-1], kind)
        options = Recipe.from_plain(self.recipe).options
        assert options is not None
        problem = _problem([values], [inside], options, self.noise)
        labels = self.method().run(problem).labels
        return np.asarray(labels[0] if isinstance(labels, list) else labels).astype(kind)


def make_plan(
    image: LazyImage,
    mask: LazyImage | Literal["finite"] | None,
    recipe: Recipe,
    *,
    tile: int | None,
    learn_pixels: int,
    request: dict[str, Any],
    source: dict[str, Any],
) -> Plan:
    """Learn what a recipe asks for from blocks of an image; see `label_large`."""
    wait_for_kernels()
    recipe = _checked(recipe if recipe.method.labels_are_given else recipe.for_others())
    options = _resolved(recipe, image)
    window = check_window(options.window, image.shape)  # type: ignore[arg-type]
    block, chunk, shard = sides_of(image.shape, window, tile)
    places, seen = choose_blocks(image, mask, block, max(1, learn_pixels // math.prod(block)))
    if options.scaling is None:
        scaling = Scaling.of([seen])
        options = dataclasses.replace(options, scaling=scaling, rescale=True)
    regions = [region_of(place, block, image.shape) for place in places]
    values = [image.read(region) for region in regions]
    masks = [read_mask(mask, one, region) for one, region in zip(values, regions, strict=True)]
    noise = None
    if options.weights == "contrast":
        own = [contrast_noise(v, m, options) for v, m in zip(values, masks, strict=True)]
        noise = np.mean(own, axis=0).tolist()
    assert options.extractor is not None
    extractor = options.extractor.for_parts(_scaled(values, masks, window, options))
    options = dataclasses.replace(options, features=extractor)
    flow, taught = _learn(recipe, values, masks, options)
    history = flow.run(_problem(values, masks, options, noise)).history
    # A patch reaches a pixel, and what smooths it before one more.
    reach = extractor.receptive_field + 2 * (options.weights != "uniform")
    # What comes from a coarser grid is averaged over windows once more.
    n_averaged = max(1, min(3, sum(side > 1 for side in window)))
    n_sides = 2 * WINDOWS_OF_HALO[n_averaged] + (extractor.stride > 1)
    plain = {"schema": 1, "method": flow.name, "parameters": to_plain(flow)}
    return Plan(
        schema=1,
        kind="tiles",
        request=request,
        source=json.loads(json.dumps(source)),
        recipe=with_taught(plain | {"input": options.to_plain()}, taught),
        steps=np.diff(history.time).tolist(),
        kernels=kernels_key(),
        noise=noise,
        shape=list(image.shape),
        axes=label_axes(len(image.shape), image.axes or None, None, None).names,
        tile=shard,
        chunk=chunk,
        halo=[reach + n_sides * (s // 2) if s > 1 else 0 for s in window],
        block=block,
        blocks=[list(place) for place in places],
        notes=list(image.notes),
    )


def sides_of(
    shape: Sequence[int], window: Sequence[int], tile: int | None
) -> tuple[list[int], list[int], list[int]]:
    """Return the sides of blocks to learn from, of chunks, and of tiles, which are whole chunks."""
    averaged = [side > 1 for side in window]
    n_averaged = max(1, min(3, sum(averaged)))

    def sides(of: dict[int, int], least: Sequence[int]) -> list[int]:
        return [
            min(max(of[n_averaged], low), n) if is_wide else 1
            for low, n, is_wide in zip(least, shape, averaged, strict=True)
        ]

    block = sides(_BLOCK, [_BLOCK_WINDOWS * side for side in window])
    chunk = sides(_CHUNK, [1] * len(window))
    if tile is not None:
        chunk = [min(side, tile) for side in chunk]
    wanted = sides(_TILE if tile is None else dict.fromkeys(_TILE, tile), [1] * len(window))
    shard = [-(-side // part) * part for side, part in zip(wanted, chunk, strict=True)]
    return block, chunk, shard


def _checked(recipe: Recipe) -> Recipe:
    """Refuse what couples distant pixels, by name and with a way on."""
    method, options = recipe.method, recipe.options
    if options is None:
        raise InvalidInput("recipe: is of a run on a graph, not on an image")
    if recipe.level is not None:
        raise InvalidInput(
            "recipe: regions are merged over the whole image, not in tiles; label without regions "
            "(--regions none), and number the regions of a part of the mask"
        )
    if options.extractor is not None and not options.extractor.is_portable:
        fixed = [name for name, one in FEATURES.items() if one.is_portable]
        raise InvalidInput(
            f"features: {options.features_name!r} hang on the whole image; in tiles choose one of "
            f"{', '.join(fixed)}"
        )
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


def _resolved(recipe: Recipe, image: LazyImage) -> ImageOptions:
    """Return the options for an image with channels last, at its full size."""
    assert recipe.options is not None
    options = dataclasses.replace(recipe.options.for_others(), channel_axis=-1, max_side=None)
    window = options.window
    if isinstance(window, int) or window == "auto":
        # What is next to each other in time is not so in space.
        alone = [n == 1 or image.axes[k : k + 1] == "t" for k, n in enumerate(image.shape)]
        inner = tuple(1 if is_alone else 3 for is_alone in alone)
        axes = [k for k, is_alone in enumerate(alone) if not is_alone]
        options = options.resolve([image.shape], image.n_channels, axes or None)
        if isinstance(options.window, int):
            side = options.window
            options = dataclasses.replace(
                options, window=tuple(side if n > 1 else 1 for n in inner)
            )
    return options.resolve([image.shape], image.n_channels)


def choose_blocks(
    image: LazyImage,
    mask: LazyImage | Literal["finite"] | None,
    block: Sequence[int],
    n_blocks: int,
) -> tuple[list[tuple[int, ...]], NDArray[Any]]:
    """Return the first pixels of blocks that differ most, and values that stand for the image.

    Blocks are chosen farthest first by means, deviations and extremes of channels: what is rare is
    then among them. They are looked at on a level of the pyramid, or, where there is none, at full
    resolution, some thousands of them.
    """
    level = next(
        (
            k
            for k in range(1, image.n_levels)
            if math.prod(image.level_shape(k)) * image.n_channels <= _MOST_COARSE
        ),
        0,
    )
    coarse = image.level_shape(level)
    ratio = [a / b for a, b in zip(image.shape, coarse, strict=True)]
    is_seen = level and all(
        side / r >= 2 or side == 1 for side, r in zip(block, ratio, strict=True)
    )
    places = _candidates(image.shape, block, None if is_seen else image.piece)
    whole = image.read(tuple(slice(0, n) for n in coarse), level) if is_seen else None
    rows, kept, sample = [], [], []
    n_values = max(1, _MOST_SAMPLED // len(places))
    for place in places:
        region = region_of(place, block, image.shape)
        if whole is None:
            values = image.read(region)
        else:
            values = whole[
                tuple(
                    slice(int(one.start / r), max(int(one.start / r) + 1, int(one.stop / r)))
                    for one, r in zip(region, ratio, strict=True)
                )
            ]
        flat = values.reshape(-1, values.shape[-1]).astype(np.float32)
        inside = np.isfinite(flat).all(axis=1)
        if isinstance(mask, LazyImage):
            own = mask.read(region)[..., 0] != 0
            if whole is None:
                inside &= own.ravel()
            elif not own.any():
                continue
        flat = flat[inside]
        if not len(flat):
            continue
        low, high = np.percentile(flat, [2, 98], axis=0)
        mean, spread = flat.mean(axis=0, dtype=np.float64), flat.std(axis=0, dtype=np.float64)
        rows.append(np.concatenate([mean, spread, low, high]))
        kept.append(place)
        sample.append(flat[:: max(1, flat.size // n_values)])
    if not kept:
        raise InvalidInput("mask: expected pixels to learn from, none of them is within it")
    order = _farthest_first(np.array(rows), n_blocks)
    return [kept[k] for k in order], np.concatenate(sample)


def _candidates(
    shape: Sequence[int], block: Sequence[int], piece: Sequence[int] | None
) -> list[tuple[int, ...]]:
    """Return the first pixels of blocks that are spread evenly, with all there are if few.

    Where each is read from the pieces of a file, it lies in one of them, and they are fewer the
    larger pieces are.
    """
    most = _MOST_CANDIDATES
    if piece is not None:
        most = min(most, max(_LEAST_CANDIDATES, _MOST_READ // math.prod(piece)))
    counts = [max(1, n // side) for n, side in zip(shape, block, strict=True)]
    thin = max(1.0, math.prod(counts) / most)
    n_wide = max(1, sum(count > 1 for count in counts))
    counts = [max(1, math.floor(count / thin ** (1 / n_wide))) for count in counts]
    along: list[list[int]] = []
    for n, count, side, own in zip(shape, counts, block, piece or shape, strict=True):
        middles = [(2 * k + 1) * n // (2 * count) for k in range(count)]
        firsts = [min(max(0, middle - side // 2), n - min(side, n)) for middle in middles]
        if side <= own < n and thin > 1:
            ends = [min((middle // own + 1) * own, n) for middle in middles]
            pairs = zip(firsts, middles, ends, strict=True)
            firsts = [max(0, min(max(k, m // own * own), end - side)) for k, m, end in pairs]
        along.append(firsts)
    return list(itertools.product(*along))


def _farthest_first(points: NDArray[np.float64], count: int) -> list[int]:
    """Return some points (n_points, n_features), each as far as can be from those before.

    The first is the one nearest to the mean; Gonzalez, https://doi.org/10.1016/0304-3975(85)90224-5.
    """
    nearest = np.square(points - points.mean(axis=0)).sum(axis=1)
    chosen = [int(nearest.argmin())]
    nearest = np.full(len(points), np.inf)
    while len(chosen) < min(count, len(points)):
        nearest = np.minimum(nearest, np.square(points - points[chosen[-1]]).sum(axis=1))
        nearest[chosen] = -1
        chosen.append(int(nearest.argmax()))
    return chosen


def _learn(
    recipe: Recipe,
    values: list[NDArray[Any]],
    masks: list[NDArray[np.bool_] | None],
    options: ImageOptions,
) -> tuple[AssignmentFlow, PrototypeSet]:
    """Return the flow with the prototypes that a method finds in blocks, or that it has."""
    flow, taught = recipe.method, recipe.taught
    if not flow.labels_are_given:
        own = None if all(mask is None for mask in masks) else masks
        problem = Problem.from_images(values, masks=own, **options.arguments())
        flow, taught = method_with_prototypes(flow.run(problem).prototypes, like=flow), None
    assert isinstance(flow, AssignmentFlow)
    tolerance = getattr(flow.stepper, "tolerance", AdamsBashforthMoulton().tolerance)
    flow = dataclasses.replace(flow, stepper=AdamsBashforthMoulton(tolerance), connected=False)
    if taught is None:
        assert flow.prototypes is not None
        labels = None if flow.prototype_labels is None else np.asarray(flow.prototype_labels, int)
        taught = PrototypeSet(np.atleast_2d(flow.prototypes).astype(np.float32), labels)
    return flow, dataclasses.replace(taught, options=None)


def _scaled(
    values: list[NDArray[Any]],
    masks: Sequence[NDArray[np.bool_] | None],
    window: Sequence[int],
    options: ImageOptions,
) -> Iterator[tuple[NDArray[np.float32], list[int], NDArray[np.bool_] | None]]:
    """Yield blocks as extractors are fitted to them: in [0, 1], with axes and mask."""
    assert options.scaling is not None
    axes = [axis for axis, side in enumerate(window) if side > 1]
    for block, mask in zip(values, masks, strict=True):
        inside = block if mask is None else np.where(mask[..., None], block, options.scaling.low)
        yield options.scaling.apply(inside), axes, mask


def _problem(
    values: list[NDArray[Any]],
    masks: Sequence[NDArray[np.bool_] | None],
    options: ImageOptions,
    noise: list[float] | None,
) -> Problem:
    given = None if noise is None else np.array(noise)
    options = dataclasses.replace(options, groups=None)
    grids, fields = prepare_images([*values], [*masks], None, options, given)
    graph: GridGraph | GraphUnion = grids[0] if len(grids) == 1 else GraphUnion(grids)
    return Problem(graph=graph, **fields)


def region_of(place: Sequence[int], side: Sequence[int], shape: Sequence[int]) -> Region:
    return tuple(slice(k, min(k + s, n)) for k, s, n in zip(place, side, shape, strict=True))


def read_mask(
    mask: LazyImage | Literal["finite"] | None, values: NDArray[Any], region: Region
) -> NDArray[np.bool_] | None:
    """Return where a region is to be labelled, None for everywhere."""
    if mask is None:
        return None
    if isinstance(mask, str):
        return np.asarray(np.isfinite(values).all(axis=-1))
    return np.asarray(mask.read(region)[..., 0] != 0)
