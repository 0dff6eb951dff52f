import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from napari_saf.errors import InvalidInput
from napari_saf.metrics import matched_accuracy, normalized_mutual_information

METRICS = (matched_accuracy, normalized_mutual_information)


def entropy(*columns):
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
    own, other, both = entropy(classes), entropy(labels), entropy(classes, labels)
    mean = (own + other) / 2
    expected = (own + other - both) / mean if mean else 1.0
    assert normalized_mutual_information(classes, labels) == pytest.approx(expected, abs=1e-9)


def test_names_and_shapes_do_not_matter():
    rng = np.random.default_rng(0)
    classes, labels = rng.integers(0, 4, (5, 8)), rng.integers(0, 3, (5, 8))
    for metric in METRICS:
        plain = metric(classes, labels)
        assert 0 < plain < 1
        assert metric(np.array([7, -1, 0, 2])[classes].ravel(), labels.ravel() + 4) == plain
        assert metric(classes, classes) == pytest.approx(1)
        assert metric(np.arange(9), np.arange(9)[::-1]) == pytest.approx(1)


def test_left_over_labels_are_wrong():
    assert matched_accuracy([1, 1, 1, 1], [1, 1, 2, 3]) == 0.5
    assert matched_accuracy([1, 2, 3, 3], [5, 5, 5, 5]) == 0.5
    assert normalized_mutual_information([1, 1, 2, 2], [1, 2, 1, 2]) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        (np.ones(4, int), np.ones(3, int)),
        (np.ones((2, 2), int), np.ones(4, int)),
        (np.ones(4), np.ones(4, int)),
        (np.ones(4, int), np.ones(4)),
        (np.array([], int), np.array([], int)),
    ],
)
def test_bad_input_is_named(classes, labels):
    for metric in METRICS:
        with pytest.raises(InvalidInput, match=r"^(labels|classes and labels): expected"):
            metric(classes, labels)
