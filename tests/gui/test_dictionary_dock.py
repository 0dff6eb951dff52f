"""The Patch dictionary dock: learn, look, drop, keep, apply, and faults."""

import numpy as np
import pytest
from gui_cases import ENDLESS, TIMEOUT, blocks, choose_files, stack
from napari.layers import Image, Labels
from qtpy.QtCore import Qt

import napari_saf as saf
from napari_saf._gui.dictionary.atoms import line_corners
from napari_saf._gui.dictionary.dock import DictionaryWidget

pytestmark = [pytest.mark.gui]

SMALL = {"n_atoms": 6, "patch_size": 5, "landmarks": 12, "refinements": 1, "n_samples": 400}
LEFT = Qt.MouseButton.LeftButton


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
def applied(full, qtbot, settle):
    """The dock after the dictionary was applied to the image."""
    qtbot.mouseClick(full.applying.button, LEFT)
    settle(full)
    return full


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


# learning


def test_learning_gives_the_dictionary_of_python(model, dock, run, learned, settle):
    result = run(dock)
    settle(dock)
    np.testing.assert_allclose(dock.current.dictionary.atoms, learned.atoms, atol=1e-5)
    assert dock.current.dictionary.images == ("stripes",)
    (layer,) = named(model, "dictionary")
    np.testing.assert_array_equal(layer.data, result.labels)
    assert layer.metadata["napari_saf"]["dictionary"] is dock.current.dictionary
    assert dock.status.text.startswith("converged: ")
    shown = dock.atoms.view.shown
    assert shown is dock.current
    assert (np.diff(shown.dictionary.usage) <= 0).all()
    assert shown.dictionary.usage.sum() == (36 - 4) * (40 - 4)
    for label, color in enumerate(shown.colors, start=1):
        np.testing.assert_allclose(layer.colormap.map(label), color, atol=1e-6)


def test_atoms_are_shown_while_they_are_learned(dock, qtbot):
    seen = []
    dock.controller.advanced.connect(lambda frame: seen.append(dock.atoms.view.shown.dictionary))
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        qtbot.mouseClick(dock.learn, LEFT)
    assert seen and all(dictionary.n_atoms <= SMALL["n_atoms"] for dictionary in seen)
    for dictionary in seen:
        assert (np.diff(dictionary.usage) <= 0).all()
        assert dictionary.atoms.shape[1:] == (5, 5, 1)


def test_atoms_of_texture_are_learned_shown_and_applied(model, dock, run, qtbot, settle):
    assert "multiscale" not in dock.features.values() and "deep" not in dock.features.values()
    dock.features.choose("texture")
    run(dock)
    settle(dock)
    dictionary = dock.current.dictionary
    assert dictionary.features == "texture" and dictionary.atoms.shape[3] == 2
    assert "colour and texture" in dock.current.description
    qtbot.mouseClick(dock.applying.button, LEFT)
    settle(dock)
    assert model.layers["stripes [rebuilt]"].data.shape == (36, 40)


def test_several_images_are_learned_together(model, dock, run, settle):
    second = model.add_image(stripes(30, 50, seed=1).T, name="turned")
    dock.images.choose([model.layers["stripes"], second])
    model.layers.selection.active = second
    result = run(dock)
    settle(dock)
    assert dock.current.dictionary.images == ("stripes", "turned")
    assert result.labels.shape == (50, 30)
    assert int(dock.current.dictionary.usage.sum()) > 36 * 40 // 2
    assert [layer.name for layer in named(model, "dictionary")] == ["turned [dictionary]"]


def test_of_a_stack_the_slice_on_screen_is_learned(model, dock, run, settle):
    model.layers.clear()
    model.add_image(stack(), name="stack")
    model.dims.set_point(0, 2)
    result = run(dock)
    settle(dock)
    assert result.labels.shape == (16, 16)
    (layer,) = named(model, "dictionary")
    assert layer.data.shape == (1, 16, 16)
    np.testing.assert_allclose(layer.translate, (2, 0, 0))


