"""Result layers know which part of which image they are, whatever became of names and axes."""

import numpy as np
import pytest
from gui_cases import TIMEOUT
from qtpy.QtWidgets import QWidget

import napari_saf as saf
from napari_saf._gui.docks.apply import repeat_job
from napari_saf._gui.export.files import labelling_reader
from napari_saf._gui.layers.metadata import recipe_of
from napari_saf._gui.layers.placement import image_region, labelled_image
from napari_saf._gui.layers.view import LabelFinder, deepest_pixel
from napari_saf._gui.prototypes.edits import EditTarget
from napari_saf._gui.prototypes.labels import FileSource, prototype_set
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf.input import PLAIN
from napari_saf.methods import not_cancelled

pytestmark = [pytest.mark.gui]


def channels_of_planes(shape, axis, seed=0):
    """An image whose channels differ, so that no other axis can be taken for them."""
    rng = np.random.default_rng(seed)
    image = np.kron(rng.random((*shape[:-2], 4, 4)), np.ones((8, 8)))
    weights = np.array([1.0, -0.5, 0.2]).reshape(
        [-1 if k == axis else 1 for k in range(len(shape))]
    )
    return (image * weights + 0.01 * rng.random(image.shape)).astype(np.float32)


@pytest.fixture
def viewer(model):
    return model


@pytest.fixture
def empty_dock(viewer, open_on):
    return open_on(viewer, SegmentWidget)


@pytest.fixture
def label(empty_dock, qtbot, viewer):
    """Label a layer and return the layer of the result."""

    def run(layer, extent="slice", channels=None):
        dock = empty_dock
        dock.input.choose(image=layer)
        if channels is not None:
            dock.input.choose(channels=channels)
        dock.input.choose(extent=extent)
        dock.form.set_values({"max_labels": 3})
        before = list(viewer.layers)
        with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
            dock.start()
        (new,) = [one for one in viewer.layers if one not in before]
        return new

    return run


def assert_repeated(viewer, labels, image, n_channels=1):
    """Labels that are repeated, edited or exported are those that there are, in their place."""
    request = repeat_job(viewer, recipe_of(labels), image, labels)
    again = request.method.run(request.image_job.read(not_cancelled)).labels
    assert request.placement.shape(again.shape) == labels.data.shape
    np.testing.assert_array_equal(again, labels.data.reshape(again.shape))
    problem = EditTarget.of(labels, image).job.read(not_cancelled)
    assert problem.features.shape[0] == again.size and problem.features.shape[1] % n_channels == 0
    source = labelling_reader(viewer, labels, image)(not_cancelled)
    assert source.labels.squeeze().shape == again.squeeze().shape


@pytest.mark.parametrize(("shape", "axis"), [((3, 5, 32, 32), 0), ((5, 3, 32, 32), 1)])
def test_channels_stay_channels_when_a_slice_is_repeated(viewer, label, shape, axis):
    layer = viewer.add_image(channels_of_planes(shape, axis), name="a", channel_axis=None)
    assert_repeated(viewer, label(layer, channels=axis), layer, n_channels=3)


def test_a_slice_across_swapped_axes_is_repeated_and_exported_as_such(viewer, label):
    layer = viewer.add_image(np.random.default_rng(0).random((5, 32, 32)), name="a")
    viewer.dims.order = (1, 0, 2)
    labels = label(layer)
    assert labels.data.shape == (5, 1, 32)
    assert_repeated(viewer, labels, layer)


def test_slices_of_an_axis_of_length_1_can_be_edited_and_repeated(viewer, label):
    layer = viewer.add_image(np.random.default_rng(0).random((1, 4, 16, 16)), name="a")
    assert_repeated(viewer, label(layer, extent="each"), layer)


def test_the_image_that_was_labelled_is_known_again(viewer, label):
    rng = np.random.default_rng(0)
    layers = [viewer.add_image(rng.random((16, 16)), name=n) for n in ("cell", "cell2", "cell")]
    for image in layers:
        labels = label(image)
        assert labelled_image(viewer, labels, lambda one: one in layers) == image
        name, image.name = image.name, "renamed"
        labels.name = "window 5"
        assert labelled_image(viewer, labels, lambda one: one in layers) == image
        image.name = name
        viewer.layers.remove(labels)


