import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

import napari_saf as saf
from napari_saf import METHODS, Problem, SelfAssignmentFlow
from napari_saf.features import Scaling
from napari_saf.input import PLAIN, ImageOptions
from napari_saf.io import read_image, read_labels
from napari_saf.parameters import describe
from napari_saf.storage import remove_path

FEW = ("--max-labels", "2")


def labels_of(path):
    return read_image(path).array


def test_one_image_gives_one_mask_its_recipe_and_a_line(cli, picture, tmp_path, read_recipe):
    outcome = cli("segment", picture(), "-o", "out/mask.tif", *FEW)
    assert (outcome.code, outcome.err) == (0, "")
    assert sorted(os.listdir("out")) == ["mask.recipe.json", "mask.tif"]
    assert outcome.out.startswith("out/mask.tif: 2 labels, ") and outcome.out.count("\n") == 1
    assert read_recipe("out/mask.recipe.json")["images"] == ["a.png"]
    expected = SelfAssignmentFlow(max_labels=2).run(
        Problem.from_image(read_image(picture()).array, **PLAIN)
    )
    np.testing.assert_array_equal(labels_of("out/mask.tif"), expected.labels)


@pytest.mark.parametrize("suffix", [".png", ".ome.zarr"])
def test_images_of_a_folder_have_masks_of_the_chosen_format_beside_them(
    cli, picture, tmp_path, suffix
):
    picture("in/a.png"), picture("in/b.npy", seed=1)
    (tmp_path / "in" / "notes.txt").touch()
    before = {*os.listdir("in")}
    masks = {f"{stem}{end}" for stem in "ab" for end in (f".labels{suffix}", ".recipe.json")}
    for state in ("labelled", "done before"):  # masks are not taken for images
        outcome = cli("segment", "in", "-o", "in", "--format", suffix, *FEW)
        assert outcome.code == 0 and f"2 images: 2 {state}" in outcome.out
        assert {*os.listdir("in")} == before | masks
    assert labels_of(tmp_path / "in" / f"a.labels{suffix}").shape == (12, 16)


def test_together_means_one_set_of_labels(cli, tmp_path, read_recipe):
    low, high = np.full((8, 8), 20, np.uint8), np.full((8, 8), 200, np.uint8)
    low[0, 0], high[0, 0] = 25, 205
    np.save("low.npy", low), np.save("high.npy", high)
    assert cli("segment", "low.npy", "high.npy", "-o", "out", "--together", *FEW).code == 0
    masks = [labels_of(f"out/{name}.labels.tif") for name in ("low", "high")]
    assert [len(np.unique(mask)) for mask in masks] == [1, 1]
    assert masks[0][0, 0] != masks[1][0, 0]
    assert read_recipe("out/together.recipe.json")["images"] == ["low.npy", "high.npy"]
    os.remove("low.npy"), os.remove("high.npy")


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--stepper", "euler", "--step", "0.2", "--max-steps", "30", "--weights", "nonlocal"),
        ("--features", "foreground", "--ground", "bright"),
    ],
)
def test_a_recipe_gives_the_same_labels(cli, picture, options, read_recipe):
    path, recipe = picture(), "first.recipe.json"
    assert cli("segment", path, "-o", "first.npy", "--max-labels", "3", *options).code == 0
    assert cli("segment", path, "-o", "again.npy", "--recipe", recipe).code == 0
    np.testing.assert_array_equal(np.load("first.npy"), np.load("again.npy"))
    # The digest of settings is of what was asked: automatic values, or those of the recipe.
    first, again = read_recipe(recipe), read_recipe("again.recipe.json")
    assert again | {"files": first["files"]} == first


