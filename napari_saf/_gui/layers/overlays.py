"""What napari draws over labels while a person paints."""

from __future__ import annotations

from typing import Any

from napari.layers import Labels

__all__ = ["make_overlays_later"]


def make_overlays_later(layer: Labels) -> None:
    """Call before labels are added, to have their overlays made when a person takes up a tool.

    napari makes those that are visible together with the layer, and others once they are: they are
    half of the work.
    """
    # Not public: where napari has them elsewhere, they are made with the layer as before.
    overlays = getattr(layer, "_overlays", {})
    hidden = [overlay for overlay in overlays.values() if overlay.visible]
    for overlay in hidden:
        overlay.visible = False

    def show(event: Any) -> None:
        event.source.events.mode.disconnect(show)
        for overlay in hidden:
            overlay.visible = True

    layer.events.mode.connect(show)
