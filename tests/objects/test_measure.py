"""A row for each object, with what `region_table` measures."""

import dataclasses

import numpy as np
import pytest
from scipy import ndimage
from skimage.measure import regionprops_table

import napari_saf as saf


def labelled(shape=(40, 50), seed=0):
    rng = np.random.default_rng(seed)
    fields = ndimage.gaussian_filter(rng.normal(size=(3, *shape)), (0, *[2] * len(shape)))
    return fields.argmax(axis=0), rng.random((*shape, 2))


def test_a_row_is_an_object_with_its_kind():
    labels, image = labelled()
    objects = saf.split_objects(labels, smallest=5)
    names = {1: "nucleus", 2: "debris"}
    objects = dataclasses.replace(objects, names=names)
    table = saf.object_table(objects, image, scale=(0.5, 0.5), units="um")
    assert np.array_equal(table["object"], objects.numbers)
    assert np.array_equal(table["kind"], objects.kinds[1:])
    assert [names[kind] for kind in table["kind"]] == table["name"].tolist()
    expected = regionprops_table(objects.labels.astype(int), image, properties=["mean_intensity"])
    assert np.allclose(table["intensity_mean_1"], expected["mean_intensity-1"])
    assert np.allclose(table["area_um2"], np.bincount(objects.labels.ravel())[1:] / 4)
    assert table["share"].sum() == pytest.approx(1)


@pytest.mark.parametrize("axis", [0, -1])
def test_objects_of_slices_are_measured_in_their_slice(axis):
    labels, image = labelled((4, 30, 30))
    labels, image = np.moveaxis(labels, 0, axis), image[..., 0]
    image = np.moveaxis(image, 0, axis)
    objects = saf.split_objects(labels, axis=axis, smallest=5)
    scale = np.full(3, 0.5)
    scale[axis] = 2
    table = saf.object_table(objects, image, axis=axis, scale=scale, units="um")
    planes = np.moveaxis(objects.labels, axis, 0)
    for number, where, area in zip(table["object"], table["slice"], table["area_um2"], strict=True):
        own = (planes == number).sum(axis=(1, 2))
        assert np.flatnonzero(own).tolist() == [where]
        assert area == pytest.approx(own[where] / 4)
    assert np.array_equal(np.sort(table["object"]), objects.numbers)


def test_frames_are_counted_along_time():
    labels, _ = labelled((3, 30, 30))
    objects = saf.split_objects(labels, axis=0, smallest=5)
    table = saf.object_table(objects, axes="tyx")
    assert set(table["frame"].tolist()) == {0, 1, 2}


def test_no_object_gives_no_row_and_another_shape_an_error():
    nothing = saf.split_objects(np.zeros((5, 5), int))
    assert saf.object_table(nothing) == {}
    objects = saf.split_objects(np.ones((5, 5), int))
    with pytest.raises(saf.InvalidInput, match="image"):
        saf.object_table(objects, np.zeros((4, 5)))
