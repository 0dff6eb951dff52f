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


def test_dots_are_many_things_and_all_are_labelled(dock, stroke):
    assert dock.automatic.isChecked() and chosen(dock) == (True, 1.0, 4, 13)
    stroke(dock, 7, 5, 1)
    stroke(dock, 1, 2, 2, 60)
    assert chosen(dock) == (False, 0.0, 1, 7)
    assert dock.automatic.isChecked() and "looks like" in dock.automatic.text()
    assert "automatic: colour and surroundings, scale 7, 480 px" in dock.status.text
    found = np.squeeze(dock.result.data) == 1
    assert (found == dots()[1]).mean() > 0.98


def test_the_first_labels_are_those_of_the_chosen_settings(dock, stroke):
    shown, texts = [], []
    dock.controller.advanced.connect(lambda frame: shown.append(chosen(dock)))
    dock.controller.returned.connect(lambda result: shown.append(chosen(dock)))
    dock.status.changed.connect(lambda: texts.append(dock.status.text))
    stroke(dock, 7, 5, 1)
    stroke(dock, 1, 2, 2, 60)
    assert set(shown) == {(False, 0.0, 1, 7)}
    assert any(text.startswith("choosing settings") for text in texts)
    assert dock.status.text.startswith("converged")


def test_later_labels_are_provisional_until_the_settings_are_chosen(dock, stroke, monkeypatch):
    stroke(dock, 7, 5, 1)
    stroke(dock, 1, 2, 2, 60)
    texts = []
    dock.status.changed.connect(lambda: texts.append(dock.status.text))
    monkeypatch.setattr(dock.automatic, "chooser", lambda job: lambda cancelled: "")
    stroke(dock, 7, 22, 1)
    assert any(text.startswith("first labels; choosing settings") for text in texts)
    assert dock.status.text.startswith("converged")


def test_a_choice_that_fails_leaves_the_labels(dock, stroke, monkeypatch):
    def fail(cancelled):
        raise saf.ComputeError("no memory")

    monkeypatch.setattr(dock.automatic, "chooser", lambda job: fail)
    stroke(dock, 7, 5, 1)
    stroke(dock, 1, 2, 2, 60)
    assert dock.result.data.any() and dock.status.text.startswith("converged")


def test_labels_that_were_right_at_once_say_so_in_the_end(model, open_on, stroke):
    model.add_image(blocks(96), name="blocks")
    dock = open_on(model, ScribblesWidget)
    dock.new_strokes()
    for number, corner in enumerate(((20, 10), (20, 70), (70, 10), (70, 70)), start=1):
        stroke(dock, *corner, number, is_last=number == 4)
    assert dock.status.text.startswith("converged")


def test_the_recipe_holds_what_was_chosen(dock, stroke):
    stroke(dock, 7, 5, 1)
    stroke(dock, 1, 2, 2, 60)
    recipe = dock.result.metadata["napari_saf"]["recipe"]
    assert recipe["input"]["window"] == 7 and recipe["input"]["max_side"] == 480
    assert recipe["parameters"]["rounds"] == 1 and not recipe["parameters"]["connected"]


def test_the_choice_follows_undo(dock, stroke, settle):
    stroke(dock, 7, 5, 1)
    stroke(dock, 1, 2, 2, 60)
    before = np.squeeze(dock.result.data).copy()
    for row in range(7, 96, 16):  # all the other dots are of class 2
        stroke(dock, row, 22, 2, 70, is_last=row == 87)
    assert chosen(dock)[0]
    for _ in range(6):
        dock.strokes.layer.undo()
    settle(dock, 80)
    assert not chosen(dock)[0]
    np.testing.assert_array_equal(np.squeeze(dock.result.data), before)


def textures():
    """Return fine noise and coarse noise of equal contrast, in a chessboard of four cells."""
    fine, coarse = np.random.default_rng(0).normal(size=(2, 96, 96))
    coarse = gaussian_filter(coarse, 2)
    is_fine = np.kron(np.eye(2), np.ones((48, 48))) > 0
    noise = np.where(is_fine, fine, coarse / coarse.std())
    return np.clip(128 + 30 * noise, 0, 255).astype(np.uint8)


