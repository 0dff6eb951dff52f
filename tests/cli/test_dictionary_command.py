"""napari-saf dictionary: learn, show, apply; stopped and begun again."""

import csv
import os
import subprocess
import sys
import time
from pathlib import Path

import imageio.v3 as iio
import numpy as np
import pytest
from processes import Command

import napari_saf as saf
from napari_saf.batch import DictionaryTask, run_batch
from napari_saf.io import read_image, read_mask
from napari_saf.storage import hidden_name

FEW = ("--n-atoms", "4", "--patch-size", "5", "--landmarks", "20", "--n-samples", "300")


@pytest.fixture
def dictionary(cli, picture):
    assert (
        cli("dictionary", "learn", picture("t.png", (24, 28)), "-o", "d.safetensors", *FEW).code
        == 0
    )
    return "d.safetensors"


def table(path="out/dictionary.csv"):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_what_is_learned_is_what_the_library_learns(cli, picture):
    paths = [picture("a.png", (24, 28)), picture("b.png", (30, 20), seed=1)]
    outcome = cli("dictionary", "learn", *paths, "-o", "sub/d.safetensors", *FEW, "--s", "0.5")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("sub/d.safetensors: ")
    found = saf.PatchDictionary.load("sub/d.safetensors")
    arrays = [read_image(path).array for path in paths]
    expected = saf.PatchDictionary.learn(
        arrays, n_atoms=4, patch_size=5, landmarks=20, n_samples=300, s=0.5
    )
    np.testing.assert_array_equal(found.atoms, expected.atoms)
    assert found.images == ("a.png", "b.png")


def test_atoms_of_features_are_learned_and_others_refused_with_the_reason(cli, picture):
    learn = ("dictionary", "learn", picture("a.png", (24, 28)), *FEW, "--features")
    assert cli(*learn, "texture", "-o", "d.safetensors").code == 0
    assert cli(*learn, "position", "-o", "e.safetensors").is_error("atoms would not fit")
    assert "of texture" in cli("dictionary", "show", "d.safetensors", "-o", "sheet.png").out


def test_a_sheet_of_atoms(cli, dictionary):
    outcome = cli("dictionary", "show", dictionary, "-o", "sheet.png")
    assert (outcome.code, outcome.err) == (0, "")
    assert "5 × 5" in outcome.out
    assert "t.png" in outcome.out
    assert iio.imread("sheet.png").ndim == 3
    assert cli("dictionary", "show", dictionary, "-o", "sheet.png").is_error("--overwrite")
    assert cli("dictionary", "show", dictionary).code == 0


def test_apply_writes_masks_reconstructions_and_a_table(cli, picture, dictionary):
    os.mkdir("images")
    paths = [picture("images/a.png", (24, 28)), picture("images/b.png", (20, 22), seed=1)]
    outcome = cli("dictionary", "apply", dictionary, "images", "-o", "out")
    assert (outcome.code, outcome.err) == (0, "")
    assert "2 labelled" in outcome.out and " dB, " in outcome.out
    names = {"a_labels.tif", "a_reconstruction.tif", "b_labels.tif", "b_reconstruction.tif"}
    assert set(os.listdir("out")) == names | {"dictionary.csv"}
    found = saf.PatchDictionary.load(dictionary)
    for path, row in zip(paths, table(), strict=True):
        image = read_image(path).array
        expected = found.apply(image)
        stem = f"out/{path.stem}"
        np.testing.assert_array_equal(read_image(f"{stem}_labels.tif").array, expected.labels)
        made = read_image(f"{stem}_reconstruction.tif").array
        assert made.dtype == image.dtype
        np.testing.assert_allclose(made, expected.reconstruction, atol=0.51)
        assert row["image"] == path.name
        assert float(row["error"]) == pytest.approx(expected.error, rel=1e-4)
        usage = [int(row[f"atom_{k}"]) for k in range(1, found.n_atoms + 1)]
        assert usage == expected.usage.tolist()


def test_labels_in_tiles(cli, picture, dictionary):
    image = picture("a.png", (40, 50), seed=2)
    np.save("a.npy", iio.imread(image))
    run = ("dictionary", "apply", dictionary, "a.npy", "-o", "m.ome.zarr", "--tile", "32")
    assert "tiles: 4 of 32 x 32" in cli(*run, "--dry-run").out
    outcome = cli(*run)
    assert "m.ome.zarr: " in outcome.out and "4 tiles" in outcome.out, outcome.err
    expected = saf.PatchDictionary.load(dictionary).apply(iio.imread(image)).labels
    labels = read_mask("m.ome.zarr").labels
    assert (labels == expected).mean() > 0.98
    assert cli("dictionary", "apply", dictionary, image, "-o", "p.ome.zarr", *run[-2:]).code == 0
    np.testing.assert_array_equal(read_mask("p.ome.zarr").labels, labels)
    assert cli("dictionary", "apply", dictionary, image, "-o", "out", "--tile", "32").code == 2
    for given in (("--reconstruction", "complete"), ("--device", "cpu"), ("--format", ".png")):
        refused = cli(*run, *given, "--overwrite")
        assert refused.code == 2 and given[0] in refused.err


