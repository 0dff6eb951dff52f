"""Memory of the app after many runs: 20 in the same dock, each result removed.

    xvfb-run -a python benchmarks/leaks.py --side 512 --runs 20 [--beside Diagnostics]

Prints the resident memory after each run, and by how much that after the last is above that after
the second; the exit status is 1 where that is more than 5 %. Beside it what napari alone grows by
when as many layers are added and removed without a run.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import sys
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import psutil

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image
    from qtpy.QtWidgets import QApplication

    from napari_saf._gui.segment.dock import SegmentWidget


_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h


def photograph(side: int) -> np.ndarray:
    """Return a coloured image with some structure."""
    rows, columns = np.indices((side, side)) / side
    waves = np.stack([np.sin(9 * rows + 3 * columns), np.cos(7 * columns), np.sin(11 * rows)], -1)
    noise = np.random.default_rng(0).normal(0, 0.1, waves.shape)
    return (255 * np.clip(0.5 + 0.4 * waves + noise, 0, 1)).astype(np.uint8)


def run_once(dock: SegmentWidget, app: QApplication) -> None:
    """Start a run and wait for its end."""
    dock.start()
    while dock.controller.is_running:
        app.processEvents()
        time.sleep(0.002)


def remove_results(viewer: Viewer, image: Image, app: QApplication) -> None:
    """Remove all layers but the image, and let the window follow."""
    for layer in [layer for layer in viewer.layers if layer != image]:
        viewer.layers.remove(layer)
    for _ in range(5):
        app.processEvents()


def free_at_once() -> None:
    """Have the allocator give large blocks back as they are freed, not keep some for later."""
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").mallopt(_MMAP_THRESHOLD, 2**20)


def resident(process: psutil.Process) -> float:
    """Return the resident memory in MiB, less what the allocator keeps for later."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return float(process.memory_info().rss) / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--dock", default="Segment", help="the dock that runs")
    parser.add_argument("--beside", nargs="*", default=[], help="docks that are open beside it")
    chosen = parser.parse_args()
    free_at_once()
    import napari
    from qtpy.QtWidgets import QApplication

    viewer, app = napari.Viewer(), QApplication.instance()
    image = viewer.add_image(photograph(chosen.side), name="photograph")
    for name in chosen.beside:
        viewer.window.add_plugin_dock_widget("napari-saf", name)
    dock = viewer.window.add_plugin_dock_widget("napari-saf", chosen.dock)[1]
    dock.form.set_values({"stop.max_steps": 20, "max_iterations": 5})
    process, sizes = psutil.Process(), []
    for number in range(1, chosen.runs + 1):
        run_once(dock, app)
        remove_results(viewer, image, app)
        sizes.append(resident(process))
        print(f"run {number}: {sizes[-1]:.1f} MiB, {threading.active_count()} threads", flush=True)
    growth = sizes[-1] / sizes[1] - 1
    print(f"after run {chosen.runs}: {100 * growth:+.1f} % against run 2")
    for _ in range(chosen.runs - 2):
        viewer.add_labels(np.ones((chosen.side, chosen.side), np.uint8))
        remove_results(viewer, image, app)
    alone = resident(process) / sizes[-1] - 1
    print(f"napari alone, after as many layers added and removed: {100 * alone:+.1f} % more")
    viewer.close()
    return int(growth > 0.05)


if __name__ == "__main__":
    sys.exit(main())
