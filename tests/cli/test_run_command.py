"""What was learned, applied by `run`, by Python and by `segment`: the same labels, every pixel."""

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.errors import InvalidInput
from napari_saf.io import read_labels
from napari_saf.pipeline import Pipeline
from napari_saf.project import FileReference, Project, as_model, content_digest, save_project


def bands(seed, dim=1.0):
    rng = np.random.default_rng(seed)
    image = np.repeat([60.0, 120.0, 200.0], 8)[:, None] + rng.normal(0, 9, (24, 26))
    return np.clip(dim * np.roll(image, seed, axis=0), 0, 255).astype(np.uint8)


def taught_by_strokes():
    """Strokes of labels 2 and 5, with what they teach, as a dock leaves them."""
    seeds = np.zeros((24, 26), int)
    seeds[2:5, 3:9], seeds[20:22, 3:9] = 5, 2
    problem = saf.Problem.from_image(bands(0), features="intensity", window=3, seeds=seeds)
    taught = saf.PrototypeSet.from_labels(problem, names={5: "ground"})
    return Pipeline(saf.AssignmentFlow(), problem.options, prototypes=taught)


@pytest.fixture
def learned(request, tmp_path):
    """Something learned, as an object and as a file; and what labels an array by it in Python."""
    kind = request.param
    if kind == "dictionary":
        learning = saf.PatchDictionaryLearning(n_atoms=3, patch_size=3)
        options = {"features": "intensity", "weights": "uniform", "window": 5, "max_side": None}
        found = learning.run(saf.Problem.from_image(bands(0), **options)).dictionary
        path = tmp_path / "atoms.safetensors"
        found.save(path)
        return found, path, lambda image: found.apply(image, window=5).labels
    project = Project(recipes={"from strokes": taught_by_strokes()})
    path = save_project(tmp_path / "work.napari-saf", project)
    return project, path, lambda image: project.recipe.run(image).labels


@pytest.fixture
def images(tmp_path):
    (tmp_path / "images").mkdir()
    own = {name: bands(k, 1 - 0.2 * k) for k, name in enumerate("abc")}
    for name, image in own.items():
        np.save(tmp_path / "images" / f"{name}.npy", image)
    return own


@pytest.mark.parametrize("learned", ["dictionary"], indirect=True)
def test_run_and_python_label_alike_from_an_object_and_from_its_file(
    cli, learned, images, tmp_path
):
    given, path, label = learned
    outcome = cli("run", path, "images", "-o", "run")
    assert outcome.code == 0 and "3 images: 3 labelled" in outcome.out, outcome.err
    for source, out in ((given, "object"), (path, "file")):
        done = saf.apply_to_images(source, [tmp_path / "images"], tmp_path / out)
        assert [one.state for one in done] == ["done"] * 3
    for name, image in images.items():
        expected = label(image)
        assert len(np.unique(expected)) > 1
        for out in ("run", "object", "file"):
            mask = read_labels(f"{out}/{name}.labels.tif").array
            np.testing.assert_array_equal(mask, expected)
    assert "3 done before" in cli("run", path, "images", "-o", "object").out


@pytest.mark.parametrize("learned", ["strokes"], indirect=True)
@pytest.mark.parametrize("scaling", [True, False])
def test_the_scaling_is_the_same_by_every_way(cli, learned, images, tmp_path, scaling):
    given, path, _ = learned
    options = saf.ApplyOptions(scaling=scaling)
    saf.apply_to_images(given, ["images/*.npy"], "python", options=options)
    words = {True: "each", False: "first"}[scaling]
    assert cli("run", path, "images", "-o", "run", "--scaling", words).code == 0
    recipe = as_model(given)
    for name, image in images.items():
        expected = recipe.run(image, rescale=scaling).labels
        for out in ("run", "python"):
            mask = read_labels(f"{out}/{name}.labels.tif").array
            np.testing.assert_array_equal(mask, expected)


