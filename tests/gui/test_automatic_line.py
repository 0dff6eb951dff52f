"""The line of the Segment dock that says what is chosen for the image."""

from __future__ import annotations

import numpy as np
import pytest
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QDoubleSpinBox

from napari_saf._gui.forms.fields import OddSlider

pytestmark = [pytest.mark.gui, pytest.mark.automatic]


@pytest.fixture
def viewer(model):
    return model


def words(dock):
    """What the line says, piece by piece."""
    return dock.automatic.text().removeprefix("Automatic: ").split(", ")


def volume(*shape):
    return np.random.default_rng(0).random(shape)


def test_the_line_says_what_a_run_does_but_for_what_is_set_by_hand(dock, run):
    before = words(dock)
    result = run(dock)
    options, first = result.recipe["input"], result.history.label_shares[0]
    assert options["features"] == "texture" and options["weights"] == "contrast"
    said = ["colour and texture", "edges by colour", "full size"]
    assert before == [f"scale {options['window']}", *said]
    assert words(dock) == [*before, f"{len(first)} labels at first"]
    dock.form.set_values({"max_labels": 3})
    dock.input.scale.set_value(5)
    dock.input.choose(features="lab", weights="uniform")
    assert words(dock) == ["full size"]
    dock.input.choose(max_side=240)
    assert not dock.choice.is_shown(dock.automatic)


def test_the_line_follows_the_plane_on_screen(viewer, dock):
    image = viewer.add_image(volume(7, 40, 50), name="volume")
    dock.input.choose(image=image, extent="slice")
    assert words(dock)[0] == "scale 13"
    viewer.dims.order = (1, 0, 2)
    options = dock.input.read().job().options
    assert words(dock)[0] == f"scale {options.window}" == "scale 7"
    dock.input.choose(extent="volume")
    assert words(dock) == ["scale 3", "intensity or colour", "edges ignored", "full size"]
    dock.input.choose(extent="slice")
    viewer.dims.order = (2, 1, 0)
    viewer.dims.set_current_step(2, 30)
    viewer.layers.remove(image)
    assert words(dock)[1] == "colour and texture"
    viewer.layers.clear()
    assert not dock.choice.is_shown(dock.automatic)


def test_a_scale_is_typed_as_a_number_or_left_to_be_chosen_where_it_can(qtbot):
    for may_be_chosen, typed, values in (
        (True, "auto", [None]),
        (True, "8", [9]),
        (True, "7 px", [7]),
        (False, "auto", [1, 21]),
    ):
        scale = OddSlider(21, may_be_chosen=may_be_chosen)
        qtbot.addWidget(scale)
        box = scale.findChild(QDoubleSpinBox)
        box.selectAll()
        qtbot.keyClicks(box, typed)
        qtbot.keyClick(box, Qt.Key.Key_Return)
        assert scale.value in values, typed
