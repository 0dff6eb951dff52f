"""Files of microscopes through bioio, by a plug-in that is made here: its files are arrays."""

import sys

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.errors import FormatError
from napari_saf.io import find_images

STACK = np.arange(3 * 2 * 4 * 20 * 30, dtype=np.uint16).reshape(3, 2, 4, 20, 30)


def test_planes_are_read_alone(microscope_file):
    source = saf.ImageSource.open(microscope_file("a.czi", a_TCZYX=STACK))
    assert (source.shape, source.axes, source.n_channels) == ((3, 4, 20, 30), "tzyx", 2)
    assert source.piece == (1, 1, 20, 30)
    part = source.read((slice(1, 2), slice(0, 3), slice(5, 9), slice(0, 7)))
    np.testing.assert_array_equal(part, np.moveaxis(STACK[1:2, :, :3, 5:9, :7], 1, -1))


def test_single_planes_have_no_axis_and_colours_come_last(microscope_file):
    rgb = STACK[0, 0, 0, :, :, None] + np.arange(3, dtype=np.uint16)
    image = saf.read_image(microscope_file("a.czi", a_TCZYXS=rgb[None, None, None]))
    np.testing.assert_array_equal(image.array, rgb)
    assert (image.axes, image.scale) == ("yxc", (0.5, 0.25))


def test_scenes_are_images_and_none_is_taken_in_silence(microscope_file):
    file = microscope_file("a.czi", a_YX=STACK[0, 0, 0], b_ZYX=STACK[0, 0])
    with pytest.raises(FormatError, match=r"holds 2 images: name one, a\.czi#0 \(a_YX\), a\.czi#1"):
        saf.read_image(file)
    assert find_images([file.parent]) == [file.with_name(f"a.czi#{k}") for k in (0, 1)]
    np.testing.assert_array_equal(saf.read_image(f"{file}#1").array, STACK[0, 0])
    with pytest.raises(FormatError, match="the first of which is #0"):
        saf.ImageSource.open(f"{file}#2")


def test_damaged_files_say_which_plugin_there_should_be(microscope_file, tmp_path):
    for name, expected in (
        ("a.czi", "is bioio-czi installed"),
        ("b.lif", "is bioio-lif installed"),
    ):
        (tmp_path / name).write_bytes(b"no such file")
        with pytest.raises(FormatError, match=rf"{name}: .*{expected}"):
            saf.read_image(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("a.nd2", r"napari-saf\[bioio\]' bioio-nd2"), ("a.xyz", r"more is read by bioio")],
)
def test_without_bioio_it_is_said_what_to_install(tmp_path, monkeypatch, name, hint):
    monkeypatch.setitem(sys.modules, "bioio", None)
    (tmp_path / name).write_bytes(b"no such file")
    with pytest.raises(FormatError, match=hint):
        saf.read_image(tmp_path / name)
