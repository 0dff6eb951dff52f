"""Regions of the labels of a run: buttons that switch the view, and a slider of their number."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import napari
import numpy as np
from napari.layers import Labels
from numpy.typing import NDArray
from qtpy.QtCore import Qt, QTimer, Signal
from qtpy.QtWidgets import QButtonGroup, QHBoxLayout, QLabel, QSlider, QVBoxLayout, QWidget
from superqt.utils import signals_blocked

from napari_saf._gui.forms.layout import create_button, create_row, fill_layout
from napari_saf._gui.layers.live import LiveLayer, RegionsLayer
from napari_saf._gui.layers.metadata import LEVEL_KEY, UNCHOSEN_KEY, metadata_of
from napari_saf._gui.layers.view import visibility_of
from napari_saf._gui.runs.run import RunJob
from napari_saf._gui.runs.task import BackgroundTasks
from napari_saf._gui.segment.result import ShownResult
from napari_saf.errors import counted
from napari_saf.methods import SweepMethod
from napari_saf.regions import USUAL_LEVEL, RegionHierarchy, Separate, find_separate

MOST_PIXELS = 2**22
"""Size of a plane up to which regions are merged automatically, within seconds."""
_COLOUR = 0.02
"""Mean range of red, green and blue, relative to all values, above which an image has colours."""
_N_SAMPLES = 100_000
_LABELS_HELP = "Show the labels: classes of pixels, which may have many separate parts."
_REGIONS_HELP = "Show regions: connected parts of labels, the most similar neighbours merged."
_STOP_HELP = "Stop merging; the labels are not affected."
_SLIDER_HELP = "Number of regions, from many to few, without another run."


class RegionSection(QWidget):
    """Two buttons that show the labels or the regions of a result, and the slider of the regions.

    Regions are merged in the background: after a run if it is cheap, else on request, and again
    if the labels were edited. Once the user has chosen one of the two, which holds for later runs,
    the layer in view is made active. Regions of labels of separate objects are shown only on
    request. While the user waits for regions, their button stops the merging.
    """

    view_changed = Signal(bool)
    """Whether regions are in view."""
    things_counted = Signal(int)
    """Number of separate objects, 0 if the labels are not those of objects and a ground."""

    def __init__(
        self, viewer: napari.Viewer, shown: ShownResult, background: BackgroundTasks
    ) -> None:
        super().__init__()
        self._viewer, self._shown, self._background = viewer, shown, background
        self._result: LiveLayer | None = None
        self._job: RunJob | None = None
        self._layer: RegionsLayer | None = None
        self._last: tuple[LiveLayer | None, RegionsLayer | None] = None, None
        self._tree: RegionHierarchy | None = None
        self._merged: NDArray[Any]
        self._prefers_regions: bool | None = None
        self.is_merging = self._is_waited_for = self._is_level_chosen = False
        self._share = deque([0.0], maxlen=1)  # fraction of the merging done
        self._clock = QTimer(self, interval=200)
        self._clock.timeout.connect(self._show_share)
        self.labels_button = create_button("labels", _LABELS_HELP, self._on_labels_clicked)
        self.regions_button = create_button("", _REGIONS_HELP, self._on_regions_clicked)
        self._views = QButtonGroup(self)  # exclusive
        for button in (self.labels_button, self.regions_button):
            button.setCheckable(True)
            self._views.addButton(button)
        self.slider = QSlider(Qt.Orientation.Horizontal, maximum=100, pageStep=5)
        self.slider.valueChanged.connect(self._on_level_chosen)
        many, few = (QLabel(text, styleSheet="font-size: 8pt") for text in ("many", "few"))
        level = QWidget(toolTip=_SLIDER_HELP)
        fill_layout(QHBoxLayout(level), many, self.slider, few)
        buttons = create_row(self.labels_button, self.regions_button)
        fill_layout(QVBoxLayout(self), buttons, level)
        shown.cleared.connect(self.reset)
        shown.shown.connect(self._on_shown)
        shown.taken_up.connect(self._on_taken_up)
        background.failed.connect(self._on_failed)
        self.reset()

    def reset(self) -> None:
        """Forget the result, without changing its layers."""
        for shown in filter(None, (self._result, self._layer)):
            shown.layer.events.visible.disconnect(self._on_visible_changed)
        if self._result is not None:
            self._last = self._result, self._layer
        self._result = self._job = self._layer = None
        self._background.drop("separate")
        self._say(Separate())
        self.forget()
        self.hide()

    def forget(self) -> None:
        """Discard the regions and cancel their merging; they can be requested again."""
        self._background.drop("regions")
        self._tree, self._merged = None, np.empty(0)
        self.is_merging = self._is_waited_for = False
        self._clock.stop()
        self.regions_button.setText("regions")
        self.regions_button.setToolTip(_REGIONS_HELP)
        self._check(False)

    def _on_failed(self, key: str, error: Exception) -> None:
        if key == "regions":
            self.forget()

    def _on_shown(self, segmentation: object) -> None:
        """Reset to a new result, or to new labels of the same one, and show it."""
        result, job = self._shown.live, self._shown.job
        if result is None or job is None or result.layer is None or result.is_lost:
            return
        layer = self._layer if result is self._result else None
        if layer is None and self._last[0] is result:
            layer = self._last[1]  # of the previous run in the same layer
            layer = None if layer is None or layer.is_lost else layer
        self._begin(result, job, layer)
        self._view(result)
        labels = result.labels()
        if labels.ndim == 2 and labels.size <= MOST_PIXELS:
            self._merge()

    def _on_taken_up(self, stored: Labels | None) -> None:
        """Show the labels of an opened project and the stored layer of their regions.

        The visibility of both layers is kept.
        """
        result, job = self._shown.live, self._shown.job
        assert result is not None and job is not None
        regions = RegionsLayer(self._viewer, result)
        if stored is not None and regions.take_up(stored, result.labels().shape):
            self._begin(result, job, regions, metadata_of(stored)[LEVEL_KEY])
            self._count(int(stored.data.max()))
        else:
            self._begin(result, job, None)
        shown = regions if self.shown is regions else result
        if shown.layer.visible:
            self._bring_into_sight(shown)
        self._check(shown is regions)

    def _begin(
        self, result: LiveLayer, job: RunJob, layer: RegionsLayer | None, level: float | None = None
    ) -> None:
        self.reset()
        self._result, self._job, self._layer = result, job, layer
        for shown in filter(None, (result, layer)):
            shown.layer.events.visible.connect(self._on_visible_changed)
        self._is_level_chosen = level is not None
        self._set_level(USUAL_LEVEL if level is None else level)
        labels = result.labels().copy()
        axes = job.image_job.options.averaged_axes(labels.shape)
        self._background.run("separate", lambda _: find_separate(labels, axes), self._say)
        self.show()

    def _merge(self) -> None:
        """Merge the regions of the current labels, unless that is under way."""
        result, run_job = self._result, self._job
        if self.is_merging or result is None or run_job is None:
            return
        if result.is_lost:
            self.reset()
            return
        self.forget()
        self.is_merging = True
        self._share = share = deque([0.0], maxlen=1)
        self._show_share()
        self._clock.start()
        labels, job, is_rgb = result.labels().copy(), run_job.image_job, run_job.image.rgb

        def merge(cancelled: Callable[[], bool]) -> tuple[RegionHierarchy, bool]:
            tree, pixels = job.merge_regions(labels, cancelled, share.append)
            return tree, is_rgb and has_colours(pixels)

        self._background.run("regions", merge, partial(self._take, labels))

    def _take(self, labels: NDArray[Any], merged: tuple[RegionHierarchy, bool]) -> None:
        """Store the regions merged from labels, if these labels are still current.

        They are shown on request. If the labels are visible and unsupervised, they are also shown
        if the user chose regions before, or, without a choice, if the image is a photograph and
        its labels are not of separate objects.
        """
        (tree, is_photograph), job = merged, self._job
        if job is None:
            return
        method = job.method
        is_given = job.strokes is not None or method.labels_are_given
        is_given |= isinstance(method, SweepMethod)  # regions would not keep the group shares
        is_asked, is_first = self._is_waited_for, self._prefers_regions
        if is_first is None:
            is_first = is_photograph and not tree.separate.number
        self.forget()
        self._say(tree.separate)
        self._tree, self._merged = tree, labels
        if not self._is_level_chosen:
            self._set_level(tree.usual_level)
        if self._result is None or not self._is_merged:
            self.forget()
        elif is_asked or (is_first and not is_given and self._result.layer.visible):
            self._view_regions()
        else:
            self._count(int(tree.numbers_at_level(self._level).max()))

    def take_removal(self, event: Any) -> None:
        """Show the labels if the visible layer of regions was removed."""
        layer = event.value
        if self._last[0] is not None and layer == self._last[0].layer:
            self._last = None, None
        if self._layer is not None and layer == self._layer.layer:
            self._layer.layer.events.visible.disconnect(self._on_visible_changed)
            self._layer = None
            self._check(False)
            if layer.visible and self._result is not None and not self._result.is_lost:
                self._view(self._result)

    @property
    def shown(self) -> LiveLayer | None:
        """The layer in view, of labels or of regions; None without a result."""
        is_regions = self._layer is not None and self._layer.layer.visible
        return self._layer if is_regions else self._result

    @property
    def _level(self) -> float:
        return float(self.slider.value()) / 100

    def _set_level(self, level: float) -> None:
        with signals_blocked(self.slider):
            self.slider.setValue(round(100 * level))

    @property
    def _is_merged(self) -> bool:
        """Whether there are regions of the current labels."""
        result = self._result
        is_there = self._tree is not None and result is not None and not result.is_lost
        return is_there and np.array_equal(result.labels(), self._merged)  # type: ignore[union-attr]

    def _on_labels_clicked(self) -> None:
        self._prefers_regions = self._is_waited_for = False
        if self.is_merging:
            self._show_share()
        if self._result is not None:
            self._view(self._result)

    def _on_regions_clicked(self) -> None:
        if self._is_waited_for:
            self._stop()
        else:
            self._on_regions_wanted()

    def _on_level_chosen(self, value: int) -> None:
        self._is_level_chosen = True
        self._on_regions_wanted()

    def _on_regions_wanted(self) -> None:
        self._prefers_regions = True
        if self._is_merged:
            self._view_regions()
            return
        self._merge()
        self._is_waited_for = self.is_merging
        self.regions_button.setChecked(self.is_merging)
        if self.is_merging:
            self._show_share()

    def _stop(self) -> None:
        """Stop the merging; the current view counts as the choice of the user."""
        is_regions = self._prefers_regions = self.shown is not self._result
        self.forget()
        self._check(is_regions)

    def _show_share(self) -> None:
        share = f"{100 * self._share[0]:.0f} %"
        is_stop = self._is_waited_for
        self.regions_button.setText(f"Stop ({share})" if is_stop else f"merging {share}")
        self.regions_button.setToolTip(_STOP_HELP if is_stop else _REGIONS_HELP)

    def _say(self, separate: Separate) -> None:
        """Emit the count, unless labels are tones, each of which would be split into objects."""
        labels = None if self._result is None else self._result.layer.data
        has_tones = labels is not None and labels.max(initial=0) > 2
        self.things_counted.emit(0 if has_tones else separate.number)

    def _view_regions(self) -> None:
        assert self._tree is not None and self._result is not None
        layer = self._layer
        if layer is None or layer.is_lost:
            layer = RegionsLayer(self._viewer, self._result)
        self._count(layer.show_level(self._tree, self._level))
        if layer is not self._layer:
            self._layer = layer
            layer.layer.events.visible.connect(self._on_visible_changed)
        self._view(layer)

    def _view(self, shown: LiveLayer) -> None:
        self._bring_into_sight(shown)
        self._check(shown is not self._result)
        layers = [live.layer for live in (self._result, self._layer) if live is not None]
        is_chosen = self._prefers_regions is not None
        if is_chosen or self._viewer.layers.selection.active in layers:
            self._viewer.layers.selection.active = shown.layer
            if shown is self._layer:
                shown.layer.metadata[UNCHOSEN_KEY] = not is_chosen

    def follow_selection(self, event: Any) -> None:
        """Count the regions as chosen by the user once another layer has been selected."""
        if self._layer is not None and event.value != self._layer.layer:
            self._layer.layer.metadata.pop(UNCHOSEN_KEY, None)

    def _bring_into_sight(self, shown: LiveLayer) -> None:
        assert self._job is not None
        index = self._job.image_job.pixels.index
        visibility_of(self._viewer).show_result(shown.image, shown.layer, index)

    def _on_visible_changed(self, event: object = None) -> None:
        if self._result is not None and self._layer is not None:
            is_regions = self._layer.layer.visible
            if is_regions != self._result.layer.visible:
                self._check(is_regions)

    def _check(self, is_regions: bool) -> None:
        (self.regions_button if is_regions else self.labels_button).setChecked(True)
        self.view_changed.emit(is_regions)

    def _count(self, n_regions: int) -> None:
        self.regions_button.setText(counted(n_regions, "region"))


def has_colours(pixels: NDArray[Any]) -> bool:
    """Return whether red, green and blue, along the last axis, differ noticeably."""
    rows = pixels.reshape(-1, pixels.shape[-1])
    sample = rows[:: max(1, len(rows) // _N_SAMPLES), :3].astype(float)
    return bool(np.ptp(sample, axis=-1).mean() > _COLOUR * np.ptp(sample))
