"""Laws of LabelMap: which column has which label."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.errors import InvalidInput
from napari_saf.result import LabelMap

MAPS = {
    "identity": LabelMap.identity(4),
    "by size": LabelMap.by_size([3, 0, 5, 5]),
    "shares": LabelMap.by_size(np.array([0.25, 0.75, 0.0])),
    "seeds with gaps": LabelMap.from_seeds([[0, 7], [2, 300]]),
    "huge seed": LabelMap.from_seeds(np.array([0, 3, 2**32 - 1], dtype=np.uint32)),
    "none": LabelMap(np.arange(0)),
}


@pytest.mark.parametrize("label_map", MAPS.values(), ids=MAPS)
def test_unpaint_is_the_inverse_of_paint(label_map: LabelMap) -> None:
    owned = np.flatnonzero(label_map.numbers) + 1
    image = np.concatenate([[0], owned, owned[::-1]]).reshape(1, -1)
    painted = label_map.paint(image)
    assert painted.dtype == np.min_scalar_type(int(label_map.numbers.max(initial=0)))
    assert (label_map.unpaint(painted) == image).all()


def test_rows_are_by_label_and_nan_where_there_is_none() -> None:
    prototypes = np.array([[1.0, 2], [3, 4], [5, 6]], dtype=np.float32)
    assert LabelMap.identity(3).rows(prototypes) is prototypes
    rows = LabelMap.from_seeds([2, 4, 5]).rows(prototypes)
    assert np.isnan(rows[[0, 2]]).all()
    assert (rows[[1, 3, 4]] == prototypes).all()
    assert len(MAPS["huge seed"].rows(prototypes[:2])) == 3


def test_columns_that_share_a_label_have_the_mean_prototype() -> None:
    shared = LabelMap(np.array([1, 1, 1, 2]))
    rows = shared.rows(np.array([[0.0], [np.nan], [4], [9]]))
    assert rows.tolist() == [[2], [9]]
    assert shared.columns.tolist() == [0, 3]
    assert shared.paint(np.array([0, 1, 2, 4])).tolist() == [0, 1, 1, 2]


def test_columns_without_a_label_come_after_all_others_when_extended() -> None:
    seeds = LabelMap.from_seeds([2, 5])
    assert seeds.extended(4).numbers.tolist() == [2, 5, 6, 7]
    assert seeds.extended(1).numbers.tolist() == [2, 5]
    assert LabelMap.by_size([1, 0, 4, 0]).extended(4).numbers.tolist() == [2, 3, 1, 4]
    named = LabelMap(np.array([1]), {1: "sky"}, {1: (0.0, 0.0, 1.0, 1.0)}).extended(2)
    assert named.names == {1: "sky"}
    assert named.colors[1] == (0, 0, 1, 1)


def test_results_go_to_other_processes() -> None:
    named = LabelMap(np.array([2, 1]), {1: "sky"}, {1: (0.0, 0.0, 1.0, 1.0)})
    result = saf.SLK(n_clusters=2).run(saf.Problem.from_image(np.eye(16)))
    sent = pickle.loads(pickle.dumps(dataclasses.replace(result, label_map=named)))  # noqa: S301
    assert (sent.labels == copy.deepcopy(result).labels).all()
    assert sent.label_map.numbers.tolist() == [2, 1]
    assert (sent.label_map.names, sent.label_map.colors) == (named.names, named.colors)
    with pytest.raises(TypeError):
        sent.label_map.names[2] = "sea"


@pytest.mark.parametrize("numbers", [[-1, 2], [0.5], [[1]]])
def test_numbers_are_whole_and_not_negative(numbers: list[object]) -> None:
    with pytest.raises(InvalidInput, match="numbers: expected whole numbers"):
        LabelMap(np.array(numbers))
