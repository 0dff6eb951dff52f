"""Objects found in tiles are those of the whole image."""

import dask.array
import numpy as np
import pytest
import zarr
from scipy import ndimage

import napari_saf as saf
from napari_saf.errors import Cancelled
from napari_saf.io import save_masks
from napari_saf.objects import _vectors
from napari_saf.problem import ImageOptions
from napari_saf.tiles import _vectors as tiled_vectors


def blobs(shape, n_kinds=3, seed=0, width=3.0):
    rng = np.random.default_rng(seed)
    fields = ndimage.gaussian_filter(
        rng.normal(size=(n_kinds + 1, *shape)), (0, *[width] * len(shape))
    )
    return fields.argmax(axis=0)


def assert_same(found, expected):
    np.testing.assert_array_equal(found.labels[:], expected.labels)
    np.testing.assert_array_equal(found.kinds, expected.kinds)


def test_tiles_give_the_objects_and_numbers_of_the_whole_image(tmp_path, threads):
    """By workers of dask from an array of dask, too."""
    labels = blobs((130, 151), seed=3)
    uncertainty = 0.3 * np.random.default_rng(3).random(labels.shape)
    own = {"smallest": 31, "neck": 0.15, "uncertainty": uncertainty}
    array, more = dask.array.from_array(labels, 40), {"tile": 48, "halo": 40, "client": threads}
    found = saf.split_large(array, tmp_path / "o.ome.zarr", **more, **own)
    assert_same(found, saf.split_objects(labels, **own))
    assert not found.notes


@pytest.mark.parametrize("given", [{"spacing": (3, 1, 1)}, {"axis": -1}])
def test_volumes_and_slices(tmp_path, given):
    labels = blobs((20, 33, 5 if given.get("axis") == -1 else 36), 2, width=2)
    given["kinds"] = [1, 2]
    found = saf.split_large(labels, tmp_path / "o.ome.zarr", tile=16, halo=16, **given)
    assert_same(found, saf.split_objects(labels, **given))


def test_what_is_larger_than_tiles_see_stays_one(tmp_path):
    rows, columns = np.ogrid[:200, :200]
    labels = ((rows - 100) ** 2 + (columns - 100) ** 2 < 80**2).astype(np.uint8)
    labels[96:104, :] = 1
    labels[:, 190:] = 2
    found = saf.split_large(labels, tmp_path / "o.ome.zarr", tile=32, halo=8)
    assert found.kinds[found.labels[100, 30:170]].tolist() == [1] * 140
    assert len(np.unique(found.labels[40:160, 100])) == 1
    assert len(np.unique(found.labels[:, 195])) == 1
    assert "halo" in found.notes[0]


def test_the_table_is_that_of_the_whole_image(tmp_path):
    labels, image = blobs((80, 90)), np.random.default_rng(0).random((80, 90, 2))
    save_masks(tmp_path / "m.ome.zarr", labels, scale=(0.5, 0.5), units="um", names={2: "cell"})
    found = saf.split_large(tmp_path / "m.ome.zarr", tmp_path / "o.ome.zarr", tile=32, halo=32)
    own = saf.split_objects(labels)
    expected = saf.object_table(own, image, scale=(0.5, 0.5), units="um")
    table = found.table(image)
    assert list(table) == list(expected)
    assert set(table["name"]) == {"label 1", "cell", "label 3"}
    for name in table.keys() - {"name"}:
        np.testing.assert_allclose(table[name], expected[name], rtol=1e-9, atol=1e-9)
    again = saf.read_mask(found.path)
    np.testing.assert_array_equal(again.labels, own.labels)
    assert np.allclose(again.scale, 0.5)


