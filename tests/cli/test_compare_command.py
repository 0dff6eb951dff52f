"""napari-saf compare."""

import os

import numpy as np

import napari_saf as saf
from napari_saf.input import PLAIN
from napari_saf.io import read_image

GRID = ("--grid", "s=0,1", "--grid", "window=3,5", "--max-labels", "3")


def test_a_folder_gets_picture_table_masks_and_recipes(cli, picture, rows, read_recipe):
    outcome = cli("compare", picture(), "-o", "out", *GRID)
    assert (outcome.code, outcome.err) == (0, "")
    assert "SAF, s = 1, window 5: " in outcome.out
    assert [row["name"] for row in rows("out/comparison.csv")] == [
        f"SAF, s = {s}, window {window}" for s in (0, 1) for window in (3, 5)
    ]
    assert os.path.exists("out/comparison.png")
    # what is in the folder is what the recipe beside it makes, up to the numbers
    recipe = read_recipe("out/a_s_1_window_5.recipe.json")
    assert (recipe["parameters"]["s"], recipe["input"]["window"]) == (1, 5)
    again = "segment a.png -o again.tif --recipe out/a_s_1_window_5.recipe.json"
    assert cli(again).code == 0
    one, again = (read_image(path).array for path in ("out/a_s_1_window_5.labels.tif", "again.tif"))
    assert saf.metrics.variation_of_information(one, again) == 0
    assert cli("compare", "a.png", "-o", "out", *GRID).is_error("--overwrite")
    assert cli("compare", "a.png", "-o", "out", *GRID, "--overwrite").code == 0


def test_the_truth_is_measured(cli, picture, rows, tmp_path):
    truth = np.repeat([[1] * 8 + [2] * 8], 12, axis=0).astype(np.uint8)
    np.save(tmp_path / "truth.npy", truth)
    methods = "--method saf --method slk --max-labels 2 --n-clusters 2"
    outcome = cli(f"compare {picture()} -o a.csv --truth truth.npy {methods}")
    assert (outcome.code, outcome.err) == (0, "")
    assert "covering" in outcome.out
    problem = saf.Problem.from_image(read_image("a.png").array, **PLAIN)
    for row, method in zip(
        rows("a.csv"), (saf.SelfAssignmentFlow(max_labels=2), saf.SLK(n_clusters=2)), strict=True
    ):
        labels = method.run(problem).labels
        assert float(row["covering"]) == saf.metrics.segmentation_covering(labels, truth)


def test_methods_that_do_not_suit_the_image_are_named(cli, picture, rows):
    methods = "--method bavardage --method saf --max-labels 2"
    outcome = cli(f"compare {picture()} -o a.csv {methods}")
    assert outcome.code == 0 and "BAVARDAGE: seeds" in outcome.err
    assert len(rows("a.csv")) == 1
