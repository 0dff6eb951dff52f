"""``napari-saf segment`` of an image that is labelled in tiles."""

import fsspec
import numpy as np
import pytest
import zarr

from napari_saf.cli import _large
from napari_saf.io import read_mask

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
    labels = read_mask("m.ome.zarr").labels
    assert (labels[:, :40] != labels[:, 50:]).all()
    assert "9 tiles, 9 done before" in cli(*run).out
    assert cli(*run[:-1], "contrast").is_error("is there already", "--overwrite")
    assert cli(*run[:-1], "contrast", "--overwrite").code == 0


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(cli, scan, tmp_path):
    outcome = cli("segment", scan, "-o", "m.ome.zarr", "--dry-run", *PLAIN)
    assert outcome.code == 0
    for words in ("70 x 90", "from: 1 block of", "tiles: 1 of", "memory:", "time:", " MiB,"):
        assert words in outcome.out
    assert [path.name for path in tmp_path.iterdir()] == ["a.zarr"]


def test_only_large_images_are_labelled_in_tiles_unasked(cli, scan, tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.asarray(zarr.open_array(scan, mode="r")))
    assert "tiles" not in cli("segment", "a.npy", "-o", "small.ome.zarr", *PLAIN).out
    monkeypatch.setattr(_large, "LARGE", 5000)
    assert "1 tile," in cli("segment", "a.npy", "-o", "m.ome.zarr", *PLAIN).out
    assert "tile" not in cli("segment", "a.npy", "-o", "m.tif", *PLAIN).out
    assert "tile" not in cli("segment", "a.npy", "-o", "n.ome.zarr", "--tile", "0", *PLAIN).out


def test_prototypes_with_names_label_in_tiles(cli, scan):
    assert cli("segment", scan, "-o", "m.ome.zarr", "--tile", "32", *PLAIN).code == 0
    assert cli("export", "m.ome.zarr", "--prototypes", "p.json").code in (0, 2)
    names = read_mask("m.ome.zarr").prototypes
    assert len(names.vectors) == 2


def test_what_tiles_cannot_do_is_one_line(cli, scan, tmp_path):
    outcome = cli("segment", scan, "-o", "m.ome.zarr", "--tile", "32", "--regions")
    assert outcome.is_error("regions")
    assert [path.name for path in tmp_path.iterdir()] == ["a.zarr"]


def test_several_images_have_no_tiles(cli, scan):
    assert cli("segment", scan, scan, "-o", "out", "--tile", "32").code == 2


def test_a_scheduler_that_is_not_there_is_one_line(cli, scan, monkeypatch):
    from napari_saf.tiles import _cluster

    monkeypatch.setattr(_cluster, "_PATIENCE", "1s")
    address = "tcp://127.0.0.1:9"
    run = ("segment", scan, "-o", "m.ome.zarr", "--tile", "32", "--scheduler", address)
    assert cli(*run).is_error(address, "no scheduler")


def test_an_image_behind_a_url(cli, scan, tmp_path):
    fsspec.filesystem("memory").put(str(scan), "/a.zarr", recursive=True)
    try:
        outcome = cli("segment", "memory://a.zarr", "-o", "m.ome.zarr", *PLAIN)
        assert "m.ome.zarr: 2 labels, 1 tile, " in outcome.out
        assert cli("segment", "memory://a.zarr", "-o", "m.png", *PLAIN).is_error(".ome.zarr")
        assert cli("segment", "memory://a.zarr", scan, "-o", "out", *PLAIN).code == 2
        assert cli("segment", "memory://b.zarr", "-o", "n.ome.zarr").is_error("memory://b.zarr")
    finally:
        fsspec.filesystem("memory").rm("/a.zarr", recursive=True)
