"""napari-saf fair-sweep, and groups on the command line."""

import csv
import os

import numpy as np
import pytest

from napari_saf import FairClustering, Problem
from napari_saf.io import read_image

WEIGHTS = ("--weights", "0,10,1000")
FEW = ("--n-clusters", "2", "--n-starts", "1")


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_several_images_give_a_table_and_a_plot_grouped_by_image(cli, picture):
    images = [picture("a.png"), picture("b.png", seed=1)]
    outcome = cli("fair-sweep", *images, "-o", "out", *WEIGHTS, *FEW)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.split() == ["out/fair_sweep.csv", "out/fair_sweep.png"]
    rows = table("out/fair_sweep.csv")
    arrays = [read_image(image).array for image in images]
    problem = Problem.from_images(arrays, groups="image")
    found = FairClustering(n_clusters=2, n_starts=1).sweep(problem, [0, 10, 1000])
    assert [float(row["fairness_weight"]) for row in rows] == [0, 10, 1000]
    for row, point in zip(rows, found.points, strict=True):
        assert float(row["objective"]) == pytest.approx(point.objective, rel=1e-4)
        assert float(row["fairness_error"]) == pytest.approx(point.fairness_error, abs=1e-6)
        assert float(row["balance"]) == pytest.approx(point.balance, rel=1e-4)


def test_masks_of_every_weight_are_saved_when_asked(cli, picture):
    images = [picture("a.png"), picture("b.png", seed=1)]
    assert cli("fair-sweep", *images, "-o", "out", *WEIGHTS, *FEW, "--masks").code == 0
    masks = {name for name in os.listdir("out") if name.endswith(".tif")}
    assert masks == {f"{stem}_labels_{k}.tif" for stem in "ab" for k in range(3)}
    assert read_image("out/a_labels_2.tif").array.shape == (12, 16)


def test_one_image_needs_groups(cli, picture):
    outcome = cli("fair-sweep", picture(), "-o", "out")
    assert outcome.code == 2
    assert "--groups" in outcome.err


def test_groups_come_from_a_channel_or_a_file(cli, picture, tmp_path):
    image = picture()
    np.save(tmp_path / "groups.npy", np.tile([1, 2], (12, 8)))
    for source in ("channel:0:100", "groups.npy"):
        outcome = cli("fair-sweep", image, "-o", "out", "--groups", source, *WEIGHTS, *FEW,
                      "--overwrite")  # fmt: skip
        assert (outcome.code, outcome.err) == (0, "")


def test_masks_of_one_name_are_refused_before_anything_is_computed(cli, picture, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    images = [picture("a/x.png"), picture("b/x.png", seed=1)]
    outcome = cli("fair-sweep", *images, "-o", "out", *WEIGHTS, *FEW, "--masks")
    assert outcome.is_error("two images would be saved under this name")
    assert not os.path.exists("out")
    assert cli("fair-sweep", *images, "-o", "out", *WEIGHTS, *FEW).code == 0


def test_masks_that_are_there_are_not_replaced(cli, picture, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "b_labels_2.tif").write_text("mine")
    images = [picture("a.png"), picture("b.png", seed=1)]
    command = ("fair-sweep", *images, "-o", "out", *WEIGHTS, *FEW, "--masks")
    assert cli(*command).is_error("b_labels_2.tif", "--overwrite")
    assert os.listdir("out") == ["b_labels_2.tif"]
    assert cli(*command, "--overwrite").code == 0
    assert read_image("out/b_labels_2.tif").array.shape == (12, 16)


def test_the_help_names_defaults_and_units(cli):
    words = " ".join(cli("fair-sweep", "--help").out.split())
    assert "or a label image. [default for several images: image]" in words
    assert "--max-side auto|INT|none Compute at a reduced size" in " ".join(
        cli("segment", "-h").out.split()
    )


def test_no_weights_are_those_of_the_method(cli, picture):
    images = [picture("a.png"), picture("b.png", seed=1)]
    assert cli("fair-sweep", *images, "-o", "out", *FEW, "--weights", "none").code == 0
    assert len(table("out/fair_sweep.csv")) == 10


def test_the_weight_that_is_swept_is_no_option(cli, picture):
    images = [picture("a.png"), picture("b.png", seed=1)]
    outcome = cli("fair-sweep", *images, "-o", "out", *FEW, "--fairness-weight", "5")
    assert outcome.code == 2
    assert "--fairness-weight" in outcome.err
    assert "--fairness-weight" not in cli("fair-sweep", "--help").out


def test_a_weight_given_twice_is_taken_once(cli, picture):
    images = [picture("a.png"), picture("b.png", seed=1)]
    assert cli("fair-sweep", *images, "-o", "out", *FEW, "--weights", "5,0,5").code == 0
    assert [float(row["fairness_weight"]) for row in table("out/fair_sweep.csv")] == [0, 5]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--groups", "axis:7"),
        ("--groups", "channel:zero"),
        ("--groups", "channel:0", "--weights", "-1,2"),
        ("--groups", "channel:0", "--proportions", "0.5,0.6"),
        ("--groups", "channel:0", "--proportions", "0.2,0.3,0.5"),
        ("--groups", "missing.tif"),
    ],
)
def test_bad_requests_are_named_on_one_line(cli, picture, arguments):
    outcome = cli("fair-sweep", picture(), "-o", "out", *arguments)
    assert outcome.is_error()
    assert not os.path.exists("out")


def test_segment_takes_groups_and_the_recipe_repeats_them(cli, picture, read_recipe):
    images = [picture("a.png"), picture("b.png", seed=1)]
    first = cli("segment", *images, "-o", "one", "--together", "--method", "fair", *FEW,
                "--groups", "image")  # fmt: skip
    assert (first.code, first.err) == (0, "")
    assert read_recipe("one/together.recipe.json")["input"]["groups"] == "image"
    again = cli("segment", *images, "-o", "two", "--together",
                "--recipe", "one/together.recipe.json")  # fmt: skip
    assert (again.code, again.err) == (0, "")
    for name in ("a_labels.tif", "b_labels.tif"):
        np.testing.assert_array_equal(
            read_image(f"one/{name}").array, read_image(f"two/{name}").array
        )


def test_one_option_reaches_the_parameter_that_the_method_means(cli, picture, read_recipe):
    assert (
        cli("segment", picture(), "-o", "saf.tif", "--sigma2", "0.2", "--max-labels", "2").code == 0
    )
    assert read_recipe("saf.recipe.json")["parameters"]["affinity"]["sigma2"] == 0.2
    assert cli("segment", picture(), "-o", "slk.tif", "--method", "slk", "--sigma2", "0.2",
               "--prototypes", "ms", *FEW[:2]).code == 0  # fmt: skip
    parameters = read_recipe("slk.recipe.json")["parameters"]
    assert (parameters["sigma2"], parameters["prototypes"]) == (0.2, "ms")


def test_words_are_no_prototypes_for_the_assignment_flow(cli, picture):
    outcome = cli("segment", picture(), "-o", "af.tif", "--method", "af", "--prototypes", "bo")
    assert outcome.code == 2
    assert "--prototypes" in outcome.err
