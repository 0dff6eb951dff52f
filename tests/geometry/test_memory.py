"""Columns are taken and fields made without a second copy."""

import pytest
import torch

from napari_saf.geometry import new_field, take_columns, with_columns


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_rows", [1, 8191, 8192, 20001])
@pytest.mark.parametrize("kept", [[0], [1, 4], [0, 1, 2, 3, 4]])
def test_columns_are_taken_in_place(dtype, n_rows, kept):
    field = torch.rand(n_rows, 5, dtype=dtype)
    expected = field[:, kept].clone()
    taken = take_columns(field, torch.tensor(kept))
    torch.testing.assert_close(taken, expected, rtol=0, atol=0)
    assert taken.is_contiguous() and taken.data_ptr() == field.data_ptr()


def test_a_field_that_lost_columns_has_room_for_all_again():
    field = torch.rand(100, 6)
    narrow = take_columns(field, torch.tensor([5]))
    assert with_columns(narrow, 6).shape == field.shape
    with pytest.raises(RuntimeError):
        with_columns(narrow, 7)


def test_a_new_field_is_of_the_kind_of_the_other_and_can_be_ended():
    like, asked = torch.rand(2_000_000, 2, dtype=torch.float64), []
    field = new_field(like, 3, lambda: asked.append(1))
    assert field.shape == (2_000_000, 3) and field.dtype == like.dtype
    assert not field.any() and len(asked) > 1

    def end():
        raise KeyError

    with pytest.raises(KeyError):
        new_field(like, 3, end)
