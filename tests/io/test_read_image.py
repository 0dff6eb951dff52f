import json
from types import SimpleNamespace

import imagecodecs
import imageio.v3 as iio
import numpy as np
import psutil
import pytest
import tifffile
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from ome_zarr.format import FormatV04
from ome_zarr.writer import write_image
from PIL import Image, ImageOps

from napari_saf.errors import ComputeError, FormatError
from napari_saf.io import (
    ImageFile,
    ImageSource,
    find_images,
    mask_stem,
    read_image,
    read_labels,
)

STACK = np.arange(4 * 6 * 7, dtype=np.uint16).reshape(4, 6, 7)


def test_palette_of_a_tiff_is_colours_of_an_image_and_numbers_of_labels(tmp_path):
    indices = np.array([[0, 1, 2], [2, 1, 0]], np.uint8)
    picture = Image.fromarray(indices)
    picture.putpalette([10, 20, 30, 255, 0, 128, 7, 8, 9])
    picture.save(tmp_path / "a.tif")
    image = read_image(tmp_path / "a.tif")
    np.testing.assert_array_equal(image.array, np.asarray(picture.convert("RGB")))
    assert (image.axes, image.channel_axis) == ("yxc", 2)
    np.testing.assert_array_equal(read_labels(tmp_path / "a.tif").array, indices)


def test_inks_become_colours_or_are_refused(tmp_path):
    inks = Image.fromarray(np.full((16, 16, 3), (200, 100, 50), np.uint8)).convert("CMYK")
    inks.save(tmp_path / "a.jpg", quality=95)
    np.testing.assert_allclose(read_image(tmp_path / "a.jpg").array, inks.convert("RGB"), atol=8)
    inks.save(tmp_path / "a.tif")
    with pytest.raises(FormatError, match="save it as RGB"):
        read_image(tmp_path / "a.tif")


@pytest.mark.parametrize("shape", [(5, 6), (5, 6, 4)])
def test_png_is_read_as_written(tmp_path, shape):
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    iio.imwrite(tmp_path / "a.PNG", array, extension=".png")
    image = read_image(tmp_path / "a.PNG")
    np.testing.assert_array_equal(image.array, array)
    assert image.channel_axis == (2 if len(shape) == 3 else None)
    assert image.axes == ("yxc" if len(shape) == 3 else "yx")


class Evil:
    """Makes a file when it is unpickled."""

    def __reduce__(self):
        return (open, ("executed", "w"))


@pytest.mark.parametrize(
    "array",
    [np.zeros((2, 2), complex), np.array(["a"]), np.zeros((0, 3)), np.array([Evil()], object)],
)
def test_array_of_no_pixels_is_refused(tmp_path, monkeypatch, array):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", array, allow_pickle=True)
    with pytest.raises(FormatError, match=r"a\.npy"):
        read_image(tmp_path / "a.npy")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.npy", "a.xyz"])
@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01\x00"])
def test_no_image_is_a_format_error_on_one_line(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=name) as caught:
        read_image(tmp_path / name)
    assert "\n" not in str(caught.value) and str(caught.value).count(f"{name}: ") == 1


@pytest.mark.parametrize(
    ("name", "words"), [("b.tif", "no such file"), ("c.zarr", "holds no"), ("d.zarr", "holds no")]
)
def test_missing_file_and_empty_folder_are_named(tmp_path, name, words):
    (tmp_path / "c.zarr").mkdir()
    zarr.open_group(tmp_path / "d.zarr", mode="w")
    with pytest.raises(FormatError, match=f"{name}: .*{words}"):
        read_image(tmp_path / name)


def write_stack(path, pixels):
    if path.suffix == ".npy":
        np.save(path, pixels)
    elif path.suffix == ".tif":
        tifffile.imwrite(path, pixels, metadata={"axes": "ZYX"}, photometric="minisblack")
    elif path.suffix == ".gif":
        iio.imwrite(path, pixels)
    else:
        write_image(pixels, zarr.open_group(path, mode="w"), axes="zyx", scale_factors=[])


@pytest.mark.parametrize("name", ["a.npy", "a.tif", "a.ome.zarr"])
def test_an_image_larger_than_the_memory_is_not_read(tmp_path, name, monkeypatch):
    pixels = STACK.astype(np.uint8)
    write_stack(tmp_path / name, pixels)
    free = SimpleNamespace(available=pixels.nbytes - 1)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    with pytest.raises(ComputeError, match=f"{name}: not enough memory"):
        read_image(tmp_path / name)


