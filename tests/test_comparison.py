"""Comparisons: common numbers for labels, grids of variants, tables, pictures."""

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

import napari_saf as saf
from napari_saf import metrics
from napari_saf.comparison import (
    align,
    iterate_comparison,
    lay_out,
    read_values,
    short_names,
    variants_of,
)
from napari_saf.input import PLAIN
from napari_saf.methods import Cancelled, run_to_end
from napari_saf.problem import Problem

SAF = saf.SelfAssignmentFlow
label_images = arrays(np.uint8, (4, 5), elements=st.integers(0, 5))


def picture(side=12):
    rng = np.random.default_rng(0)
    image = np.zeros((side, side))
    image[: side // 2, : side // 2], image[side // 2 :, side // 2 :] = 0.5, 1.0
    return image + rng.normal(0, 0.03, image.shape)


@pytest.fixture(scope="module")
def found():
    """Two methods, one of them at two scales."""
    variants = variants_of([SAF(max_labels=4), saf.SLK(n_clusters=2)], {"s": [0.0, 1.0]})
    return saf.compare(picture(), variants)


@settings(max_examples=25, deadline=None)
@given(label_images, st.permutations(range(1, 6)))
def test_a_permutation_of_the_labels_is_found(image, permutation):
    renamed = np.array([0, *permutation])[image]
    own, other = align([image, renamed])
    assert np.array_equal(np.append(0, own)[image], np.append(0, other)[renamed])


@settings(max_examples=25, deadline=None)
@given(st.lists(label_images, min_size=1, max_size=4))
def test_no_two_labels_of_an_image_share_a_number(images):
    for image, numbers in zip(images, align(images), strict=True):
        present = np.setdiff1d(image, [0])
        own = numbers[present - 1]
        assert (own > 0).all() and len(set(own)) == len(present)
        absent = np.setdiff1d(np.arange(1, len(numbers) + 1), present)
        assert not numbers[absent - 1].any()


@settings(max_examples=50, deadline=None)
@given(label_images, label_images)
def test_two_images_agree_on_as_many_pixels_as_they_can(one, other):
    numbers = align([one, other])
    named = [np.append(0, own)[image] for own, image in zip(numbers, (one, other), strict=True)]
    both = (one > 0) & (other > 0)
    if both.any():
        # Pixels that one of them does not label are no agreement and no disagreement.
        best = metrics.matched_accuracy(one[both], other[both])
        assert np.mean(named[0][both] == named[1][both]) == pytest.approx(best)


def test_results_are_those_of_the_methods_up_to_numbers(found):
    problem = Problem.from_image(picture())
    for one in found.results:
        alone = one.variant.method.run(problem)
        assert metrics.variation_of_information(one.labels, alone.labels + 1) == 0
        assert one.status is alone.status and not one.assignment.size  # which is large
        assert one.history.objective[-1] == pytest.approx(alone.history.objective[-1])
        for label in one.present:
            own = alone.labels[one.labels == label][0]
            np.testing.assert_allclose(one.prototypes[label - 1], alone.prototypes[own - 1])
            assert one.columns[label - 1] == alone.columns[own - 1]


def test_the_table_holds_the_measures(found):
    truth = np.repeat([[0] * 2 + [1] * 5 + [2] * 5], 12, axis=0)
    for one, row in zip(found.results, saf.comparison_table(found, truth), strict=True):
        assert row.covering == metrics.segmentation_covering(one.labels, truth)
        assert row.information == metrics.variation_of_information(one.labels, truth)
        assert row.rand_index == metrics.probabilistic_rand_index(one.labels, truth)
        inside = truth > 0
        assert row.accuracy == metrics.matched_accuracy(truth[inside], one.labels[inside])
        assert row.n_labels == len(np.unique(one.labels))
    assert np.isnan(saf.comparison_table(found)[0].covering)
    with pytest.raises(saf.InvalidInput, match="truth"):
        saf.comparison_table(found, truth[:5])


def test_grids_are_products_of_what_each_method_knows():
    methods = [SAF(), saf.SLK(), saf.Bavardage()]
    variants = variants_of(methods, {"s": [0, 0.5], "window": [3, 9]})
    assert [one.name for one in variants] == [
        "SAF, s = 0, window 3",
        "SAF, s = 0, window 9",
        "SAF, s = 0.5, window 3",
        "SAF, s = 0.5, window 9",
        "SLK, window 3",
        "SLK, window 9",
        "BAVARDAGE",
    ]
    assert [one.options.window for one in variants] == [3, 9, 3, 9, 3, 9, "auto"]
    assert [one.method.s for one in variants[:4]] == [0, 0, 0.5, 0.5]
    assert short_names(variants[:2]) == ["window 3", "window 9"]
    full = lay_out(variants[:4])
    assert (full.n_rows, full.n_columns, full.cells[2]) == (2, 2, (1, 0))
    assert lay_out(variants).n_rows * lay_out(variants).n_columns >= 7


@pytest.mark.parametrize(
    ("methods", "axes", "words"),
    [
        ([], {}, "methods"),
        ([SAF()], {"s": []}, "s: "),
        ([SAF()], {"window": [4]}, "odd"),
        ([SAF()], {"stepper.step": [0.1]}, "euler"),
        ([saf.SLK()], {"s": [0]}, "s: "),
    ],
)
def test_bad_grids_are_refused_before_anything_runs(methods, axes, words):
    with pytest.raises(saf.InvalidInput, match=words):
        variants_of(methods, axes)


def test_values_are_read_as_typed():
    assert read_values("s", "0, .5,1, 0", [SAF]) == [0, 0.5, 1]
    assert read_values("window", "3, 1x5x5", []) == [3, (1, 5, 5)]
    assert read_values("landmarks", "50, none", [SAF]) == [50, None]
    assert read_values("prototypes", "bo, means", [saf.SLK]) == ["bo", "means"]
    for name, text in (("max_labels", "2.5"), ("window", ""), ("features", "smell"), ("q", "1")):
        with pytest.raises(saf.InvalidInput, match=name):
            read_values(name, text, [SAF])


def test_what_does_not_suit_the_image_is_left_out():
    variants = variants_of([saf.LaplacianShot(), SAF(max_labels=2)])
    found = saf.compare(picture(), variants)
    assert [one.variant.name for one in found.results] == ["SAF"]
    assert [one.variant.name for one in found.failures] == ["LAPLACIANSHOT"]
    assert "seeds" in str(found.failures[0].error)
    with pytest.raises(saf.InvalidInput, match="seeds"):
        saf.compare(picture(), variants[:1])


def test_a_comparison_that_is_stopped_keeps_what_is_finished():
    stop = []
    steps = iterate_comparison(
        variants_of([SAF(max_labels=3)], {"s": [0, 0.5, 1]}),
        lambda options: Problem.from_image(picture(), **PLAIN),
        cancelled=lambda: bool(stop),
    )
    while not (step := next(steps)).results:
        pass
    stop.append(True)
    found = run_to_end(steps)
    assert len(step.results) == len(found.results) == 1 and not found.is_complete
    with pytest.raises(Cancelled):
        run_to_end(
            iterate_comparison(variants_of([SAF()]), Problem.from_image, cancelled=lambda: True)
        )


def test_pictures_and_tables_are_saved(found, tmp_path):
    truth = np.repeat([[1] * 6 + [2] * 6], 12, axis=0)
    path = saf.save_comparison(tmp_path / "a.png", found, picture(), truth=truth, paint="palette")
    with Image.open(path) as image:
        assert image.width > image.height
    rows = saf.comparison_table(found, truth)
    path = saf.save_comparison(tmp_path / "a.csv", found, picture(), truth=truth)
    with path.open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert [row["name"] for row in read] == [row.name for row in rows]
    assert [float(row["covering"]) for row in read] == [row.covering for row in rows]
    names = [f"result {k}" for k in range(len(rows))]
    for file in ("b.csv", "b.svg"):
        path = saf.save_comparison(tmp_path / file, found, picture(), names=names)
        assert all(name in path.read_text(encoding="utf-8") for name in names)
    for bad in ("a.docx", "a"):
        with pytest.raises(saf.InvalidInput, match="svg"):
            saf.save_comparison(tmp_path / bad, found, picture())


def test_seeds_fix_what_labels_mean():
    seeds = np.zeros((12, 12), int)
    seeds[0, 0], seeds[0, -1], seeds[-1, -1] = 3, 2, 1
    variants = variants_of([saf.LaplacianShot(), SAF(max_labels=5)])
    found = saf.compare(picture(), variants, seeds=seeds)
    assert found.results[0].labels[0, 0] == found.results[1].labels[0, 0] == 3
    assert found.results[0].labels[-1, -1] == 1
