"""Files of objects: other programs read the same pixels, and they come back."""

import dataclasses
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from skimage.draw import polygon

import napari_saf as saf
from napari_saf.io import LargeRegions, _frame, number_regions

roifile = pytest.importorskip("roifile")
shapely = pytest.importorskip("shapely")
SUFFIXES = [".geojson", ".zip", ".json"]
NAMES = {1: "nucleus", 2: "Zelle/ü: 3"}


def random_objects(shape, seed, width=1.2):
    """Objects with holes, in pieces, at the border, of one pixel."""
    rng = np.random.default_rng(seed)
    fields = ndimage.gaussian_filter(rng.normal(size=(5, *shape)), (0, *[width] * len(shape)))
    labels = fields.argmax(axis=0).astype(np.uint32) * 3
    kinds = np.zeros(13, np.int64)
    present = np.unique(labels)
    kinds[present] = np.where(present % 2, 1, 2) * (present > 0)
    return saf.Objects(labels, kinds[: labels.max() + 1], NAMES)


def drawn(rings, shape):
    inside = np.zeros(shape, bool)
    for ring in rings:
        inside[polygon(ring[:, 1] - 0.5, ring[:, 0] - 0.5, shape)] ^= True
    return inside


@given(st.integers(0, 999), st.sampled_from([(17, 23), (1, 9), (30, 1), (3, 12, 14)]))
@settings(max_examples=15, deadline=None)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_objects_come_back_pixel_for_pixel(tmp_path_factory, suffix, seed, shape):
    path = tmp_path_factory.mktemp("objects") / f"cells{suffix}"
    objects = random_objects(shape, seed)
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            patch.setattr(_frame, "PART", 7**2)  # in several parts
        assert saf.save_objects(path, objects) == path
    back = saf.load_objects(path, shape)
    assert np.array_equal(back.labels, objects.labels)
    assert np.array_equal(back.kinds, objects.kinds)
    assert {k: back.names[k] for k in set(objects.kinds) - {0}} == {
        k: NAMES[k] for k in set(objects.kinds) - {0}
    }
    assert not back.notes


