"""Images that other programs write in ways of their own: none is read wrong in silence."""

import zipfile

import imagecodecs
import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image

import napari_saf as saf
from napari_saf.errors import FormatError
from napari_saf.io import differs_in_napari, find_images
from napari_saf.objects import ObjectStep

RNG = np.random.default_rng(0)
GREY = RNG.integers(1, 255, (20, 30), dtype=np.uint8)
RGB = RNG.integers(1, 255, (20, 30, 3), dtype=np.uint8)
STACK = RNG.integers(1, 255, (2, 3, 4, 20, 30), dtype=np.uint8)  # t, z, c, y, x


def read_both(path):
    """Return the pixels of an image, channels last, which are the same at once and in parts."""
    image, source = saf.read_image(path), saf.ImageSource.open(path)
    array, axis = image.array, image.channel_axis
    array = array if axis is None else np.moveaxis(array, axis, -1)
    parts = source.read(tuple(slice(0, side) for side in source.shape))
    assert source.axes == image.label_axes
    n_channels = 1 if axis is None else parts.shape[-1]  # alpha is left out of parts
    np.testing.assert_array_equal(parts, array.reshape(*source.shape, -1)[..., :n_channels])
    return array, image


@pytest.mark.parametrize("order", ["CZTYX", "ZTCYX", "TCZYX"])
def test_axes_come_as_t_z_y_x(tmp_path, order):
    path = tmp_path / "a.ome.tif"
    stored = STACK.transpose(["TZCYX".index(name) for name in order])
    sizes = {"PhysicalSizeZ": 2, "PhysicalSizeY": 0.5, "TimeIncrement": 3}
    tifffile.imwrite(path, stored, ome=True, metadata={"axes": order} | sizes)
    array, image = read_both(path)
    np.testing.assert_array_equal(array, np.moveaxis(STACK, 2, -1))
    assert image.label_axes == "tzyx" and image.scale == (3, 2, 0.5, 1)
    assert differs_in_napari(path) == (order.index("Z") < order.index("T"))


def test_axes_of_a_zarr_may_be_x_y_z(tmp_path):
    path, axes = tmp_path / "a.zarr", [{"name": name, "type": "space"} for name in "xyz"]
    group = zarr.open_group(path, mode="w")
    group.create_array("0", data=STACK[0, :, 0].T, chunks=(7, 8, 2))
    steps = [
        {"type": "scale", "scale": [0.25, 0.5, 2]},
        {"type": "translation", "translation": [1, 2, 3]},
    ]
    levels = [{"path": "0", "coordinateTransformations": steps}]
    group.update_attributes(
        {"ome": {"version": "0.5", "multiscales": [{"axes": axes, "datasets": levels}]}}
    )
    array, image = read_both(path)
    np.testing.assert_array_equal(array, STACK[0, :, 0])
    assert (image.axes, image.scale, image.origin) == ("zyx", (2, 0.5, 0.25), (3, 2, 1))
    part = saf.ImageSource.open(path).read((slice(1, 3), slice(5, 9), slice(0, 20)))
    np.testing.assert_array_equal(part[..., 0], STACK[0, 1:3, 0, 5:9, :20])
    with pytest.raises(saf.InvalidInput, match="order of axes, which is not t, z, y, x"):
        saf.label_large(path, saf.SelfAssignmentFlow(max_labels=2), path / "labels" / "cells")


@pytest.mark.parametrize("kind", ["grey", "planar"])
def test_alpha_of_a_tiff_is_no_channel(tmp_path, kind):
    colors = GREY[..., None] if kind == "grey" else RGB
    array = np.dstack([colors, np.full_like(GREY, 9)])
    options = {"photometric": "minisblack" if kind == "grey" else "rgb", "planarconfig": "contig"}
    if kind == "planar":
        array, options["planarconfig"] = np.moveaxis(array, -1, 0), "separate"
    tifffile.imwrite(tmp_path / "a.tif", array, extrasamples=["unassalpha"], **options)
    found, _ = read_both(tmp_path / "a.tif")
    np.testing.assert_array_equal(found, GREY if kind == "grey" else RGB)