def test_of_images_that_carry_no_sign_the_longest_name_counts(viewer):
    layers = [viewer.add_image(np.random.rand(9, 9), name=name) for name in ("cell", "cell2")]
    labels = viewer.add_labels(np.ones((9, 9), dtype=int), name="cell2 labels")
    assert labelled_image(viewer, labels, lambda one: one in layers) == layers[1]


def test_labels_of_channels_lie_where_a_turned_image_lies(viewer, label):
    turned = {"rotate": np.array([[1, 0, 0], [0, 0.8, -0.6], [0, 0.6, 0.8]]), "shear": [0, 0, 0.3]}
    image, placed = channels_of_planes((3, 32, 32), 0), {"translate": (0, 7, -4)}
    layer = viewer.add_image(image, name="a", scale=(1, 2, 0.5), **placed, **turned)
    labels = label(layer, channels=0)
    for corner in ((0, 0), (31, 0), (0, 31), (31, 31)):
        np.testing.assert_allclose(
            labels.data_to_world(corner), layer.data_to_world((0, *corner))[1:], atol=1e-6
        )
    np.testing.assert_allclose(labels.scale, (2, 0.5))


@pytest.mark.parametrize(("shape", "axis"), [((3, 3, 32, 32), 1), ((3, 32, 32, 3), 3)])
def test_labels_lie_over_all_channels_of_their_frame(viewer, label, shape, axis):
    scale, translate = (2, 0.5, 3, 1), (7, -4, 1, 0)
    image = np.moveaxis(channels_of_planes((3, 3, 32, 32), 1), 1, axis)
    layer = viewer.add_image(image, rgb=False, name="a", scale=scale, translate=translate)
    labels = label(layer, extent="each", channels=axis)
    assert labels.data.shape == tuple(1 if k == axis else n for k, n in enumerate(shape))
    for place in ([0, 0, 0, 0], [2, 1, 2, 1], [n - 1 for n in shape]):
        found = np.round(labels.world_to_data(layer.data_to_world(place)))
        place[axis] = 0
        np.testing.assert_array_equal(found, place)
    assert image_region(labels, layer)[1] == axis
    assert_repeated(viewer, labels, layer, n_channels=3)


def test_a_mask_of_one_plane_holds_for_every_slice(viewer, label, empty_dock):
    layer = viewer.add_image(np.random.default_rng(0).random((4, 16, 16)), name="a")
    inside = np.zeros((16, 16), dtype=int)
    inside[3:9, 2:12] = 1
    empty_dock.input.choose(mask=viewer.add_labels(inside, name="inside"))
    labels = label(layer, extent="each")
    np.testing.assert_array_equal(labels.data > 0, np.broadcast_to(inside > 0, (4, 16, 16)))


@pytest.mark.parametrize(
    ("names", "units", "letters"),
    [
        (("time", "y", "x"), ("second", "um", "um"), "tyx"),
        (("axis -3", "axis -2", "axis -1"), ("second", "um", "um"), "tyx"),
        (("Time", "depth", "row", "column"), ("pixel",) * 4, "tzyx"),
        (("axis -3", "axis -2", "axis -1"), ("um", "um", "um"), None),
    ],
)
def test_axes_are_exported_by_their_names_and_units(viewer, names, units, letters):
    pixels = np.ones((2, 3, 4, 5)[-len(names) :], dtype=int)
    labels = viewer.add_labels(pixels, axis_labels=names, units=units)
    assert labelling_reader(viewer, labels, None)(not_cancelled).axes == letters


