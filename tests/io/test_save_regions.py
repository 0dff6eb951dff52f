import csv
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.measure import label as connected_regions

from napari_saf import number_regions, region_table, save_regions
from napari_saf.errors import InvalidInput, SafError
from napari_saf.io import Steps

LABELS = np.zeros((6, 8), np.uint8)
LABELS[:2, :3] = 1
LABELS[4:, 5:7] = 1
LABELS[2:4] = 4
IMAGE = np.random.default_rng(0).random(LABELS.shape)


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@settings(max_examples=25, deadline=None)
@given(st.tuples(*[st.floats(0.01, 100)] * 3), st.integers(2, 3), st.integers(0, 2**32 - 1))
def test_sizes_are_pixels_times_their_size(scale, n_axes, seed):
    labels = np.random.default_rng(seed).integers(0, 4, (3, 5, 4)[-n_axes:])
    if not labels.any():
        return
    scale = scale[-n_axes:]
    table = region_table(labels, scale=scale, units="um")
    size = table["area_um2" if n_axes == 2 else "volume_um3"]
    np.testing.assert_allclose(size, table["pixels"] * np.prod(scale))
    assert table["share"].sum() == pytest.approx(1)
    for k, number in enumerate(table["label"]):
        where = np.argwhere(labels == number)
        assert table["pixels"][k] == len(where)
        for axis, name in enumerate("zyx"[-n_axes:]):
            centre = table[f"centroid_{name}_um"][k]
            assert centre == pytest.approx(where[:, axis].mean() * scale[axis])
            assert table[f"first_{name}"][k] == where[:, axis].min()
            assert table[f"last_{name}"][k] == where[:, axis].max()


def test_intensities_are_those_of_the_pixels():
    two = np.stack([IMAGE, 2 * IMAGE])
    plain = region_table(LABELS, IMAGE)
    last = region_table(LABELS, np.moveaxis(two, 0, -1))
    first = region_table(LABELS, two, channel_axis=0)
    for k, label in enumerate(plain["label"]):
        values = IMAGE[LABELS == label]
        assert plain["intensity_mean"][k] == pytest.approx(values.mean())
        assert plain["intensity_min"][k] == values.min()
        assert plain["intensity_max"][k] == values.max()
        assert first["intensity_mean_1"][k] == pytest.approx(2 * values.mean())
    assert first.keys() == last.keys()
    np.testing.assert_array_equal(first["intensity_mean_0"], last["intensity_mean_0"])


@pytest.mark.parametrize("shape", [(9, 11), (4, 6, 5)])
def test_connected_regions_are_those_of_scikit_image(shape):
    labels = np.random.default_rng(0).integers(0, 3, shape) * 7
    table, expected = region_table(labels, connected=True), connected_regions(labels)
    sizes = [
        (int(labels[expected == k][0]), int((expected == k).sum()))
        for k in range(1, expected.max() + 1)
    ]
    found = zip(table["label"].tolist(), table["pixels"].tolist(), strict=True)
    assert sorted(found) == sorted(sizes)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([(9, 11), (4, 6, 5), (3, 7, 6)]),
    st.booleans(),
    st.integers(1, 6),
)
def test_numbered_regions_are_those_of_the_table(seed, shape, is_series, min_pixels):
    labels = np.random.default_rng(seed).integers(0, 4, shape) * 5
    axes = "tyx" if is_series and len(shape) == 3 else None
    regions = number_regions(labels, axes=axes, min_pixels=min_pixels)
    try:
        table = region_table(labels, axes=axes, connected=True, min_pixels=min_pixels)
    except InvalidInput as error:
        assert "no region" in str(error) and not regions.any()
        return
    assert table["region"].tolist() == list(range(1, regions.max() + 1))
    for k, number in enumerate(table["region"]):
        where = regions == number
        assert where.sum() == table["pixels"][k] >= min_pixels
        assert (labels[where] == table["label"][k]).all()
        if axes:
            assert where[table["frame"][k]].any()
    whole = region_table(labels, axes=axes, connected=True)
    assert (whole["pixels"] >= min_pixels).sum() == len(table["region"])
    kept = whole["share"][whole["pixels"] >= min_pixels]
    np.testing.assert_allclose(np.sort(kept), np.sort(table["share"]))


@pytest.mark.parametrize("min_pixels", [0, 1.5, "1", True])
def test_a_least_size_is_a_number_of_pixels(min_pixels):
    for call in (number_regions, region_table):
        with pytest.raises(InvalidInput, match="min_pixels"):
            call(LABELS, min_pixels=min_pixels)


def test_without_a_common_unit_there_are_no_lengths():
    stack = np.stack([LABELS, LABELS])
    table = region_table(stack, scale=(2, 1, 1), units=("nm", "um", "um"))
    assert {"centroid_z_nm", "centroid_y_um"} <= set(table)
    assert not any(name.startswith(("volume", "major")) for name in table)


def test_pixels_that_are_no_squares_have_no_perimeter():
    assert not any("perimeter" in name for name in region_table(LABELS, scale=(1, 2), units="um"))


