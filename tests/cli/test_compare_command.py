"""napari-saf compare."""

import csv
import os

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.input import PLAIN
from napari_saf.io import read_image

GRID = ("--grid", "s=0,1", "--grid", "window=3,5", "--max-labels", "3")


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_folder_gets_picture_table_masks_and_recipes(cli, picture, read_recipe):
    outcome = cli("compare", picture(), "-o", "out", *GRID)
    assert (outcome.code, outcome.err) == (0, "")
    assert "SAF, s = 1, window 5: " in outcome.out
    rows = table("out/comparison.csv")
    assert [row["name"] for row in rows] == [
        f"SAF, s = {s}, window {window}" for s in (0, 1) for window in (3, 5)
    ]
    assert os.path.exists("out/comparison.png")
    # what is in the folder is what the recipe beside it makes, up to the numbers
    recipe = read_recipe("out/a_s_1_window_5.recipe.json")
    assert (recipe["parameters"]["s"], recipe["input"]["window"]) == (1, 5)
    assert cli("segment", "a.png", "-o", "again.tif",
               "--recipe", "out/a_s_1_window_5.recipe.json").code == 0  # fmt: skip
    one, again = (read_image(path).array for path in ("out/a_s_1_window_5_labels.tif", "again.tif"))
    assert saf.metrics.variation_of_information(one, again) == 0


def test_the_truth_is_measured(cli, picture, tmp_path):
    truth = np.repeat([[1] * 8 + [2] * 8], 12, axis=0).astype(np.uint8)
    np.save(tmp_path / "truth.npy", truth)
    outcome = cli("compare", picture(), "-o", "a.csv", "--truth", "truth.npy",
                  "--method", "saf", "--method", "slk", "--max-labels", "2",
                  "--n-clusters", "2")  # fmt: skip
    assert (outcome.code, outcome.err) == (0, "")
    assert "covering" in outcome.out
    problem = saf.Problem.from_image(read_image("a.png").array, **PLAIN)
    for row, method in zip(
        table("a.csv"), (saf.SelfAssignmentFlow(max_labels=2), saf.SLK(n_clusters=2)), strict=True
    ):
        labels = method.run(problem).labels
        assert float(row["covering"]) == saf.metrics.segmentation_covering(labels, truth)


def test_methods_that_do_not_suit_the_image_are_named(cli, picture):
    outcome = cli("compare", picture(), "-o", "a.csv", "--method", "bavardage",
                  "--method", "saf", "--max-labels", "2")  # fmt: skip
    assert outcome.code == 0
    assert outcome.err.startswith("napari-saf: not run: BAVARDAGE: seeds")
    assert len(table("a.csv")) == 1
    assert cli("compare", picture(), "-o", "b.csv", "--method", "bavardage").is_error("seeds")
    assert not os.path.exists("b.csv")


def test_what_is_there_is_not_replaced(cli, picture, tmp_path):
    (tmp_path / "a.csv").write_text("mine")
    assert cli("compare", picture(), "-o", "a.csv").is_error("a.csv", "--overwrite")
    assert (tmp_path / "a.csv").read_text() == "mine"


@pytest.mark.parametrize("name", ["a_s_1_labels.tif", "a_s_0.recipe.json"])
def test_masks_and_recipes_that_are_there_are_not_replaced(cli, picture, tmp_path, name):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("mine")
    command = ("compare", picture(), "-o", "out", "--grid", "s=0,1", "--max-labels", "2")
    assert cli(*command).is_error(name, "--overwrite")
    assert os.listdir("out") == [name]
    assert cli(*command, "--overwrite").code == 0
    assert (tmp_path / "out" / name).read_bytes() != b"mine"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--grid", "s=2"), 1),
        (("--grid", "window=4"), 1),
        (("--grid", "smell=1"), 1),
        (("--grid", "s=zero"), 1),
        (("--truth", "missing.tif"), 1),
        (("--grid", "s"), 2),
        (("--grid", "s=0", "--grid", "s=1"), 2),
        (("--n-clusters", "3"), 2),
        (("--method", "magic"), 2),
    ],
)
def test_bad_requests_are_refused_before_anything_is_written(cli, picture, arguments, code):
    outcome = cli("compare", picture(), "-o", "out", *arguments)
    assert outcome.code == code and "Traceback" not in outcome.err
    if code == 1:
        assert outcome.is_error()
    assert not os.path.exists("out")


def test_a_truth_of_another_size_is_refused(cli, picture, tmp_path):
    np.save(tmp_path / "truth.npy", np.ones((3, 3), np.uint8))
    assert cli("compare", picture(), "-o", "out", "--truth", "truth.npy").is_error("truth.npy")
