import pytest
import torch

from napari_saf.flow._simplex import cross_product, gram, row_maxima, take_columns, with_columns


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


def test_products_of_long_fields_are_as_exact_as_their_entries():
    one, other = torch.rand(2, 2**16, 16, generator=torch.Generator().manual_seed(0))
    exact = one.double().T @ other.double()
    torch.testing.assert_close(cross_product(one, other), exact, rtol=2e-7, atol=0)


def test_small_eigenvalues_of_columns_that_are_nearly_the_same_are_kept():
    field = 1 + 1e-4 * torch.randn(2**16, 8, generator=torch.Generator().manual_seed(0))
    exact = torch.linalg.eigvalsh(field.double().T @ field.double())
    assert exact[0] < 1e-8 * exact[-1]
    torch.testing.assert_close(torch.linalg.eigvalsh(gram(field)), exact, rtol=1e-4, atol=0)
