import pytest
import torch

from napari_saf.flow._simplex import cross_product, gram, take_columns


@pytest.mark.parametrize("n_rows", [1, 8192, 20001])
@pytest.mark.parametrize("kept", [[1, 4], [0, 1, 2, 3, 4]])
def test_columns_are_taken_in_place(n_rows, kept):
    field = torch.rand(n_rows, 5)
    expected = field[:, kept].clone()
    taken = take_columns(field, torch.tensor(kept))
    torch.testing.assert_close(taken, expected, rtol=0, atol=0)
    assert taken.is_contiguous() and taken.data_ptr() == field.data_ptr()


def test_products_of_long_fields_are_as_exact_as_their_entries():
    one, other = torch.rand(2, 2**16, 16, generator=torch.Generator().manual_seed(0))
    exact = one.double().T @ other.double()
    torch.testing.assert_close(cross_product(one, other), exact, rtol=2e-7, atol=0)


def test_small_eigenvalues_of_columns_that_are_nearly_the_same_are_kept():
    field = 1 + 1e-4 * torch.randn(2**16, 8, generator=torch.Generator().manual_seed(0))
    exact = torch.linalg.eigvalsh(field.double().T @ field.double())
    assert exact[0] < 1e-8 * exact[-1]
    torch.testing.assert_close(torch.linalg.eigvalsh(gram(field)), exact, rtol=1e-4, atol=0)
