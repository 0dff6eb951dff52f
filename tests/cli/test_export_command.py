import os

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.io import number_regions, read_image, read_labels, read_mask, save_masks


@pytest.fixture
def labelled(cli, picture):
    """An image and its mask, labelled by the command line."""
    picture()
    assert cli("segment a.png -o m.tif --max-labels 2").code == 0


def test_a_table_and_a_figure_are_saved_unless_asked_otherwise(cli, rows, labelled):
    run = "export m.tif -o out --image a.png"
    outcome = cli(run)
    assert (outcome.code, outcome.err) == (0, "")
    assert sorted(os.listdir("out")) == ["m.figure.png", "m.regions.csv"]
    assert outcome.out.splitlines() == ["out/m.regions.csv", "out/m.figure.png"]
    labels, image = read_labels("m.tif").array, read_image("a.png").array
    for row in rows("out/m.regions.csv"):
        values = image[labels == int(row["label"])]
        assert float(row["intensity_mean"]) == pytest.approx(values.mean())
        assert int(row["pixels"]) == values.size
    assert cli(run).is_error("--overwrite") and cli(run, "--overwrite").code == 0


def test_everything_at_once(cli, rows, labelled, read_recipe):
    kinds = "--masks .png --binary .npy --regions .csv --figure .svg --prototypes .csv --recipe"
    run = f"export m.tif -o out --image a.png {kinds} --connected --scale 0.5 --unit um"
    outcome = cli(run, "--name", "2=dark side")
    assert outcome.code == 0, outcome.err
    expected = "m.figure.svg m.labels.png m.prototypes.csv m.recipe.json m.regions.csv"
    assert sorted(os.listdir("out")) == [*expected.split(), "m_1.npy", "m_2_dark_side.npy"]
    labels = read_labels("m.tif").array
    np.testing.assert_array_equal(read_labels("out/m.labels.png").array, labels)
    np.testing.assert_array_equal(np.load("out/m_2_dark_side.npy") > 0, labels == 2)
    table = rows("out/m.regions.csv")
    assert {row["name"] for row in table} == {"label 1", "dark side"}
    assert sum(float(row["area_um2"]) for row in table) == labels.size / 4
    assert read_recipe("out/m.recipe.json")["method"] == "saf"


def test_what_a_mask_says_of_itself_is_kept(cli):
    labels, names = np.array([[1, 1], [2, 2]], np.uint8), {1: "light", 2: "dark"}
    colors = {1: (1, 0, 0), 2: (0, 0.5, 0)}
    save_masks("m.tif", labels, scale=(2, 2), units="um", names=names, colors=colors)
    run = ("export", "m.tif", "-o", "out", "--masks", ".png", "--binary", ".npy", "--name", "2=ink")
    assert cli(*run).code == 0
    assert sorted(os.listdir("out")) == ["m.labels.png", "m_1_light.npy", "m_2_ink.npy"]
    found = read_mask("out/m.labels.png")
    assert found.names == {1: "light", 2: "ink"}
    assert found.colors[2][:3] == (0, 0.5, 0)
    assert (found.scale, found.units) == ([2, 2], ["µm", "µm"])


def test_numbered_regions_go_with_the_rows_of_the_table(cli, rows):
    labels = np.array([[1, 1, 0, 1], [1, 0, 0, 0], [0, 3, 3, 3]], np.uint8)
    save_masks("m.tif", labels, scale=(2, 2), units="um")
    outcome = cli("export m.tif -o out --regions .csv --numbered .tif --min-pixels 2")
    assert outcome.code == 0, outcome.err
    found = read_image("out/m.regions.tif")
    np.testing.assert_array_equal(found.array, [[1, 1, 0, 0], [1, 0, 0, 0], [0, 2, 2, 2]])
    assert tuple(found.scale) == (2, 2)
    table = [(row["label"], row["region"], row["pixels"]) for row in rows("out/m.regions.csv")]
    assert table == [("1", "1", "3"), ("3", "2", "3")]


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_prototypes_of_an_export_label_the_image_again(cli, labelled, suffix):
    assert cli(f"export m.tif -o out --image a.png --prototypes {suffix}").code == 0
    run = f"segment a.png -o n.tif --method af --prototypes out/m.prototypes{suffix}"
    assert cli(run).code == 0
    same = read_labels("m.tif").array == read_labels("n.tif").array
    assert same.mean() > 0.97


def test_the_size_of_a_pixel_is_taken_from_labels_or_image(cli, rows):
    labels = np.array([[0, 1], [2, 2]], np.uint8)
    save_masks("m.tif", labels, scale=(2, 3), units="um")
    save_masks("n.npy", labels)
    assert cli("export m.tif -o out --regions .csv").code == 0
    assert cli("export n.npy -o out --image m.tif --regions .csv").code == 0
    for name in ("m", "n"):
        assert [float(r["area_um2"]) for r in rows(f"out/{name}.regions.csv")] == [6, 12]


def test_a_large_mask_is_measured_without_being_read_whole(cli, rows, monkeypatch):
    labels = np.kron([[1, 2, 1], [0, 3, 1]], np.ones((20, 15))).astype(np.uint8)
    save_masks("m.ome.zarr", labels, scale=(2, 2), units="um", names={3: "sky"})
    assert cli("export", "m.ome.zarr", "-o", "whole", "--regions", ".csv", "--connected").code == 0
    monkeypatch.setattr("napari_saf.cli._masks.LARGE", 100)
    outcome = cli("export", "m.ome.zarr", "-o", "out", "--connected")
    assert (outcome.code, outcome.out) == (0, "out/m.regions.csv\n"), outcome.err
    whole, parts = rows("whole/m.regions.csv"), rows("out/m.regions.csv")
    assert [row.pop("name") for row in parts] == ["label 1", "label 1", "label 2", "sky"]
    for row in whole:
        row.pop("name")
    assert parts == whole
    outcome = cli("export", "m.ome.zarr", "-o", "out", "--figure", ".png")
    assert outcome.is_error("a table, outlines and the recipe")
    pytest.importorskip("shapely")
    outcome = cli("export", "m.ome.zarr", "-o", "out", "--geojson", "--coco", "--min-pixels", "301")
    assert outcome.out.split() == ["out/m.regions.geojson", "out/m.regions.json"], outcome.err
    expected = number_regions(labels, min_pixels=301)
    for path in outcome.out.split():
        back = saf.load_objects(path, labels.shape)
        assert np.array_equal(back.labels, expected) and set(back.names) == {1}