@pytest.mark.parametrize("name", ["a.gif", "a.png", "a.webp"])
def test_all_frames_of_an_animation_are_read_and_one_is_a_plane(tmp_path, name):
    frames = [Image.fromarray(np.roll(GREY, 5 * k, axis=0)) for k in range(3)]
    frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], lossless=True)
    array, image = read_both(tmp_path / name)
    brightness = array if image.channel_axis is None else array[..., 0]
    assert image.label_axes == "zyx"
    np.testing.assert_allclose(brightness, np.stack([np.asarray(one) for one in frames]), atol=1)
    frames[0].save(tmp_path / name, lossless=True)
    assert read_both(tmp_path / name)[1].label_axes == "yx"


def test_photographs_that_previews_follow_are_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    photo, preview = (Image.fromarray(RGB).resize(size) for size in ((64, 48), (32, 24)))
    photo.save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=[preview], exif=exif)
    assert read_both(tmp_path / "a.jpg")[0].shape == (64, 48, 3)


def test_grey_png_of_16_bits_with_alpha_keeps_its_bits(tmp_path):
    deep = GREY.astype(np.uint16) * 256 + 3
    content = imagecodecs.png_encode(np.dstack([deep, deep]))
    (tmp_path / "a.png").write_bytes(content)
    np.testing.assert_array_equal(read_both(tmp_path / "a.png")[0], deep)


def write_lab(path):
    Image.fromarray(RGB).convert("LAB").save(path, format="TIFF")


def write_ycbcr(path):
    tifffile.imwrite(path, RGB, photometric="ycbcr", subsampling=(1, 1))


