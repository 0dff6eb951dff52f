"""The table in docs/file_formats.md of what is read of images, and what masks keep."""

import re
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image

import napari_saf as saf
from napari_saf.io import Export, ExportSelection, Labelling

PIXELS = np.arange(2 * 5 * 6, dtype=np.uint8).reshape(2, 5, 6)
LABELS = PIXELS % 2
AXES, SIZES, UNITS, ORIGIN = "tyx", (3.0, 0.5, 0.25), ("s", "µm", "µm"), (0.0, 4.0, 6.0)
AFFINE = np.array([[0, -0.5, 0, 4], [0.25, 0, 0, 6], [0, 0, 1, 8], [0, 0, 0, 1.0]])
EARTH = ((33550, "d", 3, (10.0, 10.0, 0.0), True), (34735, "H", 4, (1, 1, 0, 0), True))
NO_DATA = (42113, "s", 0, "7", True)


def write_ome_tiff(path):
    sizes = {"PhysicalSizeY": 0.5, "PhysicalSizeX": 0.25, "TimeIncrement": 3}
    tifffile.imwrite(path, PIXELS, ome=True, metadata={"axes": "TYX"} | sizes, extratags=[NO_DATA])


def write_imagej(path):
    about = {"axes": "TYX", "finterval": 3, "unit": "um"}
    tags = {"resolution": (4, 2), "extratags": [NO_DATA]}
    tifffile.imwrite(path, PIXELS, imagej=True, metadata=about, **tags)


def write_geotiff(path):
    tifffile.imwrite(path, PIXELS, metadata=None, extratags=[*EARTH, NO_DATA])


