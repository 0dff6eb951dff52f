"""Regions of label images larger than memory: merged on a coarse level, then followed in tiles."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.ndimage import distance_transform_edt

from napari_saf import io, storage
from napari_saf.arrays import JsonObject
from napari_saf.graph import coarse_means
from napari_saf.parts import cut, grown
from napari_saf.regions import merge_regions
from napari_saf.result import LabelMap
from napari_saf.tiles._engine import AbstractTiledJob, AbstractWork, Tile
from napari_saf.tiles._job import pixels_of_labels
from napari_saf.tiles._store import LabelStore
from napari_saf.tiles._tiling import Tiling

_MOST_MERGED = 2**22
"""Maximum pixels of the level whose regions are merged; smallest regions have a 400th of it."""
_AROUND = 8
"""Halo of a tile, in pixels of that level, for the search of the nearest region of a label."""
_FILE = ".regions.npz"


class RegionPlan(Tiling):
    """Plan of extending regions to tiles, in JSON; `coarse` is the level of the merges."""

    plan_kind: Literal["regions"] = Field(alias="kind")
    coarse: int
    recipe: JsonObject

    @property
    def most_label(self) -> int:
        return 2**16 - 1

    def describe(self, axes: io.Axes, numbers: list[int]) -> tuple[LabelMap, str]:
        return io.map_labels(np.array(numbers)), io.write_note(axes, recipe=self.recipe)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RegionJob(AbstractTiledJob):
    """Job that divides a store of labels into regions at a level, see `merge_regions`.

    The `auxiliary` is the image that was labelled.
    """

    plan_type = RegionPlan
    auxiliary_name = "image"

    level: float
    recipe: JsonObject
    tile: list[int]
    axes: list[int] | None = None

    @classmethod
    def of(
        cls,
        labels: Path,
        image: io.ImageSource,
        level: float,
        recipe: JsonObject,
        axes: list[int] | None = None,
    ) -> RegionJob:
        """Open the labels; regions extend along `axes`, None for all."""
        opened, plain = io.ImageSource.open(labels, are_labels=True), io.with_level(recipe, level)
        tile = opened.finest.shards or opened.finest.chunks
        return cls(opened, image, level, json.loads(json.dumps(plain)), list(tile), axes)

    @property
    def request(self) -> JsonObject:
        is_sliced = self.axes is not None and len(self.axes) < len(self.image.shape)
        return {"level": self.level} | ({"axes": self.axes} if is_sliced else {})

    def plan(self) -> RegionPlan:
        labels = self.image
        shapes = [labels.level_shape(level) for level in range(labels.n_levels)]
        fits = [math.prod(shape) <= _MOST_MERGED for shape in shapes]
        return RegionPlan(
            kind="regions",
            coarse=fits.index(True) if True in fits else len(fits) - 1,
            recipe=self.recipe,
            tile=self.tile,
            chunk=list(labels.finest.chunks),
            halo=[0] * len(labels.shape),
            **self.described(),
        )

    def work(self, plan: Any, out: Path, is_sent: bool) -> AbstractWork:
        file = out.absolute() / _FILE
        if not file.exists():
            labels = self.image.read(_whole(plan, plan.coarse), plan.coarse)[..., 0]
            tree = merge_regions(labels, self._reduced(plan), channel_axis=-1, axes=self.axes)
            if tree.separate.note:
                plan.notes.append(tree.separate.note)
            with storage.write_errors(file), storage.atomic_write(file) as temporary:
                with open(temporary, "wb") as opened:
                    np.savez(opened, labels=labels, regions=tree.at_level(self.level))
        return _Work(plan, *self.sent(is_sent), out.absolute())

    def _reduced(self, plan: RegionPlan) -> NDArray[np.float32]:
        """Return the image at the coarse level: means over blocks, read tile by tile."""
        shape, picture = plan.level_shapes()[plan.coarse], self.auxiliary
        assert isinstance(picture, io.ImageSource)
        reduced = np.empty((*shape, picture.n_channels), np.float32)
        steps = _steps(plan)
        for position in plan.tiles(plan.coarse):
            region = plan.region(position, plan.coarse)
            sides = list(zip(region, steps, plan.shape, strict=True))
            box = tuple(slice(r.start * k, min(r.stop * k, n)) for r, k, n in sides)
            values = picture.read(box)
            missing = [(0, max(0, r.stop * k - n)) for r, k, n in sides]
            values = np.pad(values, [*missing, (0, 0)], mode="edge")
            reduced[region] = coarse_means(values, tuple(r.stop - r.start for r in region))
        return reduced


def _whole(plan: RegionPlan, level: int) -> io.Region:
    return tuple(slice(0, n) for n in plan.level_shapes()[level])


def _steps(plan: RegionPlan) -> list[int]:
    """Return the reduction of the coarse level along each axis."""
    between = [plan.steps_between(level) for level in range(plan.coarse)]
    return [math.prod(steps) for steps in zip(*between, strict=True)] or [1] * len(plan.shape)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Work(AbstractWork):
    """Assignment of pixels to the region of the nearest coarse pixel of their label."""

    def stages(self, done: dict[Tile, Any]) -> Iterator[Sequence[Tile]]:
        # No super(): slots=True creates a new class.
        yield from AbstractWork.stages(self, done)
        storage.remove_path(self.out / _FILE)

    def do_finest(self, tile: Tile, region: io.Region) -> dict[int, int]:
        labels = self._opened(self.image).read(region)[..., 0]
        with np.load(self.out / _FILE) as coarse:
            regions = _followed(
                labels, region, coarse["labels"], coarse["regions"], _steps(self.plan)
            )
        LabelStore(self.out).write(0, region, regions.astype(np.uint16))
        return pixels_of_labels(regions)


def _followed(
    labels: NDArray[Any],
    region: io.Region,
    coarse_labels: NDArray[Any],
    coarse_regions: NDArray[Any],
    steps: Sequence[int],
) -> NDArray[Any]:
    """Return the region numbers for the labels of a part of the image, 0 for no label."""
    shape = coarse_labels.shape
    sides = zip(region, steps, shape, strict=True)
    small = tuple(slice(r.start // k, min(-(-r.stop // k), n)) for r, k, n in sides)
    crop = grown(small, [_AROUND * (k > 1) for k in steps], shape)
    crop_labels, crop_regions = coarse_labels[crop], coarse_regions[crop]
    coarse_pixel = np.ix_(
        *(
            np.minimum(np.arange(r.start, r.stop) // k, s.stop - 1) - s.start
            for r, k, s in zip(region, steps, small, strict=True)
        )
    )
    regions = np.zeros_like(labels, dtype=crop_regions.dtype)
    for label in np.unique(labels[labels > 0]):
        is_label = crop_labels == label
        if not is_label.any():  # smaller than a pixel of the coarse level
            is_label = crop_labels > 0
        if not is_label.any():
            is_label, crop_regions = np.ones_like(is_label), np.ones_like(crop_regions)
        nearest = distance_transform_edt(~is_label, return_distances=False, return_indices=True)
        numbers = cut(crop_regions[tuple(nearest)], crop, small)
        inside = labels == label
        regions[inside] = numbers[coarse_pixel][inside]
    return regions
