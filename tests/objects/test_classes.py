"""Classes of objects from clicks, their files, and bounds of measures."""

import dataclasses
import json

import numpy as np
import pytest
from numpy.random import default_rng

import napari_saf as saf
from napari_saf.input import ImageOptions
from napari_saf.io import ProbabilityStep
from napari_saf.objects import class_methods


def discs(shape=(6, 20), seed=0, channels=2):
    """Return objects of two kinds, small dark and large bright ones, the image, and the kinds."""
    rng = default_rng(seed)
    kinds = rng.permutation(np.arange(shape[0] * shape[1]) % 4 == 0) + 1
    labels = np.zeros((30 * shape[0], 30 * shape[1]), int)
    image = rng.normal(0, 0.1, (*labels.shape, channels))
    around = np.hypot(*np.mgrid[-11:12, -11:12])
    for k, kind in enumerate(kinds):
        row, column = (30 * n + rng.integers(7) for n in divmod(k, shape[1]))
        disc = around < (5.5 if kind == 1 else 8) + rng.uniform(-1, 1)
        labels[row : row + 23, column : column + 23][disc] = k + 1
        image[row : row + 23, column : column + 23][disc] += 0.5 * kind
    return saf.Objects(labels, np.append(0, np.ones(len(kinds), int))), image, kinds


def click(kinds, n_each):
    rows = [np.flatnonzero(kinds == kind)[:n_each] for kind in np.unique(kinds)]
    return {int(k) + 1: int(kinds[k]) for k in np.concatenate(rows)}


@pytest.fixture(scope="module")
def measured():
    objects, image, kinds = discs()
    return saf.measure_objects(objects, image), kinds


@pytest.mark.parametrize("method", class_methods())
def test_a_few_clicks_tell_all_objects_apart(measured, method):
    measures, kinds = measured
    classes = saf.learn_classes(
        measures, click(kinds, 3), method=method, groups=["shape", "intensity"]
    )
    found = classes.classify(measures)
    assert (found.classes == kinds).mean() > 0.97
    assert 0 <= found.uncertainty.min() and found.uncertainty.max() <= 1


def test_clicked_objects_keep_the_class_of_their_click(measured):
    measures, kinds = measured
    clicks = {**click(kinds, 3), 1: 3 - int(kinds[0])}
    found = saf.learn_classes(measures, clicks, groups=["shape"]).classify(measures)
    rows = np.array([*clicks]) - 1
    assert found.classes[rows].tolist() == [*clicks.values()]
    assert not found.uncertainty[rows].any()


def test_measures_are_those_of_each_object_however_they_are_numbered_and_placed(measured):
    measures, _ = measured
    objects, image, _ = discs()
    last = int(objects.labels.max())
    turned = saf.Objects(np.where(objects.labels, last + 1 - objects.labels, 0), objects.kinds)
    again = saf.measure_objects(turned, image)
    assert np.allclose(again.values[::-1], measures.values, atol=1e-4)
    # brighter by a constant: shape and texture stay
    brighter = saf.measure_objects(objects, image + 1)
    stays = np.isin(measures.groups, ["shape", "texture", "neighbours", "outline"])
    assert np.allclose(brighter.values[:, stays], measures.values[:, stays], atol=1e-3)


def test_volumes_and_series_are_measured():
    objects, image, _ = discs((2, 4))
    volume = saf.Objects(np.stack([objects.labels] * 3), objects.kinds)
    measures = saf.measure_objects(volume, np.stack([image] * 3), scale=(2, 1, 1))
    assert np.isfinite(measures.values).all() and len(measures.numbers) == 8
    series = np.stack([objects.labels, np.where(objects.labels, objects.labels + 8, 0)])
    frames = saf.Objects(series, np.append(0, np.ones(16, int)))
    both = saf.measure_objects(frames, np.stack([image] * 2), axes="tyx")
    assert np.allclose(both.values[:8], both.values[8:], atol=1e-6)
    assert np.allclose(both.values[:8], saf.measure_objects(objects, image).values, atol=1e-6)


