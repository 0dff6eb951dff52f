"""napari-saf dictionary: learn, show, apply; stopped and begun again."""

import os

import imageio.v3 as iio
import numpy as np
import pytest

import napari_saf as saf
from napari_saf.batch import DictionaryTask, run_batch
from napari_saf.io import read_image, read_mask

FEW = ("--n-atoms", "4", "--patch-size", "5", "--landmarks", "20", "--n-samples", "300")


@pytest.fixture
def dictionary(cli, picture):
    path = picture("t.png", (24, 28))
    assert cli("dictionary", "learn", path, "-o", "d.safetensors", *FEW).code == 0
    return "d.safetensors"


@pytest.fixture
def table(rows):
    return lambda: rows("out/dictionary.csv")


def test_what_is_learned_is_what_the_library_learns_and_shown(cli, picture):
    features = "texture"
    paths = [picture("a.png", (24, 28)), picture("b.png", (30, 20), seed=1)]
    more = (*FEW, "--s", "0.5", "--features", features)
    outcome = cli("dictionary", "learn", *paths, "-o", "sub/d.safetensors", *more)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("sub/d.safetensors: ")
    found = saf.PatchDictionary.load("sub/d.safetensors")
    arrays = [read_image(path).array for path in paths]
    expected = saf.PatchDictionary.learn(
        arrays, n_atoms=4, patch_size=5, landmarks=20, n_samples=300, s=0.5, features=features
    )
    np.testing.assert_array_equal(found.atoms, expected.atoms)
    assert found.images == ("a.png", "b.png")
    show = ("dictionary", "show", "sub/d.safetensors")
    outcome = cli(*show, "-o", "sheet.png")
    assert (outcome.code, outcome.err) == (0, "")
    assert all(word in outcome.out for word in ("5 × 5", "a.png"))
    assert "of texture" in outcome.out
    assert iio.imread("sheet.png").ndim == 3
    assert cli(*show, "-o", "sheet.png").is_error("--overwrite")
    assert cli(*show).code == 0


def test_apply_writes_masks_reconstructions_and_a_table(cli, picture, dictionary, table):
    paths = [picture("images/a.png", (24, 28)), picture("images/b.png", (20, 22), seed=1)]
    outcome = cli("dictionary", "apply", dictionary, "images", "-o", "out")
    assert (outcome.code, outcome.err) == (0, "")
    assert "2 labelled" in outcome.out and " dB, " in outcome.out
    names = {"a.labels.tif", "a.reconstruction.tif", "b.labels.tif", "b.reconstruction.tif"}
    assert set(os.listdir("out")) == names | {"dictionary.csv"}
    found = saf.PatchDictionary.load(dictionary)
    for path, row in zip(paths, table(), strict=True):
        image = read_image(path).array
        expected = found.apply(image)
        stem = f"out/{path.stem}"
        np.testing.assert_array_equal(read_image(f"{stem}.labels.tif").array, expected.labels)
        made = read_image(f"{stem}.reconstruction.tif").array
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


def test_only_what_is_not_done_or_has_changed_is_done(cli, picture, dictionary, table):
    """A table of a row for each image, whatever was done again."""
    a, b = picture("a.png", (24, 28)), picture("b.png", (24, 28), seed=1)
    assert cli("dictionary", "apply", dictionary, a, "-o", "out").code == 0
    before = os.stat("out/a.labels.tif").st_mtime_ns
    run = ("dictionary", "apply", dictionary, a, b, "-o", "out")

    def counts_are(words, *more):
        outcome = cli(*run, *more)
        assert outcome.code == 0 and words in outcome.out
        assert sorted(row["image"] for row in table()) == ["a.png", "b.png"]

    counts_are("1 labelled, 1 done before")
    assert os.stat("out/a.labels.tif").st_mtime_ns == before
    os.remove("out/a.reconstruction.tif")
    counts_are("1 labelled, 1 done before")
    after = os.stat("out/a.labels.tif").st_mtime + 1
    os.utime(a, (after, after))
    counts_are("1 labelled, 1 done before")
    with open("out/dictionary.csv", "rb+") as file:
        file.truncate(os.path.getsize("out/dictionary.csv") - 3)
    counts_are("1 labelled, 1 done before")
    assert cli(*run, "--window", "5").is_error("dictionary.csv", "settings")
    counts_are("2 labelled", "--window", "5", "--overwrite")


def test_a_bad_file_does_not_stop_the_rest_and_is_named_at_the_end(
    cli, picture, dictionary, table, tmp_path
):
    (tmp_path / "bad.png").write_bytes(b"no picture")
    (tmp_path / "loop.png").symlink_to("loop.png")
    bad = ["bad.png", "loop.png", picture("rgb.png", (24, 28, 3)).name]
    outcome = cli("dictionary", "apply", dictionary, *bad, picture("a.png", (24, 28)), "-o", "out")
    assert outcome.code == 1 and "1 labelled, 3 failed" in outcome.out
    named = [line for line in outcome.out.splitlines() if line.startswith("failed: ")]
    for lines in (named, outcome.err.strip().splitlines()):
        assert all(name in line for name, line in zip(bad, lines, strict=True))
    assert os.path.exists("out/a.labels.tif")
    assert [row["image"] for row in table()] == ["a.png"]


def test_work_that_is_told_to_end_leaves_whole_files(picture, dictionary, table, tmp_path):
    paths = [picture(f"{k}.png", (24, 28), seed=k) for k in range(3)]
    found = saf.PatchDictionary.load(dictionary)
    states, out = [], tmp_path / "out"
    task = DictionaryTask(dictionary=found, folder=out)
    for outcome in run_batch(task, task.plan(paths), cancelled=lambda: len(states) == 2):
        states.append(outcome.state)
    assert states == ["done", "done"]
    assert [row["image"] for row in table()] == ["0.png", "1.png"]
    assert not list(out.glob("2_*"))
    again = [outcome.state for outcome in run_batch(task, task.plan(paths))]
    assert again == ["skipped", "skipped", "done"]
