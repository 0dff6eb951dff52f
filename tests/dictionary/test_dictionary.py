"""Laws of a dictionary and of its application."""

import dataclasses

import numpy as np
import pytest
from dictionary_cases import fitted, patches_at, turned

import napari_saf as saf
from napari_saf.dictionary import _apply
from napari_saf.features import Scaling
from napari_saf.methods import Cancelled


def make(n_atoms=4, size=5, channels=1, seed=0, **options):
    atoms = np.random.default_rng(seed).random((n_atoms, size, size, channels))
    options = {"scaling": Scaling(0.0, 1.0), "distance": 0.5} | options
    return saf.PatchDictionary(atoms=atoms, usage=np.arange(n_atoms)[::-1], **options)


def draw(shape, seed=1):
    return np.random.default_rng(seed).random(shape)


@pytest.mark.parametrize("reconstruction", ["matched", "blended", "fitted"])
@pytest.mark.parametrize("shape", [(5, 9), (20, 23, 3)])
def test_everything_has_the_shape_of_the_image(shape, reconstruction):
    image = draw(shape).astype(np.float32)
    found = make(channels=3 if len(shape) == 3 else 1).apply(image, reconstruction=reconstruction)
    assert found.labels.shape == found.transforms.shape == found.fit.shape == shape[:2]
    assert found.reconstruction.shape == found.difference.shape == shape
    np.testing.assert_allclose(found.reconstruction + found.difference, image, atol=1e-6)
    assert found.labels.min() >= 1
    assert found.usage.sum() == shape[0] * shape[1]
    assert found.error == pytest.approx(np.square(found.difference).mean(), rel=1e-5)
    assert found.psnr == pytest.approx(-10 * np.log10(found.error))


@pytest.mark.parametrize("symmetry", [1, 6])
def test_labels_of_a_turned_image_are_the_turned_labels(symmetry):
    image, dictionary = draw((24, 24, 3)), make(channels=3)
    plain = dictionary.apply(image)
    found = dictionary.apply(turned(image, symmetry))
    np.testing.assert_array_equal(found.labels, turned(plain.labels, symmetry))
    np.testing.assert_allclose(
        found.reconstruction, turned(plain.reconstruction, symmetry), atol=1e-4
    )


def test_labels_are_those_of_the_nearest_atoms_where_patches_decide():
    """With a small rho neighbours hardly count."""
    image, dictionary = draw((18, 20)), make()
    found = dictionary.apply(image, window=1, rho=1e-3)
    distances = saf.patch_distance(image.astype(np.float32), dictionary.atoms[..., 0])
    expected = np.pad(distances.argmin(axis=-1) + 1, 2, mode="edge")
    assert (found.labels == expected).mean() > 0.99


def test_transforms_and_centres_say_how_the_patch_fits():
    image, dictionary = draw((16, 17, 3)).astype(np.float32), make(channels=3)
    found = dictionary.apply(image)
    for y, x in [(2, 2), (7, 9), (13, 14), (0, 0), (15, 16)]:
        row, column = found.centres[y, x]
        patch = image[row - 2 : row + 3, column - 2 : column + 3]
        atom = dictionary.atoms[found.labels[y, x] - 1]
        difference = turned(patch, found.transforms[y, x]) - atom
        assert np.sqrt(np.square(difference).mean()) == pytest.approx(found.fit[y, x], rel=1e-3)
        inner = np.clip([y, x], 2, [13, 14])
        assert np.abs(inner - [row, column]).max() <= 1


def test_matched_atoms_are_painted_at_their_centres_and_averaged():
    """(6.14) written as loops, bare pixels aside."""
    image, dictionary = draw((14, 15)), make()
    found = dictionary.apply(image, reconstruction="matched")
    total, count = np.zeros((14, 15)), np.zeros((14, 15))
    inverse = (0, 3, 2, 1, 4, 5, 6, 7)
    for y in range(2, 12):
        for x in range(2, 13):
            atom = dictionary.atoms[found.labels[y, x] - 1, ..., 0]
            row, column = found.centres[y, x]
            there = (slice(row - 2, row + 3), slice(column - 2, column + 3))
            total[there] += turned(atom, inverse[found.transforms[y, x]])
            count[there] += 1
    covered = count > 0
    np.testing.assert_allclose(
        found.reconstruction[covered], (total / count.clip(1))[covered], atol=1e-5
    )


@pytest.mark.parametrize("any_contrast", [False, True])
def test_each_pixel_puts_the_atom_that_fits_best_with_a_gain_and_an_offset(any_contrast):
    image, dictionary = draw((11, 12, 3)), make(channels=3, any_contrast=any_contrast, distance=50)
    image += [0, 0.5, 2]
    found = dictionary.apply(image, reconstruction="fitted")
    total, count = np.zeros((11, 12, 3)), np.zeros((11, 12, 1))
    for (y, x), patch in patches_at(image, 5).items():
        every = [fitted(patch, turned(atom, k)) for atom in dictionary.atoms for k in range(8)]
        residuals = [np.square(patch - one).sum() for one in every]
        weight = np.exp(-min(residuals) / (50 if any_contrast else 25))
        total[y : y + 5, x : x + 5] += weight * every[int(np.argmin(residuals))]
        count[y : y + 5, x : x + 5] += weight
    np.testing.assert_allclose(found.reconstruction, total / count, atol=1e-5)