def write_zip(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("zarr.json", "{}")


def write_objects(path):
    with path.open("wb") as file:
        np.save(file, {"masks": GREY}, allow_pickle=True)


@pytest.mark.parametrize(
    ("name", "write", "words"),
    [
        ("a.tif", write_lab, "CIELAB colours; save it as RGB"),
        ("a.tif", write_ycbcr, "YCbCr colours; save it as RGB"),
        ("a.ome.zarr.zip", write_zip, "an archive .*: unpack it"),
        ("a_seg.npy", write_objects, "Python objects, which are not loaded"),
    ],
)
def test_what_would_be_read_wrong_is_refused_in_words(tmp_path, name, write, words):
    write(tmp_path / name)
    for read in (saf.read_image, saf.ImageSource.open):
        with pytest.raises(FormatError, match=words):
            read(tmp_path / name)


def test_planes_that_are_not_there_are_said(tmp_path):
    planes = "".join(
        f'<TiffData IFD="0" FirstZ="{k}" PlaneCount="1">'
        f'<UUID FileName="{k}.ome.tif">urn:uuid:{k}</UUID></TiffData>'
        for k in range(2)
    )
    text = (
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="urn:uuid:0">'
        '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint8" SizeX="30" '
        'SizeY="20" SizeC="1" SizeZ="2" SizeT="1"><Channel ID="Channel:0:0"/>'
        f"{planes}</Pixels></Image></OME>"
    )
    tifffile.imwrite(tmp_path / "0.ome.tif", GREY, description=text, metadata=None)
    note = ("1 of 2 planes are not there and count as 0",)
    assert saf.read_image(tmp_path / "0.ome.tif").notes == note
    assert saf.ImageSource.open(tmp_path / "0.ome.tif").notes == note


@pytest.mark.parametrize(
    ("unit", "symbol", "word"), [("cm", "cm", "centimeter"), ("micron", "µm", "micrometer")]
)
def test_units_are_those_of_the_format(tmp_path, unit, symbol, word):
    tifffile.imwrite(
        tmp_path / "a.tif", GREY, imagej=True, resolution=(2, 2), metadata={"unit": unit}
    )
    image = saf.read_image(tmp_path / "a.tif")
    assert image.scale == (0.5, 0.5)
    for name in ("m.tif", "m.ome.zarr"):
        saf.save_masks(tmp_path / name, image.array, scale=image.scale, units=image.units)
    with tifffile.TiffFile(tmp_path / "m.tif") as file:
        assert f'PhysicalSizeXUnit="{symbol}"' in file.ome_metadata
    about = zarr.open_group(tmp_path / "m.ome.zarr", mode="r").attrs["ome"]
    assert {axis["unit"] for axis in about["multiscales"][0]["axes"]} == {word}


def test_labels_that_jpeg_blended_are_refused(tmp_path):
    labels = np.zeros((40, 50), np.uint8)
    labels[3:12, 3:12], labels[20:32, 20:35] = 100, 200
    Image.fromarray(labels).save(tmp_path / "a.jpg")
    with pytest.raises(FormatError, match="JPEG blends labels"):
        saf.read_labels(tmp_path / "a.jpg")
    halves = np.repeat([[0] * 16 + [255] * 16], 16, axis=0).astype(np.uint8)
    Image.fromarray(halves).save(tmp_path / "b.jpg", quality=100)
    assert np.unique(saf.read_labels(tmp_path / "b.jpg").array).tolist() == [0, 255]


def test_lengths_are_in_one_unit_or_objects_are_split_by_pixels(tmp_path):
    labels = np.kron([[1, 0], [0, 2]], np.ones((9, 9), np.uint8)).astype(np.uint8)
    about = {"axes": "YX", "PhysicalSizeX": -500, "PhysicalSizeXUnit": "nm", "PhysicalSizeY": 0.5}
    tifffile.imwrite(tmp_path / "a.ome.tif", labels, ome=True, metadata=about)
    image = saf.read_labels(tmp_path / "a.ome.tif")
    assert (image.scale, image.units) == ((500, 500), ("nm", "nm"))
    _, table = ObjectStep().run(labels, None, scale=image.scale, units=image.units)
    assert table["area_nm2"].tolist() == [81 * 500**2] * 2
    found, _ = ObjectStep().run(labels, None, scale=(1, 900), units=("pixel", "nm"))
    assert "units differ (y pixel, x nm)" in found.notes[0]
    by_pixels, _ = ObjectStep().run(labels, None)
    np.testing.assert_array_equal(found.labels, by_pixels.labels)
    saf.save_masks(tmp_path / "m.ome.zarr", labels, scale=(1, 900), units=("pixel", "nm"))
    large = saf.split_large(tmp_path / "m.ome.zarr", tmp_path / "o.ome.zarr")
    assert "units differ" in large.notes[0]


def test_of_several_multiscales_none_is_taken_in_silence(tmp_path):
    path, axes = tmp_path / "a.zarr", [{"name": name, "type": "space"} for name in "yx"]
    group, images = zarr.open_group(path, mode="w"), []
    for k in range(2):
        group.create_array(f"s{k}", data=GREY[k:])
        scale = {"type": "scale", "scale": [1, 1]}
        datasets = [{"path": f"s{k}", "coordinateTransformations": [scale]}]
        images.append({"axes": axes, "datasets": datasets})
    group.update_attributes({"ome": {"version": "0.5", "multiscales": images}})
    for read in (saf.read_image, saf.ImageSource.open):
        with pytest.raises(FormatError, match="holds 2 images: name one by #0, #1"):
            read(path)
    assert find_images([path]) == [tmp_path / "a.zarr#0", tmp_path / "a.zarr#1"]
    np.testing.assert_array_equal(read_both(f"{path}#1")[0], GREY[1:])
    with pytest.raises(FormatError, match="holds 2 images"):
        saf.read_image(f"{path}#2")


def test_tiff_with_another_suffix_is_read_as_tiff_and_seen_in_folders(tmp_path):
    stack = np.stack([GREY, GREY.T.reshape(GREY.shape), GREY])
    for name in ("a.svs", "b.LSM", "c.unknown"):
        tifffile.imwrite(tmp_path / name, stack, photometric="minisblack")
        np.testing.assert_array_equal(read_both(tmp_path / name)[0], stack)
    assert [path.name for path in find_images([tmp_path])] == ["a.svs", "b.LSM"]
