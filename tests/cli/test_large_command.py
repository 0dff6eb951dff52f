"""``napari-saf segment`` of an image that is labelled in tiles."""

import os
import shutil

import fsspec
import numpy as np
import pytest
import zarr
from stores import write_ome_zarr

from napari_saf.io import read_mask
from napari_saf.tiles import _label

PLAIN = ("--max-labels", "2", "--window", "3", "--weights", "uniform")


@pytest.fixture
def scan(tmp_path):
    """A zarr array of two noisy halves."""
    pixels = np.full((70, 90), 60.0)
    pixels[:, 45:] = 180
    pixels += np.random.default_rng(0).normal(0, 8, pixels.shape)
    zarr.create_array(tmp_path / "a.zarr", data=pixels.astype(np.uint8), chunks=(32, 32))
    return tmp_path / "a.zarr"


def test_an_image_is_labelled_in_tiles_and_not_again(cli, scan):
    run = ("segment", scan, "-o", "m.ome.zarr", "--tile", "32", *PLAIN)
    assert "m.ome.zarr: 2 labels, 9 tiles, " in cli(*run).out
    mask = read_mask("m.ome.zarr")
    assert (mask.labels[:, :40] != mask.labels[:, 50:]).all()
    assert len(mask.prototypes.vectors) == 2
    assert "1 image: 1 done before" in cli(*run).out
    assert cli(*run[:-1], "contrast").is_error("is there already", "--overwrite")
    assert cli(*run[:-1], "contrast", "--overwrite").code == 0


@pytest.mark.parametrize("out", ["m.tif", "m.ome.zarr --tile 32"])
def test_kinds_without_objects_are_reported(cli, scan, out):
    kinds = ("--objects", "--object-kinds", "1,99")
    outcome = cli("segment", scan, "-o", *out.split(), *kinds, *PLAIN)
    assert outcome.code == 0 and "got 99" in outcome.err


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(cli, scan, tmp_path):
    outcome = cli("segment", scan, "-o", "m.ome.zarr", "--dry-run", *PLAIN)
    assert outcome.code == 0
    for words in ("70 x 90", "decided at", "tiles: 1 of", "memory:", "time:", " MiB,"):
        assert words in outcome.out
    assert [path.name for path in tmp_path.iterdir()] == ["a.zarr"]


def test_only_large_images_are_labelled_in_tiles_unasked(cli, scan, tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.asarray(zarr.open_array(scan, mode="r")))
    assert "tiles" not in cli("segment", "a.npy", "-o", "small.ome.zarr", *PLAIN).out
    large(monkeypatch)
    assert "1 tile," in cli("segment", "a.npy", "-o", "m.ome.zarr", *PLAIN).out
    assert "tile" not in cli("segment", "a.npy", "-o", "m.tif", *PLAIN).out
    assert "tile" not in cli("segment", "a.npy", "-o", "n.ome.zarr", "--tile", "0", *PLAIN).out