@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("name", ["a.tif", "a.png", "a.npy"])
@settings(max_examples=25)
@given(data=st.data())
def test_damaged_file_is_read_or_a_format_error(tmp_path, name, data):
    path = tmp_path / name
    if name == "a.tif":
        tifffile.imwrite(path, STACK, ome=True, compression="zlib", metadata={"axes": "ZYX"})
    elif name == "a.png":
        iio.imwrite(path, STACK[0].astype(np.uint8))
    else:
        np.save(path, STACK)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))])
    try:
        image = read_image(path)
    except (FormatError, ComputeError) as error:
        assert name in str(error)
    else:
        assert isinstance(image, ImageFile)


@pytest.mark.parametrize("name", ["a.gif", "a.ome.zarr"])
def test_a_single_plane_is_no_stack(tmp_path, name):
    pixels = STACK[:1].astype(np.uint8)
    write_stack(tmp_path / name, pixels)
    image = read_image(tmp_path / name)
    assert image.axes.replace("c", "") == "yx"
    assert image.array.shape[:2] == pixels.shape[1:]
    assert image.stated_channel_axis is None


def test_pages_that_were_appended_are_a_stack(tmp_path):
    pages = np.arange(4 * 30 * 40, dtype=np.uint16).reshape(4, 30, 40)
    for page in pages:
        tifffile.imwrite(tmp_path / "a.tif", page, append=True)
    image = read_image(tmp_path / "a.tif")
    assert np.array_equal(image.array, pages) and image.axes == "zyx"
    part = ImageSource.open(tmp_path / "a.tif").read((slice(1, 3), slice(0, 30), slice(5, 9)))
    assert np.array_equal(part[..., 0], pages[1:3, :, 5:9])
    assert find_images([tmp_path]) == [tmp_path / "a.tif"]


def test_a_file_of_several_images_is_a_folder_of_them(tmp_path):
    """The first, such as a thumbnail, is never taken in silence."""
    arrays = [np.full(shape, k + 1, np.uint8) for k, shape in enumerate([(16, 20), (48, 60)])]
    for array in arrays:
        tifffile.imwrite(tmp_path / "a.tif", array, append=True)
    for read in (read_image, ImageSource.open):
        with pytest.raises(
            FormatError, match=r"2 images: name one, a\.tif#0 \(16 x 20\), a\.tif#1"
        ):
            read(tmp_path / "a.tif")
    paths = find_images([tmp_path])
    assert [path.name for path in paths] == ["a.tif#0", "a.tif#1"]
    for path, array in zip(paths, arrays, strict=True):
        assert np.array_equal(read_image(path).array, array)
        assert ImageSource.open(path).shape == array.shape
    assert [mask_stem(path) for path in paths] == ["a-0", "a-1"]
    with pytest.raises(FormatError, match="holds 2 images"):
        read_image(tmp_path / "a.tif#2")


def put_image(group, array, **more):
    group.create_array("0", data=array)
    axes = [{"name": n, "type": "space", "unit": "micrometer"} for n in "yx"]
    moves = [{"type": "scale", "scale": [0.5, 0.25]}, *more.pop("moves", [])]
    levels = {"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": moves}]}
    group.attrs["ome"] = {"version": "0.5", "multiscales": [levels | more]}


def test_a_plate_is_a_folder_of_its_fields(tmp_path):
    plate = zarr.open_group(tmp_path / "p.ome.zarr", mode="w", zarr_format=3)
    wells = [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}]
    plate.attrs["ome"] = {"version": "0.5", "plate": {"wells": wells}}
    well = plate.create_group("A").create_group("1")
    well.attrs["ome"] = {"version": "0.5", "well": {"images": [{"path": "0"}, {"path": "1"}]}}
    for k in range(2):
        put_image(well.create_group(str(k)), np.full((8, 9), k))
    paths = find_images([tmp_path / "p.ome.zarr"])
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == [
        "p.ome.zarr/A/1/0",
        "p.ome.zarr/A/1/1",
    ]
    assert [int(read_image(path).array.max()) for path in paths] == [0, 1]
    assert [mask_stem(path) for path in paths] == ["p-A-1-0", "p-A-1-1"]
    with pytest.raises(FormatError, match="2 images, such as A/1/0"):
        read_image(tmp_path / "p.ome.zarr")


def test_what_bioformats2raw_converted_is_a_folder_of_its_series(tmp_path):
    store = zarr.open_group(tmp_path / "f.zarr", mode="w", zarr_format=3)
    store.attrs["ome"] = {"version": "0.5", "bioformats2raw.layout": 3}
    for k in range(2):
        put_image(store.create_group(str(k)), np.full((8, 9), k))
    assert [path.name for path in find_images([tmp_path / "f.zarr"])] == ["0", "1"]