@pytest.mark.parametrize("is_volume", [False, True])
def test_frames_are_measured_by_themselves(is_volume):
    frame = np.stack([LABELS] * 2) if is_volume else LABELS
    labels = np.stack([frame, frame * 0, frame])
    options = {"axes": "tzyx" if is_volume else "tyx", "scale": (9, *[2] * frame.ndim)}
    options["units"] = ("s", *["um"] * frame.ndim)
    table = region_table(labels, labels * 1.0, **options)
    assert table["frame"].tolist() == [0, 0, 2, 2]
    one = region_table(frame, frame * 1.0, scale=(2,) * frame.ndim, units="um")
    for name, values in one.items():
        np.testing.assert_array_equal(table[name], np.concatenate([values, values]))


def test_csv_holds_the_table(tmp_path):
    path = save_regions(tmp_path / "r.csv", LABELS, IMAGE, names={4: "a, b"}, scale=(2, 2),
                        units="µm")  # fmt: skip
    table, rows = region_table(LABELS, IMAGE, scale=(2, 2), units="µm"), read(path)
    assert [row["name"] for row in rows] == ["label 1", "a, b"]
    for name in set(table) - {"name"}:
        np.testing.assert_allclose([float(row[name]) for row in rows], table[name], rtol=1e-9)


def test_parquet_holds_the_table(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = save_regions(tmp_path / "r.parquet", LABELS, IMAGE)
    columns, table = parquet.read_table(path).to_pydict(), region_table(LABELS, IMAGE)
    assert {name: values.tolist() for name, values in table.items()} == columns


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SafError, match=r"napari-saf\[parquet\]"):
        save_regions(tmp_path / "r.parquet", LABELS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("labels", "options", "words"),
    [
        (LABELS * 0, {}, "all are 0"),
        (LABELS * 1.0, {}, "whole numbers"),
        (LABELS, {"image": IMAGE[1:]}, "shape"),
        (LABELS, {"names": {1: 3}}, "names"),
        (LABELS, {"scale": (0, 1)}, "scale"),
    ],
)
def test_what_does_not_fit_is_refused(labels, options, words):
    with pytest.raises(InvalidInput, match=words):
        region_table(labels, **options)


@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.parametrize(("shape", "axes"), [((4, 9, 12), "zyx"), ((4, 9, 12), "tyx")])
def test_a_brief_table_is_a_part_of_the_whole(shape, axes, connected):
    rng = np.random.default_rng(len(axes))
    labels = rng.integers(0, 4, shape) * 1000
    image = rng.normal(size=(*shape, 2))
    options = {"scale": rng.uniform(0.5, 2, len(shape)), "units": "um", "axes": axes}
    options |= {"connected": connected, "min_pixels": 2, "names": {1000: "sky"}}
    whole = region_table(labels, image, **options)
    brief = region_table(labels, image, brief=True, **options)
    kept = ["frame", "label", "name", "region", "pixels", "share", "area_um2", "volume_um3"]
    kept += ["intensity_mean_0", "intensity_mean_1"]
    assert list(brief) == [name for name in whole if name in kept]
    for name, column in brief.items():
        if name == "name":
            assert column.tolist() == whole[name].tolist()
        else:
            np.testing.assert_allclose(column, whole[name])


def steps(kind, sizes):
    """Return a step along each axis as columns, of axes that are rotated, sheared or both."""
    n_axes, rng = len(sizes), np.random.default_rng(3)
    turn = np.linalg.qr(rng.normal(size=(n_axes, n_axes)))[0] if "rotated" in kind else None
    shear = np.eye(n_axes) + 0.6 * np.eye(n_axes, k=1) * ("sheared" in kind)
    linear = shear @ np.diag(sizes)
    return linear if turn is None else turn @ linear


@pytest.mark.parametrize("sizes", [(0.5, 0.25), (2, 0.5, 0.25)])
def test_of_sheared_axes_areas_are_of_the_determinant(sizes):
    n_axes, linear = len(sizes), steps("rotated and sheared", sizes)
    labels = np.random.default_rng(0).integers(0, 3, (9,) * n_axes)
    table = region_table(labels, scale=linear, units="um")
    name = "area_um2" if n_axes == 2 else "volume_um3"
    np.testing.assert_allclose(table[name], table["pixels"] * abs(np.linalg.det(linear)))
    spread = np.cov(linear @ np.argwhere(labels == 1).T, bias=True)
    longest = np.linalg.eigvalsh(spread).max()
    wide = np.sqrt((16 if n_axes == 2 else 20) * longest)
    np.testing.assert_allclose(table["major_axis_um"][0], wide, rtol=1e-6)
    assert "perimeter_um" not in table


def test_steps_of_which_one_lies_among_the_others_are_refused():
    with pytest.raises(InvalidInput, match="independent"):
        region_table(np.ones((4, 4), int), scale=np.ones((2, 2)))


@pytest.mark.parametrize(
    ("linear", "words"),
    [
        (np.array([[2.0, 0], [0, 0.5], [0, 0]]), ()),
        (np.diag([-1.0, 1]), ("reflection",)),
        (np.array([[1, 0], [0.2, 1]]), ("rotation", "shear")),
    ],
)
def test_what_sizes_leave_out_is_named(linear, words):
    assert Steps(np.asarray(linear, float)).beyond_sizes == words
