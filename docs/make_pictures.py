"""Make the pictures of README and docs from the real app and command line.

xvfb-run -a -s "-screen 0 1280x800x24" python docs/make_pictures.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import napari
import numpy as np
from qtpy.QtWidgets import QApplication

from napari_saf._gui._segment import SegmentWidget
from napari_saf.cli import main as command_line

PICTURES = Path(__file__).parent / "pictures"


def wait_until(done: object, seconds: float = 120) -> None:
    """Let the app run until `done()` is true."""
    end = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError("the app did not get there")
        QApplication.processEvents()
        time.sleep(0.01)


def wait(seconds: float) -> None:
    """Let the app run for a while."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end)


def open_dock(sample: str) -> tuple[napari.Viewer, SegmentWidget]:
    """Open a sample and the Segment dock in a window."""
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    viewer.open_sample("napari-saf", sample)
    _, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Segment")
    wait(1)
    return viewer, dock


def finish(viewer: napari.Viewer, dock: SegmentWidget, name: str) -> None:
    """Wait for the end of a run, take a picture of the window and close it."""
    wait_until(lambda: dock.session.is_running, 20)
    wait_until(lambda: not dock.session.is_running)
    for widget in QApplication.allWidgets():
        if "Notification" in type(widget).__name__:
            widget.close()
    wait(1)
    viewer.screenshot(str(PICTURES / name), canvas_only=False)
    viewer.close()


def make_dock_picture() -> None:
    """Take a picture of a finished run in the Segment dock."""
    viewer, dock = open_dock("astronaut")
    dock.start()
    finish(viewer, dock, "dock.png")


def make_fairness_picture() -> None:
    """Take a picture of the trade-off of a stack of two stains."""
    viewer, dock = open_dock("histology")
    first = viewer.layers[0].data
    viewer.layers.clear()
    second = np.uint8(255 * (first / 255) ** 1.3 * (0.55, 0.5, 0.6))
    viewer.add_image(np.stack([first, second]), name="two stains", rgb=True)
    dock.choose_method("fair")
    dock.input.choose_extent("each")
    dock.input.choose_groups("axis:0")
    dock.input.choose_features("lab")
    dock.form.set_values({"n_clusters": 3})
    viewer.dims.set_current_step(0, 1)
    dock.start_sweep()
    finish(viewer, dock, "fair_dock.png")


def make_demo_picture() -> None:
    """Keep the figure of the demo."""
    with tempfile.TemporaryDirectory() as folder:
        command_line(["demo", "-o", folder, "--headless"])
        (PICTURES / "demo.png").write_bytes((Path(folder) / "astronaut.png").read_bytes())


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    make_demo_picture()
    make_dock_picture()
    make_fairness_picture()
