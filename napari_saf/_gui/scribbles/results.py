"""What came of strokes on each region of an image: labels, their uncertainty, what is locked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from napari_saf._gui.forms.choices import LayerChoice
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.layers.live import LiveLayer, UncertaintyLayer, show_points
from napari_saf._gui.layers.metadata import (
    FOLLOWED_KEY,
    NAMES_KEY,
    colors_of,
    is_strokes,
    metadata_of,
    recipe_of,
    restored_layers,
    stored_recipe,
)
from napari_saf._gui.layers.placement import NO_IMAGE, Placement, pixels_of, world_affine
from napari_saf._gui.layers.reading import ImageJob, Index, fingerprint
from napari_saf._gui.layers.view import center_on
from napari_saf._gui.runs.controller import RunController
from napari_saf._gui.runs.job import WarmStart
from napari_saf._gui.scribbles.strokes import Strokes, above_0
from napari_saf.errors import InvalidInput, SafError
from napari_saf.io import PrototypeSet, count_labels
from napari_saf.methods import not_cancelled
from napari_saf.pipeline import Pipeline
from napari_saf.problem import Problem
from napari_saf.project import fit_jointly
from napari_saf.result import LabelImage, Segmentation, Status

TITLE = "from strokes"
_PAINTED_SINCE = ", before the last strokes: press Update"
_RING_SHARE = 1 / 15
_LEAST_RING = 8
_RIM = 0.03
"""Share of the sides of an image that is its rim, where what is around a place is half unknown."""
_NEAR = 1e-3
"""Share of painted pixels around a place above which it counts as painted."""


class StrokeResult:
    """The layers that show what came of some strokes on a region (index) of an image.

    The checksum is that of the strokes that the last run followed; None where another run took its
    place. The summary says how that ended, or what is missing, the shares those of the classes.
    """

    def __init__(
        self, viewer: napari.Viewer, image: Image, strokes: Labels, index: Index, place: Placement
    ) -> None:
        self.image, self.strokes, self.index = image, strokes, index
        self.live = LiveLayer(viewer, image, TITLE, place, strokes)
        self.uncertainty = UncertaintyLayer(viewer, image, "uncertainty", place, strokes)
        self.warm_start: WarmStart | None = None
        self.checksum: int | None = None
        self.summary, self.shares = "", dict[int, float]()
        self.last: tuple[Problem, Segmentation] | None = None
        self.has_labels = False
        self.locked: LabelImage | None = None  # 0 where pixels are free

    def update(
        self, problem: Problem, result: Segmentation, numbers: NDArray[np.int64], summary: str
    ) -> None:
        """Take over the outcome of a run on classes of these numbers."""
        if result.status is not Status.CANCELLED:
            self.last, self.has_labels = (problem, result), True
            self.warm_start = WarmStart.after(problem, result, numbers, self.warm_start)
        self.summary, self.shares = summary, shares_of(np.asarray(result.labels))
        metadata_of(self.live.layer)[FOLLOWED_KEY] = self.checksum

    def clear(self, summary: str) -> None:
        self.summary, self.shares = summary, {}
        self.live.clear()
        self.uncertainty.hide()
        self.last, self.warm_start, self.has_labels = None, None, False

    def uncertainty_image(self) -> NDArray[np.floating]:
        assert self.last is not None
        problem, result = self.last
        assert result.uncertainty is not None
        return np.asarray(problem.graph.to_image(result.uncertainty))

    def show_uncertainty(self, visible: bool) -> None:
        if visible and self.last is not None:
            self.uncertainty.show(self.uncertainty_image())
        else:
            self.uncertainty.hide()

    def lock(self, numbers: Iterable[int]) -> None:
        """Fix the pixels that these classes have now; free others.

        Those of a class that has none yet are fixed from the first run on that gives it some.
        """
        if not self.has_labels:
            return
        labels, before = self.live.labels(), 0 if self.locked is None else self.locked
        locked = np.zeros_like(labels)
        for number in numbers:
            locked = np.where(labels == number, labels, locked)
        if (locked != before).any():
            self.locked = locked if locked.any() else None
            self.warm_start = None  # which is of other pixels


class StrokeResults:
    """The results whose layers are there, and what is painted on the region on screen.

    The `base` are labels of an earlier run that become classes, if any; `finite_only` leaves out
    pixels of the image that are NaN or infinite.
    """

    def __init__(
        self,
        viewer: napari.Viewer,
        controller: RunController,
        chosen: ImageInput,
        base: LayerChoice,
        strokes: Strokes,
    ) -> None:
        self._viewer, self._controller, self._input = viewer, controller, chosen
        self._base, self._strokes = base, strokes
        self._results: list[StrokeResult] = []
        self._ring: Any = None
        self.finite_only = False

    @property
    def of_run(self) -> StrokeResult | None:
        """The result that the run under way is shown on; None for a run on another image."""
        live = self._controller.live
        return next((result for result in self._results if result.live is live), None)

    def of_strokes(self) -> list[StrokeResult]:
        """Return the results of the present strokes, on all slices."""
        return [result for result in self._results if result.strokes == self._strokes.layer]

    def name_labels(self) -> None:
        names = {number: self._strokes.name(number) for number in self._strokes.classes()}
        for result in self.of_strokes():
            if result.live.layer is not None:
                result.live.layer.metadata[NAMES_KEY] = names

    @property
    def index(self) -> Index | None:
        """What is read of the image for the region on screen; None without an image."""
        return None if self._input.image is None else self._input.pixels().region().index

    @property
    def current(self) -> StrokeResult | None:
        """The result of the present strokes on the region on screen, if there is one."""
        key = (self._input.image, self._input.strokes, self.index)
        if None in key[:2]:
            return None
        self._results = [result for result in self._results if not result.live.is_lost]
        found = (r for r in self._results if (r.image, r.strokes, r.index) == key)
        return next(found, None) or self._take_up()

    def _take_up(self) -> StrokeResult | None:
        """Go on in labels of a project that was opened again, with the strokes; None if it cannot.

        Of several strokes at the same place they may be of others.
        """
        strokes = self._input.strokes
        kept = restored_layers(self._viewer, self._input.image)
        shape, world = strokes.data.shape, world_affine(strokes)
        painted = [x for x in kept if is_strokes(x) and x.data.shape == shape]
        painted = [x for x in painted if np.allclose(world_affine(x), world)]
        taken = [other.live.layer for other in self._results]
        layers = [x for x in kept if f"[{TITLE}]" in x.name and x not in taken]
        if painted != [strokes] or not layers:
            return None
        region, pixels = self._input.pixels().region(), self.read(strokes)
        result = StrokeResult(self._viewer, region.image, strokes, region.index, region.placement)
        if not any(result.live.take_up(layer, pixels.shape) for layer in reversed(layers)):
            return None
        now, result.has_labels = fingerprint(pixels, None), True
        result.checksum = metadata_of(result.live.layer).get(FOLLOWED_KEY, now)
        since = "" if result.checksum == now else _PAINTED_SINCE
        result.summary = f"labels as they were kept{since}"
        self._results.append(result)
        return result

    def begin(self, index: Index) -> StrokeResult:
        """Return the result for the present strokes, to be labelled now; a new one if need be."""
        result, chosen = self.current, self._input
        if result is None:
            place = chosen.pixels().region().placement
            result = StrokeResult(self._viewer, chosen.image, chosen.strokes, index, place)
            self._results.append(result)
        self.give_way(result)
        return result

    def give_way(self, result: StrokeResult) -> None:
        """Take the strokes for followed; other runs, which end for this one, are to be done again.

        That is once their slice is on screen again.
        """
        waiting = self._controller.waiting
        ending = (self._controller.live, None if waiting is None else waiting.live)
        for other in self._results:
            if other.live in ending:
                other.checksum = None
        result.checksum = self.checksum()

    def fitting_strokes(self) -> Labels | None:
        """Return the strokes that labelled the image last, else the present ones if they fit it."""
        image, strokes = self._input.image, self._input.strokes
        last = next((r.strokes for r in reversed(self._results) if r.image == image), None)
        if last is not None or strokes is None:
            return last
        sides, whole = pixels_of(strokes).shape, self._input.pixels().region().whole()[1]
        # Any axis may be that of the channels, which is still to be chosen.
        cut = [(whole[:axis], whole[axis + 1 :]) for axis in range(len(whole))]
        without_one = [(*before, *n, *after) for before, after in cut for n in ((), (1,))]
        return strokes if sides in (whole, *without_one) else None

    def read(self, layer: Labels) -> NDArray[Any]:
        pixels = self._input.pixels().region().over(layer)
        assert pixels is not None
        return pixels.read(not_cancelled)

    def checksum(self) -> int:
        return fingerprint(self.read(self._input.strokes), None)

    def job(self) -> ImageJob:
        """Return what to label; labels of an earlier run hold between strokes.

        InvalidInput if earlier labels have another shape than the strokes.
        """
        given: NDArray[Any] | None = None
        if self._base.layer is not None:
            given = follow_strokes(self.read(self._base.layer), self.read(self._input.strokes))
        locked = None if self.current is None else self.current.locked
        job = self._input.read().job(finite_only=self.finite_only)
        return dataclasses.replace(job, given=given, locked=locked)

    def learner(self, form: MethodForm) -> Callable[[Callable[[], bool]], Pipeline]:
        """Return a function that lets the strokes in all regions of a large image teach together.

        It takes a while, and returns what labels all of the image.
        """
        self.classifier()  # or why there is none
        method = form.read()
        selection = self._input.read()
        # What strokes teach at full resolution is for all of the image at that.
        options = dataclasses.replace(selection.whole_options(), max_side=None)
        found = [r for r in self._results if r.image == selection.image and not r.live.is_lost]
        own = [r for r in found if r.strokes in self._viewer.layers]
        jobs = [selection.job(finite_only=self.finite_only, strokes=r.strokes) for r in own]
        numbers = self._strokes.classes()
        colors = colors_of(self._strokes.layer, np.array(numbers))[:, :3].tolist()
        names = {number: self._strokes.name(number) for number in numbers}
        for result in own:
            names = result.strokes.metadata.get(NAMES_KEY, {}) | names
        known: dict[str, Any] = {"names": names, "colors": dict(zip(numbers, colors, strict=True))}

        def learn(cancelled: Callable[[], bool]) -> Pipeline:
            seeds = [job.read_seeds(cancelled) for job in jobs]
            found = fit_jointly(
                [job.pixels.read(cancelled) for job in jobs],
                [one for one in seeds if one is not None],
                method,
                jobs[0].options,
                finite_only=self.finite_only,
                cancelled=cancelled,
            )
            assert found.options is not None
            scaled = dataclasses.replace(options, scaling=found.options.scaling)
            taught = PrototypeSet.from_points(found.by_label(), options=scaled, **known)
            return Pipeline(method, scaled, prototypes=taught)

        return learn

    def why_too_few(self, form: MethodForm) -> str:
        """Return what to paint before the method can label anything; empty if nothing."""
        if self._input.image is None:
            return NO_IMAGE
        if self._input.strokes is None:
            return "press New, then paint two classes"
        method, job = form.read(), self.job()
        seeds = job.read_seeds(not_cancelled)
        assert seeds is not None
        classes = np.unique(above_0(seeds))
        if len(classes) > method.follows_seeds:
            return ""
        if job.locked is not None:
            return "all classes but one are locked: paint two others, or take a lock away"
        if not len(classes):
            return "paint a few pixels of class 1, then of class 2"
        return f"only {self._strokes.name(int(classes[0]))} is painted: paint another class too"

    def why_no_labels(self, form: MethodForm) -> str:
        is_old = self.current is not None and self.current.has_labels
        lack = "how certain labels are is not known yet" if is_old else "no labels yet"
        try:
            return self.why_too_few(form) or f"{lack}: press Update"
        except SafError as error:
            return str(error)

    def classifier(self) -> Pipeline:
        """Return what labels other images by what the strokes taught.

        InvalidInput if labels do not follow the strokes, or the features are of this image alone.
        """
        current = self.current
        if current is None or not current.has_labels:
            raise InvalidInput("there are no labels to learn from yet: press Update")
        if current.checksum != self.checksum() or self._controller.is_running:
            raise InvalidInput("strokes were painted since the last labels: press Update first")
        if "taught" not in (stored_recipe(current.live.layer) or {}):
            raise InvalidInput(
                "features: those of a layer, and positions, are known for one image only; choose "
                "others under Features first, such as perceived colour"
            )
        self.name_labels()
        return recipe_of(current.live.layer)

    def suggest(self, result: StrokeResult) -> bool:
        """Put a ring where the next stroke helps most, in view; return whether anywhere."""
        spot = most_uncertain_pixel(result.uncertainty_image(), self.read(result.strokes))
        if spot is None:
            return False
        layer = result.live.layer
        shortest = min(side for side in layer.data.shape if side > 1)
        self._ring = show_points(
            self._viewer,
            result.image,
            self._ring,
            [spot],
            result.live.placement,
            name="suggested spot",
            face_color="transparent",
            size=max(_LEAST_RING, shortest * _RING_SHARE),
        )
        self._viewer.layers.selection.active = result.strokes
        center_on(self._viewer, layer, tuple(self._ring.data[0]), only_if_hidden=True)
        return True


def shares_of(labels: LabelImage) -> dict[int, float]:
    present, sizes = count_labels(labels)
    shares = (sizes / max(1, int(sizes.sum()))).tolist()
    return dict(zip(present.tolist(), shares, strict=True))


def follow_strokes(
    base: NDArray[np.unsignedinteger[Any]], strokes: NDArray[np.unsignedinteger[Any]]
) -> NDArray[np.int64]:
    """Return the labels of an earlier result as strokes merge and split them.

    A label on which one class was painted becomes that class; a label on which several were
    painted becomes 0, to be divided between them; others are what they were.
    """
    if base.shape != strokes.shape:
        of_base, of_strokes = (" x ".join(map(str, own.shape)) for own in (base, strokes))
        raise InvalidInput(
            f"start from: expected labels of {of_strokes} pixels, as many as the strokes "
            f"have, got {of_base}"
        )
    becomes = base.astype(np.int64)
    both = (base > 0) & (strokes > 0)
    for label in np.unique(base[both]):
        painted = np.unique(strokes[both & (base == label)])
        becomes[base == label] = painted[0] if len(painted) == 1 else 0
    return becomes


def most_uncertain_pixel(
    uncertainty: NDArray[np.floating], strokes: NDArray[np.unsignedinteger[Any]]
) -> tuple[int, ...] | None:
    """Return the place around which pixels are most uncertain and nothing was painted.

    Not at the rim of the image, unless all others are certain. None where nothing is uncertain.
    """
    sigma = [max(1.0, side / 100) if side > 1 else 0.0 for side in uncertainty.shape]
    around = gaussian_filter(np.asarray(uncertainty, dtype=np.float32), sigma)
    around[gaussian_filter((strokes > 0).astype(np.float32), sigma) > _NEAR] = 0
    rim = [round(_RIM * side) if side > 1 else 0 for side in around.shape]
    inner = tuple(slice(width, side - width) for width, side in zip(rim, around.shape, strict=True))
    if around[inner].any():
        kept, around = around[inner].copy(), np.zeros_like(around)
        around[inner] = kept
    best = int(around.argmax())
    if around.flat[best] <= 0:
        return None
    return tuple(int(at) for at in np.unravel_index(best, around.shape))
