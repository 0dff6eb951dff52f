"""``napari-saf info``, and files that hold several images."""

import numpy as np
import pandas
import pytest
import tifffile
import zarr
from stores import say, write_ome_zarr

from napari_saf import SelfAssignmentFlow
from napari_saf.io import read_labels
from napari_saf.tiles import LargeJob


@pytest.fixture
def series(tmp_path, picture):
    """A TIFF file of a thumbnail and an image."""
    image = np.load(picture("a.npy", (40, 60)))
    for array in (image[::4, ::4], image):
        tifffile.imwrite(tmp_path / "s.tif", array, append=True)
    return tmp_path / "s.tif"


def test_it_lists_images_with_what_is_known_of_them(cli, series, tmp_path):
    tifffile.imwrite(
        tmp_path / "t.tif",
        np.zeros((3, 8, 9), np.int16),
        imagej=True,
        resolution=(2, 4),
        metadata={"axes": "TYX", "finterval": 2.5, "unit": "um"},
        extratags=[(42113, "s", 0, "-9999", True)],
    )
    outcome = cli("info", series, "t.tif")
    lines = outcome.out.splitlines()
    assert outcome.code == 0 and len(lines) == 3
    assert "s.tif#0: 10 x 15 (yx); uint8" in lines[0] and "s.tif#1: 40 x 60" in lines[1]
    assert "pixels y 0.25 um, x 0.5 um, t 2.5 s; no data: -9999" in lines[2]
    (tmp_path / "b.tif").write_bytes(b"nothing")
    outcome = cli("info", "b.tif", "t.tif")
    assert outcome.is_error("b.tif") and "t.tif: 3 x 8 x 9" in outcome.out


def test_all_images_of_a_file_are_labelled_or_one_by_its_name(cli, series, tmp_path):
    run = ("segment", series, "--max-labels", "2", "-o")
    assert cli(*run, "m.tif").is_error("expected a folder for 2 images")
    assert "2 images: 2 labelled" in cli(*run, "out").out
    assert read_labels("out/s-1.labels.tif").array.shape == (40, 60)
    assert "2 images: 2 done before" in cli(*run, "out").out
    one = cli("segment", f"{series}#1", "--max-labels", "2", "-o", "m.tif")
    assert one.code == 0
    assert np.array_equal(read_labels("m.tif").array, read_labels("out/s-1.labels.tif").array)
    job = LargeJob.of(f"{series}#1", SelfAssignmentFlow(max_labels=2))
    sent, _ = job.sent(is_sent=True)  # to another process: not its pixels
    assert sent[0] == f"{series}#1"


def test_pixels_without_data_get_no_label(cli, tmp_path):
    """Whole and in tiles, by the tag of the file and by the option."""
    rng = np.random.default_rng(0)
    scene = rng.normal(0.2, 0.02, (48, 60)).astype(np.float32)
    scene[:, 40:] += 0.6
    scene[:, :20] = -9999
    tifffile.imwrite("a.tif", scene, extratags=[(42113, "s", 0, "-9999", True)])
    tifffile.imwrite("b.tif", scene)
    zarr.create_array("c.zarr", data=scene, chunks=(24, 30), attributes={"_FillValue": -9999})
    plain = ("--max-labels", "2", "-o")
    runs = [
        ("segment", "a.tif", *plain, "a.labels.tif"),
        ("segment", "b.tif", "--no-data", "-9999", *plain, "b.labels.tif"),
        ("segment", "c.zarr", "--tile", "32", *plain, "c.ome.zarr"),
        ("segment", "b.tif", "--no-data", "-9999", "--tile", "32", *plain, "d.ome.zarr"),
    ]
    for run in runs:
        assert cli(*run).code == 0
        labels = read_labels(run[-1]).array
        assert (labels[:, :20] == 0).all()
        assert len(np.unique(labels[:, 20:40])) == len(np.unique(labels[:, 40:])) == 1
        assert labels[0, 25] != labels[0, 50]


def test_where_an_image_lies_is_kept_or_it_is_said(cli, picture):
    write_ome_zarr("p.ome.zarr", np.load(picture("a.npy", (40, 60))))
    run = ("segment", "p.ome.zarr", "--max-labels", "2", "-o")
    more = ("--objects", "--probabilities", ".ome.zarr")
    assert cli(*run, "m.ome.zarr", *more).code == 0
    assert cli(*run, "t.ome.zarr", "--tile", "32", *more).code == 0
    stores = ("m.ome.zarr", "m.probabilities.ome.zarr", "t.ome.zarr", "t.objects.ome.zarr")
    for store in (*stores, "t.probabilities.ome.zarr"):
        levels = zarr.open_group(store, mode="r").attrs["ome"]["multiscales"][0]
        scale, translation = levels["datasets"][0]["coordinateTransformations"]
        assert scale["scale"][-2:] == [0.5, 0.5]
        assert translation["translation"][-2:] == [100, 200]
    outcome = cli(*run, "u.tif")
    assert outcome.code == 0 and "does not keep where the image lies" in outcome.err


@pytest.fixture(params=[2, 3])
def plate(request, tmp_path, picture):
    """A plate of two wells with a field each, of OME-Zarr 0.4 or 0.5."""
    plate = zarr.open_group(tmp_path / "p.zarr", mode="w", zarr_format=request.param)
    places = [{"path": f"A/{k}", "rowIndex": 0, "columnIndex": k - 1} for k in (1, 2)]
    names = {"rows": [{"name": "A"}], "columns": [{"name": "1"}, {"name": "2"}]}
    say(plate, plate={"wells": places, **names})
    for k in (1, 2):
        well = plate.require_group(f"A/{k}")
        say(well, well={"images": [{"path": "0"}]})
        array = np.load(picture(f"{k}.npy", (40, 60), seed=k))
        write_ome_zarr(well.create_group("0"), array)
    return tmp_path / "p.zarr"


def test_labels_of_a_plate_go_into_its_fields(cli, plate, tmp_path):
    run = ("segment", plate, "-o", plate / "labels" / "cells", "--max-labels", "2", "--objects")
    outcome = cli(*run, "--object-smallest", "5")
    assert outcome.code == 0 and "2 images: 2 labelled" in outcome.out
    for k in (1, 2):
        labels = read_labels(plate / f"A/{k}/0/labels/cells").array
        image = np.load(tmp_path / f"{k}.npy")
        assert len(np.unique(labels[image > 120])) == len(np.unique(labels[image < 110])) == 1
        listed = dict(zarr.open_group(plate / f"A/{k}/0/labels", mode="r").attrs)
        assert listed.get("ome", listed)["labels"] == ["cells", "cells_objects"]
    table = pandas.read_csv(tmp_path / "p.cells.objects.csv")
    assert set(table["well"]) == {"A/1", "A/2"} and set(table["field"]) == {0}
    alone = [pandas.read_csv(tmp_path / f"p.cells.objects/A-{k}-0.csv") for k in (1, 2)]
    assert table["pixels"].tolist() == pandas.concat(alone)["pixels"].tolist()
    assert "2 images: 2 done before" in cli(*run, "--object-smallest", "5").out
