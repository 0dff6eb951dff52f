"""From the end of a stroke to labels on screen: ``xvfb-run -a python benchmarks/latency.py``.

In a real window strokes are painted with the mouse, after the first ones that open the run, on a
photograph of 321 x 481 and one of 1024 x 1024 pixels. Printed are the medians over strokes of the
time from the release of the button to the first and to the final new labels on screen, with the
processor time of all threads meanwhile, drawing included, which what else the machine does disturbs
less; and the longest gap between ticks of a 10 ms timer of the main thread while the mouse paints;
beside it that of napari alone, when nothing follows the strokes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import napari
import numpy as np
from app_load import Ticks, photograph, wait
from numpy.typing import NDArray
from qtpy.QtCore import QEvent, QPointF, Qt
from qtpy.QtGui import QMouseEvent
from qtpy.QtWidgets import QApplication
from skimage.transform import resize

from napari_saf._gui.scribbles.dock import ScribblesWidget

Place = tuple[float, float]
Times = NDArray[np.float64]
"""Seconds that pass, and of processor time."""

_TARGETS = {(321, 481): 300, (1024, 1024): 1000}
_STALL_TARGET = 50
_FIRST = (((0.10, 0.40), (0.35, 0.45), 1), ((0.10, 0.10), (0.60, 0.06), 2))
_STROKES = (
    ((0.75, 0.40), (0.85, 0.50), 1),
    ((0.05, 0.70), (0.20, 0.95), 2),
    ((0.60, 0.30), (0.70, 0.45), 1),
    ((0.30, 0.90), (0.50, 0.80), 2),
    ((0.90, 0.20), (0.95, 0.60), 1),
    ((0.40, 0.05), (0.70, 0.03), 2),
    ((0.80, 0.65), (0.95, 0.70), 1),
    ((0.02, 0.30), (0.04, 0.60), 2),
)
"""Ends of the strokes as shares of the sides, and their classes."""


def main() -> None:
    """Measure, and print a line a size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2, help="how often the strokes are painted")
    parser.add_argument("--full", action="store_true", help="work at the size of the image")
    parser.add_argument("--small", action="store_true", help="the smaller photograph only")
    options = parser.parse_args()
    for shape, target in list(_TARGETS.items())[: 1 if options.small else None]:
        image = resize(photograph(1024), shape, preserve_range=True).astype(np.uint8)
        first, final, stalls, alone = measure(image, options.repeats, full=options.full)
        print(
            f"{shape[0]} x {shape[1]}: new labels after {words(first)}, final ones after "
            f"{words(final)} (target {target} ms); longest gap while painting "
            f"{1000 * max(stalls):.0f} ms, in the median stroke "
            f"{1000 * statistics.median(stalls):.0f} ms (target {_STALL_TARGET} ms); napari alone "
            f"{1000 * max(alone):.0f} and {1000 * statistics.median(alone):.0f} ms",
            flush=True,
        )


def words(times: Times) -> str:
    return "{:.0f} ms ({:.0f} ms of processor time)".format(*(1000 * times))


def measure(
    image: NDArray[np.uint8], repeats: int, *, full: bool
) -> tuple[Times, Times, list[float], list[float]]:
    """Paint strokes on an image.

    Returned are the median times to first and final labels, the gaps while painting, and those
    when nothing follows.
    """
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    viewer.add_image(image, name="photograph")
    widget = ScribblesWidget(viewer)
    viewer.window.add_dock_widget(widget, name="Scribbles")
    if full:
        widget.input.choose(max_side=None)
    wait(1)
    widget.new_strokes()
    wait(1)
    for stroke in _FIRST:
        paint(viewer, widget, image.shape[:2], *stroke)
        settle(widget)
    strokes = [moved(stroke, k) for k in range(repeats) for stroke in _STROKES]
    times = [time_stroke(viewer, widget, image.shape[:2], *stroke) for stroke in strokes]
    widget.follow.setChecked(False)
    alone = [paint(viewer, widget, image.shape[:2], *stroke) for stroke in strokes]
    viewer.close()
    first, final, stalls = zip(*times, strict=True)
    return np.median(first, axis=0), np.median(final, axis=0), list(stalls), alone


