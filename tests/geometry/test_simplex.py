import pytest
import torch

from napari_saf.geometry import row_maxima


@pytest.mark.parametrize("n_columns", [1, 2, 11, 12, 13, 16, 30, 63, 64, 100])
def test_row_maxima_are_those_of_torch(n_columns):
    v = torch.randn(50, n_columns)
    before = v.clone()
    assert torch.equal(row_maxima(v), before.amax(dim=1, keepdim=True))
    assert torch.equal(v, before)


@pytest.mark.parametrize("n_columns", [5, 30])
def test_row_maxima_tell_of_what_is_no_number(n_columns):
    v = torch.zeros(3, n_columns)
    v[1, n_columns - 2] = torch.nan
    assert row_maxima(v).isnan().flatten().tolist() == [False, True, False]
