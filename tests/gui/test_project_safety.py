"""The Project dock loses nothing: neither files that are there nor the way out of a window."""

import struct

import numpy as np
import pytest
from gui_cases import blocks
from napari.components import ViewerModel
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QFileDialog, QMessageBox

import napari_saf as saf
from napari_saf._gui.project.dock import ProjectWidget
from napari_saf._gui.session import workspace
from napari_saf.errors import SafError
from napari_saf.project import _autosave

pytestmark = [pytest.mark.gui]
SIDE = 32
STROKES = np.eye(SIDE, dtype=np.uint8)


def save(dock, path, settle):
    dock.save_to(path)
    settle(dock)
    return saf.load_project(dock.file.path)


def test_a_window_closes_although_its_work_cannot_be_kept(model, open_on, monkeypatch):
    dock = open_on(model, ProjectWidget)
    model.add_image(blocks(), name="a")
    model.add_labels(STROKES)
    answers, asked = ["cancel", "discard"], []
    monkeypatch.setattr(
        workspace, "ask_to_save", lambda parent, name: asked.append(name) or answers.pop(0)
    )

    def fail():
        raise SafError("no room")

    monkeypatch.setattr(_autosave, "new_autosave_path", fail)
    assert not dock.workspace.may_close()
    assert dock.workspace.may_close() and len(asked) == 2


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


@pytest.mark.parametrize(
    ("scale", "translate"),
    [((0.0, 1.0), (0.0, 0.0)), ((1e-320, 1.0), (0.0, 0.0)), ((1.0, 1.0), (1e308, -1e308))],
)
def test_sizes_that_cannot_be_drawn_are_left_out(
    model, open_on, tmp_path, settle, scale, translate
):
    np.save(tmp_path / "a.npy", blocks())
    pixels = saf.EncodedLabels.of(STROKES)
    layer = saf.ProjectLayer("labels", "odd", pixels, scale=scale, translate=translate)
    image = saf.ProjectImage(saf.FileReference.of(tmp_path / "a.npy"), (layer,))
    saf.save_project(tmp_path / "p.napari-saf", saf.Project((image,)))
    dock = open_on(model, ProjectWidget)
    dock.load(tmp_path / "p.napari-saf")
    settle(dock)
    assert dock.file.name == "p.napari-saf" and not dock.status.text
    assert tuple(model.layers["odd"].scale) == (1, 1)


def test_layers_that_do_not_fit_stay_in_the_project(model, open_on, tmp_path, settle):
    np.save(tmp_path / "a.npy", np.stack([blocks()[..., 0]] * 3))
    pixels = saf.EncodedLabels.of(np.stack([STROKES] * 3))
    layers = (
        saf.ProjectLayer("labels", "deep", pixels),
        saf.ProjectLayer("labels", "flat", saf.EncodedLabels.of(STROKES)),
    )
    image = saf.ProjectImage(saf.FileReference.of(tmp_path / "a.npy"), layers)
    saf.save_project(tmp_path / "p.napari-saf", saf.Project((image,)))
    np.save(tmp_path / "a.npy", blocks()[..., 0])
    dock = open_on(model, ProjectWidget)
    dock.load(tmp_path / "p.napari-saf")
    settle(dock)
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
    model, open_on, tmp_path, settle, monkeypatch
):
    def fail(*arguments, **options):
        raise struct.error("too short")

    monkeypatch.setattr(ViewerModel, "open", fail)
    (tmp_path / "bad.png").write_bytes(b"x")
    dock = open_on(model, ProjectWidget)
    dock.images.add_files([tmp_path / "bad.png"])
    settle(dock)
    assert "bad.png: cannot be read" in dock.status.text


def test_once_a_project_is_open_it_is_not_being_opened(model, open_on, tmp_path, settle):
    saf.save_project(tmp_path / "p.napari-saf", saf.Project())
    dock = open_on(model, ProjectWidget)
    dock.load(tmp_path / "p.napari-saf")
    settle(dock)
    assert "opening" not in dock.status.text


def test_an_image_that_cannot_be_read_has_no_picture_in_the_list(model, open_on, tmp_path, qtbot):
    np.save(tmp_path / "a.npy", blocks())
    (tmp_path / "b.png").write_bytes(b"x")
    dock = open_on(model, ProjectWidget)
    dock.images.add_files([tmp_path / "a.npy", tmp_path / "b.png"])
    rows, role = dock.images.table.model(), Qt.ItemDataRole.DecorationRole
    qtbot.waitUntil(lambda: all(one.picture is not None for one in dock.session.model.entries))
    assert [rows.data(rows.index(k, 0), role) is None for k in (0, 1)] == [False, True]


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_images_keep_the_size_of_their_pixels(open_on, tmp_path, settle, is_in_memory):
    """What a person said of a volume is in no file of arrays; labels lie over it as before."""
    first, second = ViewerModel(), ViewerModel()
    pixels = np.zeros((4, SIDE, SIDE), np.float32)
    np.save(tmp_path / "a.npy", pixels)
    image = first.add_image(pixels) if is_in_memory else first.open(str(tmp_path / "a.npy"))[0]
    given = {"scale": (3.0, 0.5, 0.5), "translate": (10.0, 0.0, 1.0)}
    units = ("micrometer",) * 3
    image.scale, image.translate, image.units = *given.values(), units
    first.add_labels(np.ones(pixels.shape, np.uint8), name="mine", units=units, **given)
    dock = open_on(first, ProjectWidget)
    first.add_image(blocks(), name="other")
    for entry in reversed(dock.session.model.entries):  # away and back
        dock.images.go_to(entry)
    save(dock, tmp_path / "p", settle)
    dock = open_on(second, ProjectWidget)
    dock.load(tmp_path / "p.napari-saf")
    settle(dock)
    for model in (first, second):
        for layer in model.layers:
            np.testing.assert_allclose(layer.scale, given["scale"])
            np.testing.assert_allclose(layer.translate, given["translate"])
            assert tuple(map(str, layer.units)) == units
        assert len(model.layers) == 2