def test_alpha_is_no_channel(cli, tmp_path):
    rgba = np.random.default_rng(0).integers(0, 255, (24, 28, 4), dtype=np.uint8)
    iio.imwrite(tmp_path / "a.png", rgba)
    iio.imwrite(tmp_path / "b.png", rgba[..., :3])
    assert cli("dictionary", "learn", "a.png", "-o", "d.safetensors", *FEW).code == 0
    assert saf.PatchDictionary.load("d.safetensors").n_channels == 3
    assert cli("dictionary", "apply", "d.safetensors", "a.png", "b.png", "-o", "out").code == 0
    one, other = (read_image(f"out/{name}_labels.tif").array for name in "ab")
    np.testing.assert_array_equal(one, other)


def test_what_a_killed_run_left_half_done_is_removed(cli, picture, dictionary):
    os.mkdir("out")
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    for name in ("a_labels.tif", "b_labels.tif"):
        open(f"out/{hidden_name(Path(name))}-{killed.pid}-0123abcd.tif", "w").close()
    open("out/.notes", "w").close()
    assert len(os.listdir("out")) == 3
    assert cli("dictionary", "apply", dictionary, picture("a.png"), "-o", "out").code == 0
    left = {name for name in os.listdir("out") if name.startswith(".")}
    assert len(left) == 2 and ".notes" in left


def test_nothing_is_done_twice(cli, picture, dictionary):
    paths = [picture("a.png", (24, 28)), picture("b.png", (24, 28), seed=1)]
    assert cli("dictionary", "apply", dictionary, paths[0], "-o", "out").code == 0
    before = os.stat("out/a_labels.tif").st_mtime_ns
    outcome = cli("dictionary", "apply", dictionary, *paths, "-o", "out")
    assert outcome.code == 0
    assert "1 labelled" in outcome.out
    assert "1 done before" in outcome.out
    assert os.stat("out/a_labels.tif").st_mtime_ns == before
    assert [row["image"] for row in table()] == ["a.png", "b.png"]
    os.remove("out/a_reconstruction.tif")
    assert "a_labels.tif: " in cli("dictionary", "apply", dictionary, *paths, "-o", "out").out
    assert len(table()) == 2
    again = cli("dictionary", "apply", dictionary, *paths, "-o", "out", "--overwrite")
    assert "2 labelled" in again.out
    assert len(table()) == 2


def test_an_image_that_was_changed_is_labelled_again_and_keeps_one_row(cli, picture, dictionary):
    paths = [picture("a.png", (24, 28)), picture("b.png", (24, 28), seed=1)]
    run = ("dictionary", "apply", dictionary, *paths, "-o", "out")
    assert cli(*run).code == 0
    after = os.stat("out/a_labels.tif").st_mtime + 1
    os.utime(paths[0], (after, after))
    again = cli(*run)
    assert "1 labelled, 1 done before" in again.out
    assert sorted(row["image"] for row in table()) == ["a.png", "b.png"]


def test_images_of_one_name_in_two_folders_are_told_apart(cli, picture, dictionary):
    for k, folder in enumerate("ab"):
        os.mkdir(folder)
        picture(f"{folder}/x.png", (24, 28), seed=k)
        os.utime(f"{folder}/x.png", (10**9, 10**9))
    assert cli("dictionary", "apply", dictionary, "a/x.png", "-o", "out").code == 0
    before = table()
    other = cli("dictionary", "apply", dictionary, "b/x.png", "-o", "out")
    assert other.is_error("another x.png", "a/x.png")
    assert table() == before
    assert (
        "x_labels.tif: "
        in cli("dictionary", "apply", dictionary, "b/x.png", "-o", "out", "--overwrite").out
    )


def test_a_row_that_was_cut_off_is_made_again(cli, picture, dictionary):
    path = picture("a.png", (24, 28))
    assert cli("dictionary", "apply", dictionary, path, "-o", "out").code == 0
    with open("out/dictionary.csv", "rb+") as file:
        file.truncate(os.path.getsize("out/dictionary.csv") - 3)
    assert "a_labels.tif: " in cli("dictionary", "apply", dictionary, path, "-o", "out").out
    assert [row["image"] for row in table()] == ["a.png"]


