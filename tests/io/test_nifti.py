"""Scans in NIfTI: axes and sizes as everywhere, and labels that lie where the scan does."""

import sys

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.pipeline import placed_labels

SCAN = np.arange(5 * 6 * 7, dtype=np.int16).reshape(5, 6, 7)  # x, y, z
AFFINE = np.array([[0, -0.5, 0, 90], [0.5, 0, 0, -126], [0, 0, 3, -72], [0, 0, 0, 1.0]])


@pytest.fixture
def nibabel():
    return pytest.importorskip("nibabel")


@pytest.fixture(params=["scan.nii", "scan.nii.gz"])
def scan(request, nibabel, tmp_path):
    image = nibabel.Nifti1Image(SCAN, AFFINE)
    image.header.set_xyzt_units("mm", "sec")
    nibabel.save(image, tmp_path / request.param)
    return tmp_path / request.param


def test_labels_lie_on_the_scan_and_keep_names_and_recipe(scan, nibabel, tmp_path):
    image = saf.read_image(scan)
    labels = (image.array % 3).astype(np.uint8)
    mask = tmp_path / scan.name.replace("scan", "labels")
    saf.save_masks(mask, labels, **placed_labels(image, labels, None).placed, names={2: "cortex"})
    written = nibabel.load(mask)
    np.testing.assert_array_equal(written.affine, AFFINE)
    np.testing.assert_array_equal(np.asanyarray(written.dataobj), SCAN % 3)
    assert written.shape == SCAN.shape and written.get_data_dtype() == np.uint8
    assert int(written.header["qform_code"]) > 0 and int(written.header["sform_code"]) > 0
    again = saf.read_mask(mask)
    np.testing.assert_array_equal(again.labels, labels)
    assert (again.names, again.scale, again.units) == ({2: "cortex"}, (3, 0.5, 0.5), ("mm",) * 3)


@pytest.mark.parametrize(("shape", "axes"), [((5, 6, 1), "yx"), ((5, 6, 7, 4), "tzyx")])
def test_planes_and_series_have_the_shape_of_their_scan(nibabel, tmp_path, shape, axes):
    values = (np.arange(np.prod(shape)) % 4).astype(np.int16).reshape(shape)
    nibabel.save(nibabel.Nifti1Image(values, AFFINE), tmp_path / "s.nii")
    image = saf.read_image(tmp_path / "s.nii")
    assert image.axes == axes
    placed = placed_labels(image, image.array, None).placed
    saf.save_masks(tmp_path / "m.nii.gz", image.array, **placed)
    written = nibabel.load(tmp_path / "m.nii.gz")
    np.testing.assert_array_equal(np.asanyarray(written.dataobj), values)
    np.testing.assert_array_equal(written.affine, AFFINE)


def test_without_nibabel_it_is_said_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "nibabel", None)
    (tmp_path / "a.nii.gz").write_bytes(b"")
    for act in (
        lambda: saf.read_image(tmp_path / "a.nii.gz"),
        lambda: saf.save_masks(tmp_path / "b.nii", np.eye(3, dtype=int)),
    ):
        with pytest.raises(saf.SafError, match=r"nibabel: pip install 'napari-saf\[nifti\]'"):
            act()
    assert [path.name for path in tmp_path.iterdir()] == ["a.nii.gz"]