def test_under_any_contrast_brightness_and_contrast_of_atoms_do_not_count():
    image, dictionary = draw((24, 26, 3)), make(channels=3, any_contrast=True)
    gains, offsets = draw((2, 4, 1, 1, 1), seed=3)
    other = dataclasses.replace(dictionary, atoms=dictionary.atoms * (0.1 + gains) + offsets)
    options = {"reconstruction": "fitted", "window": 1, "rho": 1e-3}
    found, again = (one.apply(image, **options) for one in (dictionary, other))
    assert (again.labels == found.labels).mean() > 0.99
    np.testing.assert_allclose(again.reconstruction, found.reconstruction, atol=1e-5)
    np.testing.assert_allclose(other.distances(), dictionary.distances(), atol=1e-4)


@pytest.fixture(scope="module")
def waves():
    """An image of waves with a little noise, and a dictionary of it."""
    y, x = np.indices((64, 90))
    image = np.sin(y / 3) * np.cos(x / 5) + 0.1 * draw((64, 90))
    options = {"n_atoms": 5, "patch_size": 5, "landmarks": 20, "n_samples": 500}
    return image, saf.PatchDictionary.learn([image], **options)


@pytest.mark.parametrize("reconstruction", ["matched", "blended", "fitted"])
def test_tiles_make_no_difference(monkeypatch, reconstruction, waves):
    image, dictionary = waves
    whole = dictionary.apply(image, reconstruction=reconstruction)
    monkeypatch.setattr(_apply, "_TILE_VALUES", 100)
    monkeypatch.setattr(_apply, "_LEAST_TILE", 40)
    tiled = dictionary.apply(image, reconstruction=reconstruction)
    assert (tiled.labels == whole.labels).mean() > 0.99
    assert np.abs(tiled.reconstruction - whole.reconstruction).mean() < 1e-3


def test_alpha_is_dropped_and_a_last_axis_of_the_right_length_is_that_of_channels():
    rgba, dictionary = draw((12, 13, 4)), make(channels=3)
    same = dictionary.apply(rgba[..., :3])
    np.testing.assert_array_equal(dictionary.apply(rgba).labels, same.labels)
    many = make(channels=5)
    image = draw((12, 13, 5))
    moved = many.apply(np.moveaxis(image, -1, 0), channel_axis=0)
    np.testing.assert_array_equal(many.apply(image).labels, moved.labels)


def test_atoms_can_be_dropped():
    dictionary = make()
    less = dictionary.without([0, 2])
    np.testing.assert_array_equal(less.atoms, dictionary.atoms[[1, 3]])
    np.testing.assert_array_equal(less.usage, dictionary.usage[[1, 3]])
    for bad, words in (([4], "from 0 to 3"), ([-1], "from 0 to 3"), ([0, 1, 2, 3], "at least one")):
        with pytest.raises(saf.InvalidInput, match=words):
            dictionary.without(bad)
    one = dictionary.without([0, 1, 2])
    assert (one.apply(draw((9, 9))).labels == 1).all()


def test_told_to_end_it_ends():
    with pytest.raises(Cancelled):
        make().apply(draw((30, 30)), cancelled=lambda: True)


@pytest.mark.parametrize(
    ("image", "options", "words"),
    [
        (np.zeros((9, 9, 3)), {}, "expected as many channels as the dictionary has .1., got 3"),
        (np.zeros((4, 9)), {}, "at least 5 pixels"),
        (np.full((9, 9), np.nan), {}, "81 of 81"),
        (np.zeros((9, 9, 9)), {}, "2 axes"),
        (np.zeros((9, 9)), {"window": 11}, "window: 11 is larger than the image"),
        (np.zeros((9, 9)), {"reconstruction": "painted"}, "reconstruction"),
        (np.zeros((9, 9)), {"rho": -1}, "rho"),
    ],
)
def test_bad_images_are_named(image, options, words):
    with pytest.raises(saf.InvalidInput, match=words):
        make().apply(image, **options)


def test_distances_of_atoms_know_no_symmetries():
    dictionary = make(channels=3)
    atoms = np.concatenate([dictionary.atoms, turned(dictionary.atoms[0], 6)[None]])
    twice = saf.PatchDictionary(atoms=atoms, usage=np.ones(5, int), scaling=Scaling(0.0, 1.0))
    found = twice.distances()
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found[0], found[4], atol=1e-4)
    assert found[0, 4] == pytest.approx(0, abs=1e-4)
    places = twice.embedding()
    assert places.shape == (5, 2)
    np.testing.assert_allclose(places[0], places[4], atol=1e-3)


def test_transforms_are_the_eight_symmetries():
    dictionary = make(channels=2)
    found = dictionary.transforms()
    for atom, eight in zip(dictionary.atoms, found, strict=True):
        for k, one in enumerate(eight):
            np.testing.assert_array_equal(one, turned(atom, k))
