import numpy as np
import pytest
import torch
from scipy import sparse

import napari_saf as saf
from napari_saf.flow._affinity import leading_vectors

CPU = torch.device("cpu")


def exact_kernel(features, sigma2=0.1):
    return np.exp(-((features[:, None] - features) ** 2).sum(axis=-1) / sigma2)


def product(affinity, features, w, seed=0):
    """K W and W'K W."""
    operator = affinity.bind(torch.from_numpy(features), np.random.default_rng(seed))
    w = torch.from_numpy(w)
    basis, coefficients, quadratic = operator.product(w)
    values, whole, end = torch.rand_like(w), torch.full_like(w, np.nan), 0
    for rows, block in basis.plus(values, coefficients.to(w.dtype), whole):
        assert rows.start == end and torch.equal(block, whole[rows])
        end = rows.stop
    assert end == len(w)
    whole -= values
    return whole.numpy(), quadratic.numpy()


@pytest.fixture
def features():
    return np.random.default_rng(0).random((300, 3))


@pytest.fixture
def w():
    return np.random.default_rng(1).dirichlet(np.ones(4), size=300)


def test_exact_kernel_agrees_with_the_dense_one(features, w, monkeypatch):
    monkeypatch.setattr("napari_saf.flow._affinity._CHUNK_BYTES", 70 * 300 * 8)
    whole, quadratic = product(saf.GaussianAffinity(landmarks=None), features, w)
    kernel = exact_kernel(features)
    np.testing.assert_allclose(whole, kernel @ w, rtol=1e-10)
    np.testing.assert_allclose(quadratic, w.T @ kernel @ w, rtol=1e-10)


def test_sketch_agrees_with_the_nystroem_formula(features, w):
    landmarks = np.arange(0, 300, 10)
    kernel = exact_kernel(features)
    columns = kernel[:, landmarks]
    expected = (
        columns @ np.linalg.pinv(kernel[np.ix_(landmarks, landmarks)], rcond=1e-6) @ columns.T
    )
    whole, quadratic = product(saf.GaussianAffinity(landmarks=landmarks), features, w)
    np.testing.assert_allclose(whole, expected @ w, rtol=1e-6)
    np.testing.assert_allclose(quadratic, w.T @ expected @ w, rtol=1e-6)


@pytest.fixture
def always_shared(monkeypatch):
    monkeypatch.setattr("napari_saf.flow._affinity._LEAST_SAVED", 0)


def test_equal_features_share_rows_of_the_sketch_and_change_nothing(w, monkeypatch, always_shared):
    monkeypatch.setattr("napari_saf.flow._affinity._SHARING_ROWS", 70)
    draw = np.random.default_rng(2)
    features = draw.random((300, 3)).astype(np.float32)
    features[:140] = features[draw.integers(20, size=140)]
    features[250:] = features[0]
    w, affinity = w.astype(np.float32), saf.GaussianAffinity(landmarks=50)
    basis = affinity.bind(torch.from_numpy(features), np.random.default_rng(0))
    n_rows = [len(rows) for _, rows, _ in basis.blocks]
    n_distinct = [len(np.unique(part, axis=0)) for part in np.split(features, range(70, 300, 70))]
    assert n_distinct[2:] == [70, 41, 1]
    assert n_rows == [*n_distinct[:3], 70, 1]  # 41 of 70 are too many
    shared = product(affinity, features, w)
    monkeypatch.setattr("napari_saf.flow._affinity._MOST_GROUPS", 0)
    for own, plain in zip(shared, product(affinity, features, w), strict=True):
        np.testing.assert_allclose(own, plain, rtol=1e-3)


def test_a_given_kernel_is_taken_as_it_is(features, w):
    kernel = exact_kernel(features) - 0.2
    whole, quadratic = product(saf.KernelAffinity(sparse.csr_array(kernel)), features, w)
    np.testing.assert_allclose(whole, kernel @ w, rtol=1e-10)
    np.testing.assert_allclose(quadratic, w.T @ kernel @ w, rtol=1e-10)


def leading(affinity, features, n_vectors, seed=0):
    like = torch.from_numpy(features)
    operator = affinity.bind(like, np.random.default_rng(0))
    return leading_vectors(operator, like, n_vectors, np.random.default_rng(seed)).numpy()


def normalised(kernel):
    roots = np.sqrt(kernel.sum(axis=1))
    return kernel / roots[:, None] / roots


@pytest.mark.parametrize("landmarks", [None, np.arange(0, 300, 5)])
@pytest.mark.parametrize(("dtype", "within"), [(np.float64, 1e-6), (np.float32, 1e-4)])
def test_leading_vectors_hold_what_the_dense_ones_do(features, landmarks, dtype, within):
    affinity = saf.GaussianAffinity(sigma2=0.5, landmarks=landmarks)
    kernel = product(affinity, features, np.eye(300))[0]
    expected = np.linalg.eigvalsh(normalised(kernel))[:-6:-1]
    vectors = leading(affinity, features.astype(dtype), 5)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(5), atol=within)
    values = np.diag(vectors.T @ normalised(kernel) @ vectors)
    np.testing.assert_allclose(values, expected, rtol=0.01)
    np.testing.assert_allclose(values[0], 1, atol=within)


def test_there_are_no_more_leading_vectors_than_the_rank(features):
    assert leading(saf.GaussianAffinity(landmarks=4), features, 6).shape[1] <= 4
    nothing = saf.KernelAffinity(np.zeros((300, 300)))
    assert np.isfinite(leading(nothing, features, 4)).all()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: saf.GaussianAffinity(sigma2=np.nan), "sigma2"),
        (lambda: saf.GaussianAffinity(landmarks=2.5), "landmarks"),
        (lambda: saf.KernelAffinity(np.ones((2, 3))), "square"),
        (lambda: saf.KernelAffinity([[0, 1], [2, 0]]), "symmetric"),
        (lambda: saf.KernelAffinity([[0, np.nan], [np.nan, 0]]), "finite"),
    ],
)
def test_bad_affinities_are_refused(make, said):
    with pytest.raises(saf.InvalidInput, match=said):
        make()


def test_what_is_of_other_nodes_is_refused(features, w):
    for landmarks in ([0, 300], [-1]):
        with pytest.raises(saf.InvalidInput, match="node indices"):
            product(saf.GaussianAffinity(landmarks=np.array(landmarks)), features, w)
    with pytest.raises(saf.InvalidInput, match="expected 300 nodes"):
        product(saf.KernelAffinity(np.eye(7)), features, w)
