"""Project files: what is saved comes back, and whatever was changed is refused."""

import dataclasses
import random
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from project_cases import STROKES, make, pack, parts, pixels

import napari_saf as saf
from napari_saf.project import EncodedLabels


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two images and a project of them."""
    folder = tmp_path_factory.mktemp("project")
    saf.save_project(folder / "p.napari-saf", make(folder / "images"))
    return folder


@given(
    npst.arrays(
        st.sampled_from([np.uint8, np.uint16, np.int32, np.int64, np.bool_]),
        npst.array_shapes(min_dims=1, max_dims=4, max_side=6),
        elements=st.integers(0, 1),
    ),
    st.integers(1, 2**32 - 1),
)
def test_labels_come_back(labels, factor):
    labels = labels.astype(np.int64) * factor
    encoded = EncodedLabels.of(labels)
    encoded.check()
    np.testing.assert_array_equal(encoded.to_array(), labels)


@pytest.mark.parametrize("labels", [[[0.5]], [[-1]], [[2**32]], [[]], "no"])
def test_what_is_no_label_image_is_refused(labels):
    with pytest.raises(saf.InvalidInput, match="labels"):
        EncodedLabels.of(labels)


def test_what_is_saved_comes_back(folder):
    given, again = make(folder / "images"), saf.load_project(folder / "p.napari-saf")
    for one, other in zip(given.images, again.images, strict=True):
        assert other.file == one.file
        assert [dataclasses.astuple(layer) for layer in other.layers] == [
            dataclasses.astuple(layer) for layer in one.layers
        ]
    assert (again.docks, again.current, again.home) == (given.docks, 0, folder)
    assert [image.reader for image in again.images] == ["", ""]
    assert [image.stage for image in again.images] == ["labelled", "taught"]
    np.testing.assert_array_equal(again.images[1].layers[0].pixels.to_array(), STROKES)
    labels = [one.recipe.run(pixels(7)).labels for one in (given, again)]
    np.testing.assert_array_equal(*labels)


def test_clicks_on_objects_come_back(folder, tmp_path):
    project = saf.load_project(folder / "p.napari-saf")
    image, *others = project.images
    clicks = {"object_classes": {1: "red", 2: "white"}, "clicks": {7: 2, 12: 1}}
    layers = tuple(dataclasses.replace(layer, **clicks) for layer in image.layers)
    images = (dataclasses.replace(image, layers=layers), *others)
    saf.save_project(tmp_path / "q.napari-saf", dataclasses.replace(project, images=images))
    again = saf.load_project(tmp_path / "q.napari-saf").images[0].layers[0]
    assert {name: getattr(again, name) for name in clicks} == clicks


def test_the_same_project_is_the_same_file(folder, tmp_path):
    again = saf.load_project(folder / "p.napari-saf")
    path = saf.save_project(folder / "q.napari-saf", again)
    assert path.read_bytes() == (folder / "p.napari-saf").read_bytes()


def test_the_recipe_that_is_applied_is_named():
    project = make_with_recipes("a", "b")
    with pytest.raises(saf.InvalidInput, match="there are: a, b"):
        _ = project.recipe
    assert dataclasses.replace(project, applied="b").recipe is project.recipes["b"]
    with pytest.raises(saf.InvalidInput, match="there are: none"):
        _ = saf.Project().recipe


def test_prototypes_of_labels_come_back(tmp_path):
    path, vectors = tmp_path / "a", np.random.default_rng(0).random((2, 3)).astype(np.float32)
    path.write_bytes(b"a")
    pixels = EncodedLabels.of(STROKES)
    layer = saf.ProjectLayer("labels", "l", pixels, prototypes={2: vectors}, is_visible=False)
    image = saf.ProjectImage(saf.FileReference.of(path), (layer,), reader="other")
    project = saf.Project((image,))
    again = saf.load_project(saf.save_project(tmp_path / "p.napari-saf", project)).images[0]
    np.testing.assert_array_equal(again.layers[0].prototypes[2], vectors)
    assert (again.layers[0].is_visible, again.reader) == (False, "other")
    assert again.layers[0].pixels.labels().tolist() == [1, 2]


def make_with_recipes(*names):
    recipe = saf.Pipeline.from_prototypes(
        saf.PrototypeSet(np.eye(3), options=saf.problem.ImageOptions(features="lab"))
    )
    return saf.Project(recipes=dict.fromkeys(names, recipe))


def test_what_no_file_can_hold_is_refused(tmp_path):
    for value in (object(), float("nan")):
        with pytest.raises(saf.InvalidInput, match="values that JSON can hold"):
            saf.save_project(tmp_path / "p.napari-saf", saf.Project(docks={"a": {"b": value}}))
    with pytest.raises(saf.InvalidInput, match=r"ends in \.napari-saf"):
        saf.save_project(tmp_path / "p.zip", saf.Project())
    assert not [*tmp_path.iterdir()]


CLASS = {"label": 1, "name": "a", "color": [0.0, 0.0, 0.0], "prototypes": []}


def refused(path, content, words=r"m\.napari-saf"):
    path.write_bytes(content)
    with pytest.raises(saf.FormatError, match=words) as raised:
        saf.load_project(path)
    assert str(path) in str(raised.value)


def test_every_changed_byte_is_found(folder, tmp_path):
    """Cut, changed, doubled and inserted bytes, anywhere in the file."""
    content, draw = (folder / "p.napari-saf").read_bytes(), random.Random(0)
    path = tmp_path / "m.napari-saf"
    for _ in range(120):
        at, n = draw.randrange(len(content)), draw.choice((1, 1, 2, 40))
        other = bytes(byte ^ draw.randrange(1, 256) for byte in content[at : at + n])
        new = draw.choice(
            [
                content[:at] + other + content[at + n :],
                content[:at],
                content[:at] + content[at + n :],
                content[:at] + other + content[at:],
                content[:at] + content[at : at + n] * 2 + content[at + n :],
            ]
        )
        if new != content:
            refused(path, new)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": 2}, "schema: expected 1, got 2"),
        ({"schema": True}, "schema"),
        ({"kind": "labels"}, "kind"),
        ({"extra": 1}, "unknown entry 'extra'"),
        ({"applied": "other"}, "recipes: missing entry 'other'"),
        ({"current": 2}, "current: expected the number of an image"),
        ({"images": []}, "layers: expected the runs of each"),
        ({"recipes": {"strokes": {"schema": 1, "method": "rm"}}}, "recipes.strokes: method"),
    ],
)
def test_impossible_values_are_named(folder, tmp_path, changes, words):
    main, entries = parts(folder / "p.napari-saf")
    refused(tmp_path / "m.napari-saf", pack(main | changes, entries), words)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shape": [12, 16]}, "runs of 192 pixels"),
        ({"shape": [2**30, 2**30], "n_runs": 2**59}, "as many runs"),
        ({"scale": [1.0]}, "scale and place"),
        ({"scale": [float("inf"), 1.0]}, "finite"),
        ({"runs": "../../outside"}, "layers: expected the runs of each"),
        ({"place": {"singletons": [2]}}, "singletons below 2"),
        ({"classes": [CLASS | {"prototypes": [[1.0], [1.0, 2.0]]}]}, "as many numbers each"),
        ({"classes": [CLASS | {"prototypes": [[1e39]]}]}, "finite numbers"),
        (
            {"classes": [CLASS | {"label": n, "prototypes": [[1.0] * n]} for n in (1, 2)]},
            "as many numbers for each",
        ),
        ({"classes": [CLASS] * 2}, "each class once"),
    ],
)
def test_impossible_layers_are_named(folder, tmp_path, changes, words):
    main, entries = parts(folder / "p.napari-saf")
    main["images"][0]["layers"][0] |= changes
    refused(tmp_path / "m.napari-saf", pack(main, entries), words)


def test_archives_made_to_harm_are_refused(folder, tmp_path, monkeypatch):
    main, entries = parts(folder / "p.napari-saf")
    path = tmp_path / "m.napari-saf"
    refused(path, pack(main, entries | {"../evil": b"x"}), r"unknown entry '\.\./evil'")
    refused(path, pack(main, entries | {"/etc/x": b"x"}), "unknown entry '/etc/x'")
    refused(path, pack(main, entries | {"layers/9.runs": b"x"}), "runs of each")
    refused(path, pack(main, entries, compression=14), "packed in an unknown way")
    refused(path, pack(main, entries, signed=False), "damaged")
    refused(path, pack("[" * 100_000, entries), "project")
    refused(path, b"", "damaged")
    bomb = [("layers/9.runs", bytes(2**24))]
    refused(path, pack(main, entries, others=bomb), "packed in an unknown way")
    monkeypatch.setattr("napari_saf.project._archive.MOST_JSON_BYTES", 2**20)
    refused(path, pack(b" " * 2**21, entries), "too large")


def test_runs_that_unpack_to_more_than_they_say_are_not_unpacked(folder, tmp_path):
    main, entries = parts(folder / "p.napari-saf")
    bomb = zlib.compress(bytes(2**26), 9)
    refused(tmp_path / "m.napari-saf", pack(main, entries | {"layers/0.runs": bomb}), "the runs of")


def test_labels_of_more_pixels_than_there_is_memory_are_not_made():
    side = 2**22
    table = np.array([[side] * 2**13, [1] * 2**13], "<u4")
    huge = EncodedLabels((2**13, side), zlib.compress(table.tobytes()), 2**13)
    huge.check()
    with pytest.raises(saf.ComputeError, match="not enough memory for labels of shape"):
        huge.to_array()


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(saf.FormatError, match=r"none\.napari-saf: no such file"):
        saf.load_project(tmp_path / "none.napari-saf")
    with pytest.raises(saf.FormatError, match="cannot be read as a project"):
        saf.load_project(tmp_path)