def test_a_run_says_where_labels_are_not_those_of_its_recipe(cli, picture, tmp_path, read_recipe):
    recipe = tmp_path / "first.recipe.json"
    cli("segment", picture(), "-o", "first.npy", "--max-labels", "3")
    same = cli("segment", picture(), "-o", "same.npy", "--recipe", recipe)
    assert (same.code, same.err) == (0, "") and "blocks" not in same.out
    entries = read_recipe("first.recipe.json")
    entries["versions"]["digest"][0]["labels"][5] = "0" * 16
    recipe.write_text(json.dumps(entries))
    other = cli("segment", picture(), "-o", "other.npy", "--recipe", recipe)
    assert "in 1 of 64 blocks: 6" in other.out + other.err
    image = cli("segment", picture("b.png", seed=1), "-o", "b.npy", "--recipe", recipe)
    assert "blocks" not in image.out + image.err
    for k, digest in enumerate([None, 3, [{"image": 1}]]):  # an earlier version's, or wrong
        entries["versions"]["digest"] = digest
        recipe.write_text(json.dumps(entries))
        old = cli("segment", picture(), "-o", f"old{k}.npy", "--recipe", recipe)
        assert old.code == 0 and "blocks" not in old.out + old.err


def test_options_beside_a_recipe_take_precedence(cli, picture, read_recipe):
    cli("segment", picture(), "-o", "m.npy", "--max-labels", "3", "--window", "5", "--s", "0.5")
    again = ("segment", picture(), "--recipe", "m.recipe.json", "-o", "n.npy")
    assert cli(*again, "--max-labels", "2", "--stepper", "euler").code == 0
    recipe = read_recipe("n.recipe.json")
    assert recipe["parameters"]["max_labels"] == 2
    assert recipe["parameters"]["s"] == 0.5
    assert recipe["parameters"]["stepper"]["kind"] == "euler"
    assert recipe["input"]["window"] == 5


@pytest.fixture
def taught(tmp_path):
    """A file of prototypes: label 2 is as bright as 180 of 255, label 5 as 60 or 300."""
    found = saf.PrototypeSet(
        np.array([[0.2], [0.6], [1.0]], np.float32),
        [5, 2, 5],
        {5: "tissue"},
        {2: (1.0, 0.5, 0.0)},
        ImageOptions("intensity", (5, 5), "nonlocal", scaling=Scaling(0.0, 300.0)),
    )
    return str(saf.save_prototypes(tmp_path / "taught.prototypes.json", found))


def test_a_file_of_prototypes_is_all_that_another_image_needs(cli, picture, taught):
    command = ("segment", picture(), "-o", "out", "--prototypes", taught, "--format", ".png")
    outcome = cli(*command)
    assert outcome.code == 0, outcome.err
    (mask,) = Path("out").glob("*.png")
    labels = read_labels(mask).array
    assert (labels[:, :7] == 5).all()
    assert (labels[:, 9:] == 2).all()
    assert Image.open(mask).getpalette()[6:9] == [255, 128, 0]
    (recipe,) = Path("out").glob("*.recipe.json")
    again = saf.load_recipe(recipe)
    assert again.options == dataclasses.replace(saf.load_prototypes(taught).options, max_side=None)
    assert cli("segment", "a.png", "-o", "again.tif", "--recipe", recipe).code == 0
    np.testing.assert_array_equal(labels_of("again.tif"), labels)
    assert "done" in cli(*command).out


@pytest.mark.parametrize("known", ["--recipe a.recipe.json", "--prototypes a.prototypes.json"])
def test_images_of_other_brightness_are_scaled_by_themselves(cli, picture, known):
    np.save("dim.npy", np.asarray(Image.open(picture())) / 50 + 7)
    assert cli("segment a.png -o a.tif", *FEW).code == 0
    assert cli("export a.tif -o . --image a.png --prototypes .json").code == 0
    assert cli(f"segment dim.npy -o dim.tif {known}").code == 0
    np.testing.assert_array_equal(labels_of("dim.tif"), labels_of("a.tif"))
    kept = cli(f"segment dim.npy -o kept.tif --scaling first {known}")
    assert kept.code == 0 and "dim.npy: 100 % of the values lie outside" in kept.err