def test_classes_go_to_other_images_through_a_file(tmp_path, measured):
    measures, kinds = measured
    names, groups = {1: "small", 2: "large"}, ["shape", "intensity"]
    classes = saf.learn_classes(
        measures, click(kinds, 3), names=names, groups=groups, method="bavardage"
    )
    loaded = saf.load_classes(saf.save_classes(tmp_path / "a.classes.json", classes))
    objects, image, other_kinds = discs((3, 9), seed=1)
    found = loaded.apply(objects, image)
    assert (found.classes == other_kinds).mean() > 0.95
    columns = found.columns([1, 99])
    assert columns["class"].tolist() == [["small", "large"][other_kinds[0] - 1], ""]
    assert np.isnan(columns["class_uncertainty"][1])
    # as napari-feature-classifier has them
    assert columns["label"].tolist() == [1, 99]
    assert columns["prediction"].tolist() == [other_kinds[0], 0]
    assert found.as_kinds(objects).names == {1: "small", 2: "large"}
    same = loaded.classify(measures)
    assert np.array_equal(same.classes, classes.classify(measures).classes)


def test_the_clicks_of_several_images_count_together():
    (first, image, kinds), (second, other, more) = discs((2, 8)), discs((2, 8), seed=3)
    measures = [saf.measure_objects(first, image), saf.measure_objects(second, other)]
    clicks = [click(kinds, 2), {int(np.argmax(more == 1)) + 1: 1}]
    classes = saf.learn_classes(measures, clicks, groups=["intensity"], method="laplacianshot")
    assert len(classes.vectors) == 5
    assert (classes.classify(measures[1]).classes == more).mean() > 0.9


def test_a_track_has_the_class_of_the_mean_of_its_objects():
    rng = default_rng(0)
    n_tracks, n_frames = 30, 9
    true = np.arange(n_tracks) % 2 + 1
    values = np.repeat(true, n_frames)[:, None] + rng.normal(0, 1, (n_tracks * n_frames, 4))
    names, numbers = tuple("abcd"), np.arange(1, len(values) + 1)
    measures = saf.ObjectMeasures(numbers, values.astype(np.float32), names, ("shape",) * 4)
    table = {"track": np.repeat(np.arange(1, n_tracks + 1), n_frames)[:-1], "object": numbers[:-1]}
    objects = saf.Objects(
        numbers[:, None, None].astype(np.uint32), np.append(0, np.ones(len(numbers), int))
    )
    tracks = saf.Tracks(objects, table, {})
    shuffled = rng.permutation(len(numbers) - 1)
    turned = saf.Tracks(objects, {name: x[shuffled] for name, x in table.items()}, {})
    clicks = {n_frames * k + 1: int(true[k]) for k in range(6)}
    for method in class_methods():
        classes = saf.learn_classes(measures, clicks, method=method)
        alone, found = classes.classify(measures), classes.classify(measures, tracks)
        again = classes.classify(measures, turned)
        assert np.array_equal(again.classes, found.classes)
        rows = [np.flatnonzero(table["track"] == k) for k in range(1, n_tracks + 1)]
        assert all(len({*found.classes[row]}) == 1 for row in rows)
        assert all(len({*found.uncertainty[row]}) == 1 for row in rows)
        # as a click says, whatever the other objects of the track look like
        assert [found.classes[row[0]] for row in rows[:6]] == true[:6].tolist()
        assert not found.uncertainty[np.concatenate(rows[:6])].any()
        assert found.classes[-1] == alone.classes[-1]  # of no track
        assert (found.classes == np.repeat(true, n_frames)).mean() > (
            alone.classes == np.repeat(true, n_frames)
        ).mean()


def test_the_choice_says_how_well_it_tells_the_clicks(measured):
    measures, kinds = measured
    first = saf.learn_classes(measures, click(kinds, 1))
    assert first.agreement is None and (first.classify(measures).classes == kinds).mean() > 0.97
    chosen = saf.learn_classes(measures, click(kinds, 3))
    assert chosen.agreement == 1 and set(chosen.groups) <= set(measures.groups)
    assert (chosen.classify(measures).classes == kinds).mean() > 0.97
    again = saf.learn_classes(measures, click(kinds, 3))
    assert (again.groups, again.method) == (chosen.groups, chosen.method)


