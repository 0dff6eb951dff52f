import numpy as np
import pytest

from napari_saf.errors import InvalidInput
from napari_saf.metrics import mean_entropy


def test_between_decided_and_undecided() -> None:
    assert mean_entropy(np.eye(5)) == 0
    assert mean_entropy(np.full((7, 5), 0.2)) == pytest.approx(np.log(5))
    assert mean_entropy([[1, 0], [0.5, 0.5]]) == pytest.approx(np.log(2) / 2)


@pytest.mark.parametrize(
    "assignment", [np.ones(3), np.ones((3, 2)), [[np.nan, 1]], [[2, -1]], np.ones((0, 2))]
)
def test_bad_input_is_named(assignment) -> None:
    with pytest.raises(InvalidInput, match=r"^assignment: expected"):
        mean_entropy(assignment)
