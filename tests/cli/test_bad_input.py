"""Everything that can be wrong: code 1, one line, and the folder as it was."""

import os

import numpy as np
import psutil
import pytest

from napari_saf.io import save_masks
from napari_saf.pipeline import load_recipe

RNG = np.random.default_rng(0)


@pytest.fixture
def fails(cli, tmp_path):
    """Run a command that must fail with one line, and leave the folder as it was."""

    def run(*arguments):
        before = sorted(os.walk(tmp_path))
        outcome = cli(*arguments)
        assert sorted(os.walk(tmp_path)) == before
        assert outcome.out == ""
        return outcome

    return run


def save(tmp_path, array, name="a.npy"):
    np.save(tmp_path / name, array)
    return tmp_path / name


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_pixels_that_are_not_finite_are_counted(fails, tmp_path, bad):
    image = RNG.random((8, 9))
    image[:2, 0] = bad
    outcome = fails("segment", save(tmp_path, image), "-o", "m.tif")
    assert outcome.is_error("a.npy", "2 of 72 pixels", "finite")


def test_constant_image(fails, tmp_path):
    path = save(tmp_path, np.full((8, 9), 7))
    assert fails("segment", path, "-o", "m.tif").is_error("a.npy", "7", "differing values")


def test_fewer_values_than_labels_is_said_and_goes_on(cli, tmp_path):
    image = np.zeros((8, 9), np.uint8)
    image[:, 4:] = 1
    plain = ("--features", "intensity", "--weights", "uniform", "--window", "1")
    outcome = cli("segment", save(tmp_path, image), "-o", "m.npy", "--max-labels", "9", *plain)
    assert outcome.code == 0
    assert outcome.err.startswith("napari-saf: note: ")
    assert len(np.unique(np.load("m.npy"))) == 2


@pytest.mark.parametrize(("window", "word"), [("4", "odd"), ("11", "8"), ("3,3,3", "window")])
def test_windows_that_do_not_fit(fails, tmp_path, window, word):
    path = save(tmp_path, RNG.random((8, 9)))
    assert fails("segment", path, "-o", "m.tif", "--window", window).is_error(word)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.zeros((8, 9)), ("mask", "empty")),
        (np.ones((9, 8)), ("mask", "(9, 8)")),
        (np.where(np.eye(8, 9), np.nan, 1), ("mask", "NaN")),
    ],
)
def test_masks_that_do_not_fit(fails, tmp_path, mask, words):
    path, mask = save(tmp_path, RNG.random((8, 9))), save(tmp_path, mask, "mask.npy")
    assert fails("segment", path, "-o", "m.tif", "--mask", mask).is_error(*words)


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        (np.zeros((8, 9), int), ("not 0",)),
        (np.ones((9, 8), int), ("(8, 9)",)),
        (-np.eye(8, 9), ("seeds",)),
        (np.eye(8, 9, dtype=int), ("two or more classes, got one",)),
    ],
)
def test_seeds_that_do_not_fit(fails, tmp_path, seeds, words):
    path, seeds = save(tmp_path, RNG.random((8, 9))), save(tmp_path, seeds, "seeds.npy")
    run = ("segment", path, "-o", "m.tif", "--method", "af", "--seeds", seeds)
    assert fails(*run).is_error(*words)


def test_not_enough_memory_is_told_before_the_run(fails, tmp_path, monkeypatch):
    path = save(tmp_path, RNG.random((64, 64)))

    class Full:
        available = 10**5

    monkeypatch.setattr(psutil, "virtual_memory", Full)
    outcome = fails("segment", path, "-o", "m.tif")
    assert outcome.is_error("not enough memory", " MiB and 0.1 MiB are free", "smaller image")


