"""Probability maps in the app: as layers and as files, of the labels that are ticked."""

import numpy as np
import pytest
from gui_cases import blocks, layer_of, lock
from qtpy.QtCore import Qt
from test_apply import CORNERS, teach_corners

from napari_saf._gui.export.dock import ExportWidget
from napari_saf._gui.layers import metadata
from napari_saf._gui.layers.metadata import soft_labels_of
from napari_saf._gui.prototypes.dock import PrototypesWidget
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf.io import read_image

pytestmark = pytest.mark.gui


@pytest.fixture
def segment(model, open_on):
    model.add_image(np.stack([blocks()] * 2), name="blocks", rgb=True, scale=(3, 2, 2))
    model.dims.set_current_step(0, 1)
    return open_on(model, SegmentWidget)


def run(dock, settle):
    dock.start()
    settle(dock)
    (layer,) = [one for one in dock.workspace.viewer.layers if soft_labels_of(one) is not None]
    return layer


def tick(section, *labels):
    for row in range(section.labels.count()):
        item = section.labels.item(row)
        wanted = item.data(Qt.ItemDataRole.UserRole) in labels
        item.setCheckState(Qt.CheckState.Checked if wanted else Qt.CheckState.Unchecked)


def maps_shown(export, settle):
    """Press the button; return the layers by name."""
    before = list(export.workspace.viewer.layers)
    export.maps.button.click()
    settle(export)
    return [layer for layer in export.workspace.viewer.layers if layer not in before]


def test_ticked_labels_are_shown_as_they_were_labelled_until_a_later_result(
    segment, model, open_on, settle
):
    labels = run(segment, settle)
    labels.metadata["class_names"] = {1: "sky"}
    export = open_on(model, ExportWidget)
    export.labels.choose(labels)
    assert export.maps.labels.ticked == list(range(1, labels.data.max() + 1))
    tick(export.maps, 1, 2)
    shown = maps_shown(export, settle)
    names = [f"{labels.name} P({name})" for name in ("sky", "label 2")]
    assert [layer.name for layer in shown] == names
    for number, layer in enumerate(shown, start=1):
        np.testing.assert_array_equal(layer.data > 0.5, labels.data == number)
        np.testing.assert_array_equal(layer.extent.world, labels.extent.world)
        np.testing.assert_allclose(layer.colormap.colors[-1], labels.get_color(number), atol=1e-3)
    assert maps_shown(export, settle) == []  # the same layers, filled again
    assert all(layer.visible for layer in shown)
    segment.form.choose("slk")
    segment.start()
    settle(segment)
    assert layer_of(model, "blocks [SLK").visible
    assert not any(layer.visible for layer in shown)


def test_files_hold_what_is_ticked(segment, model, open_on, settle, tmp_path):
    labels, export = run(segment, settle), open_on(model, ExportWidget)
    export.labels.choose(labels)
    export.folder.set_path(tmp_path)
    export.file_name.setText("kept")
    for kind in ("masks", "regions"):
        export.choice.choose(kind, "")
    tick(export.maps, 2, 3)
    for suffix, kind, most in ((".ome.zarr", np.float32, 1), (".tif", np.uint8, 255)):
        export.choice.choose("probabilities", suffix)
        export.maps.in_bytes.setChecked(kind is np.uint8)
        export.start()
        settle(export)
        maps = read_image(tmp_path / f"kept.probabilities{suffix}").array
        assert maps.dtype == kind and len(maps) == 2
        for own, number in zip(maps, (2, 3), strict=True):
            np.testing.assert_array_equal(own > most * 0.5, labels.data[0] == number)
    assert len([*tmp_path.iterdir()]) == 2
    tick(export.maps)
    export.start()
    settle(export)
    assert export.status.is_error and "none is chosen" in export.status.text


def test_strokes_and_locked_classes_have_maps_by_the_number_of_their_class(model, open_on, settle):
    """Pixels of a locked class took no part in the run, and are of it alone."""
    model.add_image(blocks(), name="blocks")
    dock = open_on(model, ScribblesWidget)
    teach_corners(dock, settle)
    soft = soft_labels_of(dock.result)
    assert soft.labels == sorted(CORNERS)
    assert soft.uncertainty.shape == (soft.grid.n_nodes,)  # by which objects are split
    for number in CORNERS:
        (own,) = soft.images([number])
        np.testing.assert_array_equal(own > 0.5, dock.result.data == number)
    first = next(iter(CORNERS))
    lock(dock.classes, first)
    dock.start()
    settle(dock)
    soft, labels = soft_labels_of(dock.result), dock.result.data
    assert soft.labels == sorted(CORNERS)
    maps = soft.images(soft.labels)
    np.testing.assert_array_equal(maps[soft.labels.index(first)], labels == first)
    np.testing.assert_allclose(maps.sum(axis=0), 1, atol=1e-5)


def test_labels_that_were_edited_or_opened_have_none(segment, model, open_on, settle):
    labels = run(segment, settle)
    prototypes = open_on(model, PrototypesWidget)
    prototypes.choose(labels)
    settle(prototypes)
    prototypes.table.select((1, 2))
    prototypes.edit("merge")
    settle(prototypes)
    assert soft_labels_of(labels) is None
    export = open_on(model, ExportWidget)
    for layer in (labels, model.add_labels(np.ones((4, 4), int))):
        export.labels.choose(layer)
        assert not export.maps.button.isEnabled()
        assert "labels computed" in export.maps.button.toolTip()
        assert not export.choice.ticks["probabilities"].isEnabled()


def test_older_results_let_go_of_theirs_where_memory_is_short(segment, settle, monkeypatch):
    first = run(segment, settle)
    segment.form.choose("slk")
    segment.start()
    settle(segment)
    second = layer_of(segment.workspace.viewer, "blocks [SLK")
    assert soft_labels_of(first).uncertainty is None  # not by strokes
    monkeypatch.setattr(metadata, "_MOST_BYTES", soft_labels_of(second).assignment.nbytes)
    segment.start()
    settle(segment)
    kept = [one for one in segment.workspace.viewer.layers if soft_labels_of(one) is not None]
    assert len(kept) == 1 and kept[0].name.startswith("blocks [SLK")
