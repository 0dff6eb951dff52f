"""``napari-saf score``, and classes in ``napari-saf objects``."""

import csv
import json

import imageio.v3 as iio
import numpy as np
import pytest
import tifffile

import napari_saf as saf
from napari_saf.io import read_image, save_masks


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def squares(n=6, side=8):
    return np.kron(np.arange(1, n + 1)[None], np.pad(np.ones((side, side), int), 2))


def test_pixels_are_scored_with_a_table_a_figure_and_what_is_wrong(cli, tmp_path):
    truth = np.repeat([[1, 2]], 20, axis=0).repeat(20, axis=1)
    labels = truth.copy()
    labels[:4] = 2
    save_masks("a.tif", labels)
    save_masks("t.tif", truth)
    outcome = cli(
        "score", "a.tif", "t.tif", "-o", "s.csv", "--figure", "f.png", "--errors", "e.tif"
    )
    assert outcome.code == 0, outcome.err
    table = {(row["part"], row["measure"]): float(row["value"]) for row in rows("s.csv")}
    assert table["pixels", "accuracy"] == 0.9 and table["class 1", "IoU"] == 0.8
    assert np.unique(read_image("e.tif").array).tolist() == [3, 4]
    assert iio.imread("f.png").shape[0] > 100
    assert cli("score", "a.tif", "t.tif", "-o", "s.csv").is_error("s.csv")


def test_folders_of_objects_are_scored_by_name(cli, tmp_path):
    for folder in ("own", "true"):
        (tmp_path / folder).mkdir()
    for k in range(2):
        save_masks(f"true/{k}.labels.tif", squares())
        save_masks(f"own/{k}.labels.tif", np.where(squares() > k, squares(), 0))
    outcome = cli("score", "own", "true", "--objects", "-o", "s.csv")
    assert outcome.code == 0, outcome.err
    found = [float(row["value"]) for row in rows("s.csv") if row["measure"] == "AP at 0.5"]
    assert found == [1, pytest.approx(5 / 6)]


def test_objects_get_classes_of_a_file_and_are_scored_by_them(cli, tmp_path):
    pytest.importorskip("shapely")
    truth = squares(12)
    image = np.where(truth % 3 == 0, 200, np.where(truth > 0, 120, 10)).astype(np.uint8)
    save_masks("a.labels.tif", (truth > 0).astype(int))
    iio.imwrite("a.png", image)
    true = saf.Objects(truth, np.append(0, 1 + (np.arange(1, 13) % 3 == 0)), {1: "dim", 2: "light"})
    saf.save_objects("true.geojson", true)
    measures = saf.measure_objects(saf.split_objects(truth > 0), image)
    classes = saf.learn_classes(measures, {1: 1, 3: 2}, names=true.names, groups=["intensity"])
    saf.save_classes("a.classes.json", classes)
    arguments = ("--image", "a.png", "--classes", "a.classes.json", "--geojson")
    outcome = cli("objects", "a.labels.tif", "-o", "t.csv", *arguments)
    assert outcome.code == 0, outcome.err
    table = rows("t.csv")
    assert [row["class"] for row in table] == ["dim", "dim", "light"] * 4
    assert all(0 <= float(row["class_uncertainty"]) <= 1 for row in table)
    written = json.loads((tmp_path / "a.objects.geojson").read_text())
    names = [one["properties"]["classification"]["name"] for one in written["features"]]
    assert sorted(names) == ["dim"] * 8 + ["light"] * 4
    outcome = cli("score", "a.objects.geojson", "true.geojson", "-o", "s.csv", "--figure", "f.png")
    assert outcome.code == 0, outcome.err
    scores = {row["measure"]: float(row["value"]) for row in rows("s.csv")}
    assert scores["balanced accuracy"] == scores["AP at 0.9"] == 1
    assert scores["dim as dim"] == 8 and scores["dim as light"] == 0
    assert cli("objects", "a.labels.tif", "-o", "u.csv", "--classes", "a.classes.json").is_error(
        "channels"
    )


def save_challenge(folder, frames, listing, text):
    folder.mkdir(parents=True)
    for k, frame in enumerate(frames):
        tifffile.imwrite(folder / f"mask{k:03d}.tif", frame.astype(np.uint16))
    (folder / listing).write_text(text)


def test_tracks_in_folders_of_the_challenge_are_scored(cli, tmp_path):
    challenge = pytest.importorskip("ctc_metrics")
    truth = np.repeat([np.repeat([1, 1, 0, 2, 2], 4)[None]] * 3, 4, axis=1)
    truth[2][truth[2] == 2] = 3
    save_challenge(tmp_path / "gt/TRA", truth, "man_track.txt", "1 0 2 0\n2 0 1 0\n3 2 2 2\n")
    save_challenge(tmp_path / "res", truth * (truth != 1), "res_track.txt", "2 0 1 0\n3 2 2 2\n")
    save_challenge(tmp_path / "none", 0 * truth, "res_track.txt", "")
    found = []
    for folder in ("res", "none"):
        files = f"-o {folder}.csv --figure {folder}.png --errors {folder}.tif"
        outcome = cli(f"score {folder} gt {files}")
        assert outcome.code == 0, outcome.err
        found.append({row["measure"]: float(row["value"]) for row in rows(f"{folder}.csv")})
        assert iio.imread(f"{folder}.png").shape[0] > 100
    half = 1 - (3 * 10 + 2 * 1.5) / (6 * 10 + 4 * 1.5)
    assert found[0]["TRA"] == pytest.approx(half) and found[0]["missed links"] == 2
    peer = challenge.evaluate_sequence("res", "gt", ["Valid", "TRA", "DET"], threads=1)
    assert all(found[0][name] == pytest.approx(peer[name]) for name in ("TRA", "DET"))
    assert (found[1]["TRA"], found[1]["DET"]) == (0, 0)
    assert np.array_equal(read_image("res.tif").array, np.array([0, 1, 4, 4])[truth])
    (tmp_path / "res/res_track.txt").write_text("2 0 1\n")
    assert cli("score res gt").is_error("res_track.txt")
