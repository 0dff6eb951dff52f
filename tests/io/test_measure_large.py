"""Regions measured part by part are those of the whole image."""

import numpy as np
import pytest
import zarr
from scipy import ndimage

import napari_saf as saf
from napari_saf.io import _frame


def kinds_of(shape, seed=0, n_labels=3):
    """Return labels of speckles and of large winding regions, 0 here and there."""
    rng = np.random.default_rng(seed)
    smooth = ndimage.gaussian_filter(rng.normal(size=shape), 1.3)
    edges = np.quantile(smooth, np.linspace(0.2, 0.9, n_labels))
    return np.digitize(smooth, edges).astype(np.uint8)


def same(found, expected):
    assert list(found) == list(expected)
    for name, column in expected.items():
        assert found[name].shape == column.shape, name
        if column.dtype.kind == "f":
            if name == "orientation_rad":
                continue  # of circles: any; and a half turn is none
            np.testing.assert_allclose(found[name], column, rtol=1e-9, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], column, err_msg=name)


@pytest.mark.parametrize(
    "connected", [{}, {"connected": True}, {"connected": True, "min_pixels": 5}]
)
@pytest.mark.parametrize(("shape", "side"), [((47, 61), 7), ((13, 21, 18), 6), ((9, 9), 1)])
def test_parts_measure_as_the_whole(monkeypatch, shape, side, connected):
    labels = kinds_of(shape)
    image = np.random.default_rng(1).integers(0, 255, (*shape, 2), np.uint8)
    more = connected | {"scale": (0.5,) * len(shape), "units": "um"}
    more |= {"names": {2: "two"}}
    whole = saf.region_table(labels, image, **more)
    monkeypatch.setattr(_frame, "PART", side ** len(shape))
    same(saf.measure_large(labels, image, **more), whole)


def test_a_mask_of_tiles_says_its_size_and_names(tmp_path, monkeypatch):
    monkeypatch.setattr(_frame, "PART", 16**2)
    labels = kinds_of((40, 50))
    image = zarr.create_array(
        tmp_path / "image.zarr", data=labels[..., None] * 80, chunks=(16, 16, 1)
    )
    image[...] = labels[..., None] * 80
    saf.save_masks(tmp_path / "m.ome.zarr", labels, scale=(0.25, 0.25), units="um", axes="yx")
    found = saf.measure_large(tmp_path / "m.ome.zarr", tmp_path / "image.zarr", channel_axis=-1)
    same(found, saf.region_table(labels, labels * 80, scale=(0.25, 0.25), units="um"))


@pytest.mark.parametrize(
    ("labels", "more", "words"),
    [
        (np.zeros((9, 9), int), {}, "there is none"),
        (-np.ones((9, 9), int), {}, "0 and above"),
        (np.ones((9, 9), int), {"image": np.zeros((9, 8))}, "shape"),
        (np.ones((9, 9), int), {"connected": True, "min_pixels": 99}, "there is none"),
        (np.ones((9, 9), int), {"min_pixels": 0}, "min_pixels"),
    ],
)
def test_what_cannot_be_measured_is_told(labels, more, words):
    with pytest.raises(saf.SafError, match=words):
        saf.measure_large(labels, **more)


@pytest.mark.parametrize("width", [3, 4])
def test_the_last_axis_of_labels_is_none_of_colours(tmp_path, width):
    labels = np.random.default_rng(0).integers(0, 3, (5, 6, width), dtype=np.uint8)
    np.save(tmp_path / "labels.npy", labels)
    whole = saf.region_table(labels)
    same(saf.measure_large(labels), whole)
    same(saf.measure_large(tmp_path / "labels.npy"), whole)
    found = saf.split_large(labels, tmp_path / "objects.ome.zarr", smallest=1)
    assert found.labels.shape == labels.shape