def test_no_disk_space(fails, tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tifffile.TiffWriter.write", full)
    path = save(tmp_path, RNG.random((8, 9)))
    arguments = ("segment", path, "-o", "m.tif", "--max-labels", "2")
    assert fails(*arguments).is_error("m.tif", "No space left on device")


@pytest.mark.parametrize("content", [b"", b"no image"])
@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.npy"])
def test_no_image(fails, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    outcome = fails("segment", tmp_path / name, "-o", "m.tif")
    assert outcome.is_error(name, "its content is" if name == "a.png" else "cannot be read")


def test_missing_image(fails):
    assert fails("segment", "nothing.png", "-o", "m.tif").is_error("nothing.png: no such file")


def test_folder_without_images(fails, tmp_path):
    (tmp_path / "in").mkdir()
    assert fails("segment", "in", "-o", "out").is_error("in: expected images")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--max-labels", "1"), ("max_labels", "at least 2", "got 1")),
        (("--s", "nan"), ("s: expected",)),
        (("--prototypes", "none.npy", "--method", "af"), ("none.npy",)),
        (("--prototypes", "a.txt", "--method", "af"), ("a.txt", ".csv")),
        (("--method", "af"), ("prototypes",)),
        (("--recipe", "none.json"), ("none.json",)),
        (("--channel-axis", "5"), ("channel_axis",)),
        (("--features", "lab"), ("lab", "3 channels")),
    ],
)
def test_values_out_of_bounds(fails, tmp_path, options, words):
    path = save(tmp_path, RNG.random((8, 9)))
    assert fails("segment", path, "-o", "m.tif", *options).is_error(*words)


def test_prototypes_of_other_features(fails, tmp_path):
    path, points = save(tmp_path, RNG.random((8, 9))), save(tmp_path, np.eye(3), "p.npy")
    arguments = ("segment", path, "-o", "m.tif", "--method", "af", "--prototypes", points)
    assert fails(*arguments).is_error("prototypes")


@pytest.mark.parametrize("suffix", [".tif", ".png", ".ome.zarr"])
def test_a_mask_given_for_something_else_is_told_what_was_expected(fails, tmp_path, suffix):
    image, out = save(tmp_path, RNG.random((8, 9))), ("-o", "m.npy")
    [mask] = save_masks(tmp_path / f"m{suffix}", np.eye(9, dtype=int))
    af = ("--method", "af", "--prototypes")
    expected = {
        ("run", mask, image): "as a project, recipe, file of prototypes or dictionary: ",
        ("segment", image, "--recipe", mask): "as a recipe: ",
        ("segment", image, *af, mask): ".npy, .csv or .json file",
    }
    if suffix != ".ome.zarr":
        for name in ("m.napari-saf", "m.csv"):
            (tmp_path / name).write_bytes(mask.read_bytes())
        expected["run", "m.napari-saf", image] = "no project"
        expected["segment", image, *af, "m.csv"] = "as a table of numbers: "
    for arguments, words in expected.items():
        outcome = fails(*arguments, *out)
        assert outcome.is_error(words)
        assert "codec" not in outcome.err and "Errno" not in outcome.err


@pytest.mark.parametrize("content", ["", "a,b", "1,2\n3"])
def test_csv_that_is_no_table(fails, tmp_path, content):
    path = save(tmp_path, RNG.random((8, 9)))
    (tmp_path / "p.csv").write_text(content)
    arguments = ("segment", path, "-o", "m.tif", "--method", "af", "--prototypes", "p.csv")
    assert fails(*arguments).is_error("p.csv")


def test_masks_that_are_there_stay(fails, cli, tmp_path):
    path = save(tmp_path, RNG.random((8, 9)))
    (tmp_path / "m.npy").write_bytes(b"precious")
    assert fails("segment", path, "-o", "m.npy").is_error("m.npy", "--overwrite")
    assert (tmp_path / "m.npy").read_bytes() == b"precious"
    assert cli("segment", path, "-o", "m.npy", "--overwrite", "--max-labels", "2").code == 0
    assert np.load("m.npy").shape == (8, 9)


def test_a_mask_never_replaces_its_image(fails, tmp_path):
    path = save(tmp_path, RNG.random((8, 9)))
    assert fails("segment", path, "-o", path, "--overwrite").is_error("replace what it is made of")


def test_two_images_of_one_name(fails, tmp_path):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        save(tmp_path / folder, RNG.random((8, 9)))
    assert fails("segment", "x/a.npy", "y/a.npy", "-o", "out").is_error("under this name")


@pytest.mark.parametrize("out", ["m.jpg", "m.tif"])
def test_outputs_that_do_not_fit(fails, tmp_path, out):
    paths = [save(tmp_path, RNG.random((8, 9)), name) for name in ("a.npy", "b.npy")]
    assert fails("segment", *paths, "-o", out).is_error(out)


