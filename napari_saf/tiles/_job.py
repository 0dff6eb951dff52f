"""Jobs that label a large image in tiles, within a mask."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import JsonObject, all_finite, as_whole
from napari_saf.device import memory_limit
from napari_saf.dictionary import PatchDictionary
from napari_saf.errors import InvalidInput, NotFinite
from napari_saf.features import Pixels
from napari_saf.io import (
    OME_ZARR_SUFFIX,
    ImageSource,
    ProbabilityStore,
    Region,
    count_labels,
    places_lost,
)
from napari_saf.parts import cut
from napari_saf.pipeline import Pipeline
from napari_saf.tiles._engine import AbstractTiledJob, AbstractWork, Auxiliary, Tile
from napari_saf.tiles._store import LabelStore
from napari_saf.tiles._tiling import Tiling


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Work(AbstractWork):
    """Worker that labels tiles, by the `dictionary` of its plan if any; writes soft labels."""

    dictionary: PatchDictionary | None = None
    maps: ProbabilityStore | None = None

    def do_finest(self, tile: Tile, region: Region) -> dict[int, int]:
        labels, maps = self.label(region)
        if self.maps is not None:
            self.maps.write(region, maps)
        LabelStore(self.out).write(0, region, labels)
        return pixels_of_labels(labels)

    def label(self, region: Region) -> tuple[NDArray[Any], Any]:
        """Return the labels of a region, and its maps of soft labels, if any."""
        crop, values, mask = self.read(region)
        if mask is not None and not isinstance(mask, str):
            mask = within_data(self._opened(self.image), mask != 0, values)
        if self.dictionary is not None:
            labels, maps = self.plan.label(values, mask, self.dictionary)
            return cut(labels, crop, region), maps
        labels_and_maps: tuple[NDArray[Any], Any] = self.plan.label(values, mask, crop, region)
        return labels_and_maps

    def stages(self, done: dict[Tile, Any]) -> Iterator[Sequence[Tile]]:
        if self.maps is not None and not done:
            self.maps.create(self.plan.chunk, self.plan.tile)
        elif self.maps is not None and not self.maps.path.exists():
            raise InvalidInput(f"{self.maps.path}: was removed meanwhile; --overwrite starts over")
        # No super(): slots=True creates a new class.
        yield from AbstractWork.stages(self, done)
        if self.maps is not None:
            self.maps.finish()


def pixels_of_labels(labels: NDArray[Any]) -> dict[int, int]:
    """Return the number of pixels of each label above 0."""
    present, sizes = count_labels(labels)
    return dict(zip(present.tolist(), sizes.tolist(), strict=True))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AbstractLargeJob(AbstractTiledJob):
    """Job that labels a large image within a mask; see `label_large` for the parameters."""

    tile: int | None

    @property
    def recipe_of_run(self) -> Pipeline | None:
        """Pipeline with the level of regions and the objects; None for labels alone."""
        return None

    def probe(self, plan: Tiling) -> tuple[float, float]:
        """Label a tile in the middle of the image; return seconds and bytes of the fields."""
        tiles, needs = plan.tiles(), [0.0]
        region = plan.region(tiles[len(tiles) // 2])
        work = self.work(plan, Path(), is_sent=False)
        with memory_limit(None, lambda need, room: needs.append(need)):
            began = time.perf_counter()
            work.label(region)
            return time.perf_counter() - began, max(needs)

    def tiling(
        self, chunk: list[int], tile: list[int], notes: list[str], halo: list[int]
    ) -> JsonObject:
        """Return the fields of any plan, see `fitting_tile`."""
        sides = {"chunk": chunk, "tile": tile, "halo": halo}
        return self.described() | sides | {"notes": [*self.image.notes, *notes]}

    def work(self, plan: Any, out: Path, is_sent: bool) -> Work:
        return Work(plan, *self.sent(is_sent), out.absolute())


def opened_with_mask(
    source: Any,
    channel_axis: int | None,
    mask: Any = None,
    tile: int | None = None,
    no_data: float | None = None,
) -> tuple[ImageSource, Auxiliary, int | None]:
    """Open an image and its mask; return the fields of a job, checked."""
    image = ImageSource.open(source, channel_axis, no_data=no_data)
    if mask is None and image.no_data is not None:
        mask = "finite"
    if mask is not None and not (isinstance(mask, str) and mask == "finite"):
        mask = ImageSource.open(mask, are_labels=True)
        if mask.shape != image.shape or mask.n_channels != 1:
            channels = "" if mask.n_channels == 1 else f" with {mask.n_channels} channels"
            raise InvalidInput(f"mask: expected shape {image.shape}, got {mask.shape}{channels}")
    lost = places_lost(OME_ZARR_SUFFIX, image).items()
    image.notes += tuple(f"the mask does not keep {text}: {kept_by} does" for text, kept_by in lost)
    return image, mask, check_count("tile", tile, 16)


def pixels_of(image: ImageSource, mask: Auxiliary) -> Pixels:
    """Return pixels and mask of an image, read in parts."""

    def read(region: Region) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        values = image.read(region)
        inside: Any = mask
        if isinstance(mask, ImageSource):
            inside = within_data(image, mask.read(region)[..., 0] != 0, values)
        return values, inside_of(values, inside)

    return Pixels(image.shape, image.n_channels, read, mask is not None, image.piece)


def within_data(
    image: ImageSource, inside: NDArray[np.bool_], values: NDArray[Any]
) -> NDArray[np.bool_]:
    """Return a mask without the no-data pixels of an image."""
    return inside if image.no_data is None else inside & np.isfinite(values).all(axis=-1)


def inside_of(
    values: NDArray[Any], mask: NDArray[np.bool_] | Literal["finite"] | None
) -> NDArray[np.bool_] | None:
    """Return the mask of pixels, channels last, None for all; NotFinite if some inside are not."""
    finite: NDArray[np.bool_] = all_finite(values)
    inside = finite if isinstance(mask, str) else mask
    n_bad = np.count_nonzero(~finite if inside is None else ~finite & inside)
    if n_bad:
        raise NotFinite(
            f"image: {n_bad} of {finite.size} pixels are NaN or infinite; "
            "leave them out with the mask 'finite', or give a mask"
        )
    return inside


def check_count(name: str, value: int | None, least: int) -> int | None:
    if value is not None and (as_whole(value) or 0) < least:
        raise InvalidInput(f"{name}: expected {least} or more, got {value!r}")
    return value
