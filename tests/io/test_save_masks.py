import os

import numpy as np
import pytest

from napari_saf.errors import InvalidInput
from napari_saf.io import MASK_SUFFIXES, mask_stem, read_image, read_mask, save_masks

LABELS = np.array([[0, 1, 2], [3, 3, 1]])
STACK = np.stack([LABELS, LABELS[::-1]])


@pytest.mark.parametrize("suffix", MASK_SUFFIXES)
@pytest.mark.parametrize(
    ("most", "dtype"),
    [
        (255, np.uint8),
        (65535, np.uint16),
        (65536, np.uint32),
        (2**32, np.uint64),
    ],
)
def test_labels_come_back_in_the_smallest_type(tmp_path, suffix, most, dtype):
    """In place of those that were there."""
    labels = LABELS.copy()
    labels[0, 1] = most
    holds = {".png": 65535, ".npy": 2**64}.get(suffix, 2**32 - 1)  # docs/file_formats.md
    if most > holds:
        with pytest.raises(InvalidInput, match=f"up to {holds}"):
            save_masks(tmp_path / f"m{suffix}", labels)
        return
    for array in (LABELS.T, labels):
        (path,) = save_masks(tmp_path / f"m{suffix}", array)
    array = read_image(path).array
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, labels)
    assert os.listdir(tmp_path) == [path.name]


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


@pytest.mark.parametrize(("count", "length"), [(66_000, 0), (2_000, 5_000)])
def test_an_ome_zarr_of_many_labels_or_long_names_comes_back(tmp_path, count, length):
    labels = np.arange(1, count + 1).reshape(1, -1)
    names = {n: f"{n}: {'x' * length}" for n in range(1, count + 1)} if length else {}
    [path] = save_masks(tmp_path / "m.ome.zarr", labels, names=names)
    found = read_mask(path)
    np.testing.assert_array_equal(found.labels, labels)
    assert found.names == names


def test_several_images_are_numbered(tmp_path):
    paths = save_masks(tmp_path / "m.npy", [LABELS, LABELS.T])
    assert [path.name for path in paths] == ["m-1.npy", "m-2.npy"]
    np.testing.assert_array_equal(np.load(paths[1]), LABELS.T)


@pytest.mark.parametrize(
    ("name", "labels", "options", "words"),
    [
        ("m.jpg", LABELS, {}, ".*".join(MASK_SUFFIXES)),
        ("m.png", STACK, {}, "2 axes"),
        ("m.png", LABELS - 1, {}, "got -1"),
        ("m.png", LABELS * 1.0, {}, "whole numbers"),
        ("m.png", np.zeros((0, 3), int), {}, "whole numbers"),
        ("m.tif", LABELS, {"scale": (1, np.nan)}, "scale"),
        ("m.tif", LABELS, {"axes": "zyx"}, "axes"),
        ("m.tif", LABELS, {"units": ["um"]}, "units"),
        ("m.png", LABELS, {"colors": {1: (2, 0, 0)}}, "colors"),
        ("m.png", LABELS, {"names": {1: " "}}, "names"),
    ],
)
def test_what_cannot_be_saved_is_refused(tmp_path, name, labels, options, words):
    with pytest.raises(InvalidInput, match=words):
        save_masks(tmp_path / name, labels, **options)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("name", ["precious", ".zattrs"])
def test_a_folder_that_is_no_zarr_is_never_replaced(tmp_path, name):
    folder = tmp_path / "m.ome.zarr"
    folder.mkdir()
    (folder / name).touch()
    with pytest.raises(InvalidInput, match="not an OME-Zarr"):
        save_masks(folder, LABELS)
    assert (folder / name).exists()


@pytest.mark.parametrize(
    ("name", "stem"),
    [("a.png", "a"), ("b.c.ome.tif", "b.c"), ("d.OME.ZARR", "d"), ("e.zarr", "e"), ("f", "f")],
)
def test_stem_has_no_suffix(name, stem):
    assert mask_stem(f"folder/{name}") == stem