def test_other_settings_do_not_mix_with_what_is_there(cli, picture, dictionary):
    path = picture("a.png", (24, 28))
    assert cli("dictionary", "apply", dictionary, path, "-o", "out").code == 0
    other = cli("dictionary", "apply", dictionary, path, "-o", "out", "--window", "5")
    assert other.is_error("dictionary.csv", "settings")
    more = cli("dictionary", "apply", dictionary, path, "-o", "out", "--window", "5", "--overwrite")
    assert more.code == 0


def test_a_bad_file_does_not_stop_the_rest_and_is_named_at_the_end(
    cli, picture, dictionary, tmp_path
):
    (tmp_path / "bad.png").write_bytes(b"no picture")
    paths = ["bad.png", picture("a.png", (24, 28)), picture("rgb.png", (24, 28, 3))]
    outcome = cli("dictionary", "apply", dictionary, *paths, "-o", "out")
    assert outcome.code == 1
    assert os.path.exists("out/a_labels.tif")
    lines = outcome.err.strip().splitlines()
    assert len(lines) == 2
    assert "bad.png" in lines[0]
    assert "channels as the dictionary has (1)" in lines[1]
    assert "1 labelled, 2 failed" in outcome.out
    named = [line for line in outcome.out.splitlines() if line.startswith("failed: ")]
    assert len(named) == 2 and "bad.png" in named[0] and "rgb.png" in named[1]
    assert [row["image"] for row in table()] == ["a.png"]


def test_work_that_is_told_to_end_leaves_whole_files(picture, dictionary, tmp_path):
    paths = [picture(f"{k}.png", (24, 28), seed=k) for k in range(3)]
    found = saf.PatchDictionary.load(dictionary)
    states, out = [], tmp_path / "out"
    task = DictionaryTask(dictionary=found, folder=out)
    for outcome in run_batch(task, task.plan(paths), cancelled=lambda: len(states) == 2):
        states.append(outcome.state)
    assert states == ["done", "done"]
    assert [row["image"] for row in table(out / "dictionary.csv")] == ["0.png", "1.png"]
    assert not list(out.glob("2_*"))
    again = [outcome.state for outcome in run_batch(task, task.plan(paths))]
    assert again == ["skipped", "skipped", "done"]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_killed_in_the_middle_it_goes_on(picture, dictionary, cli, tmp_path):
    os.mkdir("images")
    for k in range(12):
        picture(f"images/{k:02}.png", (60, 60), seed=k)
    run = ("dictionary", "apply", dictionary, "images", "-o", "out")
    command = Command(*run, folder=tmp_path)
    while not (tmp_path / "out" / "03_labels.tif").exists() and command.process.is_alive():
        time.sleep(0.01)
    command.process.kill()
    command.wait()
    before = {row["image"]: row for row in table()}
    assert cli(*run).code == 0
    after = {row["image"]: row for row in table()}
    assert len(table()) == len(after) == 12
    assert len(os.listdir("out")) == 2 * 12 + 1
    assert {name: after[name] for name in before} == before
    for k in range(12):
        assert read_image(f"out/{k:02}_labels.tif").array.shape == (60, 60)
        assert read_image(f"out/{k:02}_reconstruction.tif").array.shape == (60, 60)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("learn", "a.png", "-o", "d.npz"), "safetensors"),
        (("learn", "none.png", "-o", "e.safetensors"), "no such file"),
        (("learn", "a.png", "-o", "e.safetensors", "--patch-size", "6"), "odd"),
        (("learn", "a.png", "-o", "e.safetensors", "--patch-size", "31"), "sides"),
        (("learn", "a.png", "-o", "d.safetensors"), "--overwrite"),
        (("show", "a.png"), "a.png"),
        (("apply", "a.png", "a.png", "-o", "out"), "safetensors file"),
        (("apply", "d.safetensors", "a.png", "-o", "out", "--window", "2"), "odd"),
    ],
)
def test_bad_requests_are_named_on_one_line(cli, picture, dictionary, arguments, words):
    picture("a.png", (24, 28))
    outcome = cli("dictionary", *arguments)
    assert outcome.code == 1
    assert words in outcome.err
    assert "Traceback" not in outcome.err


def test_two_images_of_one_name_are_refused(cli, picture, dictionary):
    for folder in ("one", "two"):
        os.mkdir(folder)
        picture(f"{folder}/a.png", (24, 28))
    outcome = cli("dictionary", "apply", dictionary, "one", "two", "-o", "out")
    assert outcome.is_error("two images")


def test_help_lists_what_there_is(cli):
    assert "dictionary" in cli("--help").out
    assert {"learn", "show", "apply"} <= set(cli("dictionary", "--help").out.split())
    assert "--n-atoms" in cli("dictionary", "learn", "--help").out
