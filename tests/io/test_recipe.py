import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from napari_saf.errors import FormatError, InvalidInput
from napari_saf.flow import GaussianAffinity, GeometricEuler, KernelAffinity
from napari_saf.graph import GridGraph
from napari_saf.input import PLAIN
from napari_saf.io import (
    PrototypeSet,
    save_recipe,
    with_level,
    with_prototypes,
)
from napari_saf.methods import METHODS, AssignmentFlow, SelfAssignmentFlow
from napari_saf.pipeline import Pipeline, load_recipe
from napari_saf.problem import Problem
from napari_saf.regions import merge_regions

IMAGE = np.random.default_rng(0).random((12, 14, 3))
PROBLEM = Problem.from_image(IMAGE, window=(3, 5), **PLAIN)
GOOD = SelfAssignmentFlow().recipe(PROBLEM)


def load(tmp_path, plain):
    (tmp_path / "r.json").write_text(plain if isinstance(plain, str) else json.dumps(plain))
    return load_recipe(tmp_path / "r.json")


def plain_of(method):
    return method.recipe(PROBLEM)["parameters"]


@pytest.mark.parametrize(
    "method",
    [
        SelfAssignmentFlow(),
        SelfAssignmentFlow(max_labels=3, s=0.25, stepper=GeometricEuler(step=0.2)),
        SelfAssignmentFlow(affinity=GaussianAffinity(landmarks=None)),
        AssignmentFlow(prototypes=np.array([[0.0, 0.5, 1.0], [1.0, 0.25, 0.125]])),
    ],
)
def test_a_recipe_comes_back(tmp_path, method):
    save_recipe(tmp_path / "r.json", method.recipe(PROBLEM))
    recipe = load_recipe(tmp_path / "r.json")
    assert type(recipe.method) is type(method)
    assert plain_of(recipe.method) == plain_of(method)
    assert recipe.options == PROBLEM.options
    assert recipe.plain["versions"]["napari-saf"]


def test_a_recipe_with_a_level_gives_regions_with_the_labels_they_are_parts_of(tmp_path):
    image = np.kron(IMAGE, np.ones((3, 2, 1)))
    first = SelfAssignmentFlow(max_labels=4).run(Problem.from_image(image, **PLAIN))
    other = Pipeline.from_plain(with_level(first.recipe, 0.5)).for_others()
    assert other.level == 0.5 and Pipeline.from_plain(other.plain).level == 0.5
    tree = merge_regions(first.labels, image)
    assert tree.at_level(0).max() > tree.at_level(1).max()
    for level in (0, 0.5, 1):
        save_recipe(tmp_path / "r.json", with_level(first.recipe, level))
        again = load_recipe(tmp_path / "r.json").run(image)
        np.testing.assert_array_equal(again.kinds, first.labels)
        np.testing.assert_array_equal(again.labels, tree.at_level(level))
        assert again.recipe["regions"] == {"level": level}
        kept = load_recipe(tmp_path / "r.json").with_rescale(False)
        assert kept.level == kept.plain["regions"]["level"] == level


def given_as_array(what):
    """Return a recipe of what was given as an array."""
    if what == "features":
        problem = Problem.from_image(IMAGE, features=IMAGE, weights="uniform", max_side=None)
        return SelfAssignmentFlow().recipe(problem)
    problem = Problem(np.eye(4), GridGraph((2, 2), window=1))
    return SelfAssignmentFlow(affinity=KernelAffinity(np.eye(4))).recipe(problem)


@pytest.mark.parametrize("what", ["features", "affinity"])
def test_what_was_given_as_an_array_cannot_be_repeated(tmp_path, what):
    with pytest.raises(InvalidInput, match=what):
        save_recipe(tmp_path / "r.json", given_as_array(what))
    assert not os.listdir(tmp_path)
    with pytest.raises(FormatError, match=rf"r\.json: .*{what}"):
        load(tmp_path, json.loads(json.dumps(given_as_array(what), default=np.ndarray.tolist)))


def changed(**changes):
    return GOOD | changes


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        ("", "as a recipe"),
        ("{", "as a recipe"),
        ("[]", "expected an object"),
        ("{}", "schema"),
        ('{"schema": NaN}', "NaN"),
        ("[" * 100_000, "as a recipe"),
        (changed(schema=2), "schema: expected 1, got 2"),
        (changed(surprise=1), "unknown entry 'surprise'"),
        (changed(method="magic"), "method: expected one of saf, af"),
        (changed(parameters=3), "parameters: expected an object"),
        (changed(parameters={"rho": 10**400}), "rho: expected at least"),
        (changed(parameters={"colour": 1}), "unknown entry 'colour'"),
        (changed(method="af", parameters={"prototypes": [[1], [2, 3]]}), "as a recipe"),
        (changed(method="af", parameters={"prototypes": []}), "finite numbers"),
        (changed(input=3), "input: expected an object"),
        (changed(input={"colour": 1}), "input: unknown entry"),
        (changed(input={"features": "magic"}), "input.features"),
        (changed(input={"scaling": {"low": -1e308, "high": 1e308}}), "input.scaling"),
        (changed(input=GOOD["input"] | {"max_side": "half"}), "max_side"),
        (changed(taught=[{"label": 1}]), "prototypes"),
        (changed(taught=[{"label": 1, "prototypes": [[1.0]]}] * 2), "each label once"),
        (changed(taught=[{"label": 0, "prototypes": [[1.0]]}]), "label"),
        (changed(regions={}), "regions: missing entry 'level'"),
        (changed(regions={"level": 0.5, "count": 3}), "regions: unknown entry 'count'"),
        (changed(regions={"level": -0.01}), "regions.level: expected .* 0, got -0.01"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, plain, words):
    with pytest.raises(FormatError, match=rf"r\.json: .*({words})") as caught:
        load(tmp_path, plain)
    assert "\n" not in str(caught.value)


