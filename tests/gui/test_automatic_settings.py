"""Strokes choose the settings of the Scribbles dock, until a person changes one."""

import numpy as np
import pytest
from gui_cases import blocks
from napari.components import ViewerModel
from napari.settings import get_plugin_settings
from scipy.ndimage import gaussian_filter

import napari_saf as saf
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf.cli import main

pytestmark = [pytest.mark.gui]


def dots(side=96):
    """Return an RGB image of 36 bright dots, and where each is."""
    image = np.full((side, side, 3), 40.0)
    corners = [(row, column) for row in range(4, side, 16) for column in range(4, side, 16)]
    inside = np.zeros((side, side), dtype=bool)
    for row, column in corners:
        inside[row : row + 7, column : column + 7] = True
    image[inside] = 200
    noise = np.random.default_rng(0).normal(0, 4, image.shape)
    return np.clip(image + noise, 0, 255).astype(np.uint8), inside


@pytest.fixture
def stroke(settle):
    """Paint a horizontal stroke; wait for labels and choice, unless another one follows."""

    def paint(dock, row, column, number, length=5, is_last=True):
        columns = np.arange(column, column + length)
        dock.strokes.layer.data_setitem((np.full(length, row), columns), number)
        if is_last:
            settle(dock, 80)

    return paint


@pytest.fixture
def dock(model, open_on):
    """The dock on dots, with a layer for strokes."""
    model.add_image(dots()[0], name="dots")
    dock = open_on(model, ScribblesWidget)
    dock.new_strokes()
    return dock


def chosen(dock):
    values = dock.form.values()
    return values["connected"], values["paths"], values["rounds"], dock.input.scale.value


def paint_dots(dock, stroke):
    """Paint a dot, and the ground."""
    stroke(dock, 7, 5, 1)
    stroke(dock, 1, 2, 2, 60)


def test_dots_are_many_things_and_all_are_labelled_by_the_chosen_settings_at_once(dock, stroke):
    shown = []
    dock.controller.advanced.connect(lambda frame: shown.append(chosen(dock)))
    dock.form.set_values({"stop.max_steps": 50, "rho": 0.2})
    dock.input.choose(weights="contrast")
    assert dock.automatic.isChecked()  # of these nothing is chosen
    assert chosen(dock) == (True, 1.0, 4, 13)
    paint_dots(dock, stroke)
    assert chosen(dock) == (False, 0.0, 1, 7) and set(shown) == {chosen(dock)}
    assert dock.automatic.isChecked() and "looks like" in dock.automatic.text()
    assert "automatic: colour and surroundings, scale 7, 480 px" in dock.status.text
    assert ((np.squeeze(dock.result.data) == 1) == dots()[1]).mean() > 0.98
    recipe = dock.result.metadata["napari_saf"]["recipe"]
    assert recipe["input"]["window"] == 7 and recipe["input"]["max_side"] == 480
    assert recipe["parameters"]["rounds"] == 1 and not recipe["parameters"]["connected"]


def test_later_labels_are_provisional_and_stay_where_the_choice_fails(dock, stroke, monkeypatch):
    def fail(cancelled):
        raise saf.ComputeError("no memory")

    paint_dots(dock, stroke)
    texts, before = [], chosen(dock)
    dock.status.changed.connect(lambda: texts.append(dock.status.text))
    monkeypatch.setattr(dock.automatic, "chooser", lambda job: fail)
    stroke(dock, 7, 22, 1)
    assert any(text.startswith("first labels; choosing settings") for text in texts)
    assert chosen(dock) == before and (np.squeeze(dock.result.data)[7, 22:27] == 1).all()


def test_the_choice_follows_undo(dock, stroke, settle):
    paint_dots(dock, stroke)
    before = np.squeeze(dock.result.data).copy()
    for row in range(7, 96, 16):  # all the other dots are of class 2
        stroke(dock, row, 22, 2, 70, is_last=row == 87)
    assert chosen(dock)[0]
    for _ in range(6):
        dock.strokes.layer.undo()
    settle(dock, 80)
    assert not chosen(dock)[0]
    np.testing.assert_array_equal(np.squeeze(dock.result.data), before)


