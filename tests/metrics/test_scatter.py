import numpy as np
import pytest

from napari_saf.errors import InvalidInput
from napari_saf.metrics import class_separability, pairwise_separability


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(4)


def test_agrees_with_the_scatter_matrices(rng) -> None:
    features, labels = rng.normal(size=(60, 3)), rng.integers(1, 5, 60)
    within, between = np.zeros((3, 3)), np.zeros((3, 3))
    for label in np.unique(labels):
        own = features[labels == label]
        within += (own - own.mean(axis=0)).T @ (own - own.mean(axis=0))
        step = own.mean(axis=0) - features.mean(axis=0)
        between += len(own) * np.outer(step, step)
    expected = np.trace(between) / np.trace(within)
    assert class_separability(features, labels) == pytest.approx(expected)


def test_the_same_after_moves_and_turns(rng) -> None:
    features, labels = rng.normal(size=(6, 10, 3)), rng.integers(1, 5, (6, 10))
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    assert class_separability(2.5 * features @ turn + 7, labels) == pytest.approx(
        class_separability(features, labels)
    )


def test_unlabelled_pixels_are_left_out(rng) -> None:
    features, labels = rng.normal(size=(50, 2)), rng.integers(0, 4, 50)
    assert class_separability(features, labels) == pytest.approx(
        class_separability(features[labels > 0], labels[labels > 0])
    )


def test_extremes() -> None:
    points = np.array([[0.0], [0.0], [1.0], [1.0]])
    assert class_separability(points, [1, 1, 2, 2]) == np.inf
    assert class_separability(points, [1, 2, 1, 2]) == 0
    assert class_separability(points, [1, 1, 1, 1]) == 0
    assert class_separability(np.ones((4, 1)), [1, 1, 2, 2]) == 0


@pytest.mark.parametrize(
    ("features", "labels"),
    [
        (np.ones((4, 2)), np.ones(3, int)),
        (np.ones((4, 2)), np.ones(4)),
        (np.ones((4, 2)), np.zeros(4, int)),
        (np.ones((4, 2)), -np.ones(4, int)),
        (np.full((4, 2), np.nan), np.ones(4, int)),
    ],
)
def test_bad_input_is_named(features, labels) -> None:
    with pytest.raises(InvalidInput, match=r"^(features|labels): expected"):
        class_separability(features, labels)


def test_pairs_are_as_if_there_were_no_others(rng) -> None:
    features, labels = rng.normal(size=(80, 3)), rng.choice([0, 1, 2, 4], 80)
    table = pairwise_separability(features, labels)
    assert table.shape == (4, 4)
    assert np.isnan(np.diag(table)).all() and np.isnan(table[2]).all()
    for j, k in ((1, 2), (1, 4), (4, 2)):
        only = np.where(np.isin(labels, (j, k)), labels, 0)
        expected = class_separability(features, only)
        assert table[j - 1, k - 1] == table[k - 1, j - 1] == pytest.approx(expected)
