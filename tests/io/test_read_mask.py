"""Masks come back with all that was said of them; files of others are none of ours."""

import json

import imageio.v3 as iio
import numpy as np
import pytest
import tifffile
import zarr

import napari_saf as saf
from napari_saf.errors import FormatError
from napari_saf.io import (
    Export,
    ExportSelection,
    Labelling,
    PrototypeSet,
    is_own_mask,
    read_mask,
    save_masks,
)
from napari_saf.io._note import NOTE_KEY, note_path, read_note

SUFFIXES = (".tif", ".png", ".npy", ".ome.zarr")
RECIPE = {"schema": 1, "method": "saf", "parameters": {"s": 0.5}, "regions": {"level": 0.25}}
PLACE = {
    "shape": [1, 2, 2],
    "scale": [1.0] * 3,
    "translate": [0.0] * 3,
    "units": ["um"] * 3,
    "axes": [0, 1, 2],
    "singletons": [0],
    "channels": None,
}


def a_labelling(seed, shape, most=6):
    """Return labels with random names, colours and prototypes of some of them."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, most + 1, shape)
    labels.ravel()[:2] = 0, most
    numbers = np.unique(labels[labels > 0]).tolist()
    n_axes = len(shape)
    return Labelling(
        labels,
        scale=tuple(rng.uniform(0.1, 3, n_axes).tolist()),
        units=("µm",) * n_axes,
        axes="zyx"[-n_axes:],
        names={numbers[0]: "sky ☁", most + 3: "=1+1"},
        colors={n: tuple(rng.uniform(size=3)) for n in numbers},
        prototypes=PrototypeSet.from_points(
            {n: rng.normal(size=(1 + n % 2, 3)).astype(np.float32) for n in numbers}
        ),
        recipe=RECIPE,
        place=PLACE,
    )


def write(folder, labelling, suffix):
    Export(folder, "a", labelling, ExportSelection(masks=suffix)).write()
    return folder / f"a.labels{suffix}"


def assert_equal_points(one, other):
    found, expected = one.by_label(), other.by_label()
    assert found.keys() == expected.keys()
    for n in found:
        np.testing.assert_array_equal(found[n], expected[n])


@pytest.mark.parametrize("shape", [(7, 9), (3, 7, 9)])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_all_that_was_said_of_a_mask_comes_back(tmp_path, suffix, shape):
    if suffix == ".png" and len(shape) > 2:
        return
    given = a_labelling(len(suffix), shape)
    path = write(tmp_path, given, suffix)
    assert is_own_mask(path)
    found = read_mask(path)
    np.testing.assert_array_equal(found.labels, given.labels)
    assert found.names == given.names and found.recipe == given.recipe
    assert found.axes == given.axes and found.place == given.place
    np.testing.assert_allclose(found.scale, given.scale)
    assert {unit.replace("micrometer", "µm") for unit in found.units} == {"µm"}
    assert found.colors.keys() == given.colors.keys()
    for n, color in given.colors.items():
        np.testing.assert_allclose(found.colors[n][:3], color, atol=1e-4)
    assert_equal_points(found.prototypes, given.prototypes)


def test_a_recipe_that_json_cannot_hold_is_left_out(tmp_path):
    labels = np.array([[0, 1], [2, 2]])
    for recipe in ({"method": np.ones(3)}, {"method": float("nan")}):
        path = write(tmp_path, Labelling(labels, names={1: "sky"}, recipe=recipe), ".tif")
        found = read_mask(path)
        assert found.recipe is None and found.names == {1: "sky"}


def test_images_of_others_are_none_of_ours(tmp_path):
    image = np.arange(12, dtype=np.uint8).reshape(3, 4)
    names = ("a.tif", "a.png", "a.npy", "a.labels.tif", "b.jpg")
    for name in names:
        if name.endswith(".npy"):
            np.save(tmp_path / name, image)
        else:
            iio.imwrite(tmp_path / name, image)
    for text in ("plain words", "{not json", '{"kind": "labels of others"}', '{"a": NaN}', "[1]"):
        tifffile.imwrite(tmp_path / "j.tif", image, imagej=True, metadata={"Info": text})
        assert not is_own_mask(tmp_path / "j.tif")
    zarr.save(tmp_path / "b.zarr", image)
    saf.save_recipe(tmp_path / "a.recipe.json", {"schema": 1, "method": "saf"})
    (tmp_path / "broken.tif").write_bytes(b"II*\0 and no more")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG")
    (tmp_path / "a.json").write_text('{"schema": 1}')
    for name in (*names[:3], *names[4:], "b.zarr", "broken.tif", "broken.png", "missing.tif"):
        assert not is_own_mask(tmp_path / name), name


def test_a_recipe_beside_a_file_that_is_called_like_a_mask_makes_it_one(tmp_path):
    labels, mask = np.array([[0, 1], [2, 2]], np.uint8), tmp_path / "photo.labels.npy"
    np.save(mask, labels)
    assert not is_own_mask(mask)
    saf.save_recipe(tmp_path / "photo.recipe.json", {"schema": 1, "method": "saf"})
    assert is_own_mask(mask)
    found = read_mask(mask)
    assert found.recipe["method"] == "saf" and found.prototypes is None
    np.testing.assert_array_equal(found.labels, labels)


def test_what_a_recipe_beside_a_mask_knows_comes_with_its_names(tmp_path):
    entries = [{"label": n, "prototypes": [[float(n)], [0.5]]} for n in (1, 2)]
    recipe = RECIPE | {"input": {"features": "intensity"}, "taught": entries}
    save_masks(tmp_path / "a.labels.tif", np.array([[1, 2]]), names={1: "sky"})
    saf.save_recipe(tmp_path / "a.recipe.json", recipe)
    mask = read_mask(tmp_path / "a.labels.tif")
    assert mask.names == {1: "sky"} and mask.recipe == recipe
    assert mask.prototypes.by_label()[2].tolist() == [[2.0], [0.5]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"schema": 2},
        {"labels": [{"label": 0}]},
        {"labels": [{"label": 4_000_000_000, "prototypes": [[1.0]]}]},
        {"labels": [{"label": 1, "prototypes": [[1.0], [1.0, 2.0]]}]},
        {"labels": [{"label": 1, "color": [1.0, 2.0, 3.0]}]},
        {"scale": ["x", 1.0]},
        {"recipe": [1]},
        {"unknown": 1},
        {"place": {"shape": [1, 2, 2]}},
        {"place": PLACE | {"scale": [1.0, 1.0, 0.0]}},
        {"place": PLACE | {"singletons": [5]}},
        {"place": PLACE | {"axes": [1]}},
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".ome.zarr"])
def test_a_note_that_is_wrong_is_told_with_its_file(tmp_path, suffix, wrong):
    path = write(tmp_path, Labelling(np.array([[0, 1], [2, 2]])), suffix)
    note = read_note(path).model_dump(by_alias=True) | wrong
    rewrite(path, note)
    with pytest.raises(FormatError, match=path.name.partition(".")[0]):
        read_mask(path)


def test_a_size_that_no_pixel_has_is_told(tmp_path):
    path = write(tmp_path, Labelling(np.array([[0, 1], [2, 2]])), ".npy")
    note = read_note(path).model_dump(by_alias=True)
    for scale in ([0.0, 1.0], [1.0]):
        rewrite(path, note | {"scale": scale})
        with pytest.raises(FormatError, match="scale"):
            read_mask(path)


def rewrite(path, note):
    """Put another note into a mask."""
    if path.is_dir():
        zarr.open_group(path, mode="a").attrs[NOTE_KEY] = note
    else:
        note_path(path).write_text(json.dumps(note))