@pytest.mark.parametrize(
    ("clicks", "options", "message"),
    [
        ({1: 1}, {}, "two classes"),
        ({1: 1, 999: 2}, {}, "no object 999"),
        ({1: 1, 2: 0}, {}, "classes of 1 or more"),
        ({1: 1, 2: 2}, {"groups": ["taste"]}, "taste"),
        ({1: 1, 2: 2}, {"method": "saf"}, "forest"),
    ],
)
def test_what_is_no_click_is_told(measured, clicks, options, message):
    with pytest.raises(saf.InvalidInput, match=message):
        saf.learn_classes(measured[0], clicks, **options)


def test_other_measures_are_refused(measured):
    measures, kinds = measured
    classes = saf.learn_classes(measures, click(kinds, 1), groups=["shape"])
    objects, _, _ = discs((2, 4))
    with pytest.raises(saf.InvalidInput, match="channels"):
        classes.apply(objects)


@pytest.mark.parametrize(
    "change",
    [
        {"method": "saf"},
        {"groups": ["taste"]},
        {"vectors": [[1.0]]},
        {"deviation": [0.0]},
        {"features": "nothing"},
    ],
)
def test_a_damaged_file_is_told(tmp_path, measured, change):
    measures, kinds = measured
    path = saf.save_classes(
        tmp_path / "a.json", saf.learn_classes(measures, click(kinds, 1), groups=["shape"])
    )
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(saf.FormatError, match=r"a\.json"):
        saf.load_classes(path)


def test_bounds_of_measures_hold_them_and_widen_with_doubt():
    rows, columns = np.ogrid[:40, :80]
    inside = [np.hypot(rows - 20, columns - x) for x in (20, 60)]
    widths = []
    for blur in (0.5, 3.0):
        share = 1 / (1 + np.exp((np.minimum(*inside) - 10) / blur))
        objects = saf.split_objects(share > 0.5)
        bounds = saf.object_bounds(objects, {1: share})
        assert (bounds["area_low"] <= bounds["pixels"]).all()
        assert (bounds["area_high"] >= bounds["pixels"]).all()
        widths.append((bounds["area_high"] - bounds["area_low"]).mean())
        # the radius where the share is t: 10 + blur log(1 / t - 1)
        low, high = (np.pi * (10 + blur * np.log(1 / t - 1)) ** 2 for t in (0.95, 0.05))
        assert np.allclose(bounds["area_low"], low, rtol=0.2, atol=10)
        assert np.allclose(bounds["area_high"], high, rtol=0.2)
        assert set(bounds["count_low"]) == set(bounds["count_high"]) == {2}
    assert widths[1] > 3 * widths[0]


def test_tables_of_runs_with_probabilities_have_bounds_in_their_units():
    image = np.pad(np.kron([[1, 0, 1]], np.ones((10, 10))), 4)
    image = 0.8 * image + np.random.default_rng(0).normal(0.1, 0.1, image.shape)
    options = ImageOptions(features="intensity", channel_axis=None)
    steps = {"objects": saf.ObjectStep(), "probabilities": ProbabilityStep()}
    pipeline = saf.Pipeline(saf.SLK(n_clusters=2), options, **steps)
    table = pipeline.run(image).measures
    size = "area_px2"
    assert (table["area_low_px2"] <= table[size]).all()
    assert (table[size] <= table["area_high_px2"]).all()
    n_of_kind = np.bincount(table["kind"])[table["kind"]]
    assert (table["count_low"] <= n_of_kind).all() and (n_of_kind <= table["count_high"]).all()
    plain = dataclasses.replace(pipeline, probabilities=None).run(image).measures
    assert {*table} - {*plain} == {"area_low_px2", "area_high_px2", "count_low", "count_high"}
