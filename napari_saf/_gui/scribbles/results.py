"""Results of strokes on all regions, and the state of the strokes on the region on screen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import napari
import numpy as np
from napari.layers import Labels
from numpy.typing import NDArray
from qtpy.QtCore import QObject

from napari_saf._gui.docks.apply import ApplyRequest, save_classifier, start_applying
from napari_saf._gui.forms.choices import LayerChoice, PlainValues
from napari_saf._gui.forms.display_text import describe_error
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.layers.live import show_points
from napari_saf._gui.layers.metadata import (
    FOLLOWED_KEY,
    NAMES_KEY,
    colors_of,
    image_id_of,
    is_strokes,
    metadata_of,
    recipe_of,
    restored_layers,
    stored_recipe,
)
from napari_saf._gui.layers.placement import NO_IMAGE, pixels_of, world_affine
from napari_saf._gui.layers.reading import ImageJob, Index, fingerprint
from napari_saf._gui.layers.view import center_on, is_shown_with_image
from napari_saf._gui.runs.panel import RunPanel
from napari_saf._gui.runs.run import Frame, RunJob
from napari_saf._gui.scribbles.result import (
    TITLE,
    StrokeResult,
    follow_strokes,
    most_uncertain_pixel,
    shares_of,
)
from napari_saf._gui.scribbles.strokes import ClassTable, above_0, paint_box
from napari_saf.errors import InvalidInput, SafError
from napari_saf.io import PrototypeSet
from napari_saf.methods import not_cancelled
from napari_saf.pipeline import Pipeline
from napari_saf.project import fit_jointly
from napari_saf.result import Segmentation, Status

_RING_SHARE = 1 / 15
_LEAST_RING = 8


@dataclasses.dataclass(frozen=True)
class StrokeState:
    """Properties that decide whether strokes can label an image; `fault` is the form's error.

    `painted` are the names of the classes painted on free pixels, of which the method needs
    `n_least`.
    """

    has_image: bool = True
    has_strokes: bool = True
    fault: str = ""
    painted: tuple[str, ...] = ()
    n_least: int = 2
    is_locked: bool = False


def why_disabled(state: StrokeState) -> str:
    """Return what to do before strokes can label an image; empty if they can."""
    if not state.has_image:
        return NO_IMAGE
    if not state.has_strokes:
        return "press New, then paint two classes"
    if state.fault or len(state.painted) >= state.n_least:
        return state.fault
    if state.is_locked:
        return "all classes but one are locked: paint two others, or unlock one"
    if not state.painted:
        return "paint a few pixels of class 1, then of class 2"
    return f"only {state.painted[0]} is painted: paint another class too"


class StrokeResults(QObject):
    """The results of strokes whose layers exist, and the state of those on the region on screen.

    It follows the runs of the panel and shows the shares of the classes in their table. `base`
    are labels of an earlier run to start from, if any; `finite_only` excludes pixels that are NaN
    or infinite. `state` is that of the last `check`.
    """

    def __init__(
        self,
        viewer: napari.Viewer,
        panel: RunPanel,
        chosen: ImageInput,
        form: MethodForm,
        base: LayerChoice,
        classes: ClassTable,
    ) -> None:
        super().__init__(panel)
        self._viewer, self._panel, self._controller = viewer, panel, panel.controller
        self._input, self._form, self._base = chosen, form, base
        self._classes, self._strokes = classes, classes.strokes
        self._results: list[StrokeResult] = []
        self._ring: Any = None
        self._age: str | None = ""  # as shown; None if it is not
        self.state = StrokeState()
        self.finite_only = self.shows_uncertainty = False
        self._controller.began.connect(self._on_began)
        self._controller.advanced.connect(self._on_advanced)
        self._controller.returned.connect(self._on_returned)
        self._controller.finished.connect(self._on_finished)
        classes.recolored.connect(self._on_class_edited)
        classes.renamed.connect(self._on_class_edited)

    @property
    def of_run(self) -> StrokeResult | None:
        """The result of the current run; None for a run on another image."""
        live = self._controller.live
        return next((result for result in self._results if result.live is live), None)

    @property
    def of_run_in_view(self) -> StrokeResult | None:
        """The result of the current run, if it is in view."""
        shown = self.of_run
        return shown if shown is not None and shown is self.current else None

    @property
    def has_base(self) -> bool:
        return self._base.layer is not None

    @property
    def are_old(self) -> bool:
        """Whether the labels do not follow the current strokes."""
        result = self.current
        return result is None or result.checksum != self.checksum()

    @property
    def choice(self) -> str:
        """The automatic choice that made the labels; empty if unknown."""
        return "" if self.current is None else self.current.choice

    @property
    def are_kept(self) -> bool:
        """Whether the labels are those of a project, without a run since it was opened."""
        result = self.current
        return result is not None and result.has_labels and result.last is None

    def check(self) -> str:
        """Read strokes and form; return why they cannot label the image, empty if they can."""
        self.state = self._read_state()
        return self.why_disabled

    @property
    def why_disabled(self) -> str:
        return why_disabled(self.state)

    def _read_state(self) -> StrokeState:
        if self._input.image is None or self._input.strokes is None:
            return StrokeState(self._input.image is not None, self._input.strokes is not None)
        try:
            method, job = self._form.read(), self.job()
            seeds = job.read_seeds(not_cancelled)
        except SafError as error:
            return StrokeState(fault=describe_error(error))
        numbers = np.unique(above_0(seeds))
        return StrokeState(
            painted=tuple(self._strokes.name(int(number)) for number in numbers),
            n_least=1 + method.follows_seeds,
            is_locked=job.locked is not None,
        )

    def age(self) -> str:
        """Return which changes the labels in view do not follow; empty without any."""
        result = self.current
        if result is None or not result.has_labels or self._controller.is_running:
            return ""
        is_of_others = result.settings not in (None, self._settings())
        changes = {"strokes": result.checksum != self.checksum(), "settings": is_of_others}
        changed = " and ".join(name for name, is_changed in changes.items() if is_changed)
        return f"the labels are older than the {changed}: press Update" if changed else ""

    def show_age(self) -> None:
        """Show the status of the labels in view if it changed whether they are outdated."""
        if self.why_disabled:
            self._age = None  # the reason is shown
        elif self.age() != self._age:
            self.show_current()

    def _settings(self) -> tuple[PlainValues, PlainValues]:
        return self._input.plain_values(), self._form.plain_values()

    def show_current(self) -> None:
        """Show the shares of the classes, and the status of the labels in view."""
        self.show_shares()
        result, self._age = self.current, self.age()
        if not self._controller.is_running:
            text, shares = ("", {}) if result is None else (result.summary, result.shares)
            text = self._age or text
            if not text and (reason := self.check()):
                self._panel.explain_reason(reason)
            else:
                self._panel.show_outcome(text or self.why_no_labels(), 1.0 if shares else 0.0)

    def take_removal(self, event: Any) -> None:
        """Show the new status if labels were removed."""
        if any(result.live.layer == event.value for result in self._results):
            self.show_current()

    def show_shares(self, event: object = None) -> None:
        """Show the share of each class; labels of a project are counted in the background."""
        result = self.current
        if result is not None and result.has_labels and not result.shares:
            labels, take = result.live.labels(), partial(self._take_shares, result)
            self._panel.background.run("shares", lambda cancelled: shares_of(labels), take)
        self._classes.set_shares({} if result is None else result.shares)

    def _take_shares(self, result: StrokeResult, shares: dict[int, float]) -> None:
        result.shares = result.shares or shares
        if result.shares and result is self.current:
            self.show_current()

    def show_uncertainty(self, is_shown: bool) -> None:
        self.shows_uncertainty, result = is_shown, self.current
        if result is not None:
            result.show_uncertainty(is_shown)

    def clear_labels(self) -> None:
        """Clear the labels if no pixels are locked, since there are no strokes to follow."""
        result, reason = self.current, self.why_disabled
        if result is not None and result.locked is None:
            if self.of_run is result or self._controller.waiting is not None:
                self.give_way(result)
                self._controller.stop(discards=True)
            result.clear(reason)
        if result is not None:
            result.checksum = self.checksum()
        self._classes.set_shares({})
        self._panel.explain_reason(reason)

    def lock(self, is_locked: bool) -> None:
        """Lock the current pixels of locked classes, on all slices.

        After unlocking, the results are outdated.
        """
        for result in self.of_strokes():
            result.lock(self._classes.locked)
            result.checksum = result.checksum if is_locked else None

    def _on_began(self, job: RunJob) -> None:
        """Exclude pixels that are not finite after the user accepted that suggestion."""
        self._age = ""
        if not job.is_applied:
            self.finite_only |= job.image_job.finite_only

    def _on_advanced(self, frame: Frame) -> None:
        if self.of_run_in_view is not None:
            self._classes.set_shares(shares_of(frame.labels))

    def _on_returned(self, result: Segmentation) -> None:
        shown, run = self.of_run, self._controller.run
        if shown is None or run is None or run.problem is None:
            return
        shown.update(run.problem, result, run.classes.numbers, self._panel.outcome)
        if result.status is not Status.CANCELLED:
            shown.lock(self._classes.locked)
            shown.show_uncertainty(self.shows_uncertainty)
        if shown is self.current:
            self._classes.set_shares(shown.shares)
        self.name_labels()

    def _on_finished(self, job: RunJob) -> None:
        if job.strokes is not None and job.strokes not in self._viewer.layers:
            self.show_current()  # without strokes: what to do next
        self.show_age()

    def _on_class_edited(self, *edited: object) -> None:
        for result in self.of_strokes():
            result.live.recolor()
        self.name_labels()

    def of_strokes(self) -> list[StrokeResult]:
        """Return the results of the current strokes, on all slices."""
        return [result for result in self._results if result.strokes == self._strokes.layer]

    def name_labels(self) -> None:
        names = {number: self._strokes.name(number) for number in self._strokes.classes()}
        for result in self.of_strokes():
            if result.live.layer is not None:
                result.live.layer.metadata[NAMES_KEY] = names

    @property
    def index(self) -> Index | None:
        """Index into the image of the region on screen; None without an image."""
        return None if self._input.image is None else self._input.pixels().region().index

    @property
    def current(self) -> StrokeResult | None:
        """The result of the current strokes on the region on screen; None without one."""
        key = (self._input.image, self._input.strokes, self.index)
        if None in key[:2]:
            return None
        self._results = [result for result in self._results if not result.live.is_lost]
        matches = (r for r in self._results if (r.image, r.strokes, r.index) == key)
        return next(matches, None) or self._take_up()

    @property
    def layer(self) -> Any:
        """The labels of the current strokes on the region on screen; None without any."""
        return None if self.current is None else self.current.live.layer

    def _take_up(self) -> StrokeResult | None:
        """Adopt the labels of a reopened project that follow the strokes; None without any.

        With several layers of strokes on the same pixels, their correspondence is unknown.
        """
        strokes = self._input.strokes
        restored = restored_layers(self._viewer, self._input.image)
        shape, world = strokes.data.shape, world_affine(strokes)
        painted = [x for x in restored if is_strokes(x) and x.data.shape == shape]
        painted = [x for x in painted if np.allclose(world_affine(x), world)]
        taken = [result.live.layer for result in self._results]
        layers = [x for x in restored if f"[{TITLE}]" in x.name and x not in taken]
        if painted != [strokes] or not layers:
            return None
        region, pixels = self._input.pixels().region(), self.read(strokes)
        result = StrokeResult(self._viewer, region.image, strokes, region.index, region.placement)
        if not any(result.live.take_up(layer, pixels.shape) for layer in reversed(layers)):
            return None
        now, result.has_labels = fingerprint(pixels, None), True
        result.checksum = metadata_of(result.live.layer).get(FOLLOWED_KEY, now)
        result.summary = "labels as they were kept"
        self._results.append(result)
        return result

    def in_view(self) -> StrokeResult:
        """Return the result of the current strokes, created if necessary."""
        result, region = self.current, self._input.pixels().region()
        if result is None:
            chosen = region.image, self._input.strokes, region.index, region.placement
            result = StrokeResult(self._viewer, *chosen)
            self._results.append(result)
        return result

    def request(self, continues: bool, note: str, choice: str) -> RunJob:
        """Return the job of a run, which `continues` from the current labels or starts anew.

        `choice` is the name of the automatic choice of settings, and `note` describes it.
        """
        method, job = self._form.read(), self.job()
        result = self.in_view()
        result.choice, result.settings = choice, self._settings()
        self.give_way(result)
        notes = [self._input.read().note(uses_window=method.uses_window), note]
        return RunJob(
            result.image,
            job,
            method,
            result.live.placement,
            live=result.live,
            strokes=result.strokes,
            start=result.warm_start if continues else None,
            note="\n".join(filter(None, notes)),
        )

    def give_way(self, result: StrokeResult) -> None:
        """Store the checksum of the strokes; mark results whose runs are stopped as outdated.

        Their runs are repeated when their slice is displayed again.
        """
        waiting = self._controller.waiting
        ending = (self._controller.live, None if waiting is None else waiting.live)
        for entry in self._results:
            if entry.live in ending:
                entry.checksum = None
        result.checksum = self.checksum()

    def fitting_strokes(self) -> Labels | None:
        """Return the strokes of the image, those of its last run first, or else fitting ones."""
        image, strokes = self._input.image, self._input.strokes
        last = next((r.strokes for r in reversed(self._results) if r.image == image), None)
        layers = [layer for layer in reversed(self._viewer.layers) if is_strokes(layer)]
        layers = [layer for layer in layers if image_id_of(layer) == str(image.unique_id)]
        painted = [layer for layer in layers if is_shown_with_image(layer)]  # not hidden by New
        if painted and last not in painted:
            return painted[0]
        if last is not None or strokes is None:
            return last
        sides, shape = pixels_of(strokes).shape, self._input.pixels().region().whole()[1]
        # The channel axis, not chosen yet, may be any axis.
        cuts = [(shape[:axis], shape[axis + 1 :]) for axis in range(len(shape))]
        without_one = [(*head, *n, *tail) for head, tail in cuts for n in ((), (1,))]
        return strokes if sides in (shape, *without_one) else None

    def read(self, layer: Labels) -> NDArray[Any]:
        pixels = self._input.pixels().region().over(layer)
        assert pixels is not None
        return pixels.read(not_cancelled)

    def checksum(self) -> int:
        return fingerprint(self.read(self._input.strokes), None)

    def job(self) -> ImageJob:
        """Return the job of the form; labels to start from are kept between strokes.

        Raises InvalidInput if their shape is not that of the strokes.
        """
        labels: NDArray[Any] | None = None
        if self._base.layer is not None:
            labels = follow_strokes(self.read(self._base.layer), self.read(self._input.strokes))
        locked = None if self.current is None else self.current.locked
        job = self._input.read().job(finite_only=self.finite_only)
        return dataclasses.replace(job, base_labels=labels, locked=locked)

    def learner(self) -> Callable[[Callable[[], bool]], Pipeline]:
        """Return a function that learns a pipeline for a whole large image from all its strokes.

        The function is slow.
        """
        self.classifier()  # raises if there is none
        method, selection = self._form.read(), self._input.read()
        # The whole image is labelled at full resolution, so learning is at full resolution.
        options = dataclasses.replace(selection.whole_options(), max_side=None)
        results = [r for r in self._results if r.image == selection.image and not r.live.is_lost]
        results = [r for r in results if r.strokes in self._viewer.layers]
        jobs = [selection.job(finite_only=self.finite_only, strokes=r.strokes) for r in results]
        numbers = self._strokes.classes()
        colors = colors_of(self._strokes.layer, np.array(numbers))[:, :3].tolist()
        names = {number: self._strokes.name(number) for number in numbers}
        for result in results:
            names = result.strokes.metadata.get(NAMES_KEY, {}) | names
        class_colors = dict(zip(numbers, colors, strict=True))

        def learn(cancelled: Callable[[], bool]) -> Pipeline:
            seeds = [job.read_seeds(cancelled) for job in jobs]
            fitted = fit_jointly(
                [job.pixels.read(cancelled) for job in jobs],
                [labels for labels in seeds if labels is not None],
                method,
                jobs[0].options,
                finite_only=self.finite_only,
                cancelled=cancelled,
            )
            assert fitted.options is not None
            scaled = dataclasses.replace(options, scaling=fitted.options.scaling)
            prototypes = PrototypeSet.from_points(
                fitted.by_label(), options=scaled, names=names, colors=class_colors
            )
            return Pipeline(method, scaled, prototypes=prototypes)

        return learn

    def why_no_labels(self) -> str:
        is_old = self.current is not None and self.current.has_labels
        reason = "the uncertainty is not known yet" if is_old else "no labels yet"
        return self.check() or f"{reason}: press Update"

    def classifier(self) -> Pipeline:
        """Return the pipeline learned from the strokes, for other images.

        Raises InvalidInput if labels do not follow the strokes, or if features exist for this image
        only.
        """
        current = self.current
        if current is None or not current.has_labels:
            raise InvalidInput("there are no labels to learn from yet: press Update")
        if current.checksum != self.checksum() or self._controller.is_running:
            raise InvalidInput("strokes were painted since the last labels: press Update first")
        if "taught" not in (stored_recipe(current.live.layer) or {}):
            raise InvalidInput(
                "features: those of a layer, and positions, exist for one image only; choose "
                "others under Features first, such as perceived colour"
            )
        self.name_labels()
        return recipe_of(current.live.layer)

    def apply(self, request: ApplyRequest) -> None:
        """Label other images with the pipeline learned from the strokes.

        The labels of another image become active: painting would go on beneath them.
        """
        strokes = self._input.strokes if request.image == self._input.image else None
        with self._panel.showing_errors():
            arguments = self._panel, self._viewer, request, self.classifier(), self.layer
            start_applying(*arguments, title=TITLE, strokes=strokes)

    def save_classifier(self, path: str, rescale: bool) -> None:
        with self._panel.showing_errors():
            prototypes = self.classifier().with_rescale(rescale).prototypes
            assert prototypes is not None
            saved = save_classifier(path, prototypes)
            self._panel.note(f"{saved}: load it in the Prototypes dock")

    def paint_box(self, corners: NDArray[Any]) -> None:
        """Paint strokes on and around the object in a box."""
        with self._panel.showing_errors():
            strokes = self._input.strokes
            paint_box(self.job(), self._input.image, corners, strokes)
            self._viewer.layers.selection.active = strokes

    def why_no_ring(self) -> str:
        result = self.current
        is_certain = result is not None and result.last is not None
        return "nothing is uncertain" if is_certain else self.why_no_labels()

    def hide_ring(self) -> None:
        if self._ring is not None and self._ring in self._viewer.layers:
            self._ring.visible = False

    def suggest(self) -> bool:
        """Mark the most uncertain pixel with a ring and show it; return whether there is one."""
        result = self.current
        if result is None or result.last is None:
            return False
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
        self._ring.visible = True
        self._viewer.layers.selection.active = result.strokes
        center_on(self._viewer, layer, tuple(self._ring.data[0]), only_if_hidden=True)
        return True
