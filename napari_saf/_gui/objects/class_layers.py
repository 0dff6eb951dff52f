"""Clicks and lines in the image, which select, cut or classify objects; colours of classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import napari
import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray
from qtpy.QtCore import QObject, QTimer

from napari_saf._gui.forms.layout import FormArea, create_fold
from napari_saf._gui.layers.metadata import CLASSES_KEY
from napari_saf._gui.layers.placement import image_region, labelled_image
from napari_saf._gui.objects.classes import ClassSection
from napari_saf._gui.objects.corrections import CorrectionTools
from napari_saf._gui.objects.layers import (
    Measures,
    ObjectCanvas,
    Source,
    key_of,
    stored_objects,
)
from napari_saf._gui.objects.table import ObjectTable
from napari_saf.objects import ObjectMeasures


class ClassLayers(QObject):
    """Handles clicks in the image, shows classes in table and layers, and stores them there."""

    def __init__(
        self,
        viewer: napari.viewer.Viewer,
        section: ClassSection,
        canvas: ObjectCanvas,
        table: ObjectTable,
        tools: CorrectionTools,
    ) -> None:
        super().__init__(section)
        self._viewer, self._section, self._tools = viewer, section, tools
        self._canvas, self._table = canvas, table
        self._measured: tuple[str, Measures] = "", {}  # key of a layer, and its measures
        self.fold = create_fold("Classes", section)
        self.fold.toggled.connect(self._on_folded)
        canvas.numbered.connect(section.choose_label)
        table.filter.colored.connect(self.color)
        section.clicked.connect(self._keep_clicks)
        section.changed.connect(self._show)
        section.suggested.connect(lambda number: table.select([number]))
        section.lasso_toggled.connect(self._on_lasso_toggled)
        tools.buttons["cut"].clicked.connect(self._on_cut_clicked)
        canvas.undo_asked.connect(self._on_undo_asked)
        canvas.picked.connect(self._on_picked)
        canvas.drawn.connect(self._on_drawn)

    def show_table(self, table: Measures) -> None:
        """Show a table of object measures with the class columns."""
        layer = self._canvas.layer
        self._measured = key_of(layer), table
        layer.features = {"index": table.get("object", np.zeros(0, int)), **table}
        self._show([key_of(layer)])

    def measure(self, clicks: Mapping[int, int] | None = None) -> None:
        """Classify the current objects; `clicks` replace the stored ones of a former set."""
        shown, layer = self._tools.open, self._canvas.layer
        if shown is None or not len(shown.editor.numbers):
            if clicks is not None:
                self._section.forget(key_of(layer))
            return
        stored = layer.metadata.get(CLASSES_KEY, {})
        if clicks is None and key_of(layer) not in self._section.images:
            clicks = stored.get("clicks", {})
        for other_layer in self._canvas.others():
            self.add_layer(other_layer)
        measure = partial(shown.source.measure_vectors, self._tools.objects())
        self._section.show_objects(key_of(layer), measure, clicks, stored.get("names"))

    def add_layer(self, layer: Labels) -> None:
        """Add the clicks on the objects of another image to the training set."""

        def fits(image: Image) -> bool:
            return image_region(layer, image) is not None

        by_slice = self._tools.open is not None and self._tools.open.source.slice_axis == 0
        image = labelled_image(self._viewer, layer, fits)
        source = Source.of(layer, image, "none", by_slice=by_slice)

        def measure(cancelled: Callable[[], bool]) -> ObjectMeasures:
            objects = stored_objects(layer, source.labels.read(cancelled), {})
            return source.measure_vectors(objects, cancelled)

        stored = layer.metadata.get(CLASSES_KEY, {})
        clicks, names = stored.get("clicks", {}), stored.get("names", {})
        self._section.add_objects(key_of(layer), measure, clicks, names)

    def color(self) -> None:
        """Colour objects by the plotted measure or by class, or restore their colours."""
        plot, layer = self._table.filter, self._canvas.layer
        if layer is not None:
            numbers = self._table.model.values("object")
            is_on = plot.color.isChecked() and plot.measure.value is not None
            colors = plot.colors if is_on else self._section.colors(key_of(layer), numbers)
            self._canvas.color(layer, numbers, colors)

    def _show(self, keys: list[str]) -> None:
        """Show the classes of the given layers in table, layer features and colours."""
        for layer in self._canvas.layers():
            key = key_of(layer)
            if key not in keys:
                continue
            image, columns = self._section.images.get(key), Measures()
            if image is not None and "object" in layer.features:
                columns = image.columns(layer.features["object"].to_numpy())
                for name, column in columns.items():
                    layer.features[name] = column  # setting the whole table is slow in napari
            measured_key, measured = self._measured
            if layer == self._canvas.layer and key == measured_key:
                self._table.show_table({**measured, **columns})
                self.color()
            else:
                classified = self._section.classified_of(key)
                numbers = np.zeros(0, int) if classified is None else classified.numbers
                self._canvas.color(layer, numbers, self._section.colors(key, numbers))

    def _keep_clicks(self) -> None:
        """Store class names and clicks in the layer metadata, from which projects save them."""
        names, clicks = self._section.state.names, self._section.state.clicks
        for layer in self._canvas.layers():
            of_layer = dict(clicks.get(key_of(layer), {}))
            layer.metadata[CLASSES_KEY] = {"names": dict(names), "clicks": of_layer}

    def _on_cut_clicked(self, is_on: bool) -> None:
        self._section.stop_lasso()
        self._draw_lines("across an object" if is_on else "")

    def _on_lasso_toggled(self, is_on: bool) -> None:
        self._tools.buttons["cut"].setChecked(False)
        self._draw_lines("around objects" if is_on else "")

    def _draw_lines(self, where: str) -> None:
        """Begin to draw lines in the image, or end it if `where` is empty."""
        if where and not self._canvas.is_flat:
            self._section.stop_lasso()
            self._tools.buttons["cut"].setChecked(False)
            self._section.note("lines are drawn in a 2-D view: switch to it first")
            return
        self._canvas.draw_lines(bool(where))
        self._section.note(f"draw a line {where}" if where else "")

    def _on_undo_asked(self) -> None:
        """Undo the last click of a class, or the last correction if it is newer."""
        section, tools = self._section, self._tools
        is_click = section.state.can_undo and section.clicked_at > tools.edited_at
        (section if is_click else tools).undo()

    def _on_drawn(self, line: NDArray[np.floating]) -> None:
        """Cut the object under a line (n, ndim), or classify the objects inside the lasso."""
        if not self._section.is_lasso:
            self._tools.cut(line)
        elif len(line) > 2:
            self._section.click(self._canvas.objects_inside(line))

    def _on_picked(self, number: int, joins: bool) -> None:
        if number and self._section.click([number]):
            return
        if number and number not in self._table.shown:
            self._section.note(
                f"object {number} is outside the gate: click in the plot to show all"
            )
        chosen = self._table.selected
        self._table.select({*chosen} ^ {number} if joins else {number} - {0})

    def _on_folded(self, is_open: bool) -> None:
        self._canvas.bind_numbers(is_open)
        if is_open:
            QTimer.singleShot(0, self._scroll_to_section)  # after the layout is updated
        else:
            self._section.choose_label(0)

    def _scroll_to_section(self) -> None:
        area = self._section.parentWidget()
        while area is not None and not isinstance(area, FormArea):
            area = area.parentWidget()
        if area is not None:
            area.ensureWidgetVisible(self._section)