def test_prototypes_of_a_file_label_an_image_of_fewer_axes_than_are_on_screen(viewer, tmp_path):
    image = np.random.default_rng(0).random((12, 12))
    options = saf.Problem.from_image(image, **PLAIN).options
    prototypes = saf.PrototypeSet(np.array([[0.2], [0.8]]), np.array([1, 2]), options=options)
    saf.save_prototypes(tmp_path / "p.json", prototypes)
    layer = viewer.add_image(image, name="a")
    viewer.dims.ndisplay = 3
    source = FileSource("p.json", saf.load_prototypes(tmp_path / "p.json"))
    job = repeat_job(viewer, saf.Pipeline.from_prototypes(prototype_set(source)), layer)
    assert job.image_job.read(not_cancelled).n_nodes == 144
    assert image_region(viewer.add_labels(np.ones((12, 12), dtype=int)), layer) is not None


@pytest.fixture
def finder(model, qtbot):
    """What finds labels in a series of two planes: a field and a dot on one, a dot on the other."""
    labels = np.zeros((2, 200, 200), dtype=np.uint8)
    labels[0, 20:60, 20:60], labels[0, 150, 150], labels[1, 100, 30] = 1, 2, 3
    model.add_labels(labels)
    model.dims.set_point(0, 0)
    model.scene.camera.zoom = 2
    dock = QWidget()
    qtbot.addWidget(dock)
    yield LabelFinder(model, dock)


def look(finder, model, first, last):
    """Say what is on screen, which only a canvas knows."""
    model.layers[0].corner_pixels = np.array([[0, *first], [0, *last]])


def find(finder, model, label):
    """Go to a label; return camera and slice before and after."""
    layer, camera = model.layers[0], model.scene.camera
    before = (*camera.center, camera.zoom, *model.dims.point)
    finder.go(layer, finder.searcher(layer, label)(not_cancelled))
    return before, (*camera.center, camera.zoom, *model.dims.point)


def test_the_camera_moves_only_to_what_cannot_be_seen(finder, model, qtbot):
    look(finder, model, (0, 0), (40, 40))
    before, after = find(finder, model, 1)  # a part of it is in sight
    assert after == before
    with qtbot.waitSignal(finder.returned):  # Esc in the canvas, too
        assert finder._escape.isEnabled()
        finder.go_back()
    assert find(finder, model, 1)[0] == before and finder._escape.isEnabled()
    look(finder, model, (0, 0), (199, 199))
    before, after = find(finder, model, 2)  # in sight, and too small
    assert after[1:3] == (150, 150) and after[3] > before[3]
    look(finder, model, (140, 140), (160, 160))
    before, after = find(finder, model, 1)  # out of sight
    np.testing.assert_allclose(after[1:3], 40, atol=1)
    assert after[3] == before[3]
    look(finder, model, (0, 0), (199, 199))
    before, after = find(finder, model, 3)  # on another slice
    assert after[4] == 1
    assert find(finder, model, 4)[1] == after  # nowhere


def test_the_camera_goes_back_to_where_a_person_had_it(finder, model, qtbot):
    camera, start = model.scene.camera, (0, 25, 35)
    camera.center = start
    look(finder, model, (0, 0), (5, 5))
    for label in (1, 2, 3):
        find(finder, model, label)
    with qtbot.waitSignal(finder.returned):
        finder.go_back()
    assert (tuple(camera.center), camera.zoom, model.dims.point[0]) == (start, 2, 0)
    find(finder, model, 2)
    camera.center = (0, 70, 80)  # by hand
    find(finder, model, 3)
    finder.go_back()
    assert tuple(camera.center) == (0, 70, 80)


def test_the_deepest_pixel_lies_in_the_largest_region():
    labels = np.zeros((20, 20), dtype=int)
    labels[0, 0] = labels[5:14, 5:14] = 3
    assert deepest_pixel(labels, 3, (0, 1), not_cancelled) == ((9, 9), 5)
    planes = np.stack([labels, 0 * labels])
    assert deepest_pixel(planes, 3, (1, 2), not_cancelled) == ((0, 9, 9), 5)
    assert deepest_pixel(planes, 3, (0, 1, 2), not_cancelled)[1] == 1
    assert deepest_pixel(labels, 4, (0, 1), not_cancelled) is None
