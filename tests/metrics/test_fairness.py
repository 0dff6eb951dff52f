import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from napari_saf.errors import InvalidInput
from napari_saf.metrics import balance, fairness_error, group_shares

# By hand: label 1 holds groups 1, 1, 2, 2, 2, 2, label 2 groups 1, 2; label 3 is empty, label 4
# holds 1, 1, 1, 2. The last two nodes lack a group or a label.
LABELS = np.array([1, 1, 1, 1, 1, 1, 2, 2, 4, 4, 4, 4, 1, 0])
GROUPS = np.array([1, 1, 2, 2, 2, 2, 1, 2, 1, 1, 1, 2, 0, 1])


def test_values_worked_out_by_hand():
    shares = group_shares(LABELS, GROUPS)
    np.testing.assert_allclose(shares[[0, 1, 3]], [[1 / 3, 2 / 3], [1 / 2, 1 / 2], [3 / 4, 1 / 4]])
    assert np.isnan(shares[2]).all()
    assert balance(LABELS, GROUPS) == pytest.approx(1 / 3)
    # both groups have 6 of 12 nodes: KL of (1/2, 1/2) from the three rows
    errors = [np.log(9 / 8) / 2, 0.0, np.log(4 / 3) / 2]
    assert fairness_error(LABELS, GROUPS) == pytest.approx(sum(errors))
    assert fairness_error(LABELS, GROUPS, reduction="mean") == pytest.approx(np.mean(errors))
    wanted = [1 / 3, 2 / 3]
    errors = [
        0.0,
        np.log(2 / 3) / 3 + np.log(4 / 3) * 2 / 3,
        np.log(4 / 9) / 3 + np.log(8 / 3) * 2 / 3,
    ]
    assert fairness_error(LABELS, GROUPS, wanted) == pytest.approx(sum(errors))


@settings(max_examples=30, deadline=None)
@given(
    n_nodes=st.integers(1, 60),
    n_labels=st.integers(1, 5),
    n_groups=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)
def test_metrics_agree_with_loops(n_nodes, n_labels, n_groups, seed):
    rng = np.random.default_rng(seed)
    labels, groups = rng.integers(0, n_labels + 1, n_nodes), rng.integers(0, n_groups + 1, n_nodes)
    labels[0] = groups[0] = 1
    kept = (labels > 0) & (groups > 0)
    present = np.unique(groups[kept])
    overall = [np.mean(groups[kept] == group) for group in present]
    least, error = 1.0, 0.0
    for label in np.unique(labels[kept]):
        own = groups[kept & (labels == label)]
        counts = [np.sum(own == group) for group in present]
        least = min(least, min(counts) / max(counts))
        for share, count in zip(overall, counts, strict=True):
            error += share * np.log(share / (count / len(own))) if count else np.inf
        np.testing.assert_allclose(
            group_shares(labels, groups)[label - 1, present - 1], np.array(counts) / len(own)
        )
    assert balance(labels, groups) == pytest.approx(least)
    assert fairness_error(labels, groups) == pytest.approx(error, abs=1e-12)


def test_names_and_shapes_do_not_matter():
    rng = np.random.default_rng(0)
    labels, groups = rng.integers(1, 5, (6, 10)), rng.integers(1, 4, (6, 10))
    other_labels, other_groups = np.array([0, 3, 9, 1, 2])[labels], np.array([0, 5, 2, 8])[groups]
    for metric in (balance, fairness_error):
        plain = metric(labels, groups)
        assert metric(other_labels.ravel(), other_groups.ravel()) == pytest.approx(plain)
        assert metric(labels.tolist(), groups.astype(np.uint8).tolist()) == pytest.approx(plain)


def test_a_group_that_is_missing_counts_only_if_it_is_wanted():
    labels, groups = np.array([1, 1, 2, 2]), np.array([1, 2, 1, 1])
    assert fairness_error(labels, groups) == np.inf
    assert balance(labels, groups) == 0
    assert fairness_error(labels, groups, [1, 0]) == pytest.approx(np.log(2))


@pytest.mark.parametrize(
    ("labels", "groups", "said"),
    [
        (np.ones((2, 2), int), np.ones(4, int), "groups: expected shape"),
        (np.ones(4), np.ones(4, int), "labels: expected whole numbers"),
        (-np.ones(4, int), np.ones(4, int), "labels: expected 0, 1, 2, ..., got -1"),
        (np.ones(4, int), np.zeros(4, int), "labels and groups: expected at least one node"),
    ],
)
def test_bad_labels_and_groups_are_named(labels, groups, said):
    for metric in (balance, fairness_error, group_shares):
        with pytest.raises(InvalidInput, match=said):
            metric(labels, groups)


@pytest.mark.parametrize(
    "proportions",
    [[0.5, 0.6], [1.5, -0.5], [0.2, 0.3, 0.5], [np.nan, 1]],
)
def test_bad_proportions_are_named(proportions):
    with pytest.raises(InvalidInput, match="proportions: expected 2 numbers"):
        fairness_error(LABELS, GROUPS, proportions)


def test_a_bad_reduction_is_named():
    with pytest.raises(InvalidInput, match="reduction: expected sum or mean, got 'max'"):
        fairness_error(LABELS, GROUPS, reduction="max")
