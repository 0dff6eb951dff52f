"""``napari-saf score``, and classes in ``napari-saf objects``."""

import csv
import json

import imageio.v3 as iio
import numpy as np
import pytest

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
    assert (np.unique(read_image("e.tif").array).tolist()) == [0, 3]
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
