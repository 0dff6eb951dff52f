"""A large image with what is to be done with it, and what any of its tiles takes."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from napari_saf.arrays import as_whole
from napari_saf.device import memory_errors_translated, memory_limit, proposing
from napari_saf.dictionary import PatchDictionary
from napari_saf.errors import InvalidInput, SafError
from napari_saf.io import LazyImage, PrototypeSet, Recipe, Region, load_recipe, open_lazily, spelled
from napari_saf.methods import AbstractMethod
from napari_saf.parameters import to_plain
from napari_saf.problem import ImageOptions
from napari_saf.tiles._plan import Plan, make_plan
from napari_saf.tiles._store import LabelStore
from napari_saf.tiles._tiling import Tiling

LEARN_PIXELS = 2**20
_SMALLER = "choose smaller tiles"
_MOST_SENT = 2**26
"""Bytes of an array in memory that may be sent to other processes, with every tile."""


Sent = LazyImage | tuple[str, int | None, bool]
"""An image, or what another process opens it from."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What a worker needs to label any tile; an image in a file is opened where it is read.

    Where the plan says only how a `dictionary` labels, this is it.
    """

    plan: Any
    image: Sent
    mask: Sent | Literal["finite"] | None
    out: Path
    dictionary: PatchDictionary | None = None

    def do(self, tile: tuple[int, ...]) -> dict[int, int]:
        """Label a tile of the finest level, or make one of a coarser level; return its sizes."""
        level, *place = tile
        region, store = self.plan.region(place), LabelStore(self.out)
        if level:
            store.coarsen(self.plan, tile)
            return {}
        with memory_errors_translated(_SMALLER), proposing(_SMALLER):
            labels = self.label(region)
        store.write(0, region, labels)
        counts = np.bincount(labels.ravel())
        return {int(n): int(counts[n]) for n in np.flatnonzero(counts) if n}

    def label(self, region: Region) -> Any:
        """Return the labels of a region."""
        crop = self.plan.surroundings(region)
        values = opened(self.image, self.plan).read(crop)
        mask: Any = self.mask
        if mask is not None and mask != "finite":
            mask = opened(mask, self.plan).read(crop)[..., 0] != 0
        try:
            start = [side.start for side in crop]
            labels = self.plan.label(values, mask, self.dictionary or start)
        except SafError as error:
            raise type(error)(f"at {spelled(region)}: {error}") from error
        inner = zip(region, crop, strict=True)
        return labels[tuple(slice(r.start - c.start, r.stop - c.start) for r, c in inner)]


def opened(image: Sent, plan: Tiling) -> LazyImage:
    """Return an image in a worker, from what `sent` made of it."""
    return image if isinstance(image, LazyImage) else _opened(*image, json.dumps(plan.source))


def sent(image: LazyImage, is_sent: bool) -> Sent:
    """Return what a worker, if it is another process, opens an image from."""
    if not is_sent:
        return image
    if image.is_remote:
        return image.source, *image.given
    if os.path.exists(image.source):
        return os.path.abspath(image.source), *image.given
    if image.n_bytes_in_memory > _MOST_SENT:
        raise InvalidInput(
            "source: an array in memory is not sent to other processes; save it as zarr "
            "or .npy and give its path, or do without --jobs and client"
        )
    return image


@functools.lru_cache(maxsize=4)
def _opened(path: str, channel_axis: int | None, are_labels: bool, state: str) -> LazyImage:
    """Open a file once for all tiles of a run; `state` tells runs apart."""
    return open_lazily(path, channel_axis, are_labels)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AbstractLargeJob(ABC):
    """A large image that is to be labelled, checked; see `label_large` for the parameters."""

    plan_type: ClassVar[type[Tiling]]

    image: LazyImage
    mask: LazyImage | Literal["finite"] | None
    tile: int | None

    @property
    def state(self) -> dict[str, Any]:
        """What tells whether image and mask changed."""
        own = self.mask.state if isinstance(self.mask, LazyImage) else self.mask
        return {"image": self.image.state, "mask": own}

    @property
    @abstractmethod
    def request(self) -> dict[str, Any]:
        """What is asked for, as JSON holds it."""

    @abstractmethod
    def plan(self) -> Any:
        """Learn from blocks; the same image and request give the same plan."""

    def probe(self, plan: Tiling) -> tuple[float, float]:
        """Label a tile in the middle of the image; return seconds, and bytes of the fields."""
        tiles, needs = plan.tiles(), [0.0]
        region = plan.region(tiles[len(tiles) // 2])
        work = self.work(plan, Path(), is_sent=False)
        with memory_limit(None, lambda need, room: needs.append(need)):
            began = time.perf_counter()
            work.label(region)
            return time.perf_counter() - began, max(needs)

    def work(self, plan: Tiling, out: Path, is_sent: bool) -> Work:
        """Return what labels tiles, here or, if it `is_sent`, in other processes."""
        mask = sent(self.mask, is_sent) if isinstance(self.mask, LazyImage) else self.mask
        return Work(plan, sent(self.image, is_sent), mask, out.absolute())


def opened_with_mask(
    source: Any, mask: Any, channel_axis: int | None, tile: int | None
) -> tuple[LazyImage, LazyImage | Literal["finite"] | None, int | None]:
    """Open an image and its mask; return the fields of a job, checked."""
    image = open_lazily(source, channel_axis)
    if mask is not None and not (isinstance(mask, str) and mask == "finite"):
        mask = open_lazily(mask, are_labels=True)
        if mask.shape != image.shape or mask.n_channels != 1:
            more = "" if mask.n_channels == 1 else f" with {mask.n_channels} channels"
            raise InvalidInput(f"mask: expected the shape {image.shape}, got {mask.shape}{more}")
    return image, mask, check_count("tile", tile, 16)


def check_count(name: str, value: int | None, least: int) -> int | None:
    if value is not None and (as_whole(value) or 0) < least:
        raise InvalidInput(f"{name}: expected {least} or more, got {value!r}")
    return value


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LargeJob(AbstractLargeJob):
    """A job of a method, or of what was taught."""

    plan_type = Plan

    recipe: Recipe
    learn_pixels: int = LEARN_PIXELS

    @classmethod
    def of(
        cls,
        source: Any,
        recipe: Any,
        *,
        mask: Any = None,
        channel_axis: int | None = None,
        tile: int | None = None,
        learn_pixels: int = LEARN_PIXELS,
    ) -> LargeJob:
        """Open the image and its mask, and check that they fit."""
        found = _recipe_of(recipe)
        if channel_axis is None and found.options is not None:
            channel_axis = found.options.channel_axis
        own = opened_with_mask(source, mask, channel_axis, tile)
        check_count("learn_pixels", learn_pixels, 1)
        return cls(*own, found, learn_pixels)

    @property
    def request(self) -> dict[str, Any]:
        recipe, options = self.recipe, self.recipe.options
        plain = {
            "method": recipe.method.name,
            "parameters": to_plain(recipe.method),
            "input": None if options is None else options.to_plain(),
            "level": recipe.level,
            "taught": None if recipe.taught is None else recipe.taught.entries(),
            "tile": self.tile,
            "learn_pixels": self.learn_pixels,
        }
        return dict(json.loads(json.dumps(plain)))

    def plan(self) -> Plan:
        return make_plan(
            self.image,
            self.mask,
            self.recipe,
            tile=self.tile,
            learn_pixels=self.learn_pixels,
            request=self.request,
            source=self.state,
        )


def _recipe_of(given: Any) -> Recipe:
    if isinstance(given, (str, os.PathLike)):
        return load_recipe(given)
    if isinstance(given, PrototypeSet):
        return given.recipe()
    if isinstance(given, AbstractMethod):
        return Recipe(given, ImageOptions(), {})
    if not isinstance(given, Recipe):
        raise InvalidInput(
            f"recipe: expected a Recipe, its path, a PrototypeSet or a method, got {given!r:.60}"
        )
    return given
