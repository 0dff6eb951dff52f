"""The tasks of a new user's first day: how many clicks each takes, and what it ends with."""

import imageio.v3 as iio
import numpy as np
import pytest
from napari.layers import Labels
from skimage.data import astronaut
from test_walk_2_strokes import leaf

from napari_saf._gui.scribbles.strokes import ClassTable

pytestmark = pytest.mark.gui


def test_what_strokes_taught_is_seen_on_the_other_image(hands, take_picture, tmp_path):
    """Whether that was opened before or after the strokes were painted."""
    image, _ = leaf()
    for name, pixels in (("before", image[::-1]), ("taught", image), ("after", image[:, ::-1])):
        iio.imwrite(tmp_path / f"{name}.png", pixels)
    for name in ("before", "taught"):
        hands.open_file(tmp_path / f"{name}.png")
    layers, dock = hands.viewer.layers, hands.open_dock("Scribbles")
    hands.press(dock, "New")
    teach(hands, dock)
    hands.open_file(tmp_path / "after.png")
    hands.press(dock, "Start from labels, apply elsewhere")
    for name in ("before", "after"):
        hands.choose(hands.field(dock, "Apply to"), name)
        hands.press(dock, "Apply")
        hands.wait_until(lambda name=name: f"{name} [from strokes]" in layers)
        hands.wait_for_end(dock)
        take_picture(hands, f"first_day_apply_{name}")
        result = layers[f"{name} [from strokes]"]
        assert layers.index(result) == layers.index(name) + 1
        shown = [layer for layer in layers if layer.visible]
        assert shown[-2:] == [layers[name], result]


def teach(hands, dock) -> None:
    """Paint what is in the middle, and what is around it."""
    strokes, classes = dock.strokes.layer, hands.part(dock, ClassTable)
    ways = ((0.4, 0.4), (0.55, 0.55)), ((0.05, 0.1), (0.05, 0.9))
    for row, way in enumerate(ways):
        hands.click_cell(classes, row, 1)
        hands.go_home()
        hands.drag(strokes, [tuple(np.multiply(strokes.data.shape, place)) for place in way])
    hands.wait_until(lambda: dock.result is not None)
    hands.wait_for_end(dock)


def test_a_stopped_run_is_resumed(hands, take_picture):
    viewer = hands.viewer
    viewer.add_image(astronaut(), name="astronaut")
    dock = hands.open_dock("Segment")
    dock.form.set_values({"stepper": "euler", "stepper.step": 0.05})  # there is time to stop
    hands.press(dock, "Run")
    hands.wait_until(lambda: len(viewer.layers) > 1)
    hands.clicks = 0
    hands.press(dock, "Stop")
    hands.wait_until(lambda: not dock.controller.is_running)
    assert dock.status.text.startswith("stopped")
    take_picture(hands, "first_day_stopped")
    (layer,) = (layer for layer in viewer.layers if isinstance(layer, Labels))
    early = layer.data.copy()
    hands.press(dock, "Resume")
    assert hands.clicks == 2
    hands.wait_for_end(dock)
    assert dock.status.text.startswith(("converged", "settled"))
    assert layer in viewer.layers and (layer.data != early).any()