def test_the_axis_of_channels_can_be_told(model, dock, run, settle):
    model.layers.clear()
    model.add_image(np.moveaxis(blocks().astype(float), -1, 0)[:2], rgb=False, name="two")
    # By the names that stand beside the sliders, as in Segment.
    model.dims.axis_labels = model.layers["two"].axis_labels = ("c", "y", "x")
    dock.images.choose([])
    dock.images.choose([model.layers["two"]])
    assert [dock.channels.itemText(k) for k in range(dock.channels.count())] == [
        "none",
        "c  (2 channels)",
        "y  (32 channels)",
        "x  (32 channels)",
    ]
    dock.channels.choose(-3)
    run(dock)
    settle(dock)
    assert dock.current.dictionary.n_channels == 2
    dock.applying.apply()
    settle(dock)
    assert named(model, "rebuilt")[0].data.shape == (2, 32, 32)
    assert named(model, "labels")[0].data.shape == (32, 32)


def test_the_axis_of_channels_is_that_axis_of_images_with_time_too(model, dock, run, settle):
    model.layers.clear()
    planes = np.moveaxis(blocks().astype(float), -1, 0)
    one = model.add_image(planes, rgb=False, name="one")
    series = model.add_image(np.stack([planes] * 3), rgb=False, name="series")
    dock.images.choose([one])
    dock.channels.choose(-3)
    run(dock)
    settle(dock)
    model.dims.set_current_step(0, 1)
    dock.applying.image.choose(series)
    dock.applying.apply()
    settle(dock)
    assert model.layers["series [rebuilt]"].data.shape == (1, 3, 32, 32)
    partition = model.layers["series [labels]"]
    assert partition.data.shape == (1, 1, 32, 32) and partition.translate[0] == 1


# faults of learning


def test_no_image_is_told(model, dock):
    model.layers.clear()
    dock.start()
    assert dock.status.is_error and "tick" in dock.status.text
    assert not dock.panel.is_busy


def test_an_even_patch_size_is_told(dock):
    dock.form.set_values({"patch_size": 6})
    dock.start()
    assert dock.status.is_error and "patch_size" in dock.status.text


def test_stop_leaves_a_dictionary(model, dock, qtbot, settle):
    dock.form.set_values(ENDLESS)
    with qtbot.waitSignal(dock.controller.advanced, timeout=TIMEOUT):
        dock.start()
    with qtbot.waitSignal(dock.controller.advanced, timeout=TIMEOUT):
        pass
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        qtbot.mouseClick(dock.panel.stop_button, LEFT)
    settle(dock)
    assert "stopped" in dock.status.text
    assert not dock.status.is_error
    if dock.current is not None:
        (layer,) = named(model, "dictionary")
        assert layer.data.max() <= dock.current.dictionary.n_atoms


@pytest.mark.parametrize("which", ["image", "result"])
def test_removing_a_layer_ends_the_learning(model, dock, qtbot, settle, which):
    other = model.add_image(stripes(seed=3), name="other")
    dock.images.choose([model.layers["stripes"], other])
    model.layers.selection.active = model.layers["stripes"]
    dock.form.set_values(ENDLESS)
    with qtbot.waitSignal(dock.controller.advanced, timeout=TIMEOUT):
        dock.start()
    gone = {
        "image": model.layers["stripes"],
        "other": other,
        "result": dock.controller.live.layer,
    }[which]
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        model.layers.remove(gone)
    settle(dock)
    assert gone not in model.layers
    assert not dock.status.is_error


@pytest.mark.parametrize("work", ["learn", "apply"])
def test_closing_the_dock_ends_all_work(model, full, work):
    full.form.set_values(ENDLESS)
    (full.start if work == "learn" else full.applying.apply)()
    full.shut_down()
    assert not full.panel.is_busy
    model.add_image(stripes())


# looking


def test_a_click_shows_where_an_atom_is_used(applied, model, click, settle):
    (layer,) = named(model, "labels")
    number = int(np.argmax(np.bincount(layer.data.ravel())[1:]))
    elsewhere = np.argwhere(layer.data != number + 1)[0]
    layer.corner_pixels = np.array([elsewhere, elsewhere])  # all that is on screen
    atom_id = click(applied, number)
    settle(applied)
    assert applied.atoms.view.selected == {atom_id}
    assert layer.visible and layer.selected_label == number + 1
    alphas = [layer.colormap.map(k + 1)[3] for k in range(len(applied.current.atom_ids))]
    assert alphas[number] == 1 and sum(alpha == 1 for alpha in alphas) == 1
    row, column = np.round(model.scene.camera.center[-2:]).astype(int)
    assert layer.data[row, column] == number + 1


