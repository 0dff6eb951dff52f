"""Patch distances against the definition, and what must leave them as they are."""

import numpy as np
import pytest
from dictionary_cases import slow_distance, turned

import napari_saf as saf


def draw(shape, seed=0):
    return np.random.default_rng(seed).random(shape)


@pytest.mark.parametrize("direction", ["image_to_atom", "atom_to_image", "symmetric"])
@pytest.mark.parametrize(("channels", "size", "window"), [(1, 3, 1), (3, 5, 3), (4, 3, 5)])
def test_distances_are_those_of_the_definition(direction, channels, size, window):
    image = draw((9, 10, channels))
    atoms = draw((2, size + 2, size + 2, channels), seed=1)
    atoms[1, 1:-1, 1:-1] = turned(image[3 : 3 + size, 4 : 4 + size], 5)
    expected = slow_distance(image, atoms, size, window, direction)
    found = saf.patch_distance(image, atoms, direction=direction, window=window, patch_size=size)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("size", [3, 31])
def test_any_odd_size_up_to_31(size):
    image, atoms = draw((34, 33)), draw((2, size, size), seed=1)
    found = saf.patch_distance(image, atoms, window=1)
    views = np.lib.stride_tricks.sliding_window_view(image, (size, size))
    table = [np.square(views - turned(atom, k)).sum((2, 3)) for atom in atoms for k in range(8)]
    expected = np.stack(table).reshape(2, 8, *views.shape[:2]).min(axis=1)
    np.testing.assert_allclose(found, np.moveaxis(expected, 0, -1), rtol=1e-4)


@pytest.mark.parametrize("offset", [0.0, 60_000.0])
def test_no_digits_are_lost_where_patches_are_nearly_equal(offset):
    """Differences of a thousandth on patches of energy 20, and far from the origin."""
    image = draw((20, 20, 3)) + offset
    noise = 1e-3 * draw((2, 7, 7, 3), seed=1)
    atoms = np.stack([image[3:10, 4:11], turned(image[9:16, 2:9], 6)]) + noise
    found = saf.patch_distance(image, atoms, window=1)
    for k, (y, x) in enumerate([(3, 4), (9, 2)]):
        assert found[y, x, k] == pytest.approx(np.square(noise[k]).sum(), rel=1e-3)


@pytest.mark.parametrize("symmetry", [1, 6])
def test_distances_turn_with_the_image(symmetry):
    image, atoms = draw((16, 19, 3)), draw((4, 5, 5, 3), seed=1)
    there = saf.patch_distance(turned(image, symmetry), atoms)
    np.testing.assert_allclose(there, turned(saf.patch_distance(image, atoms), symmetry), rtol=1e-5)


def test_work_in_strips_gives_the_same(monkeypatch):
    image, atoms = draw((40, 30, 3)), draw((5, 5, 5, 3), seed=1)
    whole = saf.patch_distance(image, atoms)
    monkeypatch.setattr("napari_saf.dictionary._distance._STRIP_BYTES", 1)
    monkeypatch.setattr("napari_saf.dictionary._distance._ATOMS_AT_ONCE", 2)
    np.testing.assert_allclose(saf.patch_distance(image, atoms), whole, rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.zeros((9, 9)), np.zeros((2, 33, 33))), "odd number from 3 to 31"),
        ((np.zeros((9, 9)), np.zeros((2, 11, 11))), "sides of the image"),
        ((np.zeros((9, 9, 3)), np.zeros((2, 3, 3, 4))), r"channels as the atoms have \(4\)"),
        ((np.full((9, 9), np.nan), np.zeros((2, 3, 3))), "81 of 81"),
        ((np.zeros((9, 9)), np.full((2, 3, 3), np.inf)), "atoms: 18 of 18"),
        ((np.zeros(9), np.zeros((2, 3, 3))), "image: expected shape"),
        ((np.zeros((9, 9)), np.zeros((2, 3, 5))), "atoms: expected shape"),
        ((np.zeros((9, 9)), np.array(["a"])), "real numbers"),
    ],
)
def test_bad_input_is_named(arguments, words):
    with pytest.raises(saf.InvalidInput, match=words):
        saf.patch_distance(*arguments)


def test_bad_options_are_named():
    image, atoms = np.zeros((9, 9)), np.zeros((2, 5, 5))
    for options in ({"direction": "both"}, {"window": 2}, {"patch_size": 7}, {"patch_size": 4}):
        with pytest.raises(saf.InvalidInput, match=next(iter(options)) + "|atoms"):
            saf.patch_distance(image, atoms, **options)
