"""How fluent the app stays while it labels: run with ``xvfb-run -a python benchmarks/app_load.py``.

In a real window a 1024 x 1024 RGB image is labelled with the defaults. Printed are the longest
and the 99th percentile of the gaps between ticks of a 10 ms timer of the main thread, also in its
processor time, which what else the machine does disturbs less; the time from the click on Run to
the first labels on screen, and from Stop to the final ones, if there were labels. The first run is
the first of its process. Beside them: the longest gap when napari alone adds a layer of labels, the
first and later ones of a process of their own, and what of the main thread that takes, drawing
included.

With ``--side 4096 --lazy`` the image is a large one, of which what is on screen is labelled. The
first run begins ``--wait`` seconds after the dock was opened.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import dask.array as da
import napari
import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QEventLoop, QTimer
from skimage.data import astronaut
from skimage.transform import resize

import napari_saf as saf
from napari_saf._gui.segment.dock import SegmentWidget

_TARGETS = {"longest gap": 100, "p99 gap": 50, "first labels": 1000, "stop": 300}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=1024, help="side of the image in pixels")
    parser.add_argument("--seconds", type=float, default=10, help="how long to let it run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--random", action="store_true", help="stop at random moments of up to so many seconds"
    )
    parser.add_argument(
        "--beside", nargs="*", default=[], help="docks that are open beside Segment"
    )
    parser.add_argument("--lazy", action="store_true", help="the image is a dask array")
    parser.add_argument("--wait", type=float, default=2, help="seconds before the first run")
    parser.add_argument("--alone", action="store_true", help="measure napari without the app")
    options = parser.parse_args()
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    image = photograph(options.side)
    viewer.add_image(da.from_array(image, (512, 512, 3)) if options.lazy else image)
    if options.alone:
        measure_napari(viewer, options.repeats)
        return
    subprocess.run([sys.executable, __file__, "--alone"], check=True)
    for name in options.beside:
        viewer.window.add_plugin_dock_widget("napari-saf", name)
        wait(0.3)
    wait(2)
    asked, busy = time.perf_counter(), time.process_time()
    frame, widget = viewer.window.add_plugin_dock_widget("napari-saf", "Segment")
    frame.raise_()
    widget.grab()
    took = time.perf_counter() - asked, time.process_time() - busy
    print("the dock is on screen after {:.2f} s ({:.2f})".format(*took), flush=True)
    wait(options.wait)
    draw = np.random.default_rng(0)
    for number in range(options.repeats):
        seconds = options.seconds * (draw.random() if options.random else 1)
        words = [
            f"{name} {1000 * x:.0f} ms" for name, x in measure(viewer, widget, seconds).items()
        ]
        print(f"run {number + 1}, stop at {seconds:.2f} s: {', '.join(words)}", flush=True)
    print("targets: " + ", ".join(f"{name} {limit} ms" for name, limit in _TARGETS.items()))
    viewer.close()


def measure_napari(viewer: napari.Viewer, repeats: int) -> None:
    """Print the longest gaps when napari adds layers of labels and nothing else goes on."""
    wait(2)
    gaps = ", ".join("{:.0f} ms ({:.0f})".format(*layer_gap(viewer)) for _ in range(repeats))
    print(f"napari alone adds a layer of labels: longest gaps {gaps}", flush=True)
    viewer.close()


def measure(viewer: napari.Viewer, widget: SegmentWidget, seconds: float) -> dict[str, float]:
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
