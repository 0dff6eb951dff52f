"""Colours and names in masks, one mask a label, prototypes, figures; disks that fail."""

import os
import signal

import imageio.v3 as iio
import numpy as np
import pytest
import tifffile
from PIL import Image

import napari_saf as saf
from napari_saf.errors import InvalidInput, SafError

LABELS = np.array([[0, 1, 1, 2], [2, 2, 2, 2], [5, 5, 0, 0]], np.uint8)
NAMES, COLORS = {1: "nucleus", 5: "a/b c"}, {1: (1.0, 0.5, 0.0, 1.0), 2: (0.0, 0.0, 1.0)}


def test_png_is_indexed_in_the_colours_of_the_labels(tmp_path):
    saf.save_masks(tmp_path / "m.png", LABELS, colors=COLORS)
    with Image.open(tmp_path / "m.png") as image:
        assert image.mode == "P"
        np.testing.assert_array_equal(np.asarray(image), LABELS)
        shown = np.asarray(image.convert("RGB"))
    assert shown[0, 1].tolist() == [255, 128, 0]
    assert shown[1, 1].tolist() == [0, 0, 255]
    assert shown[0, 0].tolist() == [0, 0, 0]
    assert len({tuple(color) for color in shown.reshape(-1, 3).tolist()}) == 4


def test_tiff_tells_imagej_its_sizes(tmp_path):
    stack = np.stack([np.stack([LABELS, LABELS * 0])] * 3)
    path = tmp_path / "m.tif"
    saf.save_masks(path, stack, scale=(7, 3, 0.5, 0.25), units=("second", "um", "um", "um"),
                   axes="tzyx", colors=COLORS)  # fmt: skip
    with tifffile.TiffFile(path) as file:
        assert file.is_ome and file.is_imagej
        told, tags = file.imagej_metadata, file.pages[0].tags
        assert (told["images"], told["slices"], told["frames"]) == (6, 2, 3)
        assert (told["unit"], told["spacing"], told["finterval"]) == ("micron", 3, 7)
        densities = [tags[name].value for name in ("XResolution", "YResolution")]
        assert [count / length for count, length in densities] == [4, 2]
        np.testing.assert_array_equal(file.asarray(), stack)
        assert told["LUTs"][:, 1].tolist() == [255, 128, 0]


def test_binary_masks_give_the_labels_back(tmp_path):
    paths = saf.save_binary_masks(tmp_path / "m.png", LABELS, names=NAMES)
    names = ["m_1_nucleus.png", "m_2.png", "m_5_a_b_c.png"]
    assert [path.name for path in paths] == names
    again = np.zeros_like(LABELS)
    for label, path in zip((1, 2, 5), paths, strict=True):
        mask = saf.read_labels(path).array
        assert set(np.unique(mask)) == {0, 255}
        again[mask > 0] = label
    np.testing.assert_array_equal(again, LABELS)


@pytest.mark.parametrize(
    ("shape", "suffix"),
    [((4, 9, 10, 3), ".png"), (None, ".png"), ("flat", ".png"), ((9, 10, 2), ".svg")],
)
def test_figures_are_made(tmp_path, shape, suffix):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 40, (4, 9, 10) if len(shape or ()) > 2 and shape[0] == 4 else (9, 10))
    if shape == "flat":
        image, labels = np.full((9, 10), 7.0), 0 * labels
    else:
        image = None if shape is None else rng.random(shape)
    path = saf.save_figure(tmp_path / f"f{suffix}", labels, image, names={1: "one"},
                           scale=(1,) * labels.ndim, units="um", title="t")  # fmt: skip
    assert path.stat().st_size > 1000
    if suffix == ".png":
        assert iio.imread(path).std() > 10


def test_a_figure_of_another_image_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="shape"):
        saf.save_figure(tmp_path / "f.png", LABELS, np.zeros((5, 6)))
    with pytest.raises(InvalidInput, match=r"\.png"):
        saf.save_figure(tmp_path / "f.jpg", LABELS)


MANY = np.random.default_rng(0).integers(0, 200, (300, 300))
WRITERS = {
    "m.tif": saf.save_masks,
    "m.png": saf.save_masks,
    "m.npy": saf.save_masks,
    "m.ome.zarr": saf.save_masks,
    "m.nii.gz": saf.save_masks,
    "r.csv": saf.save_regions,
    "f.png": saf.save_figure,
    "p.npy": saf.save_prototypes,
}


@pytest.fixture
def small_disk():
    """Let the system refuse to write more than some bytes to a file."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)


@pytest.mark.parametrize("name", WRITERS)
def test_a_disk_that_fills_up_leaves_the_old_file(tmp_path, name, small_disk):
    path = tmp_path / name
    if name.endswith(".zarr"):
        saf.save_masks(path, LABELS)
    else:
        path.write_bytes(b"precious")
    small_disk()
    with pytest.raises(SafError, match=f"{name}: cannot be written"):
        WRITERS[name](path, MANY)
    assert os.listdir(tmp_path) == [name]
    if name.endswith(".zarr"):
        np.testing.assert_array_equal(saf.read_labels(path).array, LABELS)
    else:
        assert path.read_bytes() == b"precious"
