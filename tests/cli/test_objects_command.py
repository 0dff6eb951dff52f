"""``napari-saf objects``."""

import sys

import imageio.v3 as iio
import numpy as np
import pytest

import napari_saf as saf
from napari_saf.io import read_image, save_masks


def discs(n=2, kind=1):
    rows, columns = np.ogrid[:40, : 20 + 20 * n]
    inside = [(rows - 20) ** 2 + (columns - 20 * (k + 1)) ** 2 < 130 for k in range(n)]
    return np.where(np.any(inside, axis=0), kind, 0).astype(np.uint8)


@pytest.mark.parametrize(
    ("library", "extra", "words"),
    [
        ("shapely", "objects", ("-o", "table.csv", "--geojson")),
        ("pyarrow", "", ("-o", "t.parquet", "--coco")),
        ("laptrack", "track", ("-o", "t.csv", "--tracks", "res")),
    ],
)
def test_a_missing_library_is_told_before_a_mask_is_split(
    cli, tmp_path, monkeypatch, library, extra, words
):
    save_masks("m.tif", discs())
    monkeypatch.setitem(sys.modules, library, None)
    assert cli("objects", "m.tif", *words).is_error(library, f"[{extra}" if extra else library)
    if library == "shapely":
        assert cli("export", "m.tif", "-o", "out", words[-1]).is_error(library, f"[{extra}")
    assert [path.name for path in tmp_path.iterdir()] == ["m.tif"]


def test_a_mask_becomes_objects_a_table_and_files_for_others(cli, rows):
    pytest.importorskip("shapely")
    pytest.importorskip("roifile")
    labels = discs(3, 2)
    save_masks("a.labels.tif", labels, scale=(0.5, 0.5), units="um", names={2: "nucleus"})
    image = np.random.default_rng(0).integers(0, 255, labels.shape, np.uint8)
    iio.imwrite("a.png", image)
    outcome = cli("objects", "a.labels.tif", "-o", "out/table.csv", "--image", "a.png",
                  "--masks", ".tif", "--geojson", "--rois", "--coco")  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert "a.labels.tif: 3 objects" in outcome.out
    objects = saf.split_objects(labels)
    found = rows("out/table.csv")
    assert [int(row["object"]) for row in found] == [1, 2, 3]
    assert {row["name"] for row in found} == {"nucleus"}
    for row in found:
        own = objects.labels == int(row["object"])
        assert float(row["area_um2"]) == pytest.approx(own.sum() / 4)
        assert float(row["intensity_mean"]) == pytest.approx(image[own].mean())
    assert np.array_equal(read_image("out/a.objects.tif").array, objects.labels)
    for suffix in (".geojson", ".zip", ".json"):
        back = saf.load_objects(f"out/a.objects{suffix}", labels.shape)
        assert np.array_equal(back.labels, objects.labels) and back.names[2] == "nucleus"


@pytest.mark.parametrize("out", ["table.csv", "out.ome.zarr"])
def test_kinds_without_an_object_are_told_of(cli, rows, tmp_path, out):
    save_masks("a.labels.tif", discs(2, 1))
    save_masks("b.labels.tif", discs(3, 9))
    outcome = cli("objects", "a.labels.tif", "-o", out, "--kinds", "9,8")
    assert outcome.is_error("a.labels.tif", "kinds", "got 8, 9")
    assert not [*tmp_path.glob("*.csv")]
    outcome = cli("objects", "a.labels.tif", "-o", out, "--kinds", "1,9", "--overwrite")
    assert outcome.code == 0 and "got 9" in outcome.err and "2 objects" in outcome.out
    assert cli("objects", "a.labels.tif", "-o", out, "--overwrite").err == ""
    outcome = cli("objects", ".", "-o", "both.csv", "--kinds", "9")
    assert outcome.code == 0 and "note: a.labels.tif: kinds" in outcome.err
    assert [row["image"] for row in rows("both.csv")] == 3 * ["b.labels.tif"]


