"""The Project dock loses nothing: neither files that are there nor the way out of a window."""

import struct

import numpy as np
import pytest
from gui_cases import TIMEOUT, blocks
from napari.components import ViewerModel
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QFileDialog, QMessageBox

import napari_saf as saf
from napari_saf._gui.project.dock import ProjectWidget

pytestmark = [pytest.mark.gui]
SIDE = 32
STROKES = np.eye(SIDE, dtype=np.uint8)


@pytest.fixture
def load(model, open_on, tmp_path, settle):
    """Save layers of labels, by name and shape, on an image; open that project."""

    def saved_and_opened(image, *layers, now=None):
        np.save(tmp_path / "a.npy", image)
        image = saf.ProjectImage(saf.FileReference.of(tmp_path / "a.npy"), layers)
        saf.save_project(tmp_path / "p.napari-saf", saf.Project((image,)))
        if now is not None:
            np.save(tmp_path / "a.npy", now)
        dock = open_on(model, ProjectWidget)
        dock.load(tmp_path / "p.napari-saf")
        settle(dock)
        return dock

    return saved_and_opened


def save(dock, path, settle):
    dock.save_to(path)
    settle(dock)
    return saf.load_project(dock.file.path)


def test_a_name_without_its_ending_is_not_written_over(
    model, open_on, tmp_path, settle, monkeypatch
):
    path = tmp_path / "p.napari-saf"
    saf.save_project(path, saf.Project())
    before = path.read_bytes()
    dock = open_on(model, ProjectWidget)
    model.add_image(blocks(), name="a")
    chosen = str(tmp_path / "p")
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *given: (chosen, ""))
    monkeypatch.setattr(QMessageBox, "question", lambda *given: QMessageBox.StandardButton.No)
    dock.save_as()
    settle(dock)
    assert path.read_bytes() == before


def test_sizes_that_cannot_be_drawn_are_left_out(model, load):
    pixels = saf.EncodedLabels.of(STROKES)
    sizes = [((0.0, 1.0), (0.0, 0.0)), ((1e-320, 1.0), (0.0, 0.0)), ((1.0, 1.0), (1e308, -1e308))]
    layers = [
        saf.ProjectLayer("labels", f"odd {k}", pixels, scale=scale, translate=translate)
        for k, (scale, translate) in enumerate(sizes)
    ]
    dock = load(blocks(), *layers)
    assert dock.file.name == "p.napari-saf" and not dock.status.text
    for layer in layers:
        assert tuple(model.layers[layer.name].scale) == (1, 1), layer


def test_layers_that_do_not_fit_stay_in_the_project(model, load, tmp_path, settle):
    deep = saf.ProjectLayer("labels", "deep", saf.EncodedLabels.of(np.stack([STROKES] * 3)))
    flat = saf.ProjectLayer("labels", "flat", saf.EncodedLabels.of(STROKES))
    image = blocks()[..., 0]
    dock = load(np.stack([image] * 3), deep, flat, now=image)
    (entry,) = dock.session.model.entries
    dock.session.model.accept(entry)
    dock.images.go_to(entry)
    for _ in range(2):  # also once the image was put away
        assert [layer.name for layer in model.layers] == ["a", "flat"]
        project = save(dock, tmp_path / "q", settle)
        assert [layer.name for layer in project.images[0].layers] == ["deep", "flat"]
        dock.session.put_away(entry)
        dock.images.go_to(entry)


def test_a_damaged_image_is_told_whatever_its_reader_raises(
    model, open_on, tmp_path, settle, monkeypatch, qtbot
):
    """And it has no picture in the list."""

    def fail(*arguments, **options):
        raise struct.error("too short")

    np.save(tmp_path / "a.npy", blocks())
    (tmp_path / "bad.png").write_bytes(b"x")
    dock = open_on(model, ProjectWidget)
    dock.images.add_files([tmp_path / "a.npy", tmp_path / "bad.png"])
    rows, role = dock.images.table.model(), Qt.ItemDataRole.DecorationRole
    entries = dock.session.model.entries
    qtbot.waitUntil(lambda: all(one.picture is not None for one in entries), timeout=TIMEOUT)
    assert [rows.data(rows.index(k, 0), role) is None for k in (0, 1)] == [False, True]
    monkeypatch.setattr(ViewerModel, "open", fail)
    dock.images.go_to_next()
    settle(dock)
    assert "bad.png: cannot be read" in dock.status.text


def test_images_keep_the_size_of_their_pixels(open_on, tmp_path, settle):
    """What a person said of a volume is in no file of arrays; labels lie over it as before."""
    first, second = ViewerModel(), ViewerModel()
    pixels = np.zeros((4, SIDE, SIDE), np.float32)
    np.save(tmp_path / "a.npy", pixels)
    images = [first.add_image(pixels), first.open(str(tmp_path / "a.npy"))[0]]
    given = {"scale": (3.0, 0.5, 0.5), "translate": (10.0, 0.0, 1.0)}
    units = ("micrometer",) * 3
    for image in images:
        image.scale, image.translate, image.units = *given.values(), units
    first.add_labels(np.ones(pixels.shape, np.uint8), name="mine", units=units, **given)
    dock = open_on(first, ProjectWidget)
    for entry in reversed(dock.session.model.entries):  # away and back
        dock.images.go_to(entry)
    save(dock, tmp_path / "p", settle)
    dock = open_on(second, ProjectWidget)
    dock.load(tmp_path / "p.napari-saf")
    settle(dock)
    for entry in dock.session.model.entries:
        dock.images.go_to(entry)
        for layer in second.layers:
            np.testing.assert_allclose(layer.scale, given["scale"])
            np.testing.assert_allclose(layer.translate, given["translate"])
            assert tuple(map(str, layer.units)) == units