@pytest.fixture
def dots():
    """Save bright squares that look alike, with a stroke on one and one around; return both."""
    image = np.kron(np.indices((8, 8)).sum(axis=0) % 2, np.ones((8, 8)))
    image[:8] = 0
    seeds = np.zeros((64, 64), np.uint8)
    seeds[12, 2:6], seeds[3, 2:60] = 1, 2
    image += np.random.default_rng(0).normal(0, 0.02, image.shape)
    np.save("dots.npy", image)
    np.save("seeds.npy", seeds)
    return image, seeds


DOTS = ("segment", "dots.npy", "-o", "m.npy", "--seeds", "seeds.npy")


def test_seeds_choose_settings(cli, dots, read_recipe):
    image, seeds = dots
    found = cli(*DOTS)
    assert found.code == 0 and "things on a ground" in found.out, found.err
    choice = saf.choose_for_strokes(image, seeds)
    problem = saf.Problem.from_image(image, seeds=seeds, **choice.options.arguments())
    labels = choice.method.run(problem).labels
    np.testing.assert_array_equal(np.load("m.npy"), labels)
    assert ((labels == 1) == (image > 0.5)).mean() > 0.9
    assert "done before" in cli(*DOTS).out and "done before" in cli(*DOTS, "--choose").out


def test_options_beside_seeds_take_precedence_over_what_these_choose(cli, dots, read_recipe):
    given = "--choose --method af --window 5 --features intensity --rounds 3"
    assert cli(*DOTS, *given.split()).code == 0
    recipe = read_recipe("m.recipe.json")
    assert recipe["method"] == "af" and recipe["parameters"]["rounds"] == 3
    options = recipe["input"]
    assert (options["window"], options["features"]) == (5, "intensity")
    assert options["max_side"] == 480 and not recipe["parameters"]["connected"]


def test_numbers_of_seeds_may_leave_gaps(cli, dots):
    own = ("--method", "saf", "--probabilities", ".npy")
    assert cli(*DOTS, *own).code == 0
    labels, maps = np.load("m.npy"), np.load("m.probabilities.npy")
    np.save("seeds.npy", np.array([0, 3, 200], np.uint8)[dots[1]])
    found = cli(*DOTS, *own, "--overwrite")
    assert found.code == 0, found.err
    numbers = np.append([0, 3, 200], np.arange(201, 220))
    np.testing.assert_array_equal(np.load("m.npy"), numbers[labels])
    np.testing.assert_array_equal(np.load("m.probabilities.npy"), maps)


def test_a_method_beside_seeds_has_its_own_defaults(cli, dots):
    found = cli(*DOTS, "--method", "slk")
    assert found.code == 0 and "looks like" not in found.out, found.err
    image, seeds = dots
    problem = saf.Problem.from_image(image, seeds=seeds)
    labels = METHODS["slk"]().run(problem).labels
    np.testing.assert_array_equal(np.load("m.npy"), labels)


@pytest.mark.parametrize("options", [(), ("--channel-axis", "0")])
def test_axes_scale_and_units_of_the_image_are_kept(cli, options):
    stack = np.random.default_rng(0).integers(0, 255, (3, 2, 8, 9), dtype=np.uint8)
    sizes = {"PhysicalSizeZ": 2, "PhysicalSizeY": 0.5, "PhysicalSizeX": 0.25}
    tifffile.imwrite("a.ome.tif", stack, ome=True, metadata=sizes | {"axes": "ZCYX"})
    tifffile.imwrite("b.tif", stack[:, 0], imagej=True, resolution=(4, 2),
                     metadata={"axes": "ZYX", "spacing": 3.0, "unit": "um"})  # fmt: skip
    image = "b.tif" if options else "a.ome.tif"
    assert cli("segment", image, "-o", "m.tif", *options, *FEW).code == 0
    mask = read_image("m.tif")
    expected = ("yx", (8, 9), (0.5, 0.25)) if options else ("zyx", (3, 8, 9), (2.0, 0.5, 0.25))
    assert (mask.axes, mask.array.shape, mask.scale) == expected