def test_the_ground_is_left_out_without_kinds(cli, rows):
    save_masks("m.tif", np.where(discs(2, 3), 3, 7))
    outcome = cli("objects m.tif -o t.csv")
    assert "m.tif: 2 objects" in outcome.out and "label 7 is left out" in outcome.err
    assert {row["kind"] for row in rows("t.csv")} == {"3"}
    assert cli("objects m.tif --kinds all --overwrite -o t.csv").err == ""
    assert {row["kind"] for row in rows("t.csv")} == {"3", "7"}


def test_processes_that_would_do_nothing_are_refused(cli, tmp_path):
    save_masks("m.labels.tif", discs())
    outcome = cli("objects . -o t.csv --jobs 2")
    assert outcome.code == 2 and "--jobs" in outcome.err and not (tmp_path / "t.csv").exists()


def test_several_masks_share_a_table(cli, rows, tmp_path):
    (tmp_path / "photos").mkdir()
    for name, n in (("a", 1), ("b", 2)):
        save_masks(f"{name}.labels.tif", discs(n))
        iio.imwrite(f"photos/{name}.png", discs(n))
    assert cli("objects a.labels.tif b.labels.tif -o t.csv --image photos").code == 0
    found = rows("t.csv")
    assert [row["image"] for row in found] == ["a.labels.tif", "b.labels.tif", "b.labels.tif"]
    assert all(float(row["intensity_mean"]) == 1 for row in found)
    assert cli("objects . -o all.csv --image photos").code == 0
    assert rows("all.csv") == found


def test_options_reach_the_split(cli, rows):
    labels = np.concatenate([discs(2, 1), discs(2, 7)])
    labels[0, 0] = 1
    save_masks("m.tif", labels)
    assert cli("objects", "m.tif", "-o", "t.csv", "--kinds", "7", "--neck", "1").code == 0
    assert [row["kind"] for row in rows("t.csv")] == ["7"]
    cli("objects", "m.tif", "-o", "u.csv", "--smallest", "1")
    assert len(rows("u.csv")) == 5
    uncertain = np.zeros(labels.shape, np.float32)
    uncertain[:, 20] = 0.7
    np.save("doubt.npy", uncertain)
    cli("objects", "m.tif", "-o", "v.csv", "--uncertainty", "doubt.npy")
    assert len(rows("v.csv")) > 4


def test_slices_and_frames_are_gone_through_one_by_one(cli, rows):
    stack = np.stack([discs(2), discs(2)])
    save_masks("z.tif", stack, axes="zyx")
    save_masks("t.tif", stack, axes="tyx")
    cli("objects", "z.tif", "-o", "volume.csv")
    cli("objects", "z.tif", "-o", "slices.csv", "--by-slice")
    cli("objects", "t.tif", "-o", "frames.csv")
    assert len(rows("volume.csv")) == 2
    assert [row["slice"] for row in rows("slices.csv")] == ["0", "0", "1", "1"]
    assert [row["frame"] for row in rows("frames.csv")] == ["0", "0", "1", "1"]


def test_frames_are_followed(cli, rows, tmp_path):
    pytest.importorskip("laptrack")
    save_masks("t.tif", np.stack([np.roll(discs(2), k, axis=0) for k in range(3)]), axes="tyx")
    outcome = cli("objects t.tif -o t.csv --tracks res")
    assert outcome.code == 0, outcome.err
    written = sorted(path.name for path in (tmp_path / "res").iterdir())
    assert written == [*(f"mask00{k}.tif" for k in range(3)), "res_track.txt"]
    places = [(row["frame"], row["parent"]) for row in rows("t.csv")][::2]
    assert places == [(str(frame), "0") for frame in range(3)]
    assert {row["track"] for row in rows("t.csv")} == {"1", "2"}
    assert cli("objects t.tif -o u.csv --tracks res").is_error("res_track")
    assert cli("objects t.tif -o t.csv --tracks res --track-by overlap --overwrite").code == 0
    assert {row["track"] for row in rows("t.csv")} == {"1", "2"}


def test_a_damaged_mask_costs_no_other_its_rows(cli, rows, tmp_path):
    for name in ("a", "c"):
        save_masks(f"{name}.labels.tif", discs(1))
    (tmp_path / "b.labels.tif").write_bytes(b"II*\0junk")
    outcome = cli("objects", ".", "-o", "t.csv")
    assert outcome.code == 1 and "b.labels.tif" in outcome.err and "1 of 3" in outcome.err
    assert [row["image"] for row in rows("t.csv")] == ["a.labels.tif", "c.labels.tif"]


