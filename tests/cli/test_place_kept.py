"""Where scans and maps lie is kept by what is made of their masks, as other programs read it."""

import numpy as np
import pytest
import tifffile

import napari_saf as saf

AFFINE = np.array([[0, -0.5, 0, 90], [0.5, 0, 0, -126], [0, 0.1, 3, -72], [0, 0, 0, 1.0]])
TAGS = [
    (33550, "d", 3, (10.0, 10.0, 0.0), True),
    (33922, "d", 6, (0.0, 0.0, 0.0, 500000.0, 4649776.0, 0.0), True),
    (34735, "H", 8, (1, 1, 0, 1, 3072, 0, 1, 32633), True),
]
LABELS = np.zeros((6, 20, 30), np.uint8)
LABELS[:, 3:10, 4:12], LABELS[:, 8:17, 15:26] = 1, 2


@pytest.fixture
def scan(cli):
    nibabel = pytest.importorskip("nibabel")
    nibabel.save(nibabel.Nifti1Image(LABELS.T * 50, AFFINE), "scan.nii.gz")
    saf.save_masks("scan.labels.nii.gz", LABELS, affine=AFFINE, axes="zyx")
    saf.save_masks("bare.labels.npy", LABELS)


@pytest.fixture
def earth(cli):
    tifffile.imwrite("map.tif", LABELS[0] * np.uint8(50), extratags=TAGS)
    georeference = saf.read_image("map.tif").georeference
    saf.save_masks("map.labels.tif", LABELS[0], georeference=georeference)
    saf.save_masks("bare.labels.npy", LABELS[0])


def lies_where_it_should(path):
    """Whether a mask lies where the scan does, or the map, as other programs read it."""
    if path.endswith(".nii.gz"):
        image = pytest.importorskip("nibabel").load(path)
        return image.shape == LABELS.T.shape and np.allclose(image.affine, AFFINE, atol=1e-5)
    with tifffile.TiffFile(path) as file:
        tags = [file.pages[0].tags[code].value for code in (33550, 33922, 34735)]
    return tags == [values for _, _, _, values, _ in TAGS]


def commands(image, mask, suffix):
    """Yield commands, and the masks that they write."""
    if "bare" not in mask:
        segment = ("segment", image, "-o", f"m{suffix}", "--max-labels", 2, "--objects")
        yield segment, [f"m{suffix}", f"m.objects{suffix}"]
    yield ("sharpen", mask, image, "-o", f"s{suffix}"), [f"s{suffix}"]
    numbered = [f"out/{mask.split('.')[0]}.objects{suffix}"]
    yield ("objects", mask, "--image", image, "-o", "out/o.csv", "--masks", suffix), numbered
    kinds = [word for name in ("masks", "binary", "numbered") for word in (f"--{name}", suffix)]
    ends = (".labels", "_1", "_2", ".regions")
    written = [f"e/{mask.split('.')[0]}{end}{suffix}" for end in ends]
    yield ("export", mask, "--image", image, "-o", "e", *kinds), written


@pytest.mark.parametrize("mask", ["scan.labels.nii.gz", "bare.labels.npy"])
def test_the_affine_of_a_scan_is_kept(cli, scan, mask):
    for arguments, written in commands("scan.nii.gz", mask, ".nii.gz"):
        run = cli(*arguments)
        assert run.code == 0 and "does not keep" not in run.err, run.err
        assert all(map(lies_where_it_should, written))


@pytest.mark.parametrize("mask", ["map.labels.tif", "bare.labels.npy"])
def test_where_a_map_lies_on_earth_is_kept(cli, earth, mask):
    for arguments, written in commands("map.tif", mask, ".tif"):
        assert cli(*arguments).code == 0
        assert all(map(lies_where_it_should, written))
    rasterio = pytest.importorskip("rasterio")
    with rasterio.open("s.tif") as opened:
        assert opened.crs.to_epsg() == 32633 and opened.transform.f == 4649776


def test_formats_that_lose_the_place_say_so(cli, scan):
    for arguments, _ in commands("scan.nii.gz", "scan.labels.nii.gz", ".tif"):
        assert "where the scan lies" in cli(*arguments).err


def test_pixels_without_data_are_left_out_of_what_is_made_of_a_mask(cli):
    pixels = LABELS[0] * np.int16(50)
    pixels[:, :8] = -1
    tifffile.imwrite("map.tif", pixels, extratags=[*TAGS, (42113, "s", 0, "-1", True)])
    saf.save_masks("map.labels.tif", LABELS[0])
    run = cli("sharpen", "map.labels.tif", "map.tif", "-o", "s.tif")
    assert run.code == 0, run.err
    sharp = saf.read_labels("s.tif").array
    np.testing.assert_array_equal(sharp[:, :8], LABELS[0][:, :8])
    run = cli("export", "map.labels.tif", "--image", "map.tif", "-o", "e", "--prototypes", ".json")
    assert run.code == 0, run.err
    prototypes = saf.load_prototypes("e/map.prototypes.json")
    assert np.isfinite(prototypes.vectors).all() and len(prototypes.vectors) == 2
