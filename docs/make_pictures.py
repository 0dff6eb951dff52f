"""Make the pictures of README and docs from the real app and command line.

xvfb-run -a -s "-screen 0 1280x800x24" python docs/make_pictures.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import napari
from qtpy.QtWidgets import QApplication

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


def make_dock_picture() -> None:
    """Take a picture of a finished run in the Segment dock."""
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    viewer.open_sample("napari-saf", "astronaut")
    _, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Segment")
    wait(1)
    dock.start()
    wait_until(lambda: dock.session.is_running, 20)
    wait_until(lambda: not dock.session.is_running)
    viewer.layers.selection.active = viewer.layers[-1]
    for widget in QApplication.allWidgets():
        if "Notification" in type(widget).__name__:
            widget.close()
    wait(1)
    viewer.screenshot(str(PICTURES / "dock.png"), canvas_only=False)
    viewer.close()


def make_demo_picture() -> None:
    """Keep the figure of the demo."""
    with tempfile.TemporaryDirectory() as folder:
        command_line(["demo", "-o", folder, "--headless"])
        (PICTURES / "demo.png").write_bytes((Path(folder) / "astronaut.png").read_bytes())


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    make_demo_picture()
    make_dock_picture()