def test_a_mask_is_split_in_tiles(cli, rows):
    labels = discs(3, 2)
    save_masks("m.ome.zarr", labels, scale=(0.5, 0.5), units="um", names={2: "nucleus"})
    iio.imwrite("m.tif", np.random.default_rng(0).integers(0, 255, labels.shape, np.uint8))
    own = ("objects", "m.ome.zarr", "-o", "o.ome.zarr", "--image", "m.tif", "--tile", "32")
    outcome = cli(*own)
    assert outcome.code == 0, outcome.err
    assert "m.ome.zarr: 3 objects" in outcome.out
    assert np.array_equal(saf.read_mask("o.ome.zarr").labels, saf.split_objects(labels).labels)
    found = rows("o.csv")
    assert [int(row["object"]) for row in found] == [1, 2, 3]
    assert found[0]["name"] == "nucleus" and "intensity_mean" in found[0]
    assert cli(*own).is_error("o.csv", "--overwrite")
    assert cli(*own, "--overwrite").code == 0
    assert cli(*own, "--masks", ".tif").code == 2
    assert cli(*own, "--overwrite", "--coco").out.splitlines()[-1] == "o.json"
    assert np.array_equal(saf.load_objects("o.json").labels, saf.split_objects(labels).labels)


def cells(seed):
    """Return large bright and small dark discs of one kind, their image, and which are large."""
    rng = np.random.default_rng(seed)
    labels, image = np.zeros((90, 150), np.uint8), rng.normal(50, 3, (90, 150))
    around = np.hypot(*np.mgrid[-14:15, -14:15])
    is_large = rng.random(15) < 0.4
    for k, large in enumerate(is_large):
        inside, (row, column) = around < (11 if large else 7), divmod(k, 5)
        at = np.s_[30 * row : 30 * row + 29, 30 * column : 30 * column + 29]
        labels[at][inside], image[at][inside] = 1, image[at][inside] + (90 if large else 50)
    return labels, image.clip(0, 255).astype(np.uint8), is_large


@pytest.fixture
def classes_file():
    """A file of classes, small and large, of the cells of seed 0."""
    labels, image, is_large = cells(0)
    objects = saf.split_objects(labels)
    clicks = {int(objects.labels[30 * (k // 5) + 14, 30 * (k % 5) + 14]): 1 + int(large)
              for k, large in enumerate(is_large[:8])}  # fmt: skip
    measures = saf.measure_objects(objects, image)
    classes = saf.learn_classes(measures, clicks, names={1: "small", 2: "large"})
    return str(saf.save_classes("cells.classes.json", classes))


def test_classes_in_tiles_are_those_in_memory(cli, rows, monkeypatch, classes_file):
    monkeypatch.setattr("napari_saf.objects._vectors._TILE", {2: 32, 3: 32})
    labels, image, _ = cells(3)
    save_masks("m.ome.zarr", labels)
    saf.save_masks("image.ome.zarr", image)
    own = ("--image", "image.ome.zarr", "--classes", classes_file)
    outcome = cli("objects m.ome.zarr -o o.ome.zarr --tile 32 --coco", *own)
    assert outcome.code == 0, outcome.err
    assert cli("objects m.ome.zarr -o memory.csv", *own).code == 0
    assert rows("o.csv") == rows("memory.csv")
    assert sorted(saf.load_objects("o.json").names.values()) == ["large", "small"]


def test_all_frames_of_a_track_get_one_class(cli, rows, classes_file):
    pytest.importorskip("laptrack")
    frames = [np.roll(array, k, axis=1) for array in cells(4)[:2] for k in range(3)]
    save_masks("t.tif", np.stack(frames[:3]), axes="tyx")
    save_masks("photo.ome.tif", np.stack(frames[3:]), axes="tyx")
    outcome = cli("objects t.tif -o t.csv --image photo.ome.tif --tracks res --classes",
                  classes_file)  # fmt: skip
    assert outcome.code == 0, outcome.err
    found = {(row["track"], row["class"], row["class_uncertainty"]) for row in rows("t.csv")}
    assert len(found) == len({row["track"] for row in rows("t.csv")}) == 15
