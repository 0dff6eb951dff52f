"""What tells of changes: of a Labels layer or the sliders, once they rest, and of the layers."""

from __future__ import annotations

from typing import Any

import napari
from napari.layers import Labels
from qtpy.QtCore import QObject, QTimer, Signal

__all__ = ["LayerWatch", "SliceWatch", "list_events"]

_REST_MILLISECONDS = 200
_SLIDERS_REST_MILLISECONDS = 100


def list_events(viewer: napari.Viewer) -> tuple[Any, ...]:
    """Return the events that tell when layers come, go or are renamed."""
    events = viewer.layers.events
    return events.inserted, events.removed, events.renamed


class LayerWatch(QObject):
    """Follows one layer at a time, and shows all of its labels again when it leaves it."""

    changed = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.layer: Any = None
        self._highlights = False
        self._rest = QTimer(self)
        self._rest.setSingleShot(True)
        self._rest.setInterval(_REST_MILLISECONDS)
        self._rest.timeout.connect(self.changed)

    def follow(self, layer: Labels | None) -> None:
        """Follow another layer, or none."""
        if self.layer is not None:
            self.show_all()
            for event in _events_of(self.layer):
                event.disconnect(self._on_event)
        self._rest.stop()
        self.layer = layer
        if layer is not None:
            for event in _events_of(layer):
                event.connect(self._on_event)

    def highlight(self, number: int) -> None:
        """Show one label alone."""
        if self.layer is not None:
            self._highlights = True
            self.layer.selected_label = number
            self.layer.show_selected_label = True

    def show_all(self) -> None:
        """Show all labels, where one alone was shown from here."""
        if self.layer is not None and self._highlights:
            self.layer.show_selected_label = False
        self._highlights = False

    def _on_event(self, event: Any) -> None:
        self._rest.start()


class SliceWatch(QObject):
    """Tells when another slice may be on screen, once the sliders rest.

    Parameters
    ----------
    viewer : napari.Viewer
    parent : QObject
    """

    changed = Signal()

    def __init__(self, viewer: napari.Viewer, parent: QObject) -> None:
        super().__init__(parent)
        self._events = (viewer.dims.events.current_step, viewer.dims.events.order)
        self._rest = QTimer(self)
        self._rest.setSingleShot(True)
        self._rest.setInterval(_SLIDERS_REST_MILLISECONDS)
        self._rest.timeout.connect(self.changed)
        for event in self._events:
            event.connect(self._on_event)

    def release(self) -> None:
        """Let go of the viewer."""
        self._rest.stop()
        for event in self._events:
            event.disconnect(self._on_event)

    def _on_event(self, event: Any) -> None:
        self._rest.start()


def _events_of(layer: Any) -> tuple[Any, ...]:
    events = layer.events
    return (events.paint, events.set_data, events.labels_update, events.colormap)