def test_a_click_looks_at_the_image_that_is_selected(applied, model, click, settle):
    second = model.add_image(stripes(seed=2), name="second")
    applied.applying.image.choose(second)
    applied.applying.apply()
    settle(applied)
    first, other = named(model, "labels")
    model.layers.selection.active = second
    click(applied, 0)
    assert other.visible and not first.visible
    model.layers.selection.active = first
    click(applied, 1)
    assert first.visible


def test_a_second_click_shows_all_again(applied, model, click):
    (layer,) = named(model, "labels")
    before = layer.colormap.colors.copy()
    click(applied, 0)
    click(applied, 0)
    np.testing.assert_array_equal(layer.colormap.colors, before)
    assert not applied.atoms.view.selected


def test_the_map_shows_the_embedding_and_atoms_are_chosen_there(full, qtbot, click):
    qtbot.mouseClick(full.atoms.show_map, LEFT)
    view = full.atoms.view
    view.resize(300, 250)
    on_top = click(full, 0)
    assert view.selected == {on_top}
    centers = [view.center_of(k) for k in range(full.current.dictionary.n_atoms)]
    found = np.array([(center.x(), center.y()) for center in centers], float)
    wanted = full.current.dictionary.embedding()
    found, wanted = (places - places.mean(axis=0) for places in (found, wanted))
    scale = (found * wanted).sum() / (wanted**2).sum()
    np.testing.assert_allclose(found, scale * wanted, atol=1.5)


