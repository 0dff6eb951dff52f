"""Deep features on the command line: options of their own, and a recipe that finds the weights."""

import json
from pathlib import Path

import numpy as np
import pytest

from napari_saf.cli import main
from napari_saf.io import read_labels


@pytest.fixture
def picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    image = np.full((48, 64), 60.0)
    image[:, 32:] = 180
    np.save("a.npy", image + np.random.default_rng(0).normal(0, 8, image.shape))
    return "a.npy"


def test_a_recipe_repeats_what_options_say(picture, weights, capsys):
    file = weights("test_vit")
    own = ["--features", "deep", "--architecture", "test_vit", "--layers", "2,5"]
    own += ["--weights-file", str(file), "--n-components", "4"]
    assert main(["segment", picture, "-o", "mask.tif", "--max-labels", "2", *own]) == 0
    recipe = json.loads(Path("mask.recipe.json").read_text(encoding="utf-8"))
    features = recipe["input"]["features"]
    assert (features["architecture"], features["layers"]) == ("test_vit", [2, 5])
    assert features["weights_file"] == file.name
    assert main(["segment", picture, "-o", "again.tif", "--recipe", "mask.recipe.json"]) == 0
    np.testing.assert_array_equal(read_labels("again.tif").array, read_labels("mask.tif").array)


def test_what_was_done_is_not_done_again_unless_the_weights_changed(picture, weights, capsys):
    file = Path("own.safetensors")
    file.write_bytes(weights("test_vit").read_bytes())
    own = ["--features", "deep", "--architecture", "test_vit", "--weights-file", str(file)]
    command = ["segment", picture, "-o", "mask.tif", "--max-labels", "2", *own]
    assert main(command) == 0 and "done before" not in capsys.readouterr().out
    assert main(command) == 0 and "1 done before" in capsys.readouterr().out
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)
    assert main([*command, "--overwrite"]) == 0 and "done before" not in capsys.readouterr().out


def test_options_of_deep_features_go_with_them(picture, capsys):
    assert main(["segment", picture, "-o", "m.tif", "--architecture", "vgg16"]) != 0
    assert "--architecture: goes with --features deep" in capsys.readouterr().err
    assert main(["segment", picture, "-o", "m.tif", "--features", "deep"]) != 0
    assert "choose a file of weights" in capsys.readouterr().err


def test_a_network_without_features_is_for_seeds_to_choose(picture, weights, capsys):
    seeds = np.zeros((48, 64), np.uint8)
    seeds[10, 4:20], seeds[10, 40:60] = 1, 2
    np.save("seeds.npy", seeds)
    command = ["segment", picture, "--seeds", "seeds.npy"]
    own = ["--architecture", "vgg16", "--weights-file", str(weights("vgg16"))]
    assert main([*command, "-o", "plain.npy"]) == 0
    assert main([*command, "-o", "chosen.npy", *own]) == 0, capsys.readouterr().err
    np.testing.assert_array_equal(np.load("chosen.npy"), np.load("plain.npy"))  # colour tells all
    assert main([*command, "-o", "deep.npy", "--features", "deep", *own]) == 0
    recipe = json.loads(Path("deep.recipe.json").read_text(encoding="utf-8"))
    assert recipe["input"]["features"]["architecture"] == "vgg16"
