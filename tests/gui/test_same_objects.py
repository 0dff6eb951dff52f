"""The same objects, and measures, from dock, commands and Python, of the same labels."""

import csv
import dataclasses

import numpy as np
import pytest

import napari_saf as saf
from napari_saf._gui.layers.metadata import SoftLabels, recipe_of
from napari_saf._gui.objects.dock import ObjectsWidget
from napari_saf.cli import main
from napari_saf.io import read_labels

pytestmark = pytest.mark.gui


def photo():
    """Bright discs, some of which touch where they are dim, and strokes on both."""
    rng = np.random.default_rng(0)
    rows, columns = np.ogrid[:60, :160]
    places = [(30, 20), (30, 35), (30, 80), (30, 93), (30, 130)]
    near = np.min([np.hypot(rows - y, columns - x) for y, x in places], axis=0)
    image = np.clip(20 + 200 * np.exp(-((near / 8.5) ** 4)) + rng.normal(0, 12, near.shape), 0, 255)
    strokes = np.zeros(image.shape, np.uint8)
    strokes[28:32, 18:22], strokes[28:32, 128:132], strokes[2:5, 10:150] = 2, 2, 1
    return image.astype(np.uint8), strokes


def command(*words):
    assert main([str(word) for word in words]) == 0


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_dock_commands_and_python_find_the_same_objects(
    model, open_on, settle, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    image, strokes = photo()
    (tmp_path / "photos").mkdir()
    np.save("photos/photo.npy", image)
    np.save("strokes.npy", strokes)
    command("segment", "photos/photo.npy", "-o", "photo.labels.tif", "--seeds", "strokes.npy",
            "--method", "af", "--features", "intensity", "--window", "3", "--objects",
            "--object-kinds", "2")  # fmt: skip
    labels, recipe = read_labels("photo.labels.tif").array, saf.load_recipe("photo.recipe.json")

    problem = saf.Problem.from_image(image, seeds=strokes, **recipe.options.arguments())
    result = recipe.method.run(problem)
    assert np.array_equal(result.labels, labels)
    doubt = problem.graph.to_image(result.uncertainty)
    np.save("doubt.npy", doubt)
    found = saf.split_objects(labels, kinds=[2], image=image, uncertainty=doubt)
    np.testing.assert_array_equal(read_labels("photo.objects.tif").array, found.labels)
    plain = saf.split_objects(labels, kinds=[2], image=image)
    assert not np.array_equal(found.labels, plain.labels)

    command("objects", "photo.labels.tif", "-o", "own.csv", "--kinds", "2", "--image", "photos",
            "--masks", ".npy", "--uncertainty", "doubt.npy")  # fmt: skip
    np.testing.assert_array_equal(np.load("photo.objects.npy"), found.labels)
    assert rows_of("own.csv") == rows_of("photo.objects.csv")

    shown = model.add_labels(labels, name="labels")
    soft = SoftLabels.of(problem, result)
    assert SoftLabels.of(dataclasses.replace(problem, seeds=None), result).uncertainty is None
    shown.metadata["napari_saf"] = {"recipe": recipe.plain, "soft_labels": soft}
    model.add_image(image, name="photo")
    uncertain = model.add_image(doubt, name="doubt")
    dock = open_on(model, ObjectsWidget)
    settle(dock)
    assert dock.choices.kinds.ticked == [2]
    dock.choices.image.choose(model.layers["photo"])
    # that of the run, though there are images that fit
    assert dock.choices.uncertainty.value is None
    for choice, expected in (("none", plain), (uncertain, found), (None, found)):
        dock.choices.uncertainty.choose(choice)
        dock.start()
        settle(dock)
        np.testing.assert_array_equal(dock.layer.data, expected.labels)
    dock.save_to(str(tmp_path / "dock.csv"))
    settle(dock)
    names = [name for name in rows_of("own.csv")[0] if not name.startswith("name")]
    for own, other in zip(rows_of("dock.csv"), rows_of("own.csv"), strict=True):
        assert [own[name] for name in names] == [other[name] for name in names]
    assert recipe_of(shown).objects == recipe.objects