@pytest.mark.parametrize("width", [20, 100, 333])
def test_lines_of_atoms_fill_the_width_without_overlaps(width):
    corners, height = line_corners(10, width, side=42, step=60)
    per_line = max(1, (width - 6) // 48)
    lines, counts = np.unique(corners[:, 1], return_counts=True)
    assert counts[0] == per_line
    assert height == 6 + 60 * len(lines)
    first = corners[:per_line, 0]
    assert (np.diff(first) >= 48).all() and (width < 48 or first[-1] + 42 <= width)


def test_an_atom_is_zoomed_and_shows_its_eight_transforms(full):
    view = full.atoms.view
    words, usage = view.tooltip(0), full.current.dictionary.usage
    text = f"atom 1: {usage[0]} pixels ({100 * usage[0] / usage.sum():.1f} %)<br>"
    assert words.startswith(text) and "data:image/png;base64," in words
    gap = view.center_of(1).x() - view.center_of(0).x()
    full.atoms.zoom.setValue(80)
    assert view.center_of(1).x() - view.center_of(0).x() > gap


# editing


def test_dropped_atoms_come_back(full, click, qtbot, settle):
    before = full.current
    dropped = {click(full, 1), click(full, 2, Qt.KeyboardModifier.ControlModifier)}
    qtbot.mouseClick(full.atoms.drop, LEFT)
    settle(full)
    assert full.current.dictionary.n_atoms == before.dictionary.n_atoms - 2
    assert not dropped & set(full.current.atom_ids)
    np.testing.assert_array_equal(full.current.colors[0], before.colors[0])
    qtbot.mouseClick(full.atoms.undo, LEFT)
    assert full.current is before
    assert not full.atoms.undo.isEnabled()


def test_atoms_that_stay_are_still_found_in_earlier_layers(applied, model, click, qtbot, settle):
    (layer,) = named(model, "labels")
    click(applied, 0)
    qtbot.mouseClick(applied.atoms.drop, LEFT)
    click(applied, 0)
    settle(applied)
    assert layer.selected_label == 2


def test_the_last_atom_cannot_be_dropped(full, click):
    for number in range(len(full.current.atom_ids)):
        click(full, number, Qt.KeyboardModifier.ControlModifier)
    assert not full.atoms.drop.isEnabled()


# files


def test_saved_and_loaded_is_the_same(full, tmp_path, settle):
    full.save(tmp_path / "again.safetensors")
    settle(full)
    found = saf.PatchDictionary.load(tmp_path / "again.safetensors")
    np.testing.assert_array_equal(found.atoms, full.current.dictionary.atoms)
    assert "saved" in full.status.text


def test_a_dropped_file_opens_in_the_dock(make_napari_viewer, learned, tmp_path, settle):
    window = make_napari_viewer()
    learned.save(tmp_path / "d.safetensors")
    assert window.open(tmp_path / "d.safetensors", plugin="napari-saf") == []
    dock = window.window.add_plugin_dock_widget("napari-saf", "Patch dictionary")[1]
    settle(dock)
    assert dock.current.dictionary.n_atoms == learned.n_atoms
    assert not window.layers


def test_a_partition_is_saved_as_its_dictionary(applied, model, tmp_path):
    (layer,) = named(model, "labels")
    path = tmp_path / "p.safetensors"
    layer.save(str(path), plugin="napari-saf")
    found = saf.PatchDictionary.load(path)
    np.testing.assert_array_equal(found.atoms, applied.current.dictionary.atoms)


@pytest.mark.parametrize("content", [b"", b"no dictionary at all"])
def test_a_bad_file_is_told_and_changes_nothing(full, tmp_path, settle, content):
    (tmp_path / "bad.safetensors").write_bytes(content)
    before = full.current
    full.load(tmp_path / "bad.safetensors")
    settle(full)
    assert full.status.is_error and "bad.safetensors" in full.status.text
    assert full.current is before


# applying


def test_applying_shows_what_python_computes(applied, model, learned):
    expected = learned.apply(stripes(), window=applied.scale.value)
    (partition,), (made,), (difference,) = (
        named(model, kind) for kind in ("labels", "rebuilt", "error")
    )
    np.testing.assert_array_equal(partition.data, expected.labels)
    np.testing.assert_allclose(made.data, expected.reconstruction, atol=1e-6)
    np.testing.assert_allclose(made.data + difference.data, stripes(), atol=1e-5)
    words = f"rebuilt at {expected.psnr:.1f} dB PSNR (more is better)"
    assert words in applied.status.text
    assert isinstance(partition, Labels) and isinstance(made, Image)


def test_one_of_the_layers_is_in_sight_at_a_time(applied, model, qtbot):
    kinds = {"Rebuilt": "rebuilt", "Error": "error", "Labels": "labels"}
    for button in applied.results.kinds.values():
        qtbot.mouseClick(button, LEFT)
        visible = {kind for kind in kinds.values() if named(model, kind)[0].visible}
        assert visible == {kinds[button.text()]} if button.text() in kinds else not visible


def test_results_lie_over_their_image(full, model, settle):
    image = model.add_image(stripes(), name="moved", scale=(2, 3), translate=(5, 7))
    full.applying.image.choose(image)
    full.applying.apply()
    settle(full)
    for kind in ("labels", "rebuilt", "error"):
        (layer,) = named(model, kind)
        np.testing.assert_allclose(layer.scale, (2, 3))
        np.testing.assert_allclose(layer.translate, (5, 7))


def test_stop_ends_an_application(full, model, qtbot, settle):
    full.applying.image.choose(model.add_image(np.tile(stripes(), (12, 12)), name="large"))
    qtbot.mouseClick(full.applying.button, LEFT)
    assert full.panel.is_busy and not full.applying.button.isEnabled()
    qtbot.mouseClick(full.panel.stop_button, LEFT)
    settle(full)
    assert full.status.text == "stopped" and not named(model, "labels")


def test_removing_the_image_ends_its_application(full, model, settle):
    image = model.add_image(np.tile(stripes(), (12, 12)), name="large")
    full.applying.image.choose(image)
    full.applying.apply()
    model.layers.remove(image)
    settle(full)
    assert not named(model, "labels") and not full.status.is_error


def test_comparing_tells_which_dictionary_is_closer(full, model, click, qtbot, settle):
    click(full, 0)
    qtbot.mouseClick(full.atoms.drop, LEFT)
    settle(full)
    assert full.results.other.value.dictionary.n_atoms == full.current.dictionary.n_atoms + 1
    full.compare()
    settle(full)
    found = [
        dictionary.apply(stripes(), window=full.scale.value)
        for dictionary in (full.current.dictionary, full.results.other.value.dictionary)
    ]
    (layer,) = named(model, "compared")
    errors = [np.abs(one.difference) for one in found]
    np.testing.assert_allclose(layer.data, errors[1] - errors[0], atol=1e-5)
    for one in found:
        assert f"{one.psnr:.1f} dB" in full.status.text


def test_a_folder_is_worked_off(full, tmp_path, settle):
    source, results = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for k in range(3):
        np.save(source / f"image{k}.npy", stripes(seed=k))
    (source / "broken.npy").write_bytes(b"nothing")
    choose_files(full.applying, source, results)
    full.applying.apply()
    settle(full)
    assert "3 of 4 images done" in full.status.text and "broken.npy" in full.status.text
    assert len(list(results.glob("*.labels*"))) == 3
    full.applying.apply()
    settle(full)
    assert "3 skipped" in full.status.text