def test_a_correction_keeps_the_choice_of_an_object_until_a_class_is_added(
    model, open_on, stroke, settle
):
    image, _ = dots()
    image[:52] = 40
    image[4:24, 4:24], image[24:44, 4:24] = 200, 110  # an object of two tones
    image[52:][image[52:] > 120] = 110  # things like one of them
    image[:, 72:] = np.linspace(0, 90, 96)[:, None, None]  # no uniform ground
    model.add_image(image, name="object")
    dock = open_on(model, ScribblesWidget)
    dock.new_strokes()
    stroke(dock, 48, 30, 2, 60, is_last=False)
    stroke(dock, 14, 6, 1, 14)
    before = dock.automatic.text()
    assert "one piece" in before
    stroke(dock, 34, 6, 1, 14)
    assert dock.automatic.text() == before
    assert saf.choose_for_strokes(image, np.squeeze(dock.strokes.layer.data)).summary != before
    dock.strokes.layer.undo()
    settle(dock, 80)
    dock.strokes.layer.redo()
    settle(dock, 80)
    assert dock.automatic.text() == before
    stroke(dock, 14, 60, 3, 20)
    assert dock.automatic.text() != before


def test_a_stroke_on_an_object_that_the_labels_agree_with_changes_little(
    model, open_on, stroke, settle, monkeypatch
):
    noise = gaussian_filter(np.random.default_rng(1).normal(size=(96, 96)), 4)
    image = np.clip(128 + 40 * noise / noise.std(), 0, 255).astype(np.uint8)
    model.add_image(np.stack([image] * 3, axis=-1), name="noise")
    dock = open_on(model, ScribblesWidget)
    dock.new_strokes()
    monkeypatch.setattr(dock.automatic, "chooser", lambda job: lambda cancelled: "object")
    stroke(dock, 30, 20, 1, 20, is_last=False)
    stroke(dock, 70, 50, 2, 30)
    before = np.squeeze(dock.result.data).copy()
    assert (before[60, 67:81] == 2).all()
    stroke(dock, 60, 67, 2, 14)
    assert (np.squeeze(dock.result.data) != before).mean() < 0.03
    dock.strokes.layer.undo()
    settle(dock, 80)
    np.testing.assert_array_equal(np.squeeze(dock.result.data), before)


def test_seeds_on_the_command_line_give_the_labels_of_the_dock(model, open_on, stroke, tmp_path):
    image = blocks(96)
    model.add_image(image, name="image")
    dock = open_on(model, ScribblesWidget)
    dock.new_strokes()
    for corner, number in (((7, 5), 1), ((1, 60), 2), ((66, 70), 1), ((80, 2), 2)):
        stroke(dock, *corner, number, is_last=corner == (80, 2))
    strokes = np.squeeze(dock.strokes.layer.data)
    np.save(tmp_path / "image.npy", image)
    np.save(tmp_path / "strokes.npy", strokes)
    files = [tmp_path / "image.npy", "-o", tmp_path / "m.npy", "--seeds", tmp_path / "strokes.npy"]
    assert main(["segment", *map(str, files)]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "m.npy"), np.squeeze(dock.result.data))


def test_a_changed_control_is_kept_until_automatic_is_on_again(dock, stroke, settle):
    for change in (
        lambda: dock.form.set_values({"rounds": 2}),
        lambda: dock.input.scale.set_value(5),
        lambda: dock.input.choose(features="multiscale"),
    ):
        dock.automatic.setChecked(True)
        change()
        assert not dock.automatic.isChecked()
    before = chosen(dock)
    paint_dots(dock, stroke)
    assert chosen(dock) == before and "automatic" not in dock.status.text
    dock.automatic.click()
    settle(dock, 80)
    assert dock.automatic.isChecked() and chosen(dock) == (False, 0.0, 1, 7)


