"""A folder run: resumed, in several processes, killed; a bad image keeps none of the others."""

import os
import re
import signal
import sys

import imageio.v3 as iio
import numpy as np
import psutil
import pytest
from processes import Command, die_at_rename, die_while_writing

from napari_saf.batch import Companions
from napari_saf.io import read_labels, save_masks
from napari_saf.pipeline import load_recipe
from napari_saf.regions import USUAL_LEVEL

FEW = ("--max-labels", "2", "--format", ".npy")
FORKED = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")


@pytest.fixture
def folder(picture, tmp_path):
    """A folder of three images."""
    for k in range(3):
        picture(f"in/{k}.png", seed=k)
    return tmp_path / "in"


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def times(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def summary(outcome):
    """What was counted, and the images that failed."""
    lines = outcome.out.splitlines()
    k = next(k for k, line in enumerate(lines) if re.match(r"\d+ images?: ", line))
    failed = [line for line in lines[k + 1 :] if not line.startswith("least certain: ")]
    return lines[k].rpartition(",")[0].partition(": ")[2], failed


@pytest.mark.parametrize(
    ("extra", "missing"),
    [
        ((), [".labels.npy"]),
        ((), [".labels.npy", ".recipe.json"]),
        (("--together",), [".labels.npy"]),
    ],
)
def test_what_is_done_is_not_done_again(cli, folder, tmp_path, extra, missing):
    run, out = ("segment", folder, "-o", "out", *FEW, *extra), tmp_path / "out"
    assert cli(*run).code == 0
    before = content(out), times(out)
    assert summary(cli(*run)) == ("3 done before", [])
    assert times(out) == before[1]
    for end in missing:
        (out / f"1{end}").unlink()
    outcome = cli(*run)
    assert outcome.code == 0 and content(out) == before[0]
    if not extra:
        assert summary(outcome) == ("1 labelled, 2 done before", [])
        changed = {name for name, time in times(out).items() if time != before[1][name]}
        assert changed == {name for name in before[0] if name.startswith("1.")}


def test_an_image_that_was_changed_is_labelled_again(cli, picture):
    """By one that is older than its mask, too."""
    run = ("segment", picture("a.png"), "-o", "m.npy", *FEW)
    assert cli(*run).code == 0
    picture("a.png", seed=5)
    os.utime("a.png", (10**9, 10**9))
    outcome = cli(*run)
    assert outcome.code == 0 and "done before" not in outcome.out
    assert summary(cli(*run)) == ("1 done before", [])


def test_images_of_one_name_in_two_folders_are_told_apart(cli, picture, tmp_path):
    for k, folder in enumerate("ab"):
        picture(f"{folder}/x.png", seed=k)
        os.utime(f"{folder}/x.png", (10**9, 10**9))
    assert cli("segment", "a/x.png", "-o", "out", *FEW).code == 0
    before = content(tmp_path / "out")
    assert cli("segment", "b/x.png", "-o", "out", *FEW).is_error("is there already", "--overwrite")
    assert content(tmp_path / "out") == before


@pytest.mark.parametrize("option", [("--mask", "inside.npy"), ("--no-data", "60")])
def test_other_pixels_without_labels_are_another_run(cli, picture, option):
    np.save("inside.npy", np.eye(12, 16))
    run = ("segment", picture("a.npy"), "-o", "m.npy", *FEW)
    assert cli(*run).code == 0
    assert cli(*run, *option).is_error("m.npy", "--overwrite")
    assert cli(*run, *option, "--overwrite").code == 0
    assert summary(cli(*run, *option)) == ("1 done before", [])
    assert cli(*run).is_error("m.npy", "--overwrite")


def test_an_image_that_changes_while_it_is_labelled_is_labelled_again(cli, picture, monkeypatch):
    run, real = ("segment", picture("a.png"), "-o", "m.npy", *FEW), Companions.read_image

    def read_then_change(*arguments):
        found = real(*arguments)
        picture("a.png", seed=5)
        return found

    monkeypatch.setattr(Companions, "read_image", read_then_change)
    assert cli(*run).code == 0
    monkeypatch.setattr(Companions, "read_image", real)
    assert "done before" not in cli(*run).out
    assert summary(cli(*run)) == ("1 done before", [])


@pytest.mark.parametrize("suffix", [".tif", ".ome.zarr"])
def test_a_mask_that_was_corrected_by_hand_stays(cli, picture, tmp_path, suffix):
    path, mask = picture("a.png"), tmp_path / f"m{suffix}"
    run = ("segment", path, "-o", mask.name, "--max-labels", "2")
    assert cli(*run).code == 0
    os.utime(path, (10**9, 10**9))
    assert cli(*run).code == 0  # as it was written
    corrected = read_labels(mask).array.copy()
    corrected[:3] = 1 + (corrected[:3] == 1)
    save_masks(mask, corrected)
    os.utime(path, (10**9 + 1, 10**9 + 1))
    assert cli(*run).is_error(mask.name, "was changed", "--overwrite")
    np.testing.assert_array_equal(read_labels(mask).array, corrected)


def test_a_run_with_files_beside_the_image_is_repeated_once_one_was_changed(cli, picture, tmp_path):
    seeds = np.zeros((20, 24), dtype=np.uint8)
    seeds[2:4, 2:6], seeds[15:18, 10:20] = 1, 2
    np.save(tmp_path / "seeds.npy", seeds)
    np.save(tmp_path / "others.npy", seeds)
    run = ("segment", picture(shape=(20, 24)), "-o", "m.npy", "--method", "af", "--seeds")
    assert cli(*run, "seeds.npy").code == 0
    assert summary(cli(*run, "seeds.npy")) == ("1 done before", [])
    assert cli(*run, "others.npy").is_error("is there already", "--overwrite")
    after = (tmp_path / "m.npy").stat().st_mtime + 1
    os.utime(tmp_path / "seeds.npy", (after, after))
    again = cli(*run, "seeds.npy")
    assert again.code == 0 and "done before" not in again.out


@pytest.mark.parametrize(
    ("first", "others"),
    [
        (FEW[:2], [("--max-labels", "3"), (*FEW[:2], "--window", "5"), ("--method", "slk")]),
        ((*FEW[:2], "--regions"), [FEW[:2], (*FEW[:2], "--regions", "0.61")]),
    ],
)
def test_masks_of_other_settings_stay(cli, folder, tmp_path, first, others):
    run = ("segment", folder, "-o", "out", *FEW[2:])
    assert cli(*run, *first).code == 0
    before = times(tmp_path / "out")
    for other in others:
        assert cli(*run, *other).is_error("is there already", "--overwrite")
    if "--regions" in first:
        assert summary(cli(*run, *first, str(USUAL_LEVEL))) == ("3 done before", [])
        assert cli(*run, *first, "none").is_error("is there already", "--overwrite")
    assert times(tmp_path / "out") == before
    assert summary(cli(*run, *others[0], "--overwrite")) == ("3 labelled", [])
    assert summary(cli(*run, *others[0])) == ("3 done before", [])


def test_bad_images_are_named_at_the_end(cli, folder, monkeypatch):
    """Whatever is raised for them, the others are labelled."""
    real = Companions.read_image

    def fail_at_one(companions, path):
        if path.name == "1.png":
            raise MemoryError
        return real(companions, path)

    monkeypatch.setattr(Companions, "read_image", fail_at_one)
    (folder / "0.png").write_bytes(b"no image")
    np.save(folder / "flat.npy", np.zeros((8, 9)))
    run = ("segment", folder, "-o", "out", *FEW)
    for state in ("1 labelled, 3 failed", "1 done before, 3 failed"):
        outcome = cli(*run)
        assert outcome.code == 1
        words, failed = summary(outcome)
        assert words == state
        names = ("0.png", "1.png", "flat.npy")
        assert sorted(failed) == [f"failed: {folder / name}" for name in names]
        errors = outcome.err.splitlines()
        assert len(errors) == 3 and all(e.startswith("napari-saf: error: ") for e in errors)
    assert len(os.listdir("out")) == 2


def test_a_mask_that_cannot_be_written_leaves_no_recipe(cli, folder, monkeypatch):
    def full(file, *arguments, **options):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numpy.save", full)
    outcome = cli("segment", folder, "-o", "out", *FEW)
    assert summary(outcome)[0] == "3 failed"
    assert os.listdir("out") == []


@FORKED
@pytest.mark.slow
def test_processes_that_are_interrupted_leave_no_broken_file_and_one_goes_on_to_the_same(
    tmp_path, cli
):
    folder = tmp_path / "in"
    folder.mkdir()
    for k in range(4):
        np.save(folder / f"{k:02}.npy", np.random.default_rng(k).random((24, 32)))
    (folder / "bad.png").write_bytes(b"no image")
    arguments = ("segment", str(folder), "-o", "out", "--max-labels", "2", "--max-steps", "20")
    command = Command(*arguments, "--jobs", "2", folder=tmp_path)
    assert command.out.readline()
    below = psutil.Process(command.process.pid).children(recursive=True)
    for one in below:  # as a terminal does
        one.send_signal(signal.SIGINT)
    os.kill(command.process.pid, signal.SIGINT)
    code, _, err = command.wait()
    assert "Traceback" not in err and code == 130
    _, alive = psutil.wait_procs(below, timeout=120)
    assert not alive
    out = tmp_path / "out"
    masks = [path for path in out.glob("*.tif") if not path.name.startswith(".")]
    assert masks
    for path in masks:
        assert read_labels(path).array.shape == (24, 32)
        load_recipe(path.with_name(f"{path.name.partition('.')[0]}.recipe.json"))
    assert not list(out.glob(".*"))
    before = {path: path.stat().st_mtime_ns for path in masks}
    again = cli(*arguments)
    words = f"{4 - len(masks)} labelled, {len(masks)} done before, 1 failed"
    assert summary(again) == (words, [f"failed: {folder / 'bad.png'}"])
    assert all(path.stat().st_mtime_ns == before[path] for path in masks)
    assert cli(*arguments[:2], "-o", "one", *arguments[4:]).code == 1
    assert content(out) == content(tmp_path / "one")


def kill(arguments, folder, n_renamed):
    """Run the command until the file after `n_renamed` others would get its name."""
    command = Command(*arguments, folder=folder, prepare=die_at_rename, values=(n_renamed,))
    assert command.wait()[0] == 9


def hidden(folder):
    return [name for name in os.listdir(folder) if name.startswith(".")]


@FORKED
@pytest.mark.parametrize(
    ("n_renamed", "is_removed"),
    [
        (1, True),  # hidden recipe, mask, recipe, ...
        *(pytest.param(n, False, marks=pytest.mark.exhaustive) for n in (0, 1, 2, 3)),
    ],
)
def test_killed_while_images_that_have_changed_are_labelled_again(
    cli, folder, tmp_path, n_renamed, is_removed
):
    run = ("segment", str(folder), "-o", "out", *FEW)
    assert cli(*run).code == 0
    for k in range(3):
        iio.imwrite(folder / f"{k}.png", iio.imread(folder / f"{k}.png").T)
        os.utime(folder / f"{k}.png", (10**9, 10**9))
    kill(run, tmp_path, n_renamed)
    for path in (tmp_path / "out").glob("*.npy") if is_removed else ():
        path.unlink()
    assert cli(*run).code == 0
    assert summary(cli(*run)) == ("3 done before", [])
    assert not hidden(tmp_path / "out")


@FORKED
def test_killed_while_it_overwrites_the_other_settings_are_not_taken_for_done(
    cli, folder, tmp_path
):
    assert cli("segment", folder, "-o", "out", *FEW).code == 0
    other = ("segment", str(folder), "-o", "out", "--overwrite", "--max-labels", "3", *FEW[2:])
    kill(other, tmp_path, 2)  # after the first mask
    again = cli("segment", folder, "-o", "out", *FEW)
    assert summary(again) == ("1 labelled, 2 done before", [])
    assert read_labels(tmp_path / "out" / "0.labels.npy").array.max() <= 2
    assert not hidden(tmp_path / "out")


def test_two_runs_at_once_do_not_replace_each_other(cli, folder, tmp_path, monkeypatch):
    real, began = Companions.read_image, []

    def begin_another(*arguments):
        if not began:
            began.append(True)
            assert cli("segment", folder, "-o", "out", "--max-labels", "3", *FEW[2:]).code == 0
        return real(*arguments)

    monkeypatch.setattr(Companions, "read_image", begin_another)
    outcome = cli("segment", folder, "-o", "out", *FEW)
    assert (outcome.code, summary(outcome)[0]) == (1, "3 failed")
    assert outcome.err.count("is there already, from another run") == 3
    recipes = [load_recipe(path) for path in (tmp_path / "out").glob("*.recipe.json")]
    assert [recipe.method.max_labels for recipe in recipes] == [3] * 3


@FORKED
def test_leftovers_of_a_killed_process_are_removed(cli, picture, tmp_path):
    run = ("segment", picture(), "-o", "m.npy", *FEW)
    assert cli(*run).code == 0
    before = sorted(os.listdir(tmp_path))
    command = Command(folder=tmp_path, prepare=die_while_writing, values=("m.npy",))
    assert command.wait()[0] == 9
    assert len(hidden(tmp_path)) == 1
    alive = hidden(tmp_path)[0].split("-")
    (tmp_path / "-".join([*alive[:2], str(os.getppid()), alive[3]])).touch()
    assert summary(cli(*run)) == ("1 done before", [])
    assert len(hidden(tmp_path)) == 1  # that of a process that is alive
    assert len(os.listdir(tmp_path)) == len(before) + 1