@pytest.mark.parametrize(
    ("image", "features"),
    [
        (blocks(96), "lab"),
        pytest.param(dots()[0][..., 0], "foreground", marks=pytest.mark.exhaustive),
        pytest.param(textures(), "multiscale", marks=pytest.mark.exhaustive),
    ],
    ids=["objects", "many things", "textures"],
)
def test_seeds_on_the_command_line_and_in_python_give_the_labels_of_the_dock(
    image, features, model, open_on, stroke, tmp_path
):
    model.add_image(image, name="image")
    dock = open_on(model, ScribblesWidget)
    dock.new_strokes()
    length = 20 if features == "multiscale" else 5
    for corner, number in (((7, 5), 1), ((1, 60), 2), ((66, 70), 1), ((80, 2), 2)):
        stroke(dock, *corner, number, length, is_last=corner == (80, 2))
    strokes = np.squeeze(dock.strokes.layer.data)
    assert dock.input.choices["features"].value == features
    np.save(tmp_path / "image.npy", image)
    np.save(tmp_path / "strokes.npy", strokes)
    files = [tmp_path / "image.npy", "-o", tmp_path / "m.npy", "--seeds", tmp_path / "strokes.npy"]
    assert main(["segment", *map(str, files)]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "m.npy"), np.squeeze(dock.result.data))
    choice = saf.choose_for_strokes(image, strokes)
    problem = saf.Problem.from_image(image, seeds=strokes, **choice.options.arguments())
    np.testing.assert_array_equal(choice.method.run(problem).labels, np.load(tmp_path / "m.npy"))


@pytest.mark.parametrize(
    "change",
    [
        lambda dock: dock.input.scale.set_value(5),
        lambda dock: dock.input.choose(features="multiscale"),
        lambda dock: dock.form.set_values({"rounds": 2}),
    ],
)
def test_a_changed_control_is_kept_until_automatic_is_on_again(dock, stroke, settle, change):
    change(dock)
    assert not dock.automatic.isChecked()
    before = chosen(dock)
    stroke(dock, 7, 5, 1)
    stroke(dock, 1, 2, 2, 60)
    assert chosen(dock) == before and "automatic" not in dock.status.text
    dock.automatic.click()
    settle(dock, 80)
    assert dock.automatic.isChecked() and chosen(dock) == (False, 0.0, 1, 7)


def test_automatic_is_as_it_was_in_a_project_that_is_opened_again(dock, stroke, open_on):
    stroke(dock, 7, 5, 1)
    stroke(dock, 1, 2, 2, 60)
    values, before = dock.values(), (chosen(dock), dock.automatic.text())
    model = ViewerModel()
    model.add_image(dots()[0], name="dots")
    for is_on in (True, False):
        again = open_on(model, ScribblesWidget)
        again.show_values(values if is_on else dock.values())
        assert again.automatic.isChecked() is is_on
        assert chosen(again) == before[0] and (again.automatic.text() == before[1]) is is_on
        dock.automatic.click()


def test_controls_that_are_not_chosen_leave_it_on(dock):
    dock.form.set_values({"stop.max_steps": 50, "rho": 0.2})
    dock.input.choose(weights="contrast")
    assert dock.automatic.isChecked()


def test_squares_of_one_colour_are_objects(model, open_on, stroke):
    model.add_image(blocks(96), name="blocks")
    dock = open_on(model, ScribblesWidget)
    dock.new_strokes()
    for number, corner in enumerate(((20, 10), (20, 70), (70, 10), (70, 70)), start=1):
        stroke(dock, *corner, number, is_last=number == 4)
    assert dock.automatic.isChecked() and chosen(dock) == (True, 1.0, 4, 13)
    assert "automatic: perceived colour, scale 13, 240 px" in dock.status.text


def test_another_image_begins_as_for_objects(dock, model, stroke):
    stroke(dock, 7, 5, 1)
    stroke(dock, 1, 2, 2, 60)
    grey = model.add_image(dots()[0][..., 0], name="grey")
    dock.input.choose(image=grey)
    assert dock.automatic.isChecked() and chosen(dock) == (True, 1.0, 4, 13)
    assert dock.input.choices["features"].value == "intensity"
    dock.input.choose(image=model.layers["dots"])
    assert dock.input.choices["features"].value == "lab" and dock.automatic.isChecked()


def test_a_method_without_these_settings_turns_it_off(dock):
    dock.form.box.setCurrentIndex(1)
    assert not dock.automatic.isChecked() and not dock.automatic.isEnabled()
    dock.form.box.setCurrentIndex(0)
    assert dock.automatic.isEnabled()


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
