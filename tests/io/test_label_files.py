"""Label images of other programs: whole numbers written as floats, strokes in colours."""

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image, ImageDraw

import napari_saf as saf
from napari_saf.io import ImageSource

LABELS = np.zeros((24, 30), np.uint8)
LABELS[2:10, 3:12], LABELS[12:20, 15:28], LABELS[4:9, 18:26] = 1, 2, 3
IMAGE = LABELS / 3 + 0.05 * np.random.default_rng(0).random(LABELS.shape)
BLACK, WHITE, RED, BLUE = (0, 0, 0), (255, 255, 255), (255, 0, 0), (0, 0, 255)


def written(folder, name, array):
    path = folder / name
    if name.endswith(".npy"):
        np.save(path, array)
    elif name.endswith(".zarr"):
        zarr.save_array(path, array)
    else:
        tifffile.imwrite(path, array)
    return path


@pytest.mark.parametrize(
    ("name", "kind"), [("a.tif", np.float32), ("a.npy", np.float16), ("a.zarr", np.float64)]
)
def test_whole_numbers_that_are_written_as_floats_are_labels(tmp_path, kind, name):
    path = written(tmp_path, name, LABELS.astype(kind))
    found = saf.read_labels(path).array
    assert found.dtype.kind == "u" or kind == np.float64
    np.testing.assert_array_equal(found, LABELS)
    np.testing.assert_array_equal(saf.read_mask(path).labels, LABELS)
    table = saf.measure_large(path)
    assert table["label"].dtype.kind == "i" and table["label"].tolist() == [1, 2, 3]
    large = saf.split_large(path, tmp_path / "o.ome.zarr", tile=16)
    assert sorted(large.kinds.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("value", [0.5, -1.0, np.nan, 2.0**24 + 2])
def test_other_numbers_are_refused_in_words(tmp_path, value):
    """Above 2**24 two labels may have become one in float32."""
    wrong = LABELS.astype(np.float32)
    wrong[23, 29] = value
    path = written(tmp_path, "a.tif", wrong)
    words = rf"whole numbers.*float32.*{value:g}".replace("+", r"\+")
    for read in (saf.read_labels, saf.read_mask, saf.measure_large):
        with pytest.raises(saf.FormatError, match=words):
            read(path)
    for use in (saf.split_objects, saf.region_table, saf.number_regions):
        with pytest.raises(saf.InvalidInput, match=words):
            use(wrong)
    with pytest.raises(saf.InvalidInput, match=f"seeds.*{words}"):
        saf.Problem.from_image(IMAGE, seeds=wrong)


def painted(*strokes, ground=BLACK):
    pixels = np.full((24, 30, 3), ground, np.uint8)
    for row, color in strokes:
        pixels[row, 2:20] = color
    return pixels


@pytest.mark.parametrize("suffix", [".bmp", ".tif"])
def test_each_colour_is_a_class_by_its_hue(tmp_path, suffix):
    path = tmp_path / f"s{suffix}"
    Image.fromarray(painted((2, BLUE), (9, RED), (20, WHITE))).save(path)
    found = saf.read_labels(path)
    assert (found.array[2, 5], found.array[9, 5], found.array[20, 5]) == (3, 2, 1)
    assert np.count_nonzero(found.array) == 3 * 18
    assert found.colors == {1: (1, 1, 1), 2: (1, 0, 0), 3: (0, 0, 1)}
    assert (found.axes, found.channel_axis) == ("yx", None)
    assert saf.read_mask(path).colors == found.colors


def test_what_is_not_painted_has_no_label(tmp_path):
    """White paper, transparent pixels whatever is under them, or black beside other grounds."""
    path = tmp_path / "s.png"
    Image.fromarray(painted((2, BLACK), (9, RED), ground=WHITE)).save(path)
    assert saf.read_labels(path).colors == {1: (0, 0, 0), 2: (1, 0, 0)}
    alpha = np.zeros((24, 30, 1), np.uint8)
    alpha[[2, 9], 2:20] = 255
    Image.fromarray(np.dstack([painted((2, BLACK), (9, RED)), alpha])).save(path)
    assert saf.read_labels(path).colors == {1: (0, 0, 0), 2: (1, 0, 0)}
    Image.fromarray(painted((2, BLACK), (9, RED), ground=BLUE)).save(path)
    assert saf.read_labels(path).colors == {1: (1, 0, 0), 2: (0, 0, 1)}
    deep = painted((2, BLUE), (9, RED)).astype(np.uint16) * 257
    tifffile.imwrite(tmp_path / "s.tif", deep, photometric="rgb")
    assert saf.read_labels(tmp_path / "s.tif").colors == {1: (1, 0, 0), 2: (0, 0, 1)}


def test_blended_colours_are_refused(tmp_path):
    large = Image.new("RGB", (240, 160))
    draw = ImageDraw.Draw(large)
    draw.line((20, 20, 200, 100), fill=RED, width=24)
    draw.line((20, 140, 200, 20), fill=BLUE, width=20)
    large.resize((60, 40), Image.Resampling.BOX).save(tmp_path / "soft.png")
    with pytest.raises(saf.FormatError, match=r"blends.*hard brush"):
        saf.read_labels(tmp_path / "soft.png")
    large.save(tmp_path / "lossy.jpg")
    with pytest.raises(saf.FormatError, match=r"255 colours.*hard brush"):
        saf.read_labels(tmp_path / "lossy.jpg")


def test_channels_that_are_no_colours_are_refused(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.zeros((2, 24, 30), np.uint16), metadata={"axes": "CYX"})
    with pytest.raises(saf.FormatError, match="2 channels"):
        saf.read_labels(path)
    with pytest.raises(saf.InvalidInput, match="without channels"):
        saf.measure_large(ImageSource.open(path))