def moved(stroke: tuple[Place, Place, int], k: int) -> tuple[Place, Place, int]:
    """Return a stroke a little lower at each repeat: labels follow only what is new."""
    start, end, number = stroke
    return (start[0] + 0.02 * k, start[1]), (end[0] + 0.02 * k, end[1]), number


def time_stroke(
    viewer: napari.Viewer,
    widget: ScribblesWidget,
    shape: Sequence[int],
    start: Place,
    end: Place,
    number: int,
) -> tuple[Times, Times, float]:
    """Paint a stroke; return times to the first and the final labels, and the longest gap."""
    stall = paint(viewer, widget, shape, start, end, number)
    released = now()
    first = draws_after(viewer, widget.controller.advanced)
    final = draws_after(viewer, widget.controller.returned)
    settle(widget)
    found = [f() - released for f in (first, final)]
    # A run may end before a frame is due: then the final labels are the first.
    return min((x for x in found if np.isfinite(x[0])), key=lambda x: float(x[0])), found[1], stall


def now() -> Times:
    return np.array([time.perf_counter(), time.process_time()])


def draws_after(viewer: napari.Viewer, signal: Any) -> Callable[[], Times]:
    """Return what tells when the canvas was drawn after a signal had come for the first time."""
    canvas = viewer.window._qt_viewer.canvas
    seen = [np.full(2, np.nan)]

    def on_draw(event: object) -> None:
        canvas.events.draw.disconnect(on_draw)
        seen[0] = now()

    def on_signal(value: object) -> None:
        signal.disconnect(on_signal)
        canvas.events.draw.connect(on_draw)
        canvas.native.update()

    signal.connect(on_signal)
    return lambda: seen[0]


def settle(widget: ScribblesWidget) -> None:
    """Wait until the strokes have been followed and drawn."""
    wait(0.1)
    while widget.controller.is_running:
        wait(0.01)
    wait(0.3)


def paint(
    viewer: napari.Viewer,
    widget: ScribblesWidget,
    shape: Sequence[int],
    start: Place,
    end: Place,
    number: int,
) -> float:
    """Paint a stroke with the mouse; return the longest gap between ticks meanwhile."""
    widget.strokes.paint_with(number)
    way = np.linspace(start, end, 25) * shape
    ticks = Ticks()
    kind = QEvent.Type
    send(viewer, kind.MouseMove, way[0], Qt.MouseButton.NoButton)
    send(viewer, kind.MouseButtonPress, way[0], Qt.MouseButton.LeftButton)
    for place in way[1:]:
        send(viewer, kind.MouseMove, place, Qt.MouseButton.LeftButton)
        wait(0.01)
    gaps = ticks.end()
    send(viewer, kind.MouseButtonRelease, way[-1], Qt.MouseButton.LeftButton)
    return float(gaps.max())


def send(viewer: napari.Viewer, kind: Any, place: NDArray[np.floating], button: Any) -> None:
    """Send an event of the mouse at a pixel of the image."""
    canvas = viewer.window._qt_viewer.canvas.native
    row, column = (place - viewer.scene.camera.center[1:]) * viewer.scene.camera.zoom
    where = QPointF(canvas.width() / 2 + column, canvas.height() / 2 + row)
    held = Qt.MouseButton.NoButton if kind == QEvent.Type.MouseButtonRelease else button
    which = Qt.MouseButton.NoButton if kind == QEvent.Type.MouseMove else button
    modifiers = Qt.KeyboardModifier.NoModifier
    screen = QPointF(canvas.mapToGlobal(where.toPoint()))
    QApplication.sendEvent(canvas, QMouseEvent(kind, where, screen, which, held, modifiers))


if __name__ == "__main__":
    main()
