"""napari-saf fair-sweep, and groups on the command line."""

import os

import numpy as np
import pytest

from napari_saf import FairClustering, Problem
from napari_saf.io import read_image

WEIGHTS = ("--weights", "0,10,1000")
FEW = ("--n-clusters", "2", "--n-starts", "1")


@pytest.fixture
def images(picture):
    return [picture("a.png"), picture("b.png", seed=1)]


def test_several_images_give_a_table_and_a_plot_grouped_by_image(cli, picture, rows):
    images = [picture("a/x.png"), picture("b/x.png", seed=1)]
    outcome = cli("fair-sweep", *images, "-o", "out", *WEIGHTS, *FEW)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.split() == ["out/fair_sweep.csv", "out/fair_sweep.png"]
    table = rows("out/fair_sweep.csv")
    arrays = [read_image(image).array for image in images]
    problem = Problem.from_images(arrays, groups="image")
    found = FairClustering(n_clusters=2, n_starts=1).sweep(problem, [0, 10, 1000])
    assert [float(row["fairness_weight"]) for row in table] == [0, 10, 1000]
    for row, point in zip(table, found.points, strict=True):
        assert float(row["objective"]) == pytest.approx(point.objective, rel=1e-4)
        assert float(row["fairness_error"]) == pytest.approx(point.fairness_error, abs=1e-6)
        assert float(row["balance"]) == pytest.approx(point.balance, rel=1e-4)


def test_masks_of_every_weight_are_saved_when_asked(cli, images, rows):
    """Of one that is given twice once."""
    run = ("fair-sweep", *images, "-o", "out", *FEW, "--weights", "5,0,5", "--masks")
    assert cli(*run).code == 0
    assert len(rows("out/fair_sweep.csv")) == 2
    masks = {name for name in os.listdir("out") if name.endswith(".tif")}
    assert masks == {f"{stem}-{k}.labels.tif" for stem in "ab" for k in range(2)}
    assert read_image("out/a-1.labels.tif").array.shape == (12, 16)


def test_groups_come_from_a_channel_or_a_file(cli, picture, tmp_path):
    np.save(tmp_path / "groups.npy", np.tile([1, 2], (12, 8)))
    for source in ("channel:0:100", "groups.npy"):
        outcome = cli("fair-sweep", picture(), "-o", "out", "--groups", source, *WEIGHTS, *FEW,
                      "--overwrite")  # fmt: skip
        assert (outcome.code, outcome.err) == (0, "")


def test_segment_takes_groups_and_the_recipe_repeats_them(cli, images, read_recipe):
    recipe = "one/together.recipe.json"
    for given in (
        ("one", "--method", "fair", *FEW, "--groups", "image"),
        ("two", "--recipe", recipe),
    ):
        outcome = cli("segment", *images, "--together", "-o", *given)
        assert (outcome.code, outcome.err) == (0, "")
    assert read_recipe(recipe)["input"]["groups"] == "image"
    for name in ("a.labels.tif", "b.labels.tif"):
        np.testing.assert_array_equal(
            read_image(f"one/{name}").array, read_image(f"two/{name}").array
        )


def test_one_option_reaches_the_parameter_that_the_method_means(cli, picture, read_recipe):
    run = f"segment {picture()} --sigma2 0.2"
    assert cli(f"{run} -o saf.tif --max-labels 2").code == 0
    assert read_recipe("saf.recipe.json")["parameters"]["affinity"]["sigma2"] == 0.2
    assert cli(f"{run} -o slk.tif --method slk --prototypes ms --n-clusters 2").code == 0
    parameters = read_recipe("slk.recipe.json")["parameters"]
    assert (parameters["sigma2"], parameters["prototypes"]) == (0.2, "ms")
