import os

import nibabel
import numpy as np
import PIL.Image
import pytest
import tifffile
import zarr

from napari_saf.errors import InvalidInput, SafError
from napari_saf.io import MASK_SUFFIXES, mask_stem, read_image, read_mask, save_masks

LABELS = np.array([[0, 1, 2], [3, 3, 1]])
STACK = np.stack([LABELS, LABELS[::-1]])


@pytest.mark.parametrize("suffix", MASK_SUFFIXES)
@pytest.mark.parametrize(
    ("most", "dtype"), [(3, np.uint8), (255, np.uint8), (256, np.uint16), (65535, np.uint16)]
)
def test_labels_come_back_in_the_smallest_type(tmp_path, suffix, most, dtype):
    labels = LABELS.copy()
    labels[0, 1] = most
    (path,) = save_masks(tmp_path / f"m{suffix}", labels)
    array = read_image(path).array
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, labels)


@pytest.mark.parametrize("suffix", MASK_SUFFIXES)
def test_the_same_labels_give_the_same_bytes(tmp_path, suffix):
    def written(name, labels):
        save_masks(tmp_path / name / f"m{suffix}", labels, names={2: "sky"})
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        return [path.read_bytes() for path in files]

    for name in "abc":
        (tmp_path / name).mkdir()
    first = written("a", LABELS)
    assert written("b", LABELS[:, ::-1][:, ::-1]) == first != written("c", LABELS[::-1])


@pytest.mark.parametrize("suffix", [".tif", ".tiff", ".ome.zarr", ".npy"])
def test_many_labels_take_four_bytes(tmp_path, suffix):
    (path,) = save_masks(tmp_path / f"m{suffix}", LABELS * 100_000)
    array = read_image(path).array
    assert array.dtype == np.uint32
    np.testing.assert_array_equal(array, LABELS * 100_000)


@pytest.mark.parametrize(("count", "length"), [(66_000, 0), (2_000, 5_000)])
def test_an_ome_zarr_of_many_labels_or_long_names_comes_back(tmp_path, count, length):
    labels = np.arange(1, count + 1).reshape(1, -1)
    names = {n: f"{n}: {'x' * length}" for n in range(1, count + 1)} if length else {}
    [path] = save_masks(tmp_path / "m.ome.zarr", labels, names=names)
    found = read_mask(path)
    np.testing.assert_array_equal(found.labels, labels)
    assert found.names == names


@pytest.mark.parametrize("suffix", [".tif", ".ome.zarr"])
def test_axes_scale_and_units_are_kept(tmp_path, suffix):
    path = tmp_path / f"m{suffix}"
    save_masks(path, STACK, scale=(3, 0.5, 0.25), units="micrometer", axes="zyx")
    image = read_image(path)
    assert image.axes == "zyx"
    assert image.scale == (3.0, 0.5, 0.25)
    assert set(image.units) <= {"µm", "micrometer"}


@pytest.mark.parametrize("suffix", [".tif", ".ome.zarr"])
def test_frames_stay_frames(tmp_path, suffix):
    path = tmp_path / f"m{suffix}"
    save_masks(path, STACK, axes="tyx", scale=(2, 1, 1), units=("second", "um", "um"))
    image = read_image(path)
    assert image.axes == "tyx"
    assert image.scale == (2.0, 1.0, 1.0)
    assert image.units[0] in ("s", "second")


def test_frames_of_unknown_length_have_no_unit_of_time(tmp_path):
    save_masks(tmp_path / "m.tif", STACK, axes="tyx", scale=(1, 2, 2), units=("pixel", "um", "um"))
    with tifffile.TiffFile(tmp_path / "m.tif") as file:
        assert "TimeIncrement" not in file.ome_metadata
    image = read_image(tmp_path / "m.tif")
    assert (image.axes, image.scale) == ("tyx", (1.0, 2.0, 2.0))


