"""The plan of a large image, which labels a tile like the whole image in memory."""

from __future__ import annotations

import base64
import functools
import zlib
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from napari_saf import io, storage
from napari_saf.arrays import JsonObject
from napari_saf.features import Pixels
from napari_saf.graph import CoarseGrid, GridGraph
from napari_saf.methods import AssignmentFlow, ReducedImage, RegionFlow, scheduled
from napari_saf.parts import cut, grown
from napari_saf.pipeline import Pipeline
from napari_saf.result import LabelMap
from napari_saf.sharpening import Sharpener
from napari_saf.tiles._job import inside_of
from napari_saf.tiles._tiling import Tiling


class Packed(storage.FileModel):
    """A compressed array in JSON."""

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
    """Plan of the labels of a large image, in JSON; positions and sizes are in pixels.

    `recipe` is that of the run at a reduced size and `nodes` are its labels. `shares` are its soft
    labels, if maps are written and no flow labels tiles. `borders` are the fields of the sharpener
    that moves borders of enlarged labels onto edges. `flow` is the recipe by which all pixels are
    labelled, if any, with `steps`.
    """

    plan_kind: Literal["tiles"] = Field(alias="kind")
    recipe: JsonObject
    nodes: Packed
    shares: Packed | None = None
    borders: JsonObject | None = None
    flow: JsonObject | None = None
    noise: list[float] | None = None
    steps: list[float] = Field(default_factory=list)
    has_prior: bool = True
    maps: JsonObject | None = None

    def region_flow(self) -> RegionFlow | None:
        """Return the flow that labels any region; None if labels are enlarged."""
        if self.flow is None:
            return None
        recipe = Pipeline.from_plain(self.flow)
        assert isinstance(recipe.method, AssignmentFlow) and recipe.options is not None
        flow = scheduled(recipe.method, self.steps)
        return RegionFlow(flow, recipe.options, self.noise, self.has_prior)

    def image(self, pixels: Pixels) -> ReducedImage:
        """Return an image with its reduced labels."""
        nodes = self.nodes.array()
        mask = nodes > 0 if nodes.any() else None
        grid = CoarseGrid(GridGraph(nodes.shape, window=1, mask=mask), self.shape)
        sharpener = None if self.borders is None else Sharpener(**self.borders)
        return ReducedImage(grid, pixels, nodes, sharpener=sharpener)

    def prototypes(self) -> io.PrototypeSet:
        """Return the prototypes of the labels, with names."""
        prototypes = Pipeline.from_plain(self.recipe).prototypes
        assert prototypes is not None
        return prototypes

    @property
    def most_label(self) -> int:
        """The largest possible label."""
        return max(self.prototypes().by_label())

    @property
    def decided(self) -> str:
        steps = f"in {len(self.steps)} steps"
        if not self.has_prior:
            return f"by prototypes, {steps}"
        sides = " x ".join(map(str, self.nodes.shape))
        return f"decided at {sides}" + (f", then {steps}" if self.steps else "")

    def describe(self, axes: io.Axes, numbers: list[int]) -> tuple[LabelMap, str]:
        prototypes = self.prototypes()
        names, colors = prototypes.names, prototypes.colors
        note = io.write_note(axes, names, colors, prototypes, self.recipe)
        return io.map_labels(np.array(numbers), names, colors), note

    def surroundings(self, region: io.Region) -> io.Region:
        """Return the region to read for the labels of a region."""

        def unread(region: io.Region) -> Any:
            raise AssertionError("no pixels")

        image = self.image(Pixels(tuple(self.shape), 1, unread, has_mask=False))
        flow = self.region_flow()
        return image.surroundings(region) if flow is None else flow.surroundings(region, image)

    def label(
        self,
        values: NDArray[Any],
        mask: NDArray[np.bool_] | Literal["finite"] | None,
        crop: io.Region | None = None,
        region: io.Region | None = None,
    ) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.float32] | None]:
        """Return the labels of a region, by default all, 0 outside the mask; and maps.

        `values`, channels last, and mask are those of `crop`, its `surroundings`. The maps of soft
        labels, of shape (n_labels, ...), are those of `maps`, None without.
        """
        everything = tuple(slice(0, n) for n in self.shape)
        crop, region = crop or everything, region or everything
        inside = inside_of(values, mask)
        if inside is None or cut(inside, crop, region).any():
            labels, maps = self._label(values, inside, crop, region)
        else:
            labels = np.zeros([side.stop - side.start for side in region], np.uint8)
            maps = np.zeros((len(self._map_labels), *labels.shape), np.float32)
        dtype = np.min_scalar_type(self.most_label)
        return labels.astype(dtype), maps if self._map_labels else None

    @property
    def _map_labels(self) -> list[int]:
        return [] if self.maps is None else list(self.maps["labels"])

    def _label(
        self,
        values: NDArray[Any],
        inside: NDArray[np.bool_] | None,
        crop: io.Region,
        region: io.Region,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        def read(part: io.Region) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
            return cut(values, crop, part), None if inside is None else cut(inside, crop, part)

        pixels = Pixels(tuple(self.shape), values.shape[-1], read, inside is not None)
        image, flow = self.image(pixels), self.region_flow()
        if flow is None:
            labels = image.sharpened(region)
            maps = np.zeros((len(self._map_labels), *labels.shape), np.float32)
            if len(maps):
                assert self.shares is not None
                shares = self.shares.array().astype(np.float32) / 255
                maps = np.stack([image.grid.enlarged(share, region) for share in shares])
            return labels, maps if inside is None else maps * (labels > 0)
        outcome = flow.label(image, region)
        assert outcome is not None
        labels, problem, result = outcome
        around = grown(region, flow.halo, self.shape)
        maps = np.zeros((0, *labels.shape), np.float32)
        if self._map_labels:
            images: Any = io.probability_maps(problem, result, self._map_labels)
            images = images[0] if isinstance(images, list) else images
            maps = np.stack([cut(image_map, around, region) for image_map in images])
        return cut(labels, around, region), maps
