"""What labels and groups are called makes no difference, however large the numbers."""

import numpy as np
import pytest

import napari_saf as saf
from napari_saf import metrics
from napari_saf.input import PLAIN


def test_names_of_labels_and_groups():
    rng = np.random.default_rng(0)
    labels, groups = rng.integers(0, 3, (2, 40))
    features = rng.random((40, 2))
    other_labels, other_groups = (np.where(x == 2, 2**63 - 1, x) for x in (labels, groups))
    for measure in (saf.metrics.balance, saf.metrics.fairness_error):
        assert measure(other_labels, other_groups) == measure(labels, groups)
    assert saf.metrics.class_separability(features, other_labels) == pytest.approx(
        saf.metrics.class_separability(features, labels)
    )
    covering = saf.metrics.segmentation_covering
    assert covering(other_labels, groups) == covering(labels, groups)


HUGE = np.array([[1, 2**63 + 5], [2**64 - 1, 1]], dtype=np.uint64)
TWO = np.array([[1, 2], [1, 2]])


@pytest.mark.parametrize(
    "use",
    [
        lambda: metrics.balance(HUGE, TWO),
        lambda: metrics.class_separability(np.random.rand(2, 2, 3), HUGE),
        lambda: metrics.kmeans_objective(np.random.rand(4, 3), HUGE.ravel()),
        lambda: saf.region_table(HUGE),
        lambda: saf.Problem.from_image(np.arange(4.0).reshape(2, 2), window=1, seeds=HUGE, **PLAIN),
        lambda: saf.Problem(np.ones((4, 1)), saf.GridGraph((2, 2), window=1), seeds=HUGE.ravel()),
    ],
)
def test_numbers_that_int64_does_not_hold_are_refused(use):
    with pytest.raises(saf.InvalidInput, match="expected"):
        use()


def test_a_table_by_huge_labels_is_refused_and_not_made():
    sparse = np.array([[1, 10**9], [1, 2]])
    with pytest.raises(saf.InvalidInput, match="without gaps"):
        metrics.group_shares(sparse, TWO)
    with pytest.raises(saf.InvalidInput, match="without gaps"):
        metrics.pairwise_separability(np.random.rand(2, 2, 3), sparse)
    assert metrics.balance(sparse, TWO) == metrics.balance([[1, 3], [1, 2]], TWO)
