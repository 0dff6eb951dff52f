"""Labels or regions of a result in view, and the slider of the regions."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from gui_cases import TIMEOUT, blocks, layer_of, stack
from napari.layers import Labels

import napari_saf as saf
from napari_saf._gui.export.dock import ExportWidget
from napari_saf._gui.layers import reading
from napari_saf._gui.layers.metadata import is_regions, recipe_of
from napari_saf._gui.objects.dock import ObjectsWidget
from napari_saf._gui.prototypes.dock import PrototypesWidget
from napari_saf._gui.segment import regions as region_section
from napari_saf.io import read_image, read_labels
from napari_saf.methods import Cancelled, TradeOffPoint
from napari_saf.pipeline import Pipeline

pytestmark = [pytest.mark.gui, pytest.mark.automatic]


@pytest.fixture
def viewer(model_or_window):
    return model_or_window


@pytest.fixture
def label(run, settle):
    """Run a dock and wait for its regions; return the result."""

    def run_and_merge(dock):
        result = run(dock)
        settle(dock)
        return result

    return run_and_merge


@pytest.fixture
def grey(viewer, dock):
    """The Segment dock, with a grey image chosen."""
    image = viewer.add_image(blocks().mean(axis=-1), name="grey")
    dock.input.choose(image=image)
    return dock


@pytest.fixture
def merging(monkeypatch):
    """Merging that waits until it `may_end` or is cancelled, and how often it `began` and ended."""

    class Merging:
        began, cancelled, may_end = 0, 0, threading.Event()

        def merge(self, *arguments, progress, cancelled, **options):
            self.began += 1
            progress(0.4)
            while not self.may_end.wait(0.001):
                if cancelled():
                    self.cancelled += 1
                    raise Cancelled
            own = {"progress": progress, "cancelled": cancelled}
            return saf.merge_regions(*arguments, **own, **options)

    found = Merging()
    monkeypatch.setattr(reading, "merge_regions", found.merge)
    return found


def layers_of(viewer):
    """Return the layers of labels and those of regions."""
    found = [layer for layer in viewer.layers if isinstance(layer, Labels)]
    return [one for one in found if not is_regions(one)], [one for one in found if is_regions(one)]


def in_sight(viewer):
    found = [layer for layer in viewer.layers if isinstance(layer, Labels) and layer.visible]
    return [layer.name.partition("[")[2].partition("]")[0] for layer in found]


def test_of_a_photograph_the_regions_come_into_view_unless_a_person_chose_labels(
    viewer, dock, label
):
    assert dock.regions.isHidden()
    result = label(dock)
    _, (regions,) = layers_of(viewer)
    expected = saf.merge_regions(result.labels, blocks()).at_level()
    np.testing.assert_array_equal(regions.data, expected)
    assert regions.name == "blocks [SAF, regions]" and in_sight(viewer) == ["SAF, regions"]
    assert dock.regions.regions_button.isChecked()
    assert dock.regions.regions_button.text() == f"{expected.max()} regions"
    assert viewer.layers.selection.active == regions
    assert dock.swatches.isHidden() and not dock.regions.isHidden()
    dock.regions.labels_button.click()
    label(dock)
    assert in_sight(viewer) == ["SAF"]
    dock.input.choose(image=viewer.add_image(blocks().mean(axis=-1), name="grey"))
    dock.regions.regions_button.click()
    label(dock)
    assert [layer.name for layer in viewer.layers if layer.visible][-1] == "grey [SAF, regions]"


def test_of_a_grey_image_the_labels_stay_in_view_until_a_person_chooses(viewer, grey, label):
    label(grey)
    (_,), none = layers_of(viewer)
    assert none == [] and in_sight(viewer) == ["SAF"]
    assert grey.regions.labels_button.isChecked() and not grey.swatches.isHidden()
    assert grey.regions.regions_button.text().split()[0].isdigit()
    views = {"SAF, regions": grey.regions.regions_button, "SAF": grey.regions.labels_button}
    for name, button in [*views.items()] * 2:
        button.click()
        assert in_sight(viewer) == [name] and button.isChecked()
        assert f"[{name}]" in viewer.layers.selection.active.name
        assert grey.swatches.isHidden() == (name == "SAF, regions")
    assert [len(found) for found in layers_of(viewer)] == [1, 1]


def test_regions_follow_the_slider_and_come_and_go_with_their_layers(viewer, dock, label):
    result = label(dock)
    (labels,), (layer,) = layers_of(viewer)
    tree, colors = saf.merge_regions(result.labels, blocks()), {}
    for value in (100, 0, 50):
        dock.regions.slider.setValue(value)
        expected = tree.at_level(value / 100)
        np.testing.assert_array_equal(layer.data, expected)
        assert int(dock.regions.regions_button.text().split()[0]) == expected.max()
        recipe = Pipeline.from_plain(layer.metadata["napari_saf"]["recipe"])
        assert recipe.level == value / 100
        np.testing.assert_array_equal(recipe.run(blocks()).labels, expected)
        colors[value] = layer.colormap.map(layer.data)
    sizes = np.bincount(tree.finest.ravel())
    at = tuple(np.argwhere(tree.finest == sizes.argmax())[0])
    assert all((colors[100][at] == own[at]).all() for own in colors.values())
    assert len(np.unique(colors[0].reshape(-1, 4), axis=0)) == tree.finest.max() > 1

    layer.visible, labels.visible = False, True
    assert dock.regions.labels_button.isChecked() and not dock.swatches.isHidden()
    labels.visible, layer.visible = False, True
    assert dock.regions.regions_button.isChecked()
    dock.regions.labels_button.click()
    dock.regions.slider.setValue(20)
    assert in_sight(viewer) == ["SAF, regions"] and dock.swatches.isHidden()
    viewer.layers.remove(layer)
    assert in_sight(viewer) == ["SAF"] and dock.regions.labels_button.isChecked()
    dock.regions.regions_button.click()
    (_,), (again,) = layers_of(viewer)
    assert again is not layer and in_sight(viewer) == ["SAF, regions"]
    viewer.layers.remove(labels)
    assert dock.regions.isHidden() and again in viewer.layers and again.visible
    dock.regions.slider.setValue(3)
    label(dock)
    assert in_sight(viewer)[-1] == "SAF, regions" and not dock.regions.isHidden()


def test_regions_do_not_come_over_labels_that_a_person_went_back_to_or_painted_on(
    viewer, dock, run, settle, merging
):
    run(dock)
    dock.regions.regions_button.click()
    dock.regions.labels_button.click()
    merging.may_end.set()
    settle(dock)
    assert in_sight(viewer) == ["SAF"] and dock.regions.labels_button.isChecked()
    assert dock.regions.regions_button.text().split()[0].isdigit()
    merging.may_end.clear()
    run(dock)
    *_, labels = layers_of(viewer)[0]
    labels.data_setitem((np.arange(4, 28), np.full(24, 5)), 9)
    merging.may_end.set()
    settle(dock)
    assert in_sight(viewer) == ["SAF"] and dock.regions.regions_button.text() == "regions"
    dock.regions.regions_button.click()
    settle(dock)
    *_, layer = layers_of(viewer)[1]
    np.testing.assert_array_equal(layer.data, saf.merge_regions(labels.data, blocks()).at_level())


def test_the_button_says_how_far_merging_is_stops_it_and_begins_it_again(
    viewer, dock, run, settle, merging, qtbot
):
    """The slider may be moved before there are regions: they are those of where it stands."""
    result = run(dock)
    section, button = dock.regions, dock.regions.regions_button
    qtbot.waitUntil(lambda: button.text() == "merging 40 %", timeout=TIMEOUT)
    button.click()
    assert button.text() == "Stop (40 %)" and button.isChecked() and merging.cancelled == 0
    button.click()
    qtbot.waitUntil(lambda: merging.cancelled == 1, timeout=TIMEOUT)
    assert not section.is_merging and button.text() == "regions"
    assert section.labels_button.isChecked() and in_sight(viewer) == ["SAF"]
    for value in range(0, 100, 10):
        section.slider.setValue(value)
    assert in_sight(viewer) == ["SAF"]
    merging.may_end.set()
    settle(dock)
    assert merging.began == 2 and in_sight(viewer) == ["SAF, regions"]
    (_,), (layer,) = layers_of(viewer)
    tree = saf.merge_regions(result.labels, blocks())
    np.testing.assert_array_equal(layer.data, tree.at_level(0.9))


def things(n_slices=1):
    """Return slices with 36 things on a ground each."""
    image = np.full((n_slices, 120, 120, 3), 40, np.uint8)
    for row in range(8, 120, 20):
        for column in range(8, 120, 20):
            image[:, row : row + 7, column : column + 7] = 200, 80, 90
    return image


def test_of_separate_things_the_labels_stay_in_view(viewer, dock, label, settle, monkeypatch):
    """What is said of them does not wait for regions."""
    dock.input.choose(image=viewer.add_image(things()[0], name="things", rgb=True))
    monkeypatch.setattr(region_section, "MOST_PIXELS", 1000)
    label(dock)
    assert dock.next_row.buttons["Objects"].text() == "36 things: Objects …"
    assert not dock.next_row.isHidden() and in_sight(viewer) == ["SAF"]
    assert dock.regions.regions_button.text() == "regions"
    dock.regions.regions_button.click()
    settle(dock)
    assert in_sight(viewer) == ["SAF, regions"]
    assert dock.regions.regions_button.text() == "37 regions"
    dock.input.choose(image=viewer.layers["blocks"])
    assert dock.next_row.buttons["Objects"].text() == "Objects …"


def test_slices_by_themselves_have_things_and_regions_of_their_own(viewer, dock, label, settle):
    image = things(3)
    dock.input.choose(image=viewer.add_image(image, name="stack", rgb=True), extent="slice")
    label(dock)
    assert dock.next_row.buttons["Objects"].text() == "36 things: Objects …"
    dock.input.choose(extent="each")
    result = label(dock)
    assert dock.next_row.buttons["Objects"].text() == "108 things: Objects …"
    dock.regions.slider.setValue(100)
    settle(dock)
    regions = next(one for one in layers_of(viewer)[1] if one.ndim == 3 and one.visible)
    expected = saf.merge_regions(result.labels, image, axes=(1, 2)).at_level(1.0)
    np.testing.assert_array_equal(regions.data, expected)


def test_objects_of_several_tones_become_one_label_by_a_click(viewer, dock, label, settle, open_on):
    """Dark nuclei in pink cells on a white ground."""
    draw, (y, x) = np.random.default_rng(0), np.mgrid[:160, :160]
    centres = draw.uniform(0, 160, (14, 2))
    away = np.min([np.hypot(y - row, x - column) for row, column in centres], axis=0)[..., None]
    image = np.select([away < 5, away < 9], [(110, 40, 130), (220, 140, 180)], (245, 240, 240))
    image = np.clip(image + draw.normal(0, 6, image.shape), 0, 255).astype(np.uint8)
    dock.input.choose(image=viewer.add_image(image, name="cells"), features="foreground")
    label(dock)
    assert dock.result.data.max() > 2 and dock.status.action_button.text() == "Only 2 labels"
    objects = open_on(viewer, ObjectsWidget)
    settle(objects)
    for is_first in (True, False):
        objects.labels.choose(dock.result)
        settle(objects)
        objects.start()
        settle(objects)
        assert ("Labels up to 2" in objects.status.text) is is_first
        if is_first:
            dock.status.action_button.click()
            settle(dock)
    assert set(np.unique(dock.result.data)) == {1, 2} and dock.form.values()["max_labels"] == 2
    assert dock.status.action_button.isHidden()


def test_one_click_goes_on_with_the_labels(window, viewer, dock, run):
    assert dock.next_row.isHidden()
    viewer.add_labels(np.ones((32, 32), int), name="others")
    run(dock)
    for title in ("Objects", "Sharpen borders"):
        dock.next_row.buttons[title].click()
        opened = dock.workspace.docks[title]
        assert opened.labels.layer == layer_of(viewer, "blocks [SAF"), title


def test_regions_that_nobody_needs_any_more_are_no_longer_merged(
    viewer, dock, run, long_run, qtbot, merging
):
    values = dock.form.values()
    for act in (
        lambda: viewer.layers.remove(layers_of(viewer)[0][0]),
        lambda: long_run(dock),
        dock.shut_down,
    ):
        dock.controller.stop()
        qtbot.waitUntil(lambda: not dock.controller.is_running, timeout=TIMEOUT)
        dock.form.set_values(values)
        run(dock)
        assert dock.regions.is_merging and merging.cancelled < merging.began
        act()
        qtbot.waitUntil(lambda: merging.cancelled == merging.began, timeout=TIMEOUT)
        assert layers_of(viewer)[1] == []


def test_regions_that_cannot_be_merged_can_be_asked_for_again(
    viewer, dock, label, settle, monkeypatch
):
    def fail(*arguments, **options):
        raise saf.ComputeError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(reading, "merge_regions", fail)
        label(dock)
    assert dock.status.text == "no memory"
    assert dock.regions.regions_button.text() == "regions"
    assert dock.regions.labels_button.isChecked() and in_sight(viewer) == ["SAF"]
    dock.regions.regions_button.click()
    settle(dock)
    assert in_sight(viewer) == ["SAF, regions"]


def test_regions_of_a_volume_come_when_they_are_asked_for_and_not_outside_a_mask(
    viewer, dock, label, settle
):
    dock.input.choose(image=viewer.add_image(stack(), name="stack"))
    dock.input.choose(extent="each")
    mask = np.zeros(stack().shape, int)
    mask[:, 2:15, 3:14] = 1
    dock.input.choose(mask=viewer.add_labels(mask, name="mask"))
    result = label(dock)
    assert layers_of(viewer)[1] == [] and dock.regions.regions_button.text() == "regions"
    dock.regions.regions_button.click()
    settle(dock)
    (layer,) = layers_of(viewer)[1]
    expected = saf.merge_regions(result.labels, stack(), axes=(1, 2)).at_level()
    np.testing.assert_array_equal(layer.data, expected)
    np.testing.assert_array_equal(layer.data > 0, mask > 0)
    labels = layer_of(viewer, "stack [SAF, each slice by itself]")
    assert layer.visible and not labels.visible


def test_regions_of_a_slice_lie_where_its_labels_lie(viewer, dock, label):
    image = viewer.add_image(stack(), name="stack", scale=(3, 2, 2))
    dock.input.choose(image=image)
    dock.input.choose(extent="slice")
    viewer.dims.set_current_step(0, 1)
    label(dock)
    viewer.dims.set_current_step(0, 2)
    dock.regions.regions_button.click()
    (labels,), (regions,) = layers_of(viewer)
    np.testing.assert_array_equal(regions.extent.world, labels.extent.world)
    label(dock)
    # Those of the other slice stay in view.
    assert sorted(in_sight(viewer)) == ["SAF, regions", "SAF, regions"]


def test_labels_whose_meaning_was_given_stay_in_view(viewer, dock, label):
    painted = np.zeros((32, 32), int)
    painted[2:30, 2:6], painted[2:30, 26:30] = 1, 2
    strokes = viewer.add_labels(painted, name="strokes")
    dock.input.choose(strokes=strokes)
    label(dock)
    assert in_sight(viewer) == ["SAF", ""]  # the strokes on top
    dock.regions.regions_button.click()
    assert in_sight(viewer) == ["SAF, regions", ""]
    label(dock)
    assert in_sight(viewer) == ["SAF", ""]


def test_regions_of_another_solution_of_a_sweep_take_the_place_of_the_first(
    viewer, dock, label, settle
):
    dock.form.choose("fair")
    dock.input.choose(groups="channel:0")
    problems = []
    dock.controller.returned.connect(lambda _: problems.append(dock.controller.run.problem))
    label(dock)
    assert in_sight(viewer) == ["FAIR"]
    dock.regions.slider.setValue(0)
    other = saf.FairClustering(n_clusters=2).run(problems[0])
    dock.shown.show_solution(TradeOffPoint(1.0, 0.0, 0.0, 0.0, other))
    settle(dock)
    assert in_sight(viewer) == ["FAIR"]
    dock.regions.slider.setValue(0)
    (_,), (layer,) = layers_of(viewer)
    np.testing.assert_array_equal(layer.data, saf.merge_regions(other.labels, blocks()).at_level(0))


def test_labels_that_are_selected_or_edited_come_back_into_view(
    viewer, dock, label, open_on, settle
):
    """Those of an earlier result do not."""
    label(dock)
    assert in_sight(viewer) == ["SAF, regions"]
    prototypes = open_on(viewer, PrototypesWidget)
    settle(prototypes)
    prototypes.table.select([1])
    assert in_sight(viewer) == ["SAF"] and dock.regions.labels_button.isChecked()
    dock.regions.regions_button.click()
    prototypes.table.select([1, 2])
    prototypes.edit("merge")
    assert in_sight(viewer) == ["SAF"]
    settle(prototypes)
    dock.regions.slider.setValue(0)
    settle(dock)
    (labels,), (regions,) = layers_of(viewer)
    expected = saf.merge_regions(labels.data, blocks()).at_level(0)
    np.testing.assert_array_equal(regions.data, expected)
    prototypes.table.select([3])
    assert in_sight(viewer) == ["SAF"]
    label(dock)
    settle(prototypes)
    prototypes.rename(1, "one")
    settle(prototypes)
    assert in_sight(viewer) == ["SAF, regions"] and not labels.visible


def test_other_docks_take_the_labels_unless_regions_are_chosen(viewer, dock, label, open_on):
    before = open_on(viewer, ExportWidget)
    label(dock)
    (labels,), (regions,) = layers_of(viewer)
    assert before.labels.layer == labels
    for active, expected in ((None, labels), (regions, regions)):
        viewer.layers.selection.active = active
        for kind in (ExportWidget, PrototypesWidget):
            assert open_on(viewer, kind).labels.layer == expected, kind
    before.labels.choose(regions)
    dock.regions.slider.setValue(0)
    assert before.labels.layer == regions


def test_exported_regions_are_those_on_screen_and_are_repeated(
    viewer, dock, label, open_on, settle, run, tmp_path, qtbot
):
    label(dock)
    dock.regions.slider.setValue(10)
    _, (regions,) = layers_of(viewer)
    export = open_on(viewer, ExportWidget)
    assert export.labels.layer == regions
    export.folder.set_path(tmp_path)
    export.file_name.setText("out")
    wanted = {"masks": ".tif", "regions": ".csv", "figure": ".png", "recipe": True}
    for name, suffix in wanted.items():
        export.choice.choose(name, suffix)
    assert "regions at level 0.1" in export.repeat.summary.text()
    export.start()
    settle(export)
    shown = regions.data.copy()
    np.testing.assert_array_equal(read_labels(tmp_path / "out.labels.tif").array, shown)
    rows = (tmp_path / "out.regions.csv").read_text().splitlines()[1:]
    assert [row.split(",")[1] for row in rows] == [f"region {k}" for k in range(1, shown.max() + 1)]
    again = saf.load_recipe(tmp_path / "out.recipe.json").run(blocks())
    np.testing.assert_array_equal(again.labels, shown)
    assert read_image(tmp_path / "out.figure.png").array.size

    run(export, export.applying.apply)
    settle(export)
    _, (_, repeated) = layers_of(viewer)
    np.testing.assert_array_equal(repeated.data, shown)
    assert in_sight(viewer) == ["SAF, regions"] and repeated.visible
    qtbot.waitUntil(lambda: export.labels.layer == repeated)
    assert "level 0.1" in export.repeat.summary.text()
    viewer.layers.remove(regions)  # which the repeated ones have hidden
    assert in_sight(viewer) == ["SAF, regions"] and dock.regions.labels_button.isChecked()


def test_what_is_in_view_is_applied_to_another_image(viewer, dock, label, settle):
    """The dock goes on showing the result that it has."""
    label(dock)
    shown, other = dock.regions.shown, viewer.add_image(blocks()[::-1] // 2, name="other")
    dock.applying.image.choose(other)
    dock.applying.button.click()
    settle(dock)
    (regions,) = [one for one in viewer.layers if is_regions(one) and one.name.startswith("other")]
    assert dock.regions.shown is shown and not dock.applying.row.isHidden()
    expected = recipe_of(shown.layer).run(blocks()[::-1] // 2, rescale=False)
    level = Pipeline.from_plain(regions.metadata["napari_saf"]["recipe"]).level
    tree = saf.merge_regions(expected.labels, blocks()[::-1] // 2)
    np.testing.assert_array_equal(regions.data, tree.at_level(level))
