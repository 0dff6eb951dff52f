"""Each layer that is made has the axis labels and units of its image, and lies where it lies."""

import numpy as np
import pytest
import zarr
from gui_cases import TIMEOUT, apply_to, stack
from napari.components import ViewerModel

from napari_saf._gui.export.dock import ExportWidget
from napari_saf._gui.layers import large
from napari_saf._gui.layers.placement import world_affine
from napari_saf._gui.objects.dock import ObjectsWidget
from napari_saf._gui.project.dock import ProjectWidget
from napari_saf._gui.prototypes.dock import PrototypesWidget
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.segment.dock import SegmentWidget

pytestmark = [
    pytest.mark.gui,
    pytest.mark.filterwarnings("ignore:Non-orthogonal slicing"),  # napari draws it otherwise
]
TURNED = {
    "scale": (2, 0.5, 0.5),
    "rotate": (20, 0, 0),
    "shear": (0, 0, 0.3),
    "translate": (5, -3, 7),
    "affine": np.array([[1, 0, 0, 2], [0, 0, -1.5, 4], [0, 1, 0, 1], [0, 0, 0, 1.0]]),
}
AXES = {"axis_labels": ("frame", "row", "column"), "units": ("second", "um", "um")}


class Case:
    """A viewer with an image, in which a dock makes layers."""

    def __init__(self, model, open_on, settle, qtbot, folder):
        self.model, self.settle, self.qtbot, self.folder = model, settle, qtbot, folder
        self._open_on = open_on
        self.image = model.add_image(stack(), name="stack", **TURNED, **AXES)

    def open(self, kind):
        return self._open_on(self.model, kind)

    def run(self, kind=SegmentWidget, **values):
        dock = self.open(kind)
        dock.form.set_values(values or {"max_labels": 3})
        dock.start()
        self.settle(dock)
        return dock

    def add_labels(self):
        pixels = (stack() > 0.5).astype(np.uint8) + 1
        return self.model.add_labels(pixels, name="cells", **TURNED, **AXES)

    def paint(self):
        self.model.dims.point = self.image.data_to_world((2, 8, 8))
        dock = self.open(ScribblesWidget)
        dock.input.scale.set_value(3)
        dock.input.choose(features="intensity")
        dock.buttons["new_strokes"].click()
        for number, row in ((1, 1), (2, 8)):
            pixels = np.full(3, 2), np.full(3, row), np.arange(7, 10)
            dock.strokes.layer.data_setitem(pixels, number)
        self.qtbot.wait(60)
        self.settle(dock)
        return dock


def results_of_a_volume(case):
    dock = case.open(SegmentWidget)
    dock.input.choose(extent="volume")
    dock.start()
    case.settle(dock)


def typical_pixels(case):
    dock = case.open(SegmentWidget)
    dock.form.choose("slk")
    dock.form.set_values({"n_clusters": 2})
    dock.start()
    case.settle(dock)


def strokes_results_and_all_that_follows_them(case):
    dock = case.paint()
    dock.uncertainty.click()
    dock.buttons["suggest"].click()
    case.settle(dock)
    other = case.model.add_image(stack()[::-1], name="other", **TURNED, **AXES)
    apply_to(dock, other)
    case.settle(dock)


def objects_a_line_and_tracks(case):
    pytest.importorskip("laptrack")
    case.add_labels()
    dock = case.open(ObjectsWidget)
    case.settle(dock)
    dock.choices.slices.setChecked(True)
    case.settle(dock)
    dock.start()
    case.settle(dock)
    dock.buttons["track"].click()
    case.settle(dock)
    dock.canvas.draw_lines(True)


def maps_and_a_prototype_used_elsewhere(case):
    case.run()
    export, prototypes = case.open(ExportWidget), case.open(PrototypesWidget)
    export.maps.button.click()
    case.settle(export)
    apply_to(prototypes, case.image)
    case.settle(prototypes)


def labels_in_tiles(case):
    zarr.save_array(str(case.folder / "stack.zarr"), stack())
    case.model.layers.clear()
    (image,) = case.model.open(str(case.folder / "stack.zarr"), plugin="napari")
    image.axis_labels, image.units = AXES.values()
    for name, value in TURNED.items():
        setattr(image, name, value)
    dock = case.open(SegmentWidget)
    dock.large.store.set_path(case.folder / "all.ome.zarr")
    dock.large.start()
    case.qtbot.waitUntil(lambda: not dock.large.is_busy, timeout=TIMEOUT)


def labels_in_tiles_of_a_project(case):
    labels_in_tiles(case)
    open_again(case)


def strokes_and_results_of_a_project(case):
    case.paint()
    open_again(case)


def open_again(case):
    dock = case.open(ProjectWidget)
    dock.save_to(case.folder / "one.napari-saf")
    case.settle(dock)
    case.model = ViewerModel()
    dock = case.open(ProjectWidget)
    dock.load(case.folder / "one.napari-saf")
    case.settle(dock)


KINDS = [
    (results_of_a_volume, 2),
    (typical_pixels, 3),
    (strokes_results_and_all_that_follows_them, 5),
    (objects_a_line_and_tracks, 5),
    (maps_and_a_prototype_used_elsewhere, 4),
    (labels_in_tiles_of_a_project, 2),
    (strokes_and_results_of_a_project, 3),
]


@pytest.mark.parametrize(("make", "n_layers"), KINDS, ids=lambda one: getattr(one, "__name__", ""))
def test_each_layer_has_axis_labels_and_units_of_its_image_and_lies_on_it(
    make, n_layers, model, open_on, settle, qtbot, tmp_path, monkeypatch
):
    if "tiles" in make.__name__:
        monkeypatch.setattr(large, "LARGE", 10)
    case = Case(model, open_on, settle, qtbot, tmp_path)
    image = ViewerModel().add_image(stack(), **TURNED, **AXES)
    make(case)
    assert len(case.model.layers) >= n_layers, list(case.model.layers)
    for layer in case.model.layers:
        for name in AXES:
            own, wanted = getattr(layer, name), getattr(image, name)
            assert tuple(own) == tuple(wanted)[-layer.ndim :], (layer.name, name)
        to_image = np.linalg.solve(world_affine(image), world_affine(layer))
        first = to_image[:-1, -1]
        np.testing.assert_allclose(to_image[:-1, :-1], np.eye(3), atol=1e-9, err_msg=layer.name)
        np.testing.assert_allclose(first, np.round(first), atol=1e-9, err_msg=layer.name)
        np.testing.assert_allclose(first[1:], 0, atol=1e-9, err_msg=layer.name)
        assert -1e-9 <= first[0] <= 4, layer.name
    assert case.model.dims.axis_labels == AXES["axis_labels"]


@pytest.mark.parametrize("kind", [SegmentWidget, ScribblesWidget])
def test_a_slider_that_is_named_by_hand_names_the_slices(model, open_on, kind):
    model.add_image(stack(), name="stack")
    dock = open_on(model, kind)
    extent = dock.input.choices["extent"]
    assert "each slice by itself" in [extent.itemText(k) for k in range(extent.count())]
    dock.input.choose(extent="each")
    model.dims.axis_labels = ("t", "y", "x")
    assert extent.value == "each" and extent.currentText() == "each frame by itself"
    dock.input.choose(extent="slice")
    assert dock.input.read().note(uses_window=False).startswith("frame 2 of 0 to 4")
    objects = open_on(model, ObjectsWidget)
    model.add_labels(np.ones(stack().shape, int), name="labels")
    assert objects.choices.slices.isChecked()