def test_automatic_is_as_it_was_in_a_project_that_is_opened_again(dock, stroke, open_on):
    paint_dots(dock, stroke)
    values, before = dock.values(), (chosen(dock), dock.automatic.text())
    model = ViewerModel()
    model.add_image(dots()[0], name="dots")
    for is_on in (True, False):
        again = open_on(model, ScribblesWidget)
        again.show_values(values if is_on else dock.values())
        assert again.automatic.isChecked() is is_on
        assert chosen(again) == before[0] and (again.automatic.text() == before[1]) is is_on
        dock.automatic.click()
    plain = open_on(model, ScribblesWidget)
    plain.automatic.setChecked(False)  # and nothing else is changed
    again = open_on(model, ScribblesWidget)
    again.show_values(plain.values())
    assert not again.automatic.isChecked()


def test_another_image_begins_anew_and_an_earlier_image_or_method_goes_on(dock, model, stroke):
    paint_dots(dock, stroke)
    of_dots = chosen(dock), dock.automatic.text()
    dock.input.choose(image=model.add_image(dots()[0][..., 0], name="grey"))
    assert dock.automatic.isChecked() and chosen(dock) == (True, 1.0, 4, 13)
    assert dock.input.choices["features"].value == "intensity"
    dock.input.choose(image=model.layers["dots"])
    assert dock.automatic.isChecked() and (chosen(dock), dock.automatic.text()) == of_dots
    assert chosen(dock) == (False, 0.0, 1, 7)
    dock.form.set_values({"rho": 0.3})
    for is_changed in (False, True):
        before, text = dock.form.values(), dock.automatic.text()
        dock.form.box.setCurrentIndex(1)  # a method without these settings
        assert not dock.automatic.isChecked() and not dock.automatic.isEnabled()
        if is_changed:
            dock.input.choose(max_side=480)
            dock.input.choose(max_side=240)
        dock.form.box.setCurrentIndex(0)
        assert dock.automatic.isEnabled() and dock.form.values() == before
        assert dock.automatic.isChecked() is not is_changed
        assert (dock.automatic.text() == text) is not is_changed


@pytest.fixture
def network(monkeypatch):
    """Weights in the preferences, of a network that knows which squares are alike."""
    is_first = np.kron(np.indices((4, 4)).sum(axis=0) % 2 == 0, np.ones((24, 24)))
    monkeypatch.setattr(saf.DeepFeatures, "fitted", lambda self, images: self)
    monkeypatch.setattr(saf.DeepFeatures, "features", lambda self, *a: is_first[..., None])
    monkeypatch.setattr(saf.DeepFeatures, "refined", lambda self, features, average: features)
    get_plugin_settings("napari-saf").strokes.weights = "vgg16.safetensors"
    return is_first > 0


def paint_squares(dock, stroke):
    for top, left, number in ((12, 4, 1), (12, 28, 2), (60, 4, 1), (60, 28, 2)):
        stroke(dock, top, left, number, 16, is_last=(top, number) == (60, 2))


def test_a_network_of_the_preferences_is_taken_where_strokes_say_so(
    network, model, open_on, stroke, qtbot
):
    noise = np.random.default_rng(0).normal(128, 30, network.shape)
    model.add_image(np.clip(noise, 0, 255).astype(np.uint8), name="noise")
    dock = open_on(model, ScribblesWidget)
    dock.new_strokes()
    paint_squares(dock, stroke)
    assert dock.automatic.isChecked() and dock.input.choices["features"].value == "deep"
    assert ((np.squeeze(dock.result.data) == 1) == network).mean() > 0.95
    get_plugin_settings("napari-saf").strokes.weights = ""
    assert dock.automatic.choice.options.features_name != "deep"


def test_a_network_that_cannot_be_used_leaves_the_choice_and_says_so(model, open_on, stroke):
    get_plugin_settings("napari-saf").strokes.weights = "/nowhere.safetensors"
    noise = np.random.default_rng(0).normal(128, 30, (96, 96))
    model.add_image(np.clip(noise, 0, 255).astype(np.uint8), name="noise")
    dock = open_on(model, ScribblesWidget)
    dock.new_strokes()
    paint_squares(dock, stroke)
    assert dock.automatic.isChecked() and not dock.status.is_error
    assert "no such file at /nowhere.safetensors" in dock.automatic.note
