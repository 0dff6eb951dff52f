"""What came of strokes: labels, how uncertain they are, what of them is locked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray

from napari_saf._gui.layers.live import LiveLayer, UncertaintyLayer
from napari_saf._gui.layers.metadata import NAMES_KEY
from napari_saf._gui.layers.placement import Placement
from napari_saf._gui.layers.reading import ImageJob
from napari_saf._gui.runs.start import WarmStart
from napari_saf.errors import InvalidInput
from napari_saf.features import FEATURES
from napari_saf.io import PrototypeSet, count_labels
from napari_saf.problem import Problem
from napari_saf.result import Segmentation

__all__ = ["TITLE", "SpotMarker", "StrokeResult", "StrokeResults"]

TITLE = "from strokes"
_RING_SHARE = 1 / 15
_LEAST_RING = 8


@dataclasses.dataclass(slots=True, eq=False)
class StrokeResult:
    """The layers that show what came of some strokes on some part of an image.

    Attributes
    ----------
    index : tuple of int or slice
        The part of the image.
    live : LiveLayer
    uncertainty : UncertaintyLayer
    warm : WarmStart or None
        From where the next run may go on.
    followed : int or None
        Checksum of the strokes that the last run followed; None where that run was overtaken.
    words : str
        How the last run ended, or what is missing.
    shares : dict of int to float
        The share of each class among the labelled pixels.
    """

    image: Image
    strokes: Labels
    index: tuple[int | slice, ...]
    live: LiveLayer
    uncertainty: UncertaintyLayer
    warm: WarmStart | None = None
    followed: int | None = None
    words: str = ""
    shares: dict[int, float] = dataclasses.field(default_factory=dict)
    _last: tuple[Problem, Segmentation] | None = None
    _locked: dict[int, NDArray[np.bool_]] = dataclasses.field(default_factory=dict)

    @classmethod
    def create(
        cls, viewer: napari.Viewer, image: Image, strokes: Labels, job: ImageJob, place: Placement
    ) -> StrokeResult:
        """Return a result of which nothing is known yet; its layers come with the first run."""
        live = LiveLayer(viewer, image, TITLE, place, strokes)
        uncertainty = UncertaintyLayer(viewer, f"{image.name} uncertainty", place, strokes)
        return cls(image, strokes, job.index, live, uncertainty)

    @property
    def is_known(self) -> bool:
        """Whether a run came to its end."""
        return self._last is not None

    def is_of(self, image: Image, strokes: Labels, index: tuple[int | slice, ...]) -> bool:
        """Tell whether this came of some strokes on some part of an image."""
        known = (self.image, self.strokes, self.index) == (image, strokes, index)
        return known and not self.live.is_lost

    def keep(self, problem: Problem, result: Segmentation, numbers: NDArray[np.int64]) -> None:
        """Keep how a run ended."""
        self._last = (problem, result)
        self.warm = WarmStart(result.assignment, numbers)

    def taught(
        self, names: Mapping[int, str], colors: Mapping[int, Sequence[float]], rescale: bool
    ) -> PrototypeSet:
        """Return what the classes look like, to label other images with.

        These are scaled by their own values if `rescale` says so, else as this one was.

        Raises
        ------
        InvalidInput
            If the features are of this image alone.
        """
        assert self._last is not None
        problem, result = self._last
        assert not isinstance(result.labels, list)
        features = "" if problem.options is None else problem.options.features
        if features not in FEATURES or features == "position":
            raise InvalidInput(
                "features: those of a layer, and positions, are known for one image only; choose "
                "others under Features first, such as perceived colour"
            )
        found = PrototypeSet.from_labels(problem, result.labels, names=names, colors=colors)
        assert found.options is not None
        options = dataclasses.replace(found.options, rescale=rescale)
        return dataclasses.replace(found, options=options)

    def measure(self, result: Segmentation, words: str) -> None:
        """Keep the words for how a run ended, and the shares of the classes."""
        numbers, sizes = count_labels(np.asarray(result.labels))
        shares = (sizes / max(1, int(sizes.sum()))).tolist()
        self.words, self.shares = words, dict(zip(numbers.tolist(), shares, strict=True))

    def clear(self, words: str) -> None:
        """Show no labels, and know of none; the words say why."""
        self.words, self.shares = words, {}
        self.live.clear()
        self.uncertainty.hide()
        self._last = self.warm = None

    def uncertainty_image(self) -> NDArray[np.floating]:
        """Return how uncertain the pixels of the part are, 0 to 1."""
        assert self._last is not None
        problem, result = self._last
        assert result.uncertainty is not None
        return np.asarray(problem.graph.to_image(result.uncertainty))

    def show_uncertainty(self, visible: bool) -> None:
        """Show how uncertain pixels are, where that is known, or hide it."""
        if visible and self.is_known:
            self.uncertainty.show(self.uncertainty_image())
        else:
            self.uncertainty.hide()

    def lock(self, numbers: Iterable[int]) -> None:
        """Keep the pixels of these classes, newly named ones as they are now; let others go.

        Those of a class that has none yet are kept from the first run on that gives it some.
        """
        wanted = set(numbers)
        self._locked = {n: pixels for n, pixels in self._locked.items() if n in wanted}
        if self.is_known:
            now = {n: self.live.labels() == n for n in wanted - set(self._locked)}
            self._locked |= {n: pixels for n, pixels in now.items() if pixels.any()}

    def with_locked(self, given: NDArray[Any] | None) -> NDArray[Any] | None:
        """Return labels that were given, and over them the pixels that are locked."""
        for number, pixels in self._locked.items():
            if given is None:
                given = np.zeros(pixels.shape, dtype=np.int64)
            given[pixels] = number
        return given


class StrokeResults:
    """The results whose layers are there: one for each part of an image with strokes."""

    def __init__(self) -> None:
        self._results: list[StrokeResult] = []

    def add(self, result: StrokeResult) -> None:
        """Keep one more."""
        self._results.append(result)

    def at(
        self, image: Image, strokes: Labels, index: tuple[int | slice, ...]
    ) -> StrokeResult | None:
        """Return what came of some strokes on some part of an image, if anything."""
        self._results = [result for result in self._results if not result.live.is_lost]
        return next((r for r in self._results if r.is_of(image, strokes, index)), None)

    def shown_on(self, live: LiveLayer | None) -> StrokeResult | None:
        """Return the result that a layer shows, if it is one of them."""
        return next((result for result in self._results if result.live is live), None)

    def of(self, strokes: Labels | None) -> list[StrokeResult]:
        """Return the results of some strokes."""
        return [result for result in self._results if result.strokes == strokes]

    def strokes_on(self, image: Image) -> Labels | None:
        """Return the strokes of the newest result on an image, if there is one."""
        return next((r.strokes for r in reversed(self._results) if r.image == image), None)

    def recolor(self, strokes: Labels | None) -> None:
        """Give the labels of some strokes the colours that these have now."""
        for result in self.of(strokes):
            result.live.recolor()

    def name(self, strokes: Labels | None, names: Mapping[int, str]) -> None:
        """Write the names of the classes where tables and figures look for them."""
        for result in self.of(strokes):
            if result.live.layer is not None:
                result.live.layer.metadata[NAMES_KEY] = names


class SpotMarker:
    """A ring around the place where the next stroke helps most.

    Parameters
    ----------
    viewer : napari.Viewer
    """

    def __init__(self, viewer: napari.Viewer) -> None:
        self._viewer = viewer
        self._ring: Any = None

    def mark(self, result: StrokeResult, spot: tuple[int, ...]) -> None:
        """Put the ring around a pixel of the part that was labelled, and bring it into view."""
        place = result.live.placement
        where = np.array(place.shape(spot), dtype=float)
        where[list(place.singletons)] = 0
        if self._ring is None or self._ring not in self._viewer.layers:
            self._ring = self._create_ring(result, where)
        else:
            self._ring.data = where[None]
        self._viewer.layers.selection.active = result.strokes
        self._show(self._ring.data_to_world(where), where, result.live.layer.corner_pixels)

    def _create_ring(self, result: StrokeResult, where: NDArray[np.floating]) -> Any:
        shortest = min(side for side in result.live.layer.data.shape if side > 1)
        return self._viewer.add_points(
            where[None],
            name="suggested spot",
            face_color="transparent",
            border_color="white",
            border_width=0.15,
            size=max(_LEAST_RING, shortest * _RING_SHARE),
            **result.live.placement.transform,
        )

    def _show(self, world: Any, where: NDArray[np.floating], in_sight: NDArray[np.integer]) -> None:
        """Go to the slice of a place, and centre it if it is out of sight."""
        dims = self._viewer.dims
        here = np.round(self._ring.world_to_data(dims.point[-self._ring.ndim :]))
        for k, axis in enumerate(range(dims.ndim - len(world), dims.ndim)):
            if here[k] != where[k]:
                dims.set_point(axis, world[k])
        if ((where < in_sight[0]) | (where > in_sight[1])).any():
            self._viewer.scene.camera.center = (0, *world)[-3:]
