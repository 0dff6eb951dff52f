"""Results, tables, files and projects lie where their image lies, whatever its affine is."""

import numpy as np
import pytest
from gui_cases import read_table
from hypothesis import given, settings
from hypothesis import strategies as st
from napari.layers import Image, Labels
from scipy.spatial.transform import Rotation

import napari_saf as saf
from napari_saf._gui.export.dock import ExportWidget
from napari_saf._gui.layers.placement import image_region, place, steps_of, world_affine
from napari_saf._gui.layers.reader import read_layer
from napari_saf._gui.scribbles.dock import ScribblesWidget

pytestmark = [
    pytest.mark.gui,
    pytest.mark.filterwarnings("ignore:Non-orthogonal slicing"),  # napari draws it otherwise
]
MASK = np.zeros((24, 30), np.uint8)
MASK[3:13, 4:14], MASK[15:20, 10:30] = 1, 2
PLANES = {
    "reflected": {"scale": (-0.5, 0.5)},
    "by all": {
        "scale": (2, 0.5),
        "rotate": -70,
        "shear": [0.4],
        "translate": (10, 3),
        "affine": np.array([[0.3, 0.1, 5], [-0.2, 0.4, -2], [0, 0, 1]]),
    },
}
numbers = st.floats(-2, 2).map(lambda x: round(x, 3))


