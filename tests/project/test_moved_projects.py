"""Projects whose images were moved, renamed, changed or lost, and which came from elsewhere."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr
from project_cases import CLASSES, STROKES, make, pack, parts, pixels

import napari_saf as saf
from napari_saf.project import (
    FileReference,
    content_digest,
    find_files,
    project_digest,
)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "work"
    saf.save_project(folder / "p.napari-saf", make(folder / "images"))
    return folder


def states(project, *folders):
    return [one.state for one in project.find_images(folders)]


def test_images_are_found_where_they_were_wherever_the_folder_is(folder, tmp_path):
    main, entries = parts(folder / "p.napari-saf")
    image = main["images"][0]
    image["file"]["path"] = image["file"]["path"].replace("/", "\\")
    (folder / "p.napari-saf").write_bytes(pack(main, entries))
    for place in (folder, tmp_path / "other"):
        folder = folder.rename(place)
        found = saf.load_project(folder / "p.napari-saf").find_images()
        assert [one.path.parent for one in found] == [place / "images"] * 2
        assert [one.state for one in found] == ["found", "found"]
    (place / "images" / "image 1.tif").unlink()
    project = saf.load_project(place / "p.napari-saf")
    assert states(project, place) == ["found", "missing"]


def test_a_renamed_image_is_found_by_its_content_in_a_named_folder(folder):
    (folder / "images" / "image 0.tif").rename(folder / "images" / "renamed.tif")
    project = saf.load_project(folder / "p.napari-saf")
    assert states(project) == ["missing", "found"]
    found = project.find_images([folder])
    assert found[0].path == folder / "images" / "renamed.tif"
    assert states(project.with_found(found)) == ["found", "found"]


def test_what_was_found_is_saved(folder, tmp_path):
    shutil.move(folder / "images", tmp_path / "far")
    project = saf.load_project(folder / "p.napari-saf")
    assert states(project) == ["missing", "missing"]
    project = project.with_found(project.find_images([tmp_path / "far"]))
    saf.save_project(folder / "p.napari-saf", project)
    paths = [image["file"]["path"] for image in parts(folder / "p.napari-saf")[0]["images"]]
    assert paths == ["../far/image 0.tif", "../far/image 1.tif"]
    again = saf.load_project(folder / "p.napari-saf")
    assert states(again, tmp_path / "far") == ["found", "found"]


def test_a_changed_image_is_not_taken_for_the_same(folder):
    tifffile.imwrite(folder / "images" / "image 0.tif", pixels(5))
    project = saf.load_project(folder / "p.napari-saf")
    found = project.find_images()
    assert [one.state for one in found] == ["changed", "found"]
    assert found[0].path == folder / "images" / "image 0.tif"
    assert states(project.with_found(found)) == ["changed", "found"]


def test_an_image_of_the_same_name_in_a_named_folder_is_a_changed_one(folder, tmp_path):
    other = tmp_path / "other" / "image 0.tif"
    other.parent.mkdir()
    (folder / "images" / "image 0.tif").unlink()
    tifffile.imwrite(other, pixels(5))
    found = saf.load_project(folder / "p.napari-saf").find_images([tmp_path / "other"])
    assert (found[0].state, found[0].path) == ("changed", other)


@pytest.mark.parametrize("place", ["../../outside.tif", "/etc/hostname", "a/../../../outside.tif"])
def test_nothing_outside_the_folder_is_looked_at(folder, tmp_path, monkeypatch, place):
    main, entries = parts(folder / "p.napari-saf")
    for image in main["images"]:
        image["file"]["path"] = place
    (folder / "p.napari-saf").write_bytes(pack(main, entries))
    tifffile.imwrite(tmp_path / "outside.tif", pixels(0))
    project = saf.load_project(folder / "p.napari-saf")
    looked = []
    real = os.stat

    def stat(path, *arguments, **options):
        looked.append(str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", stat)
    found = project.find_images()
    monkeypatch.undo()
    assert [one.state for one in found] == ["missing", "missing"]
    assert not [path for path in looked if not path.startswith(str(folder))]


def test_of_a_project_that_was_written_here_files_are_looked_at_anywhere(folder, tmp_path):
    (tmp_path / "a").mkdir()
    project = saf.load_project(folder / "p.napari-saf")
    again = saf.load_project(saf.save_project(tmp_path / "a" / "p.napari-saf", project))
    assert states(again) == ["missing", "missing"]
    assert [one.state for one in again.find_images(is_trusted=True)] == ["found", "found"]


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="this system has no endless file")
def test_a_link_to_an_endless_file_is_no_image(folder):
    path = folder / "images" / "image 0.tif"
    path.unlink()
    path.symlink_to("/dev/zero")
    project = saf.load_project(folder / "p.napari-saf")
    assert states(project) == ["changed", "found"]
    with pytest.raises(saf.InvalidInput, match="it is not a regular file"):
        content_digest(path)


def test_a_project_of_schema_1_is_read(folder):
    shutil.copy(Path(__file__).parent / "project_schema_1.napari-saf", folder / "old.napari-saf")
    project = saf.load_project(folder / "old.napari-saf")
    assert states(project) == ["found"] and project.images[0].stage == "labelled"
    strokes, labels, objects = project.images[0].layers
    np.testing.assert_array_equal(strokes.pixels.to_array(), STROKES)
    assert strokes.classes == CLASSES
    np.testing.assert_array_equal(labels.pixels.to_array(), np.where(pixels(0) > 0.5, 2, 1))
    assert (labels.recipe, labels.level, labels.scale) == ("strokes", 0.25, (0.5, 0.25))
    assert (labels.is_edited, labels.place) == (True, {"axes": [0, 1]})
    assert project.recipe.prototypes.names == {} and len(project.recipe.prototypes.vectors)
    assert project.docks == {"Segment": {"method": "saf", "scale": 5}}
    path = saf.save_project(folder / "new.napari-saf", project)
    assert (objects.object_classes, objects.clicks) == ({1: "red", 2: "white"}, {1: 2, 2: 1})
    assert parts(path)[0]["schema"] == 1
    assert project_digest(saf.load_project(path)) == project_digest(project)


def store(path, seed=0):
    """Write a zarr store of 16 chunks."""
    data = np.random.default_rng(seed).integers(0, 99, (64, 64), dtype=np.uint8)
    group = zarr.open_group(path, mode="w")
    group.create_array("0", data=data, chunks=(16, 16))
    return path


def test_the_content_of_a_store_is_that_of_its_metadata_and_chunks(tmp_path):
    path = store(tmp_path / "a.zarr")
    before = content_digest(path)
    assert content_digest(shutil.copytree(path, tmp_path / "b.zarr")) == before
    (path / "labels" / "cells").mkdir(parents=True)
    (path / "labels" / "cells" / "zarr.json").write_text("{}")
    assert content_digest(path) == before
    assert content_digest(store(tmp_path / "c.zarr", 1)) != before
    described = json.loads((path / "0" / "zarr.json").read_text())
    (path / "0" / "zarr.json").write_text(json.dumps(described | {"fill_value": 1}))
    assert content_digest(path) != before


def test_of_a_large_file_blocks_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("napari_saf.project._files.WHOLE", 1000)
    monkeypatch.setattr("napari_saf.project._files.BLOCK", 10)
    path, content = tmp_path / "a", bytearray(os.urandom(100_000))
    path.write_bytes(content)
    before = content_digest(path)
    assert before.startswith("sampled:")
    for at in (0, len(content) - 1):
        other = bytearray(content)
        other[at] ^= 1
        path.write_bytes(other)
        assert content_digest(path) != before


def test_a_path_that_no_file_can_have_is_missing(tmp_path):
    found = find_files([FileReference(tmp_path / ("a" * 5000), "sha256:0", 1)], tmp_path)
    assert [one.state for one in found] == ["missing"]