def test_help_has_every_parameter_of_every_method(cli):
    text = cli("segment", "--help").out
    for name, method in METHODS.items():
        listed = cli("methods", name).out
        for item in describe(method):
            assert item.name in listed
            assert "--" + item.name.replace(".", "-").replace("_", "-") in text
    assert "max_labels" not in cli("methods", "af").out


@pytest.fixture
def patches(tmp_path):
    """A noisy picture of many patches, of which some are alike."""
    rng = np.random.default_rng(4)
    image = np.kron(rng.random((4, 5, 3)), np.ones((9, 8, 1)))
    path = tmp_path / "patches.png"
    image = np.clip(image + rng.normal(0, 0.04, image.shape), 0, 1)
    Image.fromarray(np.uint8(255 * image)).save(path)
    return path


def test_a_recipe_of_regions_is_repeated_unless_they_are_not_wanted(cli, patches):
    run = ("segment", patches, "--max-labels", "6", "-o")
    assert cli(*run, "kinds.npy").code == 0
    assert cli(*run, "many.npy", "--regions", "0.1").code == 0
    assert cli(*run, "few.npy", "--regions=0.9").code == 0
    recipe = ("segment", patches, "--recipe", "many.recipe.json", "-o", "out.npy", "--overwrite")
    cases = {"many": (), "few": ("--regions", "0.9"), "kinds": ("--regions", "none")}
    for same, options in cases.items():
        assert cli(*recipe, *options).code == 0
        np.testing.assert_array_equal(np.load("out.npy"), np.load(f"{same}.npy"))
    assert len({np.load(f"{name}.npy").max() for name in cases}) == 3
    assert "regions" not in saf.load_recipe("out.recipe.json").plain
    found = saf.load_recipe("many.recipe.json").run(read_image(patches).array)
    np.testing.assert_array_equal(found.labels, np.load("many.npy"))


def test_probabilities_lie_beside_each_mask(cli, picture):
    suffix = ".ome.zarr"
    options = ("--probabilities", suffix, *FEW)
    images = picture("a.png"), picture("b.npy", seed=1)
    assert cli("segment", *images, "-o", "out", *options).code == 0
    for stem in "ab":
        maps = read_image(f"out/{stem}.probabilities{suffix}").array
        labels = read_labels(f"out/{stem}.labels.tif").array
        assert maps.dtype == np.float32
        np.testing.assert_array_equal(maps.argmax(axis=0) + 1, labels)
    again = cli("segment", *images, "-o", "out", *options)
    assert "2 done before" in again.out
    remove_path(Path(f"out/a.probabilities{suffix}"))
    assert "1 labelled, 1 done before" in cli("segment", *images, "-o", "out", *options).out
    other = cli("segment", *images, "-o", "out", *options, "--probability-kind", "uint8")
    assert other.is_error("--overwrite")
    of_one = ("--probability-kind", "uint8", "--probability-labels", 2, "--overwrite")
    assert cli("segment", *images, "-o", "out", *options, *of_one).code == 0
    found = np.squeeze(read_image(f"out/a.probabilities{suffix}").array)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found > 127, read_labels("out/a.labels.tif").array == 2)


def test_prototypes_with_other_labels_have_maps_of_those(cli, picture, taught):
    Path("l.csv").write_text("9\n8\n9\n")
    known = ["--prototype-labels", "l.csv", "--prototypes", taught]
    options = ("--probabilities", ".npy", "--format", ".ome.zarr")
    assert cli("segment", picture(), "-o", "m.ome.zarr", *known, *options).code == 0
    found, maps = read_labels("m.ome.zarr").array, np.load("m.probabilities.npy")
    np.testing.assert_array_equal(np.array([8, 9])[maps.argmax(axis=0)], found)
    np.testing.assert_allclose(maps.sum(axis=0), 1, atol=1e-5)
    assert saf.read_mask("m.ome.zarr").names.get(5) is None
    assert cli("segment a.png -o t.ome.zarr --tile 16", *known).code == 0
    assert {*np.unique(read_labels("t.ome.zarr").array)} <= {8, 9}
