"""The Patch dictionary dock: learn, look, drop, keep, apply, and faults."""

import numpy as np
import pytest
from gui_cases import ENDLESS, TIMEOUT, blocks, choose_files
from qtpy.QtCore import Qt

import napari_saf as saf
from napari_saf._gui.dictionary.dock import DictionaryWidget

pytestmark = [pytest.mark.gui]

SMALL = {"n_atoms": 6, "patch_size": 5, "landmarks": 12, "refinements": 1, "n_samples": 400}
LEFT, CONTROL = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.ControlModifier


def stripes(height=36, width=40, seed=0):
    """Return a grey image: upright stripes, and below them a plain field."""
    rng = np.random.default_rng(seed)
    image = np.where(np.arange(width) // 3 % 2, 0.8, 0.2) * np.ones((height, 1))
    image[height // 2 :] = 0.5
    return (image + rng.normal(0, 0.02, image.shape)).astype(np.float32)


@pytest.fixture(scope="module")
def learned():
    """A dictionary of stripes, learned without a window."""
    return saf.PatchDictionary.learn([stripes()], **SMALL, names=("stripes",))


@pytest.fixture
def dock(model, open_on):
    model.add_image(stripes(), name="stripes")
    dock = open_on(model, DictionaryWidget)
    dock.form.set_values(SMALL)
    return dock


@pytest.fixture
def full(dock, learned, tmp_path, settle):
    """The dock with a dictionary that was loaded."""
    learned.save(tmp_path / "stripes.safetensors")
    dock.load(tmp_path / "stripes.safetensors")
    settle(dock)
    return dock


@pytest.fixture
def apply(settle):
    """Apply the dictionary of a dock, and wait."""

    def start(dock, image=None):
        if image is not None:
            dock.applying.image.choose(image)
        dock.applying.apply()
        settle(dock)

    return start


@pytest.fixture
def click(qtbot):
    """Click the atom of a number."""

    def press(dock, number, modifier=Qt.KeyboardModifier.NoModifier):
        view = dock.atoms.view
        qtbot.mouseClick(view.viewport(), LEFT, modifier, view.center_of(number))
        return view.shown.atom_ids[number]

    return press


def named(model, kind):
    return [layer for layer in model.layers if layer.name.endswith(f"[{kind}]")]


def test_learning_gives_the_dictionary_of_python_and_shows_atoms_meanwhile(
    model, dock, run, learned, settle
):
    seen = []
    dock.controller.advanced.connect(lambda frame: seen.append(dock.atoms.view.shown.dictionary))
    result = run(dock)
    settle(dock)
    assert seen and all(shown.n_atoms <= SMALL["n_atoms"] for shown in seen)
    shown = dock.current
    np.testing.assert_allclose(shown.dictionary.atoms, learned.atoms, atol=1e-5)
    assert shown is dock.atoms.view.shown and shown.dictionary.images == ("stripes",)
    usage = shown.dictionary.usage
    assert (np.diff(usage) <= 0).all() and usage.sum() == (36 - 4) * (40 - 4)
    (layer,) = named(model, "dictionary")
    np.testing.assert_array_equal(layer.data, result.labels)
    for label, color in enumerate(shown.colors, start=1):
        np.testing.assert_allclose(layer.colormap.map(label), color, atol=1e-6)


def test_atoms_of_texture_are_learned_of_several_images_together(model, dock, run, apply, settle):
    second = model.add_image(stripes(30, 50, seed=1).T, name="turned")
    dock.images.choose([model.layers["stripes"], second])
    model.layers.selection.active = second
    dock.features.choose("texture")
    result = run(dock)
    settle(dock)
    dictionary = dock.current.dictionary
    assert dictionary.features == "texture" and dictionary.atoms.shape[3] == 2
    assert dictionary.images == ("stripes", "turned")
    assert result.labels.shape == (50, 30) and int(dictionary.usage.sum()) > 36 * 40 // 2
    assert [layer.name for layer in named(model, "dictionary")] == ["turned [dictionary]"]
    apply(dock, second)
    assert model.layers["turned [rebuilt]"].data.shape == (50, 30)


def test_the_axis_of_channels_is_that_axis_of_images_with_time_too(model, dock, run, apply, settle):
    model.layers.clear()
    planes = np.moveaxis(blocks().astype(float), -1, 0)
    single = model.add_image(planes, rgb=False, name="single")
    series = model.add_image(np.stack([planes] * 3), rgb=False, name="series")
    dock.images.choose([single])
    dock.channels.choose(-3)
    run(dock)
    settle(dock)
    assert dock.current.dictionary.n_channels == 3
    model.dims.set_current_step(0, 1)
    apply(dock, series)
    assert model.layers["series [rebuilt]"].data.shape == (1, 3, 32, 32)
    partition = model.layers["series [labels]"]
    assert partition.data.shape == (1, 1, 32, 32) and partition.translate[0] == 1


def test_what_cannot_be_learned_is_told(model, dock):
    dock.form.set_values({"patch_size": 6})
    dock.start()
    assert dock.status.is_error and "patch_size" in dock.status.text
    model.layers.clear()
    dock.start()
    assert dock.status.is_error and "tick" in dock.status.text
    assert not dock.panel.is_busy


def test_stop_and_an_image_that_is_removed_end_the_learning(model, dock, qtbot, settle):
    def learn():
        with qtbot.waitSignal(dock.controller.advanced, timeout=TIMEOUT):
            dock.start()

    dock.form.set_values(ENDLESS)
    learn()
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        qtbot.mouseClick(dock.panel.stop_button, LEFT)
    settle(dock)
    assert "stopped" in dock.status.text and not dock.status.is_error
    assert named(model, "dictionary")[0].data.max() <= dock.current.dictionary.n_atoms
    learn()
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        model.layers.remove("stripes")
    settle(dock)
    assert "stripes" not in model.layers and not dock.status.is_error


@pytest.mark.parametrize("work", ["learn", "apply"])
def test_closing_the_dock_ends_all_work(model, full, work):
    full.form.set_values(ENDLESS)
    (full.start if work == "learn" else full.applying.apply)()
    full.shut_down()
    assert not full.panel.is_busy
    model.add_image(stripes())


def test_a_click_on_an_atom_shows_where_it_is_used(full, model, apply, click, settle):
    apply(full)
    (layer,) = named(model, "labels")
    before = layer.colormap.colors.copy()
    number = int(np.argmax(np.bincount(layer.data.ravel())[1:]))
    elsewhere = np.argwhere(layer.data != number + 1)[0]
    layer.corner_pixels = np.array([elsewhere, elsewhere])  # all that is on screen
    atom_id = click(full, number)
    settle(full)
    assert full.atoms.view.selected == {atom_id}
    assert layer.visible and layer.selected_label == number + 1
    alphas = [layer.colormap.map(k + 1)[3] for k in range(len(full.current.atom_ids))]
    assert alphas[number] == 1 and sum(alpha == 1 for alpha in alphas) == 1
    row, column = np.round(model.scene.camera.center[-2:]).astype(int)
    assert layer.data[row, column] == number + 1
    click(full, number)
    np.testing.assert_array_equal(layer.colormap.colors, before)
    assert not full.atoms.view.selected
    second = model.add_image(stripes(seed=2), name="second")
    apply(full, second)
    other = model.layers["second [labels]"]
    layer.visible, model.layers.selection.active = False, second
    click(full, 0)
    assert other.visible and not layer.visible  # that of the image which is selected
    model.layers.selection.active = layer
    click(full, 1)
    assert layer.visible


def test_atoms_are_zoomed_explained_and_chosen_on_the_map(full, qtbot, click):
    view = full.atoms.view
    assert view.tooltip(0).startswith("atom 1: ")
    gap = view.center_of(1).x() - view.center_of(0).x()
    full.atoms.zoom.setValue(80)
    assert view.center_of(1).x() - view.center_of(0).x() > gap
    qtbot.mouseClick(full.atoms.show_map, LEFT)
    view.resize(300, 250)
    atom_id = click(full, 0)
    assert view.selected == {atom_id}


def test_dropped_atoms_come_back_and_the_last_cannot_be_dropped(
    full, model, apply, click, qtbot, settle
):
    apply(full)
    (layer,), before = named(model, "labels"), full.current
    dropped = {click(full, 0), click(full, 2, CONTROL)}
    qtbot.mouseClick(full.atoms.drop, LEFT)
    settle(full)
    assert full.current.dictionary.n_atoms == before.dictionary.n_atoms - 2
    assert not dropped & set(full.current.atom_ids)
    np.testing.assert_array_equal(full.current.colors[0], before.colors[1])
    click(full, 0)
    assert layer.selected_label == 2  # as the earlier layer has it
    for number in range(1, len(full.current.atom_ids)):
        click(full, number, CONTROL)
    assert not full.atoms.drop.isEnabled()
    qtbot.mouseClick(full.atoms.undo, LEFT)
    assert full.current is before and not full.atoms.undo.isEnabled()


def test_what_is_saved_is_the_same_again_and_a_bad_file_changes_nothing(
    full, model, apply, tmp_path, settle
):
    before = full.current
    for content in (b"", b"no dictionary at all"):
        (tmp_path / "bad.safetensors").write_bytes(content)
        full.load(tmp_path / "bad.safetensors")
        settle(full)
        assert full.status.is_error and "bad.safetensors" in full.status.text
        assert full.current is before
    full.save(tmp_path / "again.safetensors")
    settle(full)
    assert "saved" in full.status.text
    apply(full)
    named(model, "labels")[0].save(str(tmp_path / "labels.safetensors"), plugin="napari-saf")
    for name in ("again.safetensors", "labels.safetensors"):
        loaded = saf.PatchDictionary.load(tmp_path / name)
        np.testing.assert_array_equal(loaded.atoms, before.dictionary.atoms)


def test_a_file_that_is_dropped_opens_in_the_dock(window, learned, tmp_path, settle):
    learned.save(tmp_path / "d.safetensors")
    assert window.open(tmp_path / "d.safetensors", plugin="napari-saf") == []
    dock = window.window.add_plugin_dock_widget("napari-saf", "Patch dictionary")[1]
    settle(dock)
    assert dock.current.dictionary.n_atoms == learned.n_atoms and not window.layers


def test_applying_shows_what_python_computes_one_layer_at_a_time(
    full, model, learned, apply, qtbot
):
    apply(full, model.add_image(stripes(), name="moved", scale=(2, 3), translate=(5, 7)))
    expected = learned.apply(stripes(), window=full.scale.value)
    layers = {kind: model.layers[f"moved [{kind}]"] for kind in ("labels", "rebuilt", "error")}
    np.testing.assert_array_equal(layers["labels"].data, expected.labels)
    rebuilt = layers["rebuilt"].data
    np.testing.assert_allclose(rebuilt, expected.reconstruction, atol=1e-6)
    np.testing.assert_allclose(rebuilt + layers["error"].data, stripes(), atol=1e-5)
    assert f"{expected.psnr:.1f} dB" in full.status.text
    for layer in layers.values():
        np.testing.assert_allclose(layer.scale, (2, 3))
        np.testing.assert_allclose(layer.translate, (5, 7))
    for button in full.results.kinds.values():
        qtbot.mouseClick(button, LEFT)
        kind = button.text().lower()
        visible = {name for name, layer in layers.items() if layer.visible}
        assert visible == {kind} & set(layers)
        assert [b for b in full.results.kinds.values() if b.isChecked()] == [button]
    full.results.reconstruction.setCurrentIndex(1)
    assert "again" in full.status.text


def test_stop_and_an_image_that_is_removed_end_an_application(full, model, apply, qtbot, settle):
    image = model.add_image(np.tile(stripes(), (12, 12)), name="large")
    full.applying.image.choose(image)
    qtbot.mouseClick(full.applying.button, LEFT)
    assert full.panel.is_busy and not full.applying.button.isEnabled()
    qtbot.mouseClick(full.panel.stop_button, LEFT)
    settle(full)
    assert full.status.text == "stopped" and not named(model, "labels")
    full.applying.apply()
    model.layers.remove(image)
    settle(full)
    assert not named(model, "labels") and not full.status.is_error


def test_comparing_tells_which_dictionary_is_closer(full, model, apply, click, qtbot, settle):
    apply(full)
    click(full, 0)
    settle(full)
    full.panel.note("of all atoms")
    qtbot.mouseClick(full.atoms.drop, LEFT)
    settle(full)
    assert not full.status.text
    assert full.results.other.value.dictionary.n_atoms == full.current.dictionary.n_atoms + 1
    full.compare()
    settle(full)
    expected = [
        dictionary.apply(stripes(), window=full.scale.value)
        for dictionary in (full.current.dictionary, full.results.other.value.dictionary)
    ]
    (layer,) = named(model, "compared")
    assert not any(button.isChecked() for button in full.results.kinds.values())
    errors = [np.abs(each.difference) for each in expected]
    np.testing.assert_allclose(layer.data, errors[1] - errors[0], atol=1e-5)
    for each in expected:
        assert f"{each.psnr:.1f} dB" in full.status.text


def test_a_folder_is_worked_off(full, tmp_path, apply):
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "image.npy", stripes(seed=1))
    (tmp_path / "in" / "broken.npy").write_bytes(b"nothing")
    choose_files(full.applying, tmp_path / "in", tmp_path / "out")
    apply(full)
    assert "1 of 2 images done" in full.status.text and "broken.npy" in full.status.text
    assert len(list((tmp_path / "out").glob("*.labels*"))) == 1
