"""Layers beside each other in napari's grid, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import napari

__all__ = ["SideBySide"]

_SPACING = 0.03
_FONT_SIZE = 8


class SideBySide:
    """Shows some layers in the grid, each with its name, and hides the others.

    Parameters
    ----------
    viewer : napari.Viewer
    on_left : callable
        Called when the grid was left, by whatever button.
    """

    def __init__(self, viewer: napari.Viewer, on_left: Callable[[], None]) -> None:
        self._viewer, self._on_left = viewer, on_left
        self._before: list[tuple[Any, bool, float]] = []
        self._grid: dict[str, Any] = {}
        self.is_on = False
        viewer.canvas.grid.events.enabled.connect(self._on_grid_changed)

    def enter(self, layers: Sequence[Any], shape: tuple[int, int]) -> None:
        """Show layers from left to right in rows and columns.

        Parameters
        ----------
        layers : sequence of Layer
            In the order in which the viewer has them.
        shape : tuple of two int
            Rows and columns; -1 for as many as it takes.
        """
        viewer, grid = self._viewer, self._viewer.canvas.grid
        if self.is_on or not layers:
            return
        self._before = [(one, one.visible, one.opacity) for one in viewer.layers]
        self._grid = {name: getattr(grid, name) for name in ("stride", "shape", "spacing")}
        for layer in viewer.layers:
            layer.visible = layer in layers
        for layer in layers:
            layer.opacity = 1.0
            layer.name_overlay.font_size = _FONT_SIZE
            layer.name_overlay.visible = True
        grid.stride, grid.shape, grid.spacing = 1, shape, _SPACING
        grid.enabled = True
        self.is_on = True
        viewer.reset_view()

    def leave(self) -> None:
        """Go back to what was shown before."""
        if self.is_on:
            self._viewer.canvas.grid.enabled = False

    def release(self) -> None:
        """Let go of the viewer."""
        self._viewer.canvas.grid.events.enabled.disconnect(self._on_grid_changed)
        self._before = []

    def _on_grid_changed(self, event: object = None) -> None:
        if not self.is_on or self._viewer.canvas.grid.enabled:
            return
        self.is_on = False
        for name, value in self._grid.items():
            setattr(self._viewer.canvas.grid, name, value)
        for layer, visible, opacity in self._before:
            if layer in self._viewer.layers:
                layer.visible, layer.opacity = visible, opacity
                layer.name_overlay.visible = False
        self._before = []
        self._viewer.reset_view()
        self._on_left()
