"""Files of schema 1, written by version 0.1.0, load and mean what they meant."""

import json
from pathlib import Path

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.features import Scaling
from napari_saf.parameters import to_plain
from napari_saf.problem import ImageOptions

FOLDER = Path(__file__).parent
WHOLE = Scaling(0.0, 255.0)
OPTIONS = {
    "saf": ImageOptions("lab", (3, 5), "uniform", None, Scaling(0.215, 255.0), None, 64, True),
    "fair": ImageOptions("intensity", 3, "contrast", None, WHOLE, "axis:0", None),
    "af": ImageOptions("intensity", 3, "uniform", None, WHOLE, None, None),
    "graph": None,
}
OPTIONS["regions"] = OPTIONS["saf"]


def holds(whole, part):
    """Tell whether values are those of a part; what is not there has its default."""
    if not isinstance(part, dict):
        return whole == part
    return all(key in whole and holds(whole[key], value) for key, value in part.items())


@pytest.mark.parametrize("name", OPTIONS)
def test_recipes(tmp_path, name):
    path = FOLDER / f"recipe_{name}_schema_1.json"
    plain, recipe = json.loads(path.read_text(encoding="utf-8")), saf.load_recipe(path)
    assert recipe.plain.keys() == plain.keys() and holds(recipe.plain, plain)
    assert recipe.options == OPTIONS[name]
    # A later parameter has its default.
    assert to_plain(recipe.method).items() >= plain["parameters"].items()
    assert recipe.level == (0.35 if name == "regions" else None)
    again = saf.load_recipe(saf.save_recipe(tmp_path / "r.json", recipe.plain))
    assert again.plain == recipe.plain


def test_recipes_run():
    recipe = saf.load_recipe(FOLDER / "recipe_af_schema_1.json")
    labels = recipe.run(np.kron([[0, 128, 255]], np.ones((6, 6))).astype(np.uint8)).labels
    np.testing.assert_array_equal(labels, np.kron([[2, 5, 2]], np.ones((6, 6))))


def test_prototypes():
    rows = np.array([[0.125, 0.5], [0.25, -1.5], [0.75, 1e10]], np.float32)
    found = saf.load_prototypes(FOLDER / "prototypes_named_schema_1.json")
    assert found.labels.tolist() == [2, 4, 4]
    np.testing.assert_array_equal(found.vectors, rows[[1, 0, 2]])
    assert found.names == {4: 'Söller, "oben"', 2: "sky"}
    assert found.colors == {2: (0.25, 0.5, 1.0)}
    own = ImageOptions("lab", (5, 5), "uniform", None, Scaling(-1.5, 1e30), None, None, True)
    assert found.options == own
    bare = saf.load_prototypes(FOLDER / "prototypes_bare_schema_1.json")
    assert (bare.labels.tolist(), bare.vectors.tolist()) == ([1, 3], [[0.5], [0.25]])
    assert (bare.names, bare.colors, bare.options) == ({}, {}, None)
    for suffix in (".npy", ".csv"):
        numbers = saf.load_prototypes(FOLDER / f"prototypes_schema_1{suffix}")
        np.testing.assert_array_equal(numbers.vectors, rows)
        assert numbers.labels.tolist() == [1, 2, 3]
