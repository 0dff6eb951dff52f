import json

import numpy as np
import ome_zarr_models
import pytest
import tifffile

import napari_saf as saf
from napari_saf.errors import InvalidInput
from napari_saf.io import PROBABILITY_SUFFIXES, read_image


def image(seed=0):
    rng = np.random.default_rng(seed)
    rows = np.repeat([0.1, 0.5, 0.9], 6)
    return np.clip(rows[:, None] + rng.normal(0, 0.05, (18, 20)), 0, 1)


@pytest.fixture
def problem():
    mask = np.ones((18, 20), bool)
    mask[:, :2] = False
    return saf.Problem.from_image(image(), features="intensity", mask=mask, max_side=None)


MAPS = np.random.default_rng(1).dirichlet((1, 1, 1), (6, 7)).transpose(2, 0, 1).astype(np.float32)


@pytest.mark.parametrize("suffix", [".tif", ".npy"])
def test_the_same_maps_give_the_same_bytes(tmp_path, suffix):
    first, again = (saf.save_probabilities(tmp_path / f"{k}{suffix}", MAPS) for k in "ab")
    assert first.read_bytes() == again.read_bytes().replace(b"b.tif", b"a.tif")


@pytest.mark.parametrize("method", [saf.SLK(n_clusters=3), saf.SelfAssignmentFlow(max_labels=5)])
def test_maps_are_the_assignment_in_the_shape_of_the_labels(problem, method):
    result = method.run(problem)
    maps = saf.probability_maps(problem, result)
    assert maps.shape == (result.n_labels, 18, 20) and maps.dtype == np.float32
    inside = result.labels > 0
    np.testing.assert_array_equal((maps.argmax(axis=0) + 1)[inside], result.labels[inside])
    assert (maps[:, ~inside] == 0).all() and (~inside).any()
    np.testing.assert_allclose(maps[:, inside].sum(axis=0), 1, atol=1e-4)


def test_chosen_labels_come_in_the_order_asked_for_and_unknown_ones_are_0(problem):
    result = saf.SLK(n_clusters=3).run(problem)
    every = saf.probability_maps(problem, result)
    some = saf.probability_maps(problem, result, [3, 1, 9])
    np.testing.assert_array_equal(some[:2], every[[2, 0]])
    assert not some[2].any()


@pytest.mark.parametrize("labels", [[], [0], [1.5], "ab"])
def test_what_is_no_label_is_refused(problem, labels):
    with pytest.raises(InvalidInput, match="labels"):
        saf.probability_maps(problem, saf.SLK(n_clusters=3).run(problem), labels)


@pytest.mark.parametrize("kind", ["float32", "uint8"])
@pytest.mark.parametrize("suffix", PROBABILITY_SUFFIXES)
def test_maps_come_back(tmp_path, suffix, kind):
    path = saf.save_probabilities(tmp_path / f"m{suffix}", MAPS, kind=kind)
    found = read_image(path)
    assert found.array.dtype == kind
    step = 255 if kind == "uint8" else 1
    np.testing.assert_allclose(found.array / step, MAPS, atol=0.5 / 255 if step > 1 else 1e-7)


def test_ome_zarr_is_valid_and_names_its_channels(tmp_path):
    path = tmp_path / "m.ome.zarr"
    names, colors = {1: "sky", 3: "sea"}, {3: (1.0, 0.5, 0.0)}
    stack = np.stack([MAPS, MAPS[::-1]], axis=1)
    sizes = {"axes": "zyx", "scale": (2, 0.5, 0.5), "units": "um"}
    saf.save_probabilities(path, stack, names=names, colors=colors, **sizes)
    opened = ome_zarr_models.open_ome_zarr(path)
    assert isinstance(opened, ome_zarr_models.v05.image.Image)
    (multiscale,) = opened.ome_attributes.multiscales
    assert [axis.name for axis in multiscale.axes] == ["c", "z", "y", "x"]
    assert multiscale.axes[0].type == "channel" and multiscale.axes[1].unit == "micrometer"
    (scale,) = multiscale.datasets[0].coordinateTransformations
    assert list(scale.scale) == [1, 2, 0.5, 0.5]
    omero = json.loads((path / "zarr.json").read_text())["attributes"]["ome"]["omero"]
    assert [one["label"] for one in omero["channels"]] == ["sky", "label 2", "sea"]
    assert [one["color"] for one in omero["channels"]] == ["FFFFFF", "FFFFFF", "FF8000"]
    found = read_image(path)
    assert (found.axes, found.channel_axis, found.scale) == ("czyx", 0, (2.0, 0.5, 0.5))


@pytest.mark.parametrize(
    ("axes", "shape", "stored"), [("zyx", (4,), "CZYX"), ("tzyx", (4, 2), "TCZYX")]
)
def test_tiff_says_axes_names_and_sizes(tmp_path, axes, shape, stored):
    maps = np.broadcast_to(MAPS.reshape(3, *(1 for _ in shape), 6, 7), (3, *shape, 6, 7))
    path = tmp_path / "m.tif"
    scale = tuple(range(2, 2 + len(axes)))
    saf.save_probabilities(path, maps, axes=axes, scale=scale, units="um", names={2: "sea"})
    with tifffile.TiffFile(path) as file:
        assert file.is_ome and file.series[0].axes == stored
        ome = tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]["Pixels"]
    assert [one["Name"] for one in ome["Channel"]] == ["label 1", "sea", "label 3"]
    assert float(ome["PhysicalSizeX"]) == scale[-1]
    assert read_image(path).axes == stored.lower()


@pytest.mark.parametrize(
    ("maps", "options", "words"),
    [
        (MAPS[0], {}, "2 to 4 axes"),
        (MAPS * np.nan, {}, "from 0 to 1"),
        (MAPS, {"kind": "int8"}, "kind"),
        (MAPS, {"labels": [1]}, "labels"),
        (MAPS, {"names": {1: 3}}, "names"),
    ],
)
def test_what_cannot_be_saved_is_refused(tmp_path, maps, options, words):
    with pytest.raises(InvalidInput, match=words):
        saf.save_probabilities(tmp_path / "m.tif", maps, **options)
    with pytest.raises(InvalidInput, match="ends in"):
        saf.save_probabilities(tmp_path / "m.png", MAPS)
    assert not list(tmp_path.iterdir())