def test_stack_in_a_png(fails, tmp_path):
    path = save(tmp_path, RNG.random((4, 5, 6)))
    arguments = ("segment", path, "-o", "m.png", "--max-labels", "2")
    assert fails(*arguments).is_error("m.png", "2 axes")


def test_images_of_other_channels_together(fails, tmp_path):
    paths = [save(tmp_path, RNG.random((8, 9)), "a.npy")]
    paths += [save(tmp_path, RNG.random((8, 9, 3)), "b.npy")]
    assert fails("segment", *paths, "-o", "out", "--together").is_error("channels")


def test_debug_shows_where(cli, tmp_path):
    outcome = cli("segment", save(tmp_path, np.zeros((8, 9))), "-o", "m.tif", "--debug")
    assert outcome.code == 1
    assert "Traceback" in outcome.err
    assert outcome.err.strip().splitlines()[-1].startswith("napari-saf: error: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Usage"),
        (("segment",), "Usage"),
        (("segment", "a.npy"), "--output"),
        (("segment", "a.npy", "-o", "m.tif", "--prototypes", "none"), "no such option"),
        (("segment", "a.npy", "-o", "m.tif", "--method", "af", "--s", "1"), "no such option"),
        (("segment", "a.npy", "-o", "m.tif", "--step", "0.1"), "--stepper euler"),
        (("segment", "a.npy", "-o", "m.tif", "--max-labels", "many"), "whole number"),
        (("segment", "a.npy", "-o", "m.tif", "--rho", "none"), "number"),
        (("segment", "a.npy", "-o", "m.tif", "--window", "x"), "--window"),
        (("segment", "a.npy", "-o", "m.tif", "--method", "magic"), "--method"),
        (("segment", "a.npy", "b.npy", "-o", "out", "--mask", "c.npy"), "--mask"),
        (("segment", "a.npy", "b.npy", "-o", "out", "--seeds", "c.npy"), "--seeds"),
        (("magic",), "magic"),
        (("methods", "magic"), "magic"),
    ],
)
def test_wrong_usage_is_code_2(fails, arguments, words):
    outcome = fails(*arguments)
    assert outcome.code == 2
    assert words in outcome.err
    assert "Traceback" not in outcome.err


def test_another_method_than_that_of_the_recipe(cli, fails, tmp_path):
    path = save(tmp_path, RNG.random((8, 9)))
    cli("segment", path, "-o", "m.npy", "--max-labels", "2")
    assert load_recipe("m.recipe.json").method.name == "saf"
    outcome = fails("segment", path, "-o", "n.npy", "--recipe", "m.recipe.json", "--method", "af")
    assert outcome.code == 2


@pytest.mark.parametrize(
    "command",
    [
        ("segment", "a.npy", "-o", "file/m.tif"),
        ("segment", "a.npy", "-o", "file"),
        ("export", "l.npy", "-o", "file"),
        ("compare", "a.npy", "-o", "file/c.csv"),
        ("fair-sweep", "a.npy", "-o", "file", "--groups", "axis:0", "--weights", "0"),
        ("dictionary", "learn", "a.npy", "-o", "file/d.safetensors", "--patch-size", "3"),
        ("demo", "-o", "file"),
    ],
    ids=lambda command: command[0],
)
def test_a_file_where_a_folder_should_be(cli, tmp_path, command):
    save(tmp_path, RNG.random((12, 13)))
    save(tmp_path, RNG.integers(0, 3, (12, 13)), "l.npy")
    (tmp_path / "file").write_text("mine")
    outcome = cli(*command)
    assert outcome.code == 1
    assert "napari-saf: error: " in outcome.err and "file" in outcome.err
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("command", [("segment",), ("dictionary", "apply")])
def test_a_link_to_itself_is_no_image(cli, picture, tmp_path, command):
    (tmp_path / "loop.png").symlink_to("loop.png")
    more = ()
    if command[0] == "dictionary":
        picture("a.png", shape=(24, 24))
        learned = cli("dictionary", "learn", "a.png", "-o", "d.safetensors", "--n-atoms", "2",
                      "--patch-size", "3")  # fmt: skip
        assert learned.code == 0
        more = ("d.safetensors",)
    outcome = cli(*command, *more, "loop.png", "-o", "out/")
    assert outcome.code == 1 and "Traceback" not in outcome.err
    assert "loop.png" in outcome.err