@pytest.mark.parametrize("kind", ["0.5", "sequence", "0.6"])
def test_where_an_ome_zarr_lies_is_read(tmp_path, kind):
    group = zarr.open_group(tmp_path / "a.ome.zarr", mode="w", zarr_format=3)
    moves = [{"type": "translation", "translation": [100.0, 200.0]}]
    put_image(group, np.zeros((8, 9), np.uint8), moves=moves)
    about = dict(group.attrs["ome"])
    (levels,) = about["multiscales"]
    if kind != "0.5":
        transformations = levels["datasets"][0]["coordinateTransformations"]
        levels["datasets"][0]["coordinateTransformations"] = [
            {"type": "sequence", "transformations": transformations}
        ]
    if kind == "0.6":
        levels["coordinateSystems"] = [{"name": "physical", "axes": levels.pop("axes")}]
    group.attrs["ome"] = about
    image = read_image(tmp_path / "a.ome.zarr")
    assert (image.axes, image.scale, image.origin) == ("yx", (0.5, 0.25), (100, 200))
    levels["datasets"][0]["coordinateTransformations"] = [{"type": "rotation", "rotation": []}]
    group.attrs["ome"] = about
    with pytest.raises(FormatError, match="coordinate transformation 'rotation'"):
        read_image(tmp_path / "a.ome.zarr")


@pytest.mark.parametrize(
    ("how", "kind"), [("tag", np.int16), ("zarr", np.uint8), ("given", np.float32)]
)
def test_pixels_without_data_are_not_a_number(tmp_path, kind, how):
    """Of labels they are 0."""
    value = 255 if kind == np.uint8 else -9999
    array = np.arange(72).reshape(8, 9).astype(kind)
    array[2:4] = value
    path, more = tmp_path / "a.tif", {}
    if how == "zarr":
        path = tmp_path / "a.zarr"
        zarr.create_array(path, data=array, attributes={"_FillValue": value})
    elif how == "tag":
        tifffile.imwrite(path, array, extratags=[(42113, "s", 0, str(value), True)])
    else:
        tifffile.imwrite(path, array)
        more = {"no_data": value}
    image = read_image(path, **more)
    assert image.no_data == value and image.array.dtype.kind == "f"
    assert np.array_equal(np.isnan(image.array), array == value)
    source = ImageSource.open(path, **more)
    part = source.read((slice(0, 8), slice(0, 9)))[..., 0]
    assert np.array_equal(part, image.array, equal_nan=True)
    if how != "given":
        assert (read_labels(path).array[2:4] == 0).all()


@pytest.mark.parametrize("orientation", [2, 5, 6])
def test_a_photograph_is_read_upright(tmp_path, orientation):
    pixels = np.zeros((16, 24, 3), np.uint8)
    pixels[:8, :8] = 255
    photo = Image.fromarray(pixels)
    exif = photo.getexif()
    exif[0x0112] = orientation
    photo.save(tmp_path / "a.jpg", exif=exif, quality=100)
    seen = np.asarray(ImageOps.exif_transpose(Image.open(tmp_path / "a.jpg")))
    assert np.array_equal(read_image(tmp_path / "a.jpg").array, seen)


def test_sixteen_bits_of_a_colour_png_are_kept(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 2**16, (12, 9, 4)).astype(np.uint16)
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(pixels))
    image = read_image(tmp_path / "a.png")
    assert np.array_equal(image.array, pixels) and image.channel_axis == 2


@pytest.mark.parametrize(("value", "n_missing"), [(0, 1), (-1, 3)])
def test_a_value_that_may_be_a_colour_counts_where_all_channels_have_it(tmp_path, value, n_missing):
    array = np.full((8, 9, 3), 7, np.int16)
    array[0, 0] = array[1, 1, 0] = array[2, 2, :2] = value
    tifffile.imwrite(tmp_path / "a.tif", array, photometric="rgb")
    image = read_image(tmp_path / "a.tif", no_data=value)
    assert (~np.isfinite(image.array).all(axis=-1)).sum() == n_missing
    source = ImageSource.open(tmp_path / "a.tif", no_data=value)
    part = source.read((slice(0, 8), slice(0, 9)))
    assert np.array_equal(part, image.array, equal_nan=True)


def test_chunks_of_objects_are_not_even_read(tmp_path):
    path = tmp_path / "a.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=2)
    write_image(STACK[0], group, axes="yx", scale_factors=[], fmt=FormatV04())
    described = next(path.rglob(".zarray"))
    filters = [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}]
    objects = {"dtype": "|O", "fill_value": "", "filters": filters, "compressor": None}
    described.write_text(json.dumps(json.loads(described.read_text()) | objects))
    with pytest.raises(FormatError, match="expected real numbers"):
        read_image(path)
