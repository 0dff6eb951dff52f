"""The Sharpen borders dock: a slider from the original label borders to the image edges."""

from __future__ import annotations

from functools import partial
from typing import Any

import napari
from napari.layers import Image, Labels
from qtpy.QtCore import Qt, QTimer
from qtpy.QtWidgets import QCheckBox, QLabel, QSlider, QVBoxLayout, QWidget

from napari_saf._gui.docks.base import DockBase
from napari_saf._gui.forms.choices import LayerChoice, SizeChoice
from napari_saf._gui.forms.layout import FormSection, create_button, create_row, enable, fill_layout
from napari_saf._gui.layers.metadata import is_given, labels_to_choose
from napari_saf._gui.layers.placement import (
    image_region,
    labelled_image,
    pixels_of,
    squeezed_axes,
)
from napari_saf._gui.layers.reading import Pixels
from napari_saf._gui.layers.view import EventWatch, visibility_of
from napari_saf._gui.runs.panel import RUN_KEY, RunPanel
from napari_saf._gui.sharpen.layers import (
    Change,
    SharpenedLabels,
    SharpenState,
    sharpen_parts,
    why_disabled,
)
from napari_saf.errors import counted

_HELP = {
    "Labels": "The Labels layer to sharpen, of any origin.",
    "Image": "The image whose edges attract the borders.",
    "Slices": "Planes of a stack are sharpened separately, unless it is a volume.",
    "Borders": "Weight of the image: from the original borders to its edges.",
    "Reach": "How far borders move at most; automatic: twice their step size, 4 to 16 pixels.",
}
_AUTOMATIC_HELP = "The better borders match the edges already, the lower the weight of the image."
_SHARPEN_HELP = "Move the borders; afterwards the slider takes effect immediately."
_UNDO_HELP = "Restore the original labels."
_N_STEPS = 10
"""Steps of the slider, besides the first, which keeps the original labels."""
_REACHES = (2, 4, 6, 8, 12, 16, 24, 32)
_PATIENCE = 150
"""Milliseconds without a change after which labels are sharpened again."""
_CHANGED_MEANWHILE = "the labels were removed or edited meanwhile: nothing was changed"