def test_patterns_files_and_probabilities(cli, images, tmp_path):
    path = save_project(tmp_path / "work.napari-saf", Project(recipes={"x": taught_by_strokes()}))
    own = ("--probabilities", ".npy", "--format", ".png")
    outcome = cli("run", path, "images/[ab].npy", "images/?.npy", "-o", "out", *own)
    assert outcome.code == 1 and "[ab].npy" in outcome.err  # brackets are names of their own
    assert cli("run", path, "images/?.npy", "-o", "out", *own).code == 0
    assert len(np.load("out/a.probabilities.npy")) == 2
    assert cli("run", path, "none/*.tif", "-o", "out").is_error("no image fits")
    assert cli("run", path, "images/a.npy", "-o", "one.tif").code == 0
    assert cli("run", path, "images/?.npy", "-o", "one.tif").is_error("folder")
    # What lies beside the images is not labelled again.
    assert "3 labelled" in cli("run", path, "images", "-o", "images").out
    assert "3 done before" in cli("run", path, "images/*", "-o", "images").out


def test_a_dictionary_of_a_project_is_applied_if_it_is_the_one_that_was_saved(
    cli, images, tmp_path
):
    learning = saf.PatchDictionaryLearning(n_atoms=3, patch_size=3)
    options = {"features": "intensity", "weights": "uniform", "window": 3, "max_side": None}
    found = learning.run(saf.Problem.from_image(bands(0), **options)).dictionary
    atoms = tmp_path / "atoms.safetensors"
    found.save(atoms)
    file = FileReference(atoms, content_digest(atoms), atoms.stat().st_size)
    path = save_project(tmp_path / "work.napari-saf", Project(dictionaries={"atoms": file}))
    assert cli("run", path, "images", "-o", "out").code == 0
    labels = read_labels("out/a.labels.tif").array
    np.testing.assert_array_equal(labels, found.apply(images["a"], window=3).labels)
    assert cli("run", path, "images", "-o", "more", "--probabilities", ".npy").is_error("atom")
    refused = cli("run", path, "images/a.npy", "-o", "a.ome.zarr", "--tile", "16")
    assert refused.code == 2 and "dictionary apply" in refused.err
    found.without([0]).save(atoms)
    assert cli("run", path, "images", "-o", "again").is_error("atoms")


def test_what_was_not_learned_is_refused(cli, images, tmp_path):
    save_project(tmp_path / "empty.napari-saf", Project())
    (tmp_path / "list.json").write_text("[1]")
    for name in ("empty.napari-saf", "list.json", "missing.json"):
        assert cli("run", name, "images", "-o", "out").is_error(name)
    with pytest.raises(InvalidInput, match="learned"):
        as_model(3)
    assert not (tmp_path / "out").exists()


def test_one_image_that_fails_stops_no_other_and_a_stop_keeps_what_is_done(images, tmp_path):
    (tmp_path / "images" / "b.npy").write_bytes(b"no image")
    recipe, seen = taught_by_strokes(), []
    done = saf.apply_to_images(
        recipe, [tmp_path / "images"], tmp_path / "out", on_outcome=seen.append
    )
    assert [one.state for one in done] == ["done", "failed", "done"] and seen == done
    (tmp_path / "images" / "b.npy").unlink()
    first = saf.apply_to_images(
        recipe, [tmp_path / "images"], tmp_path / "new", on_outcome=seen.append,
        cancelled=lambda: len(seen) > 3,
    )  # fmt: skip
    assert [one.state for one in first] == ["done"]
    again = saf.apply_to_images(recipe, [tmp_path / "images"], tmp_path / "new")
    assert [one.state for one in again] == ["skipped", "done"]


@pytest.mark.parametrize("learned", ["dictionary"], indirect=True)
def test_a_mask_is_refused_for_a_dictionary_which_has_no_use_for_it(learned, images, tmp_path):
    options = saf.ApplyOptions(mask="finite")
    with pytest.raises(InvalidInput, match="no mask"):
        saf.apply_to_images(learned[0], [tmp_path / "images"], tmp_path / "out", options=options)


def test_a_folder_says_whose_labels_are_least_certain(cli, images, tmp_path):
    ramp = np.tile(np.linspace(60, 200, 26).astype(np.uint8), (24, 1))  # all between the classes
    np.save(tmp_path / "images" / "ramp.npy", ramp)
    taught = saf.save_prototypes(tmp_path / "a.prototypes.json", taught_by_strokes().prototypes)
    first, again = (cli("run", taught, "images", "-o", "run").out for _ in range(2))
    line = first.splitlines()[-1]
    assert line.startswith("least certain: ramp.npy (") and line == again.splitlines()[-1]
    recipe = saf.load_recipe(tmp_path / "run" / "ramp.recipe.json")
    (share,) = recipe.plain["uncertainty"]
    assert f"{100 * share:.1f} % uncertain" in first and 0 < share <= 1