def test_regions_of_a_large_mask_are_written_without_reading_it_whole(tmp_path, monkeypatch):
    labels = (random_objects((60, 50), 5, width=1.5).labels // 3 % 3).astype(np.uint8)
    series = np.stack([labels, labels[::-1]])
    monkeypatch.setattr(_frame, "PART", 16**2)
    for own, axes in ((labels, "yx"), (series, "tyx"), (0 * labels, "yx")):
        numbers = number_regions(own, axes=axes, min_pixels=4)
        regions = LargeRegions(own, axes=axes, min_pixels=4, names=NAMES)
        for suffix in SUFFIXES:
            path = saf.save_objects(tmp_path / f"{axes}{suffix}", regions)
            back = saf.load_objects(path, own.shape)
            assert np.array_equal(back.labels, numbers)
            assert np.array_equal(back.kinds[back.labels], np.where(numbers, own, 0))


def test_shapely_draws_the_geojson_as_it_was(tmp_path):
    objects = random_objects((40, 50), 0)
    path = saf.save_objects(tmp_path / "cells.geojson", objects)
    y, x = np.mgrid[:40, :50] + 0.5
    for feature in json.loads(path.read_text(encoding="utf-8"))["features"]:
        area = shapely.from_geojson(json.dumps(feature["geometry"]))
        number = feature["properties"]["object"]
        assert area.is_valid and area.area == (objects.labels == number).sum()
        assert np.array_equal(shapely.contains_xy(area, x, y), objects.labels == number)
        kind = feature["properties"]["classification"]["name"]
        assert kind == NAMES[objects.kinds[number]]


def test_roifile_draws_the_rois_as_they_were(tmp_path):
    objects = random_objects((40, 50), 1)
    path = saf.save_objects(tmp_path / "cells.zip", objects)
    for roi in roifile.roiread(path):
        number = roi.properties["object"]
        inside = drawn(roi.coordinates(multi=True), (40, 50))
        assert np.array_equal(inside, objects.labels == number)
        assert (roi.bottom - roi.top, roi.right - roi.left) >= tuple(np.ptp(np.nonzero(inside), 1))


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # of pycocotools
def test_pycocotools_draws_the_annotations_as_they_were(tmp_path):
    coco = pytest.importorskip("pycocotools.coco")
    objects = random_objects((40, 50), 2)
    path = saf.save_objects(tmp_path / "cells.json", objects)
    data = coco.COCO(path)
    for one in data.loadAnns(data.getAnnIds()):
        assert np.array_equal(data.annToMask(one) > 0, objects.labels == one["object"])
        assert data.loadCats(one["category_id"])[0]["name"] == NAMES[one["category_id"]]


def test_what_others_write_is_read(tmp_path):
    square = [[2, 1], [6, 1], [6, 5], [2, 5], [2, 1]]
    other = [[5, 4], [8, 4], [8, 7], [5, 7], [5, 4]]
    features = [
        {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}, "properties": p}
        for ring, p in ((square, {"classification": {"name": "Tumor"}}), (other, None))
    ]
    features.append({"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 1]}})
    path = tmp_path / "qupath.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    objects = saf.load_objects(path)
    assert objects.labels.shape == (7, 8)
    assert [objects.names[int(kind)] for kind in objects.kinds[1:]] == ["Tumor", "object"]
    assert (objects.labels == 1).sum() == 16 and (objects.labels == 2).sum() == 8
    overlap, lost = objects.notes
    assert overlap.startswith("1 pixels") and lost.startswith("1 objects")
    coco = {
        "images": [{"id": 7, "height": 8, "width": 9}],
        "categories": [{"id": 4, "name": "cell"}],
        "annotations": [
            {"image_id": 7, "category_id": 4, "segmentation": [[2, 1, 6, 1, 6, 5, 2, 5]]}
        ],
    }
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    objects = saf.load_objects(tmp_path / "coco.json")
    assert objects.labels.shape == (8, 9) and objects.kinds.tolist() == [0, 4]
    assert np.array_equal(objects.labels[1:5, 2:6], np.ones((4, 4))) and objects.labels.sum() == 16
    roi = roifile.ImagejRoi.frompoints(square[:-1])
    roifile.roiwrite(tmp_path / "imagej.zip", [roi])
    assert saf.load_objects(tmp_path / "imagej.zip", (9, 9)).labels.sum() == 16


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # of pycocotools
def test_compressed_runs_are_read(tmp_path):
    mask = pytest.importorskip("pycocotools.mask")
    inside = random_objects((20, 30), 3).labels == 3
    runs = mask.encode(np.asfortranarray(inside))
    runs["counts"] = runs["counts"].decode()
    coco = {
        "images": [{"id": 1, "height": 20, "width": 30}],
        "annotations": [{"image_id": 1, "category_id": 1, "segmentation": runs}],
    }
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    assert np.array_equal(saf.load_objects(tmp_path / "coco.json").labels > 0, inside)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("content", [b"", b"[1, 2]", b'{"features": [{}]}', b"PK\x03\x04"])
def test_damaged_files_are_named(tmp_path, suffix, content):
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(content)
    with pytest.raises(saf.FormatError, match="bad"):
        saf.load_objects(path, (5, 5))


def test_sizes_that_a_file_lies_about_are_refused(tmp_path, monkeypatch):
    huge = {"images": [{"id": 1, "height": 10**9, "width": 10**9}], "annotations": []}
    (tmp_path / "huge.json").write_text(json.dumps(huge))
    with pytest.raises(saf.ComputeError):
        saf.load_objects(tmp_path / "huge.json")
    with zipfile.ZipFile(
        tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1
    ) as archive:
        for k in range(3):
            archive.writestr(f"{k}.roi", b"0" * 2**18)
        archive.writestr("4.roi", b"0" * (2**18 + 1))
    monkeypatch.setattr("napari_saf.objects._load._MOST_BYTES", 2**20)
    with pytest.raises(saf.FormatError, match="MiB"):
        saf.load_objects(tmp_path / "bomb.zip")


def test_what_cannot_be_written_is_named_and_the_old_file_stays(tmp_path):
    objects = random_objects((9, 9), 0)
    with pytest.raises(saf.InvalidInput, match="ends in"):
        saf.save_objects(tmp_path / "cells.svg", objects)
    deep = dataclasses.replace(objects, labels=objects.labels[None, None])
    with pytest.raises(saf.InvalidInput, match="axes"):
        saf.save_objects(tmp_path / "cells.json", deep)
    with pytest.raises(saf.SafError, match="written"):
        saf.save_objects(tmp_path / "nowhere" / "cells.json", objects)
    saf.save_objects(tmp_path / "cells.geojson", objects)
    with pytest.raises(saf.FormatError, match="plane"):
        volume = random_objects((3, 9, 9), 0)
        saf.save_objects(tmp_path / "volume.geojson", volume)
        saf.load_objects(tmp_path / "volume.geojson", (9, 9))


@pytest.mark.parametrize("suffix", [".geojson", ".zip"])
def test_an_object_with_thousands_of_holes_is_drawn_in_one_pass(tmp_path, suffix):
    labels = np.ones((400, 400), np.uint32)
    labels[2::5, 2::5] = 0
    objects = saf.Objects(labels, np.array([0, 1]), NAMES)
    path = saf.save_objects(tmp_path / f"ground{suffix}", objects)
    assert np.array_equal(saf.load_objects(path, labels.shape).labels, labels)


@pytest.mark.parametrize(
    ("old", "new"),
    [("[5, 1]", '["nan", 1]'), ("[5, 1]", "[1e999, 1]"), ("[5, 1]", "[1e30, 1]"),
     ("7", "-7"), ("7", "4294967295"), ("8", "-8"), ("99", "-1")],
)  # fmt: skip
def test_numbers_that_no_image_has_are_refused(tmp_path, old, new):
    ring = [[1, 1], [5, 1], [5, 4], [1, 1]]
    geometry = {"type": "Polygon", "coordinates": [ring], "plane": {"z": 99}}
    text = json.dumps({"geometry": geometry, "properties": {"object": 7, "kind": 8}})
    path = tmp_path / "odd.geojson"
    path.write_text(text, encoding="utf-8")
    assert saf.load_objects(path, (100, 9, 9)).labels.max() == 7
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(saf.FormatError):
        saf.load_objects(path, (100, 9, 9))


def test_one_image_of_a_set_of_several_sizes_is_read(tmp_path):
    squares = {"a/first.png": (6, 8), "b\\second.png": (9, 5)}
    images = [
        {"id": k, "file_name": name, "height": height, "width": width}
        for k, (name, (height, width)) in enumerate(squares.items())
    ]
    annotations = [
        {
            "id": k,
            "image_id": k,
            "category_id": 3,
            "segmentation": [[0, 0, 3, 0, 3, 2 + k, 0, 2 + k]],
        }
        for k in range(2)
    ]
    plain = {"images": images, "annotations": annotations, "categories": [{"id": 3, "name": "x"}]}
    path = tmp_path / "set.json"
    path.write_text(json.dumps(plain))
    for asked in ("b\\second.png", "second.png"):
        objects = saf.load_objects(path, image=asked)
        assert objects.labels.shape == (9, 5) and objects.names == {3: "x"}
        assert objects.labels.sum() == 3 * 3
    with pytest.raises(saf.FormatError, match="2 sizes: select one"):
        saf.load_objects(path)
    with pytest.raises(saf.FormatError, match="found 0; there are a/first"):
        saf.load_objects(path, image="third.png")
    with pytest.raises(saf.InvalidInput, match="COCO"):
        saf.load_objects(tmp_path / "a.zip", image="first.png")