def test_missing_folder_huge_and_binary_files_are_named(tmp_path):
    with pytest.raises(FormatError, match="no such file"):
        load_recipe(tmp_path / "none.json")
    with pytest.raises(FormatError, match="cannot be read"):
        load_recipe(tmp_path)
    (tmp_path / "r.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(FormatError, match=r"r\.json"):
        load_recipe(tmp_path / "r.json")
    with (tmp_path / "r.json").open("wb") as file:
        file.truncate(17 * 2**20)
    with pytest.raises(FormatError, match="at most 16 MiB"):
        load_recipe(tmp_path / "r.json")


@pytest.mark.parametrize("wrong", [float("nan"), {1, 2}, np.float32(1)])
def test_what_json_cannot_hold_is_refused(tmp_path, wrong):
    with pytest.raises(InvalidInput, match="JSON"):
        save_recipe(tmp_path / "r.json", GOOD | {"images": [wrong]})
    assert not os.listdir(tmp_path)


@pytest.fixture
def taught():
    """A run from strokes whose class 2 is not the largest, what it taught, and the strokes."""
    image = np.kron([[0.2, 0.2, 0.8]], np.ones((12, 6)))[:, :14] + IMAGE[..., 0] / 5
    seeds = np.zeros(image.shape, dtype=np.uint8)
    seeds[2:5, 2], seeds[2:5, 13] = 1, 2
    result = AssignmentFlow().run(Problem.from_image(image, seeds=seeds, window=3, **PLAIN))
    problem = Problem.from_image(image, window=3, **PLAIN)
    found = PrototypeSet.from_labels(
        problem, result.labels, names={2: "sky"}, colors={2: (0, 1, 0)}
    )
    return image, seeds, result, found


def test_a_recipe_of_strokes_labels_images_without_them_by_what_they_taught(tmp_path, taught):
    image, seeds, result, found = taught
    save_recipe(tmp_path / "r.json", with_prototypes(result.recipe, found))
    recipe = load_recipe(tmp_path / "r.json")
    np.testing.assert_array_equal(recipe.prototypes.vectors, found.vectors)
    assert recipe.prototypes.names == {2: "sky"} and recipe.prototypes.colors[2] == (0, 1, 0)
    for other in (image, image[::-1, ::-1], 3 + image / 7):
        labels = recipe.run(other).labels
        np.testing.assert_array_equal(labels, Pipeline.from_prototypes(found).run(other).labels)
        assert set(np.unique(labels)) == {1, 2}
        np.testing.assert_array_equal(recipe.for_others().run(other).labels, labels)
    np.testing.assert_array_equal(recipe.run(image, seeds=seeds).labels, result.labels)
    assert load_recipe(tmp_path / "r.json").plain == recipe.plain


@pytest.mark.parametrize(("n_labels", "n_each"), [(4, 8), (168, 1)])
def test_many_labels_are_taught_by_fewer_prototypes_each(n_labels, n_each):
    labels = 1 + np.arange(168).reshape(12, 14) % n_labels
    problem = Problem.from_image(np.repeat(np.repeat(IMAGE, 3, 0), 3, 1), **PLAIN)
    labels = np.repeat(np.repeat(labels, 3, 0), 3, 1)
    found = PrototypeSet.fit(problem, labels).by_label()
    assert len(found) == n_labels
    assert max(map(len, found.values())) == min(n_each, 168 // n_labels)


@pytest.mark.parametrize("features", ["position", "array"])
def test_what_is_of_one_image_alone_is_not_taught(taught, features):
    image, _, result, _ = taught
    given = np.stack([image, image]).transpose(1, 2, 0) if features == "array" else features
    problem = Problem.from_image(image, **PLAIN | {"features": given})
    assert PrototypeSet.fit(problem, result.labels) is None


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def paths(plain, prefix=()):
    yield prefix
    for key, value in plain.items() if isinstance(plain, dict) else ():
        yield from paths(value, (*prefix, key))


def replaced(plain, path, value):
    if not path:
        return value
    return plain | {path[0]: replaced(plain[path[0]], path[1:], value)}


@given(data=st.data())
def test_any_value_anywhere_is_a_recipe_or_a_format_error(tmp_path, data):
    path = data.draw(st.sampled_from(list(paths(GOOD))))
    value = data.draw(VALUES)
    plain = replaced(GOOD, path, value)
    if data.draw(st.booleans()):
        plain = plain if not isinstance(plain, dict) else plain | {"method": "af"}
    try:
        recipe = load(tmp_path, plain)
    except FormatError as error:
        assert "r.json" in str(error)
    else:
        assert isinstance(recipe, Pipeline)
        assert type(recipe.method) in METHODS.values()
