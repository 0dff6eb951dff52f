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
def affine_of(cli):
    nibabel = pytest.importorskip("nibabel")
    nibabel.save(nibabel.Nifti1Image(LABELS.T * 50, AFFINE), "scan.nii.gz")
    saf.save_masks("scan.labels.nii.gz", LABELS, affine=AFFINE, axes="zyx")
    saf.save_masks("bare.labels.npy", LABELS)

    def read(path):
        image = nibabel.load(path)
        assert image.shape == LABELS.T.shape
        return image.affine

    return read


@pytest.fixture
def tags_of(cli):
    tifffile.imwrite("map.tif", LABELS[0] * np.uint8(50), extratags=TAGS)
    georeference = saf.read_image("map.tif").georeference
    saf.save_masks("map.labels.tif", LABELS[0], georeference=georeference)
    saf.save_masks("bare.labels.npy", LABELS[0])

    def read(path):
        with tifffile.TiffFile(path) as file:
            return [file.pages[0].tags[code].value for code in (33550, 33922, 34735)]

    return read


def commands(image, mask, suffix):
    """Yield commands, and the masks that they write."""
    yield ("sharpen", mask, image, "-o", f"s{suffix}"), [f"s{suffix}"]
    numbered = [f"out/{mask.split('.')[0]}.objects{suffix}"]
    yield ("objects", mask, "--image", image, "-o", "out/o.csv", "--masks", suffix), numbered
    kinds = [word for name in ("masks", "binary", "numbered") for word in (f"--{name}", suffix)]
    ends = ("", "_1", "_2", "_regions")
    stem = mask.removesuffix(suffix).removesuffix(".npy")
    yield (
        ("export", mask, "--image", image, "-o", "e", *kinds),
        [f"e/{stem}{n}{suffix}" for n in ends],
    )


@pytest.mark.parametrize("mask", ["scan.labels.nii.gz", "bare.labels.npy"])
def test_the_affine_of_a_scan_is_kept(cli, affine_of, mask):
    for arguments, written in commands("scan.nii.gz", mask, ".nii.gz"):
        run = cli(*arguments)
        assert run.code == 0 and "does not keep" not in run.err, run.err
        for path in written:
            np.testing.assert_allclose(affine_of(path), AFFINE, atol=1e-5)


@pytest.mark.parametrize("mask", ["map.labels.tif", "bare.labels.npy"])
def test_where_a_map_lies_on_earth_is_kept(cli, tags_of, mask):
    for arguments, written in commands("map.tif", mask, ".tif"):
        assert cli(*arguments).code == 0
        for path in written:
            assert tags_of(path) == [values for _, _, _, values, _ in TAGS]
    rasterio = pytest.importorskip("rasterio")
    with rasterio.open("s.tif") as opened:
        assert opened.crs.to_epsg() == 32633 and opened.transform.f == 4649776


def test_labels_of_a_scan_have_objects_that_lie_on_it(cli, affine_of):
    run = cli("segment", "scan.nii.gz", "-o", "m.nii.gz", "--max-labels", 2, "--objects")
    assert run.code == 0, run.err
    np.testing.assert_allclose(affine_of("m.objects.nii.gz"), AFFINE, atol=1e-5)


def test_formats_that_lose_the_place_say_so(cli, affine_of):
    for arguments, _ in commands("scan.nii.gz", "scan.labels.nii.gz", ".tif"):
        assert "where the scan lies" in cli(*arguments).err
    run = cli("segment", "scan.nii.gz", "-o", "m.tif", "--max-labels", 2)
    assert "does not keep where the scan lies: .nii does" in run.err


def test_tiles_say_that_their_mask_does_not_lie_on_earth(tags_of):
    note = "the mask does not keep where the image lies on earth: .tif does"
    teacher = saf.SelfAssignmentFlow(max_labels=2)
    assert saf.label_large("map.tif", teacher, "m.ome.zarr").notes == (note,)


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
    prototypes = saf.load_prototypes("e/map.labels_prototypes.json")
    assert np.isfinite(prototypes.vectors).all() and len(prototypes.vectors) == 2
