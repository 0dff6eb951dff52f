"""How fast the app answers: run with ``xvfb-run -a python benchmarks/latency.py``.

    xvfb-run -a python benchmarks/latency.py strokes [--small] [--full]
    xvfb-run -a python benchmarks/latency.py run [--side 4096 --lazy] [--wait 2]

In a real window, with the processor time of all threads, or of the main thread, beside the time
that passes, since what else the machine does disturbs it less.

strokes  Strokes are painted with the mouse, after the first ones that open the run, on a photograph
         of 321 x 481 and one of 1024 x 1024 pixels. Printed are the medians over strokes of the
         time from the release of the button to the first and to the final new labels on screen, and
         the longest gap between ticks of a 10 ms timer of the main thread while the mouse paints;
         beside it that of napari alone, when nothing follows the strokes.
run      A 1024 x 1024 RGB image is labelled with the defaults. Printed are the longest and the 99th
         percentile of the gaps between ticks; the time from the click on Run to the first labels on
         screen, and from Stop to the final ones. The first run is the first of its process, and
         begins ``--wait`` seconds after the dock was opened. Beside them the longest gaps when
         napari alone adds a layer of labels, in a process of its own. With ``--side 4096 --lazy``
         the image is a large one, of which what is on screen is labelled.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import dask.array as da
import napari
import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QEvent, QEventLoop, QPointF, Qt, QTimer
from qtpy.QtGui import QMouseEvent
from qtpy.QtWidgets import QApplication
from skimage.data import astronaut
from skimage.transform import resize

import napari_saf as saf
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.segment.dock import SegmentWidget

Place = tuple[float, float]
Times = NDArray[np.float64]
"""Seconds that pass, and of processor time."""

_STROKE_TARGETS = {(321, 481): 300, (1024, 1024): 1000}
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
_RUN_TARGETS = {"longest gap": 100, "p99 gap": 50, "first labels": 1000, "stop": 300}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="strokes, run; by default both")
    parser.add_argument("--repeats", type=int, default=2, help="rounds of strokes; runs")
    parser.add_argument("--full", action="store_true", help="strokes at the size of the image")
    parser.add_argument("--small", action="store_true", help="strokes on the smaller photograph")
    parser.add_argument("--side", type=int, default=1024, help="side of the image of runs")
    parser.add_argument("--seconds", type=float, default=4, help="how long to let a run go on")
    parser.add_argument("--lazy", action="store_true", help="the image of runs is a dask array")
    parser.add_argument("--wait", type=float, default=2, help="seconds before the first run")
    parser.add_argument("--alone", action="store_true", help="measure napari without the app")
    options = parser.parse_args()
    parts = {"strokes": measure_strokes, "run": measure_runs}
    if unknown := set(options.parts) - set(parts):
        parser.error(f"expected some of {', '.join(parts)}, got {', '.join(sorted(unknown))}")
    for part in options.parts or parts:
        parts[part](options)


def measure_runs(options: argparse.Namespace) -> None:
    """Label an image again and again, and print a line a run."""
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    image = photograph(options.side)
    viewer.add_image(da.from_array(image, (512, 512, 3)) if options.lazy else image)
    if options.alone:
        measure_napari(viewer, options.repeats)
        return
    subprocess.run([sys.executable, __file__, "run", "--alone"], check=True)
    wait(2)
    asked, busy = time.perf_counter(), time.process_time()
    frame, widget = viewer.window.add_plugin_dock_widget("napari-saf", "Segment")
    frame.raise_()
    widget.grab()
    took = time.perf_counter() - asked, time.process_time() - busy
    print("the dock is on screen after {:.2f} s ({:.2f})".format(*took), flush=True)
    wait(options.wait)
    for number in range(options.repeats):
        measured = time_run(viewer, widget, options.seconds)
        words = ", ".join(f"{name} {1000 * x:.0f} ms" for name, x in measured.items())
        print(f"run {number + 1}: {words}", flush=True)
    print("targets: " + ", ".join(f"{name} {limit} ms" for name, limit in _RUN_TARGETS.items()))
    viewer.close()


def measure_strokes(options: argparse.Namespace) -> None:
    """Paint strokes, and print a line a size."""
    for shape, target in list(_STROKE_TARGETS.items())[: 1 if options.small else None]:
        image = resize(photograph(1024), shape, preserve_range=True).astype(np.uint8)
        first, final, stalls, alone = time_strokes(image, options.repeats, full=options.full)
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


def time_strokes(
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


def measure_napari(viewer: napari.Viewer, repeats: int) -> None:
    """Print the longest gaps when napari adds layers of labels and nothing else goes on."""
    wait(2)
    gaps = ", ".join("{:.0f} ms ({:.0f})".format(*layer_gap(viewer)) for _ in range(repeats))
    print(f"napari alone adds a layer of labels: longest gaps {gaps}", flush=True)
    viewer.close()


def time_run(viewer: napari.Viewer, widget: SegmentWidget, seconds: float) -> dict[str, float]:
    """Run, watch, stop; return seconds by what they measure."""
    ticks, first = Ticks(), FirstLabels(viewer)
    results: list[tuple[float, saf.Segmentation]] = []

    def note(result: saf.Segmentation) -> None:
        results.append((time.perf_counter(), result))

    widget.controller.returned.connect(note)
    clicked = time.perf_counter()
    widget.start()
    wait(seconds)
    stopped = time.perf_counter()
    widget.controller.stop()
    while widget.controller.is_running:
        wait(0.005)
    wait(0.3)
    widget.controller.returned.disconnect(note)
    for _, result in results:
        assert np.min(result.labels) > 0
    gaps, later = ticks.end(), ticks.gaps_after(first.end() + 0.3)
    busy = ticks.busy()
    measured = {
        "longest gap": gaps.max(),
        "p99 gap": float(np.percentile(gaps, 99)),
        "longest gap once the layer is there": later.max(initial=0),
        "longest gap in processor time": busy.max(),
        "p99 in processor time": float(np.percentile(busy, 99)),
        "first labels": first.drawn - clicked,
        "stop": max((shown for shown, _ in results), default=0) - stopped,
    }
    return {name: seconds for name, seconds in measured.items() if seconds > 0}


class FirstLabels:
    """Notes when the canvas has drawn the first labels of a run."""

    def __init__(self, viewer: napari.Viewer) -> None:
        self.drawn = float("nan")
        self._draw = viewer.window._qt_viewer.canvas.events.draw
        self._inserted = viewer.layers.events.inserted
        self._inserted.connect(self._on_inserted)
        self._is_waiting = True

    def end(self) -> float:
        """Stop; return the moment, NaN if there was none."""
        if self._is_waiting:
            self._inserted.disconnect(self._on_inserted)
        return self.drawn

    def _on_inserted(self, event: object) -> None:
        self._inserted.disconnect(self._on_inserted)
        self._is_waiting = False
        self._draw.connect(self._on_draw)

    def _on_draw(self, event: object) -> None:
        self._draw.disconnect(self._on_draw)
        self.drawn = time.perf_counter()


def layer_gap(viewer: napari.Viewer) -> tuple[float, float]:
    """Return the longest gap when napari adds a Labels layer while nothing else runs, in ms.

    And the processor time of the main thread.
    """
    ticks = Ticks()
    wait(0.1)
    began = time.thread_time()
    layer = viewer.add_labels(np.ones(viewer.layers[0].data.shape[:2], np.uint8))
    wait(0.3)
    took = time.thread_time() - began
    wait(0.7)
    viewer.layers.remove(layer)
    wait(1)
    return 1000 * float(ticks.end().max()), 1000 * took


class Ticks:
    """A 10 ms timer of the main thread that writes down when it fires."""

    def __init__(self) -> None:
        self._times, self._busy = [time.perf_counter()], [time.thread_time()]
        self._timer = QTimer()
        self._timer.setInterval(10)
        self._timer.timeout.connect(self._on_tick)
        self._timer.start()

    def _on_tick(self) -> None:
        self._times.append(time.perf_counter())
        self._busy.append(time.thread_time())

    def end(self) -> NDArray[np.float64]:
        """Stop and return the gaps in seconds."""
        self._timer.stop()
        return np.diff(self._times)

    def busy(self) -> NDArray[np.float64]:
        """Return the processor time that the main thread took between ticks."""
        return np.diff(self._busy)

    def gaps_after(self, moment: float) -> NDArray[np.float64]:
        """Return the gaps in seconds that began after a moment."""
        return np.diff([t for t in self._times if t >= moment])


def wait(seconds: float) -> None:
    """Let the main thread do its work for a while."""
    loop = QEventLoop()
    QTimer.singleShot(round(1000 * seconds), loop.quit)
    loop.exec_()


def photograph(side: int) -> NDArray[np.uint8]:
    """Return a photograph of some size with a little grain, so that all pixels differ."""
    large = resize(astronaut(), (side, side), order=1, anti_aliasing=False)
    grain = np.random.default_rng(0).normal(0, 0.01, large.shape)
    return np.asarray(255 * np.clip(large + grain, 0, 1), dtype=np.uint8)


if __name__ == "__main__":
    main()