def large(monkeypatch, n_pixels=5000):
    """Let images of so many pixels be large."""
    monkeypatch.setattr(_label, "LARGE", n_pixels)
    monkeypatch.setattr(_label, "_LEAST_BYTES", n_pixels // 64)


def test_a_folder_may_hold_small_and_large_images(cli, picture, monkeypatch):
    picture("in/small.npy", (30, 40))
    picture("in/large.npy", (70, 90))
    large(monkeypatch)
    run = ("segment", "in", "-o", "out", "--objects", "--object-smallest", "5", *PLAIN)
    outcome = cli(*run)
    assert "large.labels.ome.zarr: 2 labels, 1 tile, " in outcome.out
    assert "2 images: 2 labelled" in outcome.out
    made = {
        "large.labels.ome.zarr", "large.objects.ome.zarr", "large.objects.csv",
        "small.labels.tif", "small.recipe.json", "small.objects.tif", "small.objects.csv",
    }  # fmt: skip
    assert set(os.listdir("out")) == made
    assert "2 images: 2 done before" in cli(*run).out
    shutil.rmtree("out/large.objects.ome.zarr")
    assert "2 images: 1 labelled, 1 done before" in cli(*run).out
    outcome = cli(*run[:-1], "contrast")
    assert outcome.is_error("is there already") and set(os.listdir("out")) == made


def test_what_is_labelled_within_an_image_stays_there(cli, picture, tmp_path):
    write_ome_zarr("a.ome.zarr", np.load(picture("a.npy", (70, 90))))
    out = tmp_path / "a.ome.zarr" / "labels" / "cells"
    assert cli("segment", "a.ome.zarr", "-o", out, "--objects", "--regions", *PLAIN).code == 0
    names = ["cells", "cells_kinds", "cells_objects"]
    assert sorted(os.listdir(out.parent)) == [*names, "zarr.json"]
    assert (tmp_path / "a.cells.objects.csv").exists()
    assert zarr.open_group(out.parent, mode="r").attrs["ome"]["labels"] == names


def test_a_store_is_an_image_wherever_a_file_is(cli, picture, tmp_path):
    """As the picture of masks, as a mask, as seeds and for export."""
    picture("a.npy", (70, 90))
    assert cli("segment", "a.npy", "-o", "a.ome.zarr", "--tile", "0", *PLAIN).code == 0
    os.makedirs("masks")
    shutil.copytree("a.ome.zarr", "masks/a.labels.ome.zarr")
    assert cli("segment", "a.npy", "-o", "m.tif", *PLAIN).code == 0
    for line in (
        "objects masks -o o.csv --image a.ome.zarr",
        "objects m.tif -o p.csv --image a.ome.zarr",
        "sharpen m.tif a.ome.zarr -o s.tif",
        "segment a.npy --seeds a.ome.zarr --method af --mask a.ome.zarr -o t.tif --window 3",
        "export a.ome.zarr --image a.ome.zarr -o exported",
        "compare a.ome.zarr -o c.png --method slk",
    ):
        assert cli(*line.split()).code == 0, line


def test_a_scheduler_that_is_not_there_is_one_line(cli, scan, monkeypatch):
    from napari_saf.tiles import _cluster

    monkeypatch.setattr(_cluster, "_PATIENCE", "1s")
    address = "tcp://127.0.0.1:9"
    run = ("segment", scan, "-o", "m.ome.zarr", "--tile", "32", "--scheduler", address)
    assert cli(*run).is_error(address, "no dask scheduler")


@pytest.mark.slow
def test_workers_of_a_scheduler_do_tiles_and_folders(cli, scan, picture, tmp_path):
    distributed = pytest.importorskip("distributed")
    settings = {"processes": False, "protocol": "tcp", "dashboard_address": ":0"}
    run = ("segment", scan, "--tile", "32", *PLAIN)
    assert cli(*run, "-o", "e.ome.zarr").code == 0
    picture("in/a.png")
    (tmp_path / "in" / "broken.png").write_bytes(b"no picture")
    with distributed.LocalCluster(n_workers=1, **settings) as cluster:
        there = ("--scheduler", cluster.scheduler_address)
        outcome = cli(*run, "-o", "m.ome.zarr", *there)
        assert "9 tiles" in outcome.out and "dashboard: http" in outcome.out, outcome.err
        outcome = cli("segment", "in", *PLAIN, "-o", "shared", *there)
    assert outcome.code == 1 and "broken.png" in outcome.err and "1 labelled" in outcome.out
    expected, labels = (read_mask(name).labels for name in ("e.ome.zarr", "m.ome.zarr"))
    np.testing.assert_array_equal(labels, expected)


def test_an_image_behind_a_url(cli, scan, tmp_path):
    fsspec.filesystem("memory").put(str(scan), "/a.zarr", recursive=True)
    try:
        outcome = cli("segment", "memory://a.zarr", "-o", "m.ome.zarr", *PLAIN)
        assert "m.ome.zarr: 2 labels, 1 tile, " in outcome.out
        assert cli("segment", "memory://a.zarr", "-o", "m.png", *PLAIN).is_error(".ome.zarr")
        np.save("b.npy", np.asarray(zarr.open_array(scan, mode="r")))
        outcome = cli("segment", "memory://a.zarr", "b.npy", "-o", "out", *PLAIN)
        assert "2 images: 2 labelled" in outcome.out
        assert cli("segment", "memory://b.zarr", "-o", "n.ome.zarr").is_error("memory://b.zarr")
    finally:
        fsspec.filesystem("memory").rm("/a.zarr", recursive=True)