def write_tiff(path):
    size = {"resolution": (40000, 20000), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite(path, PIXELS, metadata=None, extratags=[NO_DATA], **size)


def write_zarr_array(path):
    zarr.create_array(path, data=PIXELS).update_attributes({"_FillValue": 7})


def write_ome_zarr(path):
    group = zarr.open_group(path, mode="w")
    group.create_array("s0", data=PIXELS).update_attributes({"_FillValue": 7})
    axes = [{"name": "t", "type": "time", "unit": "second"}]
    axes += [{"name": name, "type": "space", "unit": "micrometer"} for name in "yx"]
    steps = [{"type": "scale", "scale": SIZES}, {"type": "translation", "translation": ORIGIN}]
    levels = [{"path": "s0", "coordinateTransformations": steps}]
    multiscale = {"axes": axes, "datasets": levels}
    group.update_attributes({"ome": {"version": "0.5", "multiscales": [multiscale]}})


def write_nifti(path):
    nibabel = pytest.importorskip("nibabel")
    image = nibabel.Nifti1Image(PIXELS[:, None].T, AFFINE)
    image.header.set_xyzt_units("micron", "sec")
    image.header["pixdim"][4] = 3
    nibabel.save(image, path)


def write_png(path):
    Image.fromarray(PIXELS[0]).save(path, dpi=(100, 50))


FORMATS = {
    "OME-TIFF": ("i.ome.tif", write_ome_tiff, ".tif"),
    "TIFF of ImageJ": ("i.tif", write_imagej, None),
    "GeoTIFF": ("i.tif", write_geotiff, ".tif"),
    "other TIFF": ("i.tif", write_tiff, None),
    "OME-Zarr": ("i.ome.zarr", write_ome_zarr, ".ome.zarr"),
    "a zarr array by itself": ("i.zarr", write_zarr_array, None),
    "`.npy`": ("i.npy", lambda path: np.save(path, PIXELS), ".npy"),
    "`.npy` and `.json`, by Export": (None, None, ".npy"),
    "NIfTI": ("i.nii.gz", write_nifti, ".nii.gz"),
    "`.png`": ("i.png", write_png, ".png"),
    "files of microscopes": ("i.czi", None, None),
}
"""By row: an image as others write it, and the suffix of a mask."""
PLACES = {"GeoTIFF": "georeference", "NIfTI": "affine"}


def rows():
    """Return the cells of each row of the table, by its first one, by the heads of columns."""
    text = (Path(__file__).parents[2] / "docs" / "file_formats.md").read_text(encoding="utf8")
    table = re.search(r"^\| \| Axes .*?\n\n", text, re.MULTILINE | re.DOTALL)[0]
    head, _, *lines = [
        [*map(str.strip, line.split("|")[1:-1])] for line in table.splitlines() if line
    ]
    return {line[0]: dict(zip(head[1:], line[1:], strict=True)) for line in lines}


def kept_of(image, row):
    """Return which columns an image, or a mask, has as they were written."""
    sizes = dict(zip(image.axes or "", image.scale or (), strict=False))
    units = dict(zip(image.axes or "", image.units or (), strict=False))
    is_micrometer = {units.get(name) for name in "yx"} <= {"µm", "um", "micrometer", "micron"}
    lies = image.origin == ORIGIN if PLACES.get(row) is None else False
    if PLACES.get(row) == "affine" and image.affine is not None:
        lies = np.allclose(image.affine, AFFINE)
    elif PLACES.get(row) == "georeference":
        lies = [one[3] for one in image.georeference] == [one[3] for one in EARTH]
    colors = getattr(image, "colors", None) or {}
    return {
        "Axes": image.axes == AXES,
        "Pixel size": (sizes.get("y"), sizes.get("x")) == SIZES[1:] and is_micrometer,
        "Where it lies": lies,
        "Interval of frames": sizes.get("t") == 3 and units["t"] in ("s", "sec", "second"),
        "Names": getattr(image, "names", None) == {1: "sky"},
        "Colours": [(n, *color[:3]) for n, color in colors.items()] == [(1, 1, 0, 0)],
        "Pixels without data": getattr(image, "no_data", None) == 7,
    }


def read_by_others(row, request):
    name, write, _ = FORMATS[row]
    if name is None:
        return dict.fromkeys(rows()[row], False)
    if name.endswith(".czi"):
        path = request.getfixturevalue("microscope_file")(name, a_TYX=PIXELS)
    else:
        write(path := request.getfixturevalue("tmp_path") / name)
    labels = kept_of(saf.read_mask(path), row) if "zarr array" not in row else {}
    names = {key: labels.get(key, False) for key in ("Names", "Colours")}
    return kept_of(saf.read_image(path), row) | names


def read_again(row, tmp_path):
    suffix = FORMATS[row][2]
    if suffix is None:
        return dict.fromkeys(rows()[row], False)
    labels, n_axes = (LABELS[0], 2) if suffix == ".png" else (LABELS, 3)
    known = {
        "scale": SIZES[-n_axes:], "units": UNITS[-n_axes:], "axes": AXES[-n_axes:],
        "origin": ORIGIN[-n_axes:], "names": {1: "sky"}, "colors": {1: (1, 0, 0)},
        "georeference": EARTH,
    }  # fmt: skip
    if suffix == ".nii.gz":
        pytest.importorskip("nibabel")
        known["affine"] = AFFINE
    path = tmp_path / f"m.labels{suffix}"
    if "Export" in row:
        Export(tmp_path, "m", Labelling(labels, **known), ExportSelection(masks=suffix)).write()
    else:
        saf.save_masks(path, labels, **known)
    return kept_of(saf.read_mask(path), row)


def test_every_row_is_tried():
    assert rows().keys() == FORMATS.keys()


@pytest.mark.parametrize("row", FORMATS)
def test_the_table_says_what_is_read_and_kept(row, tmp_path, request):
    is_read, is_kept = read_by_others(row, request), read_again(row, tmp_path)
    found = {}
    for column in rows()[row]:
        words = ["read"] * is_read[column] + ["kept"] * is_kept[column]
        found[column] = ", ".join(words) or "no"
    assert found == rows()[row]