def test_measures_and_classes_of_tiles_are_those_of_the_whole_image(tmp_path, monkeypatch, threads):
    shape, axes = (3, 60, 70), "tyx"
    labels = blobs(shape, 2, width=2)
    image = np.random.default_rng(0).random((*shape, 2)) + labels[..., None]
    found = saf.split_large(labels, tmp_path / "o.ome.zarr", tile=32, halo=40, axis=0)
    objects = saf.Objects(found.labels[:], found.kinds)
    expected = saf.measure_objects(objects, image, axes=axes, features="patterns")
    monkeypatch.setattr(_vectors, "_TILE", {2: 32, 3: 16})
    options = {"axes": axes, "features": expected.features}
    found = found.measure(image, client=threads, **options)
    for tiled in (found, saf.measure_objects(objects, image, **options)):
        assert tiled.names == expected.names and tiled.groups == expected.groups
        np.testing.assert_array_equal(tiled.numbers, expected.numbers)
        np.testing.assert_allclose(tiled.values, expected.values, rtol=1e-5, atol=1e-5)
    first, second = (np.flatnonzero(objects.kinds == kind)[:2].tolist() for kind in (1, 2))
    classes = saf.learn_classes(expected, dict.fromkeys(first, 1) | dict.fromkeys(second, 2))
    np.testing.assert_array_equal(
        classes.classify(found).classes, classes.classify(expected).classes
    )


def test_an_object_larger_than_tiles_is_not_measured(tmp_path, monkeypatch):
    labels = np.zeros((60, 80), np.uint8)
    labels[:50, :50], labels[50:, 60:] = 1, 2
    found = saf.split_large(labels, tmp_path / "o.ome.zarr", tile=32)
    monkeypatch.setattr(tiled_vectors, "MOST_PIXELS", 400)
    assert found.kinds[found.measure().numbers].tolist() == [2]


def test_a_run_goes_on_where_it_was(tmp_path):
    labels, out, done = blobs((100, 130)), tmp_path / "o.ome.zarr", []
    array = zarr.create_array(tmp_path / "l.zarr", data=labels.astype(np.uint8), chunks=(50, 50))

    def split(last=10**9, **more):
        done.clear()
        return saf.split_large(
            array, out, tile=32, halo=40,
            progress=lambda k, n: done.append((k, n)),
            cancelled=lambda: len(done) > last,
            **more,
        )  # fmt: skip

    for last in (3, 25):
        with pytest.raises(Cancelled):
            split(last)
    with pytest.raises(saf.InvalidInput, match="other settings"):
        split(smallest=40)
    found = split()
    assert_same(found, saf.split_objects(labels))
    before, n_tiles = done[0]
    assert before > 25 and done[-1] == (n_tiles, n_tiles)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["l.zarr", "o.ome.zarr"]
    assert_same(split(), saf.split_objects(labels))
    assert not done  # nothing is done twice
    with pytest.raises(saf.InvalidInput, match="overwrite"):
        split(smallest=40)
    assert_same(split(smallest=40, overwrite=True), saf.split_objects(labels, smallest=40))
    array[:10] = 0
    with pytest.raises(saf.InvalidInput, match="changed"):
        split(smallest=40)


def test_what_label_large_left_is_split(tmp_path):
    image = np.where(blobs((64, 80), 1) > 0, 200, 20).astype(np.uint8)
    options = ImageOptions("intensity", 3, "uniform", scaling=(0, 255))
    recipe = saf.Pipeline.from_prototypes(saf.PrototypeSet([[0.1], [0.8]], options=options))
    mask = saf.label_large(image, recipe, tmp_path / "m.ome.zarr", tile=32)
    for source in (mask.path, mask.labels):
        found = saf.split_large(source, tmp_path / "o.ome.zarr", halo=40, tile=32, overwrite=True)
        assert_same(found, saf.split_objects(mask.labels[:]))


def test_nothing_and_specks(tmp_path):
    for labels in (np.zeros((40, 50), np.uint8), np.eye(40, dtype=np.uint8)[::3]):
        found = saf.split_large(labels, tmp_path / "o.ome.zarr", tile=16, overwrite=True)
        assert not found.labels[:].any() and found.table() == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": np.zeros((5, 5))}, "whole numbers"),
        ({"labels": np.zeros((2, 2, 2, 2), int)}, "planes or volumes"),
        ({"neck": 2}, "neck"),
        ({"tile": 3}, "tile"),
        ({"halo": 0}, "halo"),
        ({"kinds": ["a"]}, "kinds"),
        ({"uncertainty": np.zeros((3, 3))}, "uncertainty"),
    ],
)
def test_bad_input_is_named(tmp_path, given, message):
    out = tmp_path / "o.ome.zarr"
    with pytest.raises(saf.InvalidInput, match=message):
        saf.split_large(**{"labels": np.ones((20, 30), int), "out": out, **given})