class StrengthSlider(QWidget):
    """A slider with a label at each end; moving it unchecks the automatic box below."""

    def __init__(self) -> None:
        super().__init__()
        self.slider = QSlider(Qt.Orientation.Horizontal, maximum=1 + _N_STEPS)
        self.slider.setValue(1 + _N_STEPS // 2)
        self.automatic = QCheckBox("automatic", toolTip=_AUTOMATIC_HELP, checked=True)
        right = QLabel("on image edges", alignment=Qt.AlignmentFlag.AlignRight)
        ends = create_row(QLabel("as they are"), right)
        fill_layout(QVBoxLayout(self), self.slider, ends, self.automatic)
        self.slider.valueChanged.connect(lambda: self.automatic.setChecked(False))

    @property
    def strength(self) -> float | None:
        """Strength as for `sharpen_labels`; None if automatic, negative for the original labels."""
        return None if self.automatic.isChecked() else (self.slider.value() - 1) / _N_STEPS


class SharpenWidget(DockBase):
    """Sharpens the borders of a Labels layer, and updates them when the slider moves."""

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.panel = RunPanel(self, viewer, self.workspace.runs, ("Sharpen", _SHARPEN_HELP))
        self.status, self.controller = self.panel.status, self.panel.controller
        self.button = self.panel.run_button
        self._by_layer: dict[Any, SharpenedLabels] = {}
        self._timer = QTimer(self, singleShot=True, interval=_PATIENCE)
        self._watch = EventWatch(self, _PATIENCE)
        self.labels = LayerChoice(viewer, Labels)
        self.labels.choose(labels_to_choose(viewer))
        self.image = LayerChoice(viewer, Image, self._fits)
        self.volume, self.borders = QCheckBox("as a volume"), StrengthSlider()
        self.reach = SizeChoice([("automatic", None)], _REACHES)
        self.undo_button = create_button("Undo", "", self.undo)
        self._rows = FormSection()
        fields = (self.labels, self.image, self.volume, self.borders, self.reach)
        for (text, tooltip), field in zip(_HELP.items(), fields, strict=True):
            self._rows.add_row(text, field, tooltip)
        buttons = [self.button, self.undo_button, self.panel.stop_button]
        self.lay_out([self._rows], buttons, [self.status])
        self.bind_keys({RUN_KEY: self.panel.run_or_stop})
        self.at_end(self.panel.shut_down, self._timer.stop, self._watch.watch, self._by_layer.clear)
        self.connect_all(
            (self.panel.run_clicked, self.start),
            (self.panel.stop_clicked, self._timer.stop),
            (self.panel.busy_changed, self._refresh),
            (self.labels.layer_changed, self._on_labels_changed),
            (self.image.layer_changed, self._on_changed),
            (self.volume.toggled, self._on_changed),
            (self.borders.slider.valueChanged, self._on_changed),
            (self.borders.automatic.toggled, self._on_changed),
            (self.reach.currentIndexChanged, self._on_changed),
            (self._timer.timeout, self._sharpen_anew),
            (self._watch.changed, self._on_layer_changed),
            (viewer.layers.events.removed, lambda event: self._by_layer.pop(event.value, None)),
        )
        self._on_labels_changed()

    @property
    def sharpened(self) -> SharpenedLabels | None:
        """The change of the chosen labels; None without one or if they were edited since."""
        sharpened = self._by_layer.get(self.labels.layer)
        return sharpened if sharpened is not None and sharpened.is_known else None

    def start(self) -> None:
        labels, image, strength = self.labels.layer, self.image.layer, self.borders.strength
        if self.panel.is_busy or why_disabled(SharpenState.of(labels, image)):
            return
        self._timer.stop()
        if strength is not None and strength < 0:
            self.undo()
            return
        sharpened = self._by_layer[labels] = self.sharpened or SharpenedLabels(labels)
        region, axes = image_region(labels, image), squeezed_axes(labels)
        assert region is not None  # otherwise the button is disabled
        sharpen = partial(
            sharpen_parts,
            shape=[labels.data.shape[axis] for axis in axes],
            image=Pixels(pixels_of(image), region[0]),
            channel_axis=region[1],
            n_axes=3 if self.volume.isChecked() and len(axes) > 2 else 2,
            reach=self.reach.value,
            strength=strength,
        )
        shown = "automatic" if strength is None else strength
        words = f"borders sharpened: reach {self.reach.currentText()}, strength {shown}"
        show = partial(self._show, sharpened, words)
        work = partial(sharpened.find_change, sharpen)
        self.panel.begin_task("sharpening", work, show)

    def _show(self, sharpened: SharpenedLabels, words: str, change: Change) -> None:
        visibility_of(self._viewer).restore(sharpened.layer)
        if sharpened.layer not in self._viewer.layers or not sharpened.show(change, words):
            self.panel.note(_CHANGED_MEANWHILE)
            return
        assert self.panel.task is not None
        n, n_pixels, seconds = len(change[2]), sharpened.layer.data.size, self.panel.task.seconds
        text = f"{counted(n, 'pixel')} changed, {100 * n / n_pixels:.2g} %, in {seconds:.1f} s"
        self.panel.show_outcome(text)

    def undo(self, *clicked: object) -> None:
        """Restore the labels before sharpening."""
        self._timer.stop()
        if self.sharpened is not None:
            self.sharpened.take_back()
        self.panel.note("original labels restored")
        self._refresh()

    def _sharpen_anew(self) -> None:
        """Sharpen the original labels again, if they were sharpened here."""
        if self.sharpened is None:
            return
        if self.panel.task is None:
            self.start()
        else:
            self.panel.task.cancel()
            self._timer.start()

    def _on_changed(self, *changed: object) -> None:
        self._timer.start()
        self._refresh()

    def _on_labels_changed(self, layer: object = None) -> None:
        labels = self.labels.layer
        self._timer.stop()
        self.image.refresh()
        if labels is not None:
            self.image.choose(labelled_image(self._viewer, labels, self._fits))
            self._rows.show_row(self.volume, len(squeezed_axes(labels)) > 2)
        self._watch.watch(() if labels is None else (labels.events.set_data, labels.events.paint))
        self.panel.forget()
        self._refresh()

    def _on_layer_changed(self) -> None:
        """Update after the user paints, undoes or redoes in the layer."""
        sharpened = self._by_layer.get(self.labels.layer)
        if sharpened is not None and not self.panel.is_busy:
            sharpened.note()
        self._refresh()

    def _fits(self, image: Any) -> bool:
        return is_given(image) and not why_disabled(SharpenState.of(self.labels.layer, image))

    def _refresh(self, *changed: object) -> None:
        is_free = not self.panel.is_busy
        state = SharpenState.of(self.labels.layer, self.image.layer)
        self.panel.set_reason(why_disabled(state), is_free=is_free)
        sharpened = self._by_layer.get(self.labels.layer) if is_free else None
        is_shown = sharpened is not None and sharpened.is_shown
        enable(self.undo_button, "" if is_shown else "nothing was sharpened here", _UNDO_HELP)
