"""Prototypes as files: what is saved comes back, what is damaged is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.features import Scaling
from napari_saf.input import PLAIN
from napari_saf.problem import ImageOptions

GOLDEN = Path(__file__).parent / "prototypes_schema_1.json"
OPTIONS = ImageOptions("lab", window=(5, 5), scaling=Scaling(-1.5, 1e30))


def make(**changes):
    """Two prototypes of label 4, one of label 2."""
    vectors = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    known = {
        "labels": [4, 2, 4],
        "names": {4: 'Söller, "oben"', 2: "sky"},
        "colors": {2: (0.25, 0.5, 1)},
        "options": OPTIONS,
    }
    return saf.PrototypeSet(vectors, **{**known, **changes})


@pytest.fixture
def saved(tmp_path):
    return saf.save_prototypes(tmp_path / "p.json", make())


def test_what_is_saved_comes_back(saved):
    again = saf.load_prototypes(saved)
    made = make()
    assert list(again.by_label()) == [2, 4]
    for label, own in made.by_label().items():
        np.testing.assert_array_equal(again.by_label()[label], own)
    assert (again.names, again.colors, again.options) == (made.names, made.colors, OPTIONS)
    assert [path.name for path in saved.parent.iterdir()] == ["p.json"]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["schema"], 2, "schema: expected 1"),
        (["kind"], "recipe", "kind"),
        (["extra"], 1, "unknown entry 'extra'"),
        (["labels"], [], "labels: .*at least 1 item"),
        (["labels", 0, "label"], 0, r"labels\[0\].label: .*greater than 0"),
        (["labels", 0, "label"], 4, "each label once"),
        (["labels", 0, "name"], " ", "names"),
        (["labels", 0, "color"], [0, 0, 2], "colors"),
        (["labels", 0, "prototypes"], [[1, 2]], "as many numbers"),
        (["labels", 0, "prototypes"], [[1, 2, 1e300]], "finite"),
        (["input"], {"features": "array"}, "features"),
    ],
)
def test_what_is_wrong_is_named(saved, path, value, words):
    plain = json.loads(saved.read_text(encoding="utf-8"))
    place = plain
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    saved.write_text(json.dumps(plain), encoding="utf-8")
    with pytest.raises(saf.FormatError, match=words) as caught:
        saf.load_prototypes(saved)
    assert str(saved) in str(caught.value)


def looks():
    """An image of two things, each of which looks in two ways, and what is what."""
    image = np.kron([[0.0, 0.4, 0.7, 1.0]], np.ones((8, 8)))
    return image, np.kron([[4, 2, 4, 2]], np.ones((8, 8), int))


def test_a_few_means_stand_for_a_label_that_looks_in_several_ways():
    image, truth = looks()
    problem = saf.Problem.from_image(image, scaling=Scaling(0, 1), **PLAIN)
    found = saf.PrototypeSet.from_labels(
        problem, truth, 2, names={4: "dots", 9: "none"}, colors={2: (0, 1, 0)}
    )
    points = {label: sorted(own[:, 0].round(4)) for label, own in found.by_label().items()}
    np.testing.assert_allclose([points[2], points[4]], [[0.4, 1.0], [0.0, 0.7]], atol=1e-4)
    assert (found.names, found.options) == ({4: "dots"}, problem.options)
    np.testing.assert_array_equal(
        saf.Pipeline.from_prototypes(found).run(image[::-1, ::-1]).labels, truth[::-1, ::-1]
    )
    assert len(saf.PrototypeSet.from_labels(problem, truth).vectors) == 4  # no more look different
    one = saf.PrototypeSet.from_labels(problem, truth, 1)
    np.testing.assert_allclose(one.vectors, [[0.7], [0.35]], atol=1e-6)


TABLES = {
    "0,1;0,2\n0,9;0,8\n": [[0.1, 0.2], [0.9, 0.8]],
    "0.1;0.2\n0.9;0.8\n": [[0.1, 0.2], [0.9, 0.8]],
    "0,1\t0,2\r\n0,9\t-8e-1\r\n": [[0.1, 0.2], [0.9, -0.8]],
    '"0,1","0,2"\n"0,9","0,8"\n': [[0.1, 0.2], [0.9, 0.8]],
    '"0,1"\n"0,9"\n': [[0.1], [0.9]],
    "1;2\n3;4": [[1, 2], [3, 4]],
    "1,2,3\n3,4,5": [[1, 2, 3], [3, 4, 5]],
    "1, 2\n3, 4.0\n\n": [[1, 2], [3, 4]],
    "5\n7": [[5], [7]],
}


@pytest.mark.parametrize("text", TABLES)
def test_tables_of_any_spreadsheet_give_their_numbers(tmp_path, text):
    path = tmp_path / "p.csv"
    path.write_text(text, encoding="utf-8-sig", newline="")
    np.testing.assert_allclose(saf.load_prototypes(path).vectors, TABLES[text], rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0,1\n0,9\n", "decimal comma"),
        ("12,50\n-3,25\n", "decimal comma"),
        ("0,5\n1\n0,25", "semicolons"),
        ("1.234,5;2\n3;4", "thousands"),
        ("1,234,567;2", "thousands"),
        ("0,1;\n0,9;", "could not convert"),
    ],
)
def test_tables_that_may_be_other_numbers_are_refused(tmp_path, text, words):
    path = tmp_path / "p.csv"
    path.write_text(text)
    with pytest.raises(saf.FormatError, match=rf"p\.csv.*{words}"):
        saf.load_prototypes(path)


def test_there_must_be_labels():
    problem = saf.Problem.from_image(looks()[0], **PLAIN)
    for labels in (None, np.zeros((8, 32), int), np.ones((3, 3), int), np.full((8, 32), -1)):
        with pytest.raises(saf.InvalidInput, match=r"^labels: "):
            saf.PrototypeSet.from_labels(problem, labels)
    with pytest.raises(saf.InvalidInput, match="n_each: expected at least 1"):
        saf.PrototypeSet.from_labels(problem, looks()[1], 0)
    with pytest.raises(saf.InvalidInput, match="n_each"):
        saf.PrototypeSet.from_labels(problem, looks()[1], 2.5)