@st.composite
def transforms(draw, n_axes):
    """Draw a transform of a layer and an affine that comes after it."""
    size = st.floats(0.1, 4)
    turn = np.eye(n_axes)
    for _ in range(2):
        k, m = draw(st.permutations(range(n_axes)))[:2]
        angle, one = draw(st.floats(-180, 180)), np.eye(n_axes)
        one[k, k] = one[m, m] = np.cos(np.deg2rad(angle))
        one[k, m] = np.sin(np.deg2rad(angle))
        one[m, k] = -one[k, m]
        turn = turn @ one
    affine = np.eye(n_axes + 1)
    affine[:-1, :-1] += (
        0.2 * np.array([draw(numbers) for _ in range(n_axes**2)]).reshape(n_axes, n_axes) / n_axes
    )
    affine[:-1, -1] = [100 * draw(numbers) for _ in range(n_axes)]
    return {
        "scale": [draw(size) for _ in range(n_axes)],
        "translate": [50 * draw(numbers) for _ in range(n_axes)],
        "rotate": turn,
        "shear": [draw(numbers) for _ in range(n_axes * (n_axes - 1) // 2)],
        "affine": affine,
    }


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_labels_of_a_part_lie_on_it_and_are_looked_up_there(data):
    n_axes = data.draw(st.integers(2, 4))
    shape = tuple(range(6, 6 + n_axes))
    image = Image(np.zeros(shape), **data.draw(transforms(n_axes)))
    first = [data.draw(st.integers(0, n - 2)) for n in shape]
    sides = [data.draw(st.integers(1, n - k)) for n, k in zip(shape, first, strict=True)]
    fixed = {0: first[0]} if n_axes > 2 and data.draw(st.booleans()) else {}
    where = place(image, tuple(range(n_axes)), fixed, first_pixel=first)
    sides = [1 if axis in fixed else n for axis, n in enumerate(sides)]
    labels = Labels(np.ones(sides, np.uint8), **where.transform)
    labels.metadata["napari_saf"] = where.entry(image)
    for pixel in (np.zeros(n_axes), np.array(sides) - 1):
        there = image.data_to_world(pixel + first)
        np.testing.assert_allclose(labels.data_to_world(pixel), there, atol=1e-7)
    index, channel_axis = image_region(labels, image)
    assert channel_axis is None
    starts = [at.start if isinstance(at, slice) else at for at in index]
    assert starts == first
    lengths = [at.stop - at.start for at in index if isinstance(at, slice)]
    assert lengths == [n for axis, n in enumerate(sides) if isinstance(index[axis], slice)]


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_the_affine_of_a_layer_takes_each_pixel_where_the_layer_does(data):
    n_axes = data.draw(st.integers(2, 4))
    layer = Image(np.zeros((4,) * n_axes), **data.draw(transforms(n_axes)))
    pixel = np.array([data.draw(st.integers(-50, 50)) for _ in range(n_axes)])
    there = world_affine(layer) @ [*pixel, 1]
    np.testing.assert_allclose(there[:-1], layer.data_to_world(pixel), atol=1e-8)
    steps = steps_of(layer)
    volume = abs(np.linalg.det(steps.columns))
    if steps.upright is None:
        np.testing.assert_allclose(np.prod(steps.sizes), volume, rtol=1e-4)
    else:
        np.testing.assert_allclose(np.prod(np.diag(steps.upright)), volume, rtol=1e-6)


def test_labels_that_lie_elsewhere_have_no_region():
    image = Image(np.zeros((20, 20)), rotate=30)
    for other in (
        {},
        {"rotate": 31},
        {"rotate": 30, "scale": (2, 2)},
        {"rotate": 30, "shear": [1]},
    ):
        assert image_region(Labels(np.ones((8, 8), int), **other), image) is None
    inside = image.data_to_world((5, 12))
    fits = Labels(np.ones((8, 8), int), rotate=30, translate=inside)
    assert image_region(fits, image)[0] == (slice(5, 13), slice(12, 20))
    turned = Image(np.zeros((5, 20, 20)), rotate=(0, 90, 0))
    assert image_region(Labels(np.ones((20, 20), int)), turned) is None
    # it makes no difference in which field a size stands
    image = Image(np.zeros((20, 20)), affine=np.array([[0.5, 0, 3], [0, 0.5, 4], [0, 0, 1]]))
    labels = Labels(np.ones((8, 8), int), scale=(0.5, 0.5), translate=(4, 6.5))
    assert image_region(labels, image)[0] == (slice(2, 10), slice(5, 13))
    assert steps_of(image).sizes == steps_of(labels).sizes == (0.5, 0.5)


@pytest.mark.parametrize("name", PLANES)
def test_a_table_says_areas_of_pixels_and_what_the_image_has_there(
    name, model, open_on, settle, tmp_path
):
    lying = PLANES[name] | {"units": ("um", "um")}
    image = model.add_image(MASK * 10.0, name="image", **lying)
    labels = model.add_labels(MASK, name="mask", **lying)
    dock = open_on(model, ExportWidget)
    dock.labels.choose(labels)
    dock.folder.set_path(tmp_path / "out")
    settle(dock)
    assert dock.image.layer == image
    dock.choice.choose("numbered", ".ome.zarr")
    dock.start()
    settle(dock)
    rows = read_table(tmp_path / "out" / "mask.regions.csv")
    size = abs(np.linalg.det(world_affine(image)))
    np.testing.assert_allclose([float(row["area_um2"]) for row in rows], 100 * size, rtol=1e-8)
    assert [float(row["intensity_mean"]) for row in rows] == [10, 20]
    line, is_turned = dock.status.text, name == "by all"
    for words in ("rotation", "shear", "origin"):
        assert (words in line) == is_turned, line
    assert ("reflection" in line) != is_turned, line
    paths = [next((tmp_path / "out").glob(f"*{suffix}")) for suffix in (".tif", ".ome.zarr")]
    for path in paths:
        pixels, arguments, _ = read_layer(path)
        again = Labels(pixels, **arguments)
        np.testing.assert_allclose(world_affine(again), world_affine(labels), atol=1e-9)
    stored = saf.read_mask(paths[1])
    first = np.array(labels.data_to_world((0, 0)))
    np.testing.assert_allclose(stored.origin or (0, 0), first, atol=1e-9)
    np.testing.assert_allclose(stored.scale, steps_of(labels).sizes)
    assert stored.units == ("micrometer", "micrometer")


def test_levels_and_channels_lie_on_a_turned_image():
    levels = [np.zeros((3, 32, 40)), np.zeros((3, 16, 20))]
    turn = np.eye(3)
    turn[1:, 1:] = [[0.6, -0.8], [0.8, 0.6]]
    image = Image(levels, multiscale=True, scale=(1, 2, 0.5), rotate=turn, translate=(0, 5, 6))
    coarse = place(image, (1, 2), {}, 0, first_pixel=(0, 4.5, 8.5), pixel=(1, 2, 2))
    labels = Labels(np.ones((5, 6), int), **coarse.transform)
    for pixel in ((0, 0), (4, 5)):
        there = image.data_to_world((0, 4.5 + 2 * pixel[0], 8.5 + 2 * pixel[1]))[1:]
        np.testing.assert_allclose(labels.data_to_world(pixel), there, atol=1e-9)
    assert image_region(labels, image) is None
    fine = place(image, (1, 2), {}, 0, first_pixel=(0, 4, 8))
    labels = Labels(np.ones((5, 6), int), metadata={"napari_saf": fine.entry(image)})
    for name, value in fine.transform.items():
        setattr(labels, name, value)
    assert image_region(labels, image) == ((slice(None), slice(4, 9), slice(8, 14)), 0)


def test_strokes_on_a_stack_that_is_turned_out_of_its_planes_are_warned_of(model, open_on):
    """napari draws its slices without the rotation, and paints with it."""
    for angles, is_said in (((0, 0, 30), False), ((0, 30, 0), True)):
        turn = Rotation.from_euler("zyx", angles, degrees=True).as_matrix()
        image = model.add_image(np.random.default_rng(0).random((9, 30, 40)), rotate=turn)
        model.layers.selection.active = image
        scribbles = open_on(model, ScribblesWidget)
        scribbles.buttons["new_strokes"].click()
        assert ("paints with it" in scribbles.status.text) is is_said
    # as soon as it paints where it draws, there is nothing to say
    strokes = scribbles.strokes.layer
    drawn = strokes._data_slice.point[0]
    middle = np.mean(strokes.extent.world, axis=0)
    painted = strokes.world_to_data([model.dims.point[0], *middle[1:]])[0]
    assert abs(drawn - painted) > 1
