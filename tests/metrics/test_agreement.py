"""Agreement with classes and with reference label images, against brute force."""

import itertools
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from napari_saf.errors import InvalidInput
from napari_saf.metrics import (
    matched_accuracy,
    normalized_mutual_information,
    probabilistic_rand_index,
    region_agreement,
    segmentation_covering,
    variation_of_information,
)

METRICS = (matched_accuracy, normalized_mutual_information)


def joint_entropy(*columns):
    _, counts = np.unique(np.stack(columns), axis=1, return_counts=True)
    shares = counts / counts.sum()
    return -(shares * np.log(shares)).sum()


@settings(max_examples=30, deadline=None)
@given(
    n_nodes=st.integers(1, 40),
    n_classes=st.integers(1, 4),
    n_labels=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)
def test_agreement_agrees_with_brute_force(n_nodes, n_classes, n_labels, seed):
    rng = np.random.default_rng(seed)
    classes, labels = rng.integers(0, n_classes, n_nodes), rng.integers(0, n_labels, n_nodes)
    # every injective naming of labels by classes; -1, -2, ... stand for no class
    names = [*range(n_classes), *range(-n_labels, 0)]
    best = max(
        np.mean(np.array(naming)[labels] == classes)
        for naming in itertools.permutations(names, n_labels)
    )
    assert matched_accuracy(classes, labels) == pytest.approx(best)
    own, other, both = joint_entropy(classes), joint_entropy(labels), joint_entropy(classes, labels)
    mean = (own + other) / 2
    expected = (own + other - both) / mean if mean else 1.0
    assert normalized_mutual_information(classes, labels) == pytest.approx(expected, abs=1e-9)


def test_names_of_classes_and_shapes_do_not_matter():
    rng = np.random.default_rng(0)
    classes, labels = rng.integers(0, 4, (5, 8)), rng.integers(0, 3, (5, 8))
    for metric in METRICS:
        plain = metric(classes, labels)
        assert 0 < plain < 1
        assert metric(np.array([7, -1, 0, 2])[classes].ravel(), labels.ravel() + 4) == plain
        assert metric(classes, classes) == pytest.approx(1)
        assert metric(np.arange(9), np.arange(9)[::-1]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        (np.ones((2, 2), int), np.ones(4, int)),
        (np.ones(4), np.ones(4, int)),
        (np.array([], int), np.array([], int)),
    ],
)
def test_bad_classes_are_named(classes, labels):
    for metric in METRICS:
        with pytest.raises(InvalidInput, match=r"^(labels|classes and labels): expected"):
            metric(classes, labels)


MEASURES = [segmentation_covering, probabilistic_rand_index, variation_of_information]
Measure = Callable[..., float]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def slow_covering(labels, reference):
    a, b = np.ravel(labels), np.ravel(reference)
    total = 0.0
    for region in np.unique(b):
        inside = b == region
        overlaps = [(inside & (a == k)).sum() / (inside | (a == k)).sum() for k in np.unique(a)]
        total += inside.sum() * max(overlaps)
    return total / len(b)


def slow_rand_index(labels, reference):
    a, b = np.ravel(labels), np.ravel(reference)
    agree = [(a[i] == a[k]) == (b[i] == b[k]) for i, k in combinations(range(len(a)), 2)]
    return np.mean(agree)


def slow_information(labels, reference):
    a, b = np.ravel(labels), np.ravel(reference)
    total = 0.0
    for j in np.unique(a):
        for k in np.unique(b):
            both = np.mean((a == j) & (b == k))
            if both:
                total -= both * np.log2(both / np.mean(a == j))
                total -= both * np.log2(both / np.mean(b == k))
    return total


@pytest.mark.parametrize("measure", MEASURES)
def test_equal_partitions_agree_whatever_the_labels_are_called(measure: Measure, rng) -> None:
    labels, reference = rng.integers(1, 6, (7, 9)), rng.integers(1, 5, (7, 9))
    names = rng.permutation(100)
    best = 0 if measure is variation_of_information else 1
    assert measure(names[labels], labels) == pytest.approx(best, abs=1e-12)
    assert measure(names[labels], reference) == pytest.approx(measure(labels, reference))


@pytest.mark.parametrize(
    ("measure", "slow"),
    [
        (segmentation_covering, slow_covering),
        (probabilistic_rand_index, slow_rand_index),
        (variation_of_information, slow_information),
    ],
)
def test_agrees_with_the_definition(measure: Measure, slow: Measure, rng) -> None:
    for shape in [(12,), (4, 5), (2, 3, 4)]:
        labels, reference = rng.integers(0, 4, shape), rng.integers(1, 4, shape)
        assert measure(labels, reference) == pytest.approx(slow(labels, reference))


@pytest.mark.parametrize("measure", MEASURES)
def test_several_references_are_averaged(measure: Measure, rng) -> None:
    labels, references = rng.integers(1, 4, (5, 6)), rng.integers(1, 4, (3, 5, 6))
    expected = np.mean([measure(labels, reference) for reference in references])
    assert measure(labels, references) == pytest.approx(expected)
    assert measure(labels, list(references)) == pytest.approx(expected)


@pytest.mark.parametrize("measure", MEASURES)
def test_unlabelled_reference_pixels_are_left_out(measure: Measure, rng) -> None:
    labels, reference = rng.integers(0, 4, (5, 6)), rng.integers(1, 4, (5, 6))
    inside = rng.random((5, 6)) < 0.6
    assert measure(labels, np.where(inside, reference, 0)) == pytest.approx(
        measure(labels[inside], reference[inside])
    )


def test_information_is_a_metric(rng) -> None:
    a, b, c = rng.integers(1, 5, (3, 200))
    assert variation_of_information(a, b) == pytest.approx(variation_of_information(b, a))
    assert variation_of_information(a, c) <= (
        variation_of_information(a, b) + variation_of_information(b, c) + 1e-12
    )
    halves = np.repeat([1, 2], 100)
    assert variation_of_information(np.ones(200, int), halves) == pytest.approx(1)


@pytest.mark.parametrize("measure", [*MEASURES, region_agreement])
@pytest.mark.parametrize(
    ("labels", "references"),
    [
        (np.ones((3, 3)), np.ones((3, 3), int)),
        (np.ones((3, 3), int), np.zeros((3, 3), int)),
        (np.ones((3, 3), int), []),
        (np.ones((3, 3), int), [np.ones((3, 3), int), np.ones((3, 4), int)]),
        (np.ones((0, 3), int), np.ones((0, 3), int)),
    ],
)
def test_bad_label_images_are_named(measure: Measure, labels, references) -> None:
    with pytest.raises(InvalidInput, match=r"^(labels|references): expected"):
        measure(labels, references)