def test_tiff_is_an_ome_tiff(tmp_path):
    save_masks(tmp_path / "m.tif", STACK)
    with tifffile.TiffFile(tmp_path / "m.tif") as file:
        assert file.is_ome


def test_several_images_are_numbered(tmp_path):
    paths = save_masks(tmp_path / "m.npy", [LABELS, LABELS.T])
    assert [path.name for path in paths] == ["m-1.npy", "m-2.npy"]
    np.testing.assert_array_equal(np.load(paths[1]), LABELS.T)


def test_unknown_suffix_lists_the_known(tmp_path):
    with pytest.raises(InvalidInput) as caught:
        save_masks(tmp_path / "m.jpg", LABELS)
    assert all(suffix in str(caught.value) for suffix in MASK_SUFFIXES)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (STACK, "2 axes"),
        (LABELS * 70_000, "up to 65535"),
        (LABELS - 1, "expected 0, 1, 2, ..., got -1"),
        (LABELS * 1.0, "whole numbers"),
        (np.zeros((0, 3), int), "whole numbers"),
    ],
)
def test_png_refuses_what_it_cannot_hold(tmp_path, labels, words):
    with pytest.raises(InvalidInput, match=words):
        save_masks(tmp_path / "m.png", labels)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [{"scale": (1.0,)}, {"scale": (1.0, 0.0)}, {"scale": (1, np.nan)}, {"axes": "zyx"},
     {"units": ["um"]}],
)  # fmt: skip
def test_axes_scale_and_units_must_fit(tmp_path, wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        save_masks(tmp_path / "m.tif", LABELS, **wrong)


WRITERS = {
    ".tif": (tifffile.TiffWriter, "write"),
    ".tiff": (tifffile.TiffWriter, "write"),
    ".png": (PIL.Image.Image, "save"),
    ".npy": (np, "save"),
    ".ome.zarr": (zarr.Group, "create_array"),
    ".nii": (nibabel.Nifti1Image, "to_bytes"),
    ".nii.gz": (nibabel.Nifti1Image, "to_bytes"),
}


@pytest.mark.parametrize("suffix", MASK_SUFFIXES)
def test_a_failure_half_way_leaves_the_old_file(tmp_path, suffix, monkeypatch):
    path = tmp_path / f"m{suffix}"
    save_masks(path, LABELS)
    before = sorted(os.listdir(tmp_path))
    write = getattr(*WRITERS[suffix])

    def write_and_fail(*arguments, **options):
        write(*arguments, **options)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*WRITERS[suffix], write_and_fail)
    with pytest.raises(SafError, match="No space left on device"):
        save_masks(path, LABELS + 1)
    assert sorted(os.listdir(tmp_path)) == before
    np.testing.assert_array_equal(read_image(path).array, LABELS)


@pytest.mark.parametrize("suffix", MASK_SUFFIXES)
def test_an_old_mask_is_replaced(tmp_path, suffix):
    path = tmp_path / f"m{suffix}"
    save_masks(path, LABELS)
    save_masks(path, LABELS.T)
    np.testing.assert_array_equal(read_image(path).array, LABELS.T)
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("name", ["precious", ".zattrs"])
def test_a_folder_that_is_no_zarr_is_never_replaced(tmp_path, name):
    folder = tmp_path / "m.ome.zarr"
    folder.mkdir()
    (folder / name).touch()
    with pytest.raises(InvalidInput, match="not an OME-Zarr"):
        save_masks(folder, LABELS)
    assert (folder / name).exists()


def test_missing_folder_is_a_clear_error(tmp_path):
    with pytest.raises(SafError, match=r"missing/m\.npy: cannot be written: No such file"):
        save_masks(tmp_path / "missing" / "m.npy", LABELS)


@pytest.mark.parametrize(
    ("name", "stem"),
    [("a.png", "a"), ("b.c.ome.tif", "b.c"), ("d.OME.ZARR", "d"), ("e.zarr", "e"), ("f", "f")],
)
def test_stem_has_no_suffix(name, stem):
    assert mask_stem(f"folder/{name}") == stem
