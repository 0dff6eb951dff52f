import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from napari_saf.flow._affinity import equal_rows

TABLES = arrays(
    st.sampled_from([np.float32, np.float64]),
    st.tuples(st.integers(1, 40), st.integers(1, 3)),
    elements=st.sampled_from([0.0, 0.25, -1.0, 1e-30]),
)


def check(table, groups):
    """Each row is in one group, and the rows of a group are equal."""
    order, starts, group = (part.numpy() for part in (groups.order, groups.starts, groups.group))
    assert sorted(order) == list(range(len(table)))
    np.testing.assert_array_equal(table[groups.order[groups.starts][groups.group].numpy()], table)
    for k, rows in enumerate(np.split(order, starts[1:])):
        assert (group[rows] == k).all()


@given(TABLES)
def test_rows_are_grouped_with_their_equals(table):
    groups = equal_rows(torch.from_numpy(table), at_most=len(table))
    check(table, groups)
    n_distinct = len(np.unique(table, axis=0))
    assert len(groups.starts) == n_distinct
    assert equal_rows(torch.from_numpy(table), at_most=n_distinct - 1) is None


def test_rows_that_are_taken_for_equal_at_first_sight_are_told_apart(monkeypatch):
    monkeypatch.setattr(
        "napari_saf.flow._affinity._keys", lambda rows: np.zeros(len(rows), dtype=np.int64)
    )
    table = np.array([[0, 1], [0, 2], [0, 2], [0, 1], [1, 1]], dtype=np.float32)
    check(table, equal_rows(torch.from_numpy(table), at_most=5))
