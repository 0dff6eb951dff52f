"""What the Segment dock shows of a result comes back with the project that it was saved in."""

from __future__ import annotations

import numpy as np
import pytest
from gui_cases import blocks, tooltips
from napari.components import ViewerModel

from napari_saf._gui.layers.metadata import is_regions
from napari_saf._gui.project.dock import ProjectWidget
from napari_saf._gui.segment.dock import SegmentWidget

pytestmark = [pytest.mark.gui]
SIDE = 32


@pytest.fixture
def dock(model, open_on, run, settle):
    """The Segment dock with labels of four squares, one of which has a spot of another."""
    image = blocks(SIDE)
    image[4:8, 4:8] = image[-8:-4, -8:-4]
    model.add_image(image, name="a")
    dock = open_on(model, SegmentWidget)
    run(dock)
    settle(dock)
    return dock


@pytest.fixture
def reopen(model, open_on, tmp_path, settle):
    """Save the project, and open it in another viewer; return that and its Segment dock."""

    def saved_and_opened(kind=SegmentWidget):
        project = open_on(model, ProjectWidget)
        project.save_to(tmp_path / "p.napari-saf")
        settle(project)
        second = ViewerModel()
        other, opened = open_on(second, ProjectWidget), open_on(second, kind)
        other.load(tmp_path / "p.napari-saf")
        settle(other)
        settle(opened)
        return second, other, opened

    return saved_and_opened


def regions_of(viewer):
    return [layer for layer in viewer.layers if is_regions(layer)]


def test_what_is_shown_of_a_result_comes_back_and_can_be_applied_and_replaced(
    dock, reopen, run, settle
):
    viewer, _, opened = reopen()
    assert tooltips(opened.swatches) == tooltips(dock.swatches) != []
    assert not opened.regions.isHidden() and opened.regions.labels_button.isChecked()
    assert not opened.applying.row.isHidden() and opened.applying.to_image.isEnabled()
    opened.regions.regions_button.click()
    settle(opened)
    (regions,) = regions_of(viewer)
    assert regions.name == "a [SAF, regions]"
    assert regions.data.shape == viewer.layers["a [SAF]"].data.shape
    opened.regions.labels_button.click()
    other = viewer.add_image(blocks(SIDE)[::-1].copy(), name="other")
    opened.applying.image.choose(other)
    opened.applying.apply()
    settle(opened)
    assert any(layer.name.startswith("other [SAF") for layer in viewer.layers)
    opened.form.set_values({"max_labels": 2})
    opened.input.choose(image=viewer.layers["a"])
    run(opened)
    settle(opened)
    assert len(tooltips(opened.swatches)) == 2
    assert not viewer.layers["a [SAF]"].visible and viewer.layers["a [SAF, Labels 2]"].visible


def test_the_level_of_regions_comes_back_and_can_be_changed(dock, reopen, settle):
    dock.regions.regions_button.click()
    settle(dock)
    dock.regions.slider.setValue(5)
    dock.regions.labels_button.click()
    viewer, _, opened = reopen()
    (before,), (kept,) = regions_of(dock.workspace.viewer), regions_of(viewer)
    np.testing.assert_array_equal(kept.data, before.data)
    assert opened.regions.slider.value() == 5
    assert opened.regions.regions_button.text() == dock.regions.regions_button.text()
    assert not opened.regions.regions_button.isChecked() and not kept.visible
    for section in (dock.regions, opened.regions):
        section.slider.setValue(40)
    settle(opened)
    assert regions_of(viewer) == [kept] and kept.visible
    np.testing.assert_array_equal(kept.data, before.data)
    assert kept.data.max() > 1


def test_results_go_and_come_back_with_their_image(dock, reopen, open_on, settle):
    viewer, project, opened = reopen()
    viewer.add_image(blocks(24), name="b")
    shown = tooltips(opened.swatches)
    project.images.go_to(project.session.model.entries[1])
    settle(opened)
    assert tooltips(opened.swatches) == [] and opened.applying.row.isHidden()
    project.images.go_to(project.session.model.entries[0])
    later = open_on(viewer, SegmentWidget)
    for one in (opened, later):
        settle(one)
        assert tooltips(one.swatches) == shown != []
