"""Laws of learning a patch dictionary."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from dictionary_cases import fitted, turned

import napari_saf as saf
from napari_saf.dictionary._sample import update_atoms
from napari_saf.features import FEATURES
from napari_saf.input import PLAIN
from napari_saf.methods import run_to_end


def texture(height=40, width=48, seed=0):
    """Upright stripes on the left, a coarser checkerboard on the right, a little noise."""
    y, x = np.indices((height, width))
    stripes, board = (x // 2) % 2, (x // 4 + y // 4) % 2
    image = np.where(x < width // 2, stripes, 0.3 + 0.6 * board).astype(float)
    return image + np.random.default_rng(seed).normal(0, 0.02, image.shape)


QUICK = {"n_atoms": 6, "patch_size": 5, "landmarks": 20, "n_samples": 500}


@pytest.fixture(scope="module")
def learned():
    problem = saf.Problem.from_images([texture(), texture(30, 36, seed=1)], **PLAIN)
    return saf.PatchDictionaryLearning(**QUICK).run(problem)


def test_labels_have_the_size_of_the_images(learned):
    assert [labels.shape for labels in learned.labels] == [(40, 48), (30, 36)]
    dictionary = learned.dictionary
    assert dictionary.n_atoms == learned.n_labels == len(learned.prototypes)
    for labels in learned.labels:
        assert labels.min() >= 1
        assert labels.max() <= dictionary.n_atoms


def test_atoms_come_by_usage(learned):
    usage = learned.dictionary.usage
    assert (np.diff(usage) <= 0).all()
    assert usage.sum() == 36 * 44 + 26 * 32
    interior = np.concatenate([labels[2:-2, 2:-2].ravel() for labels in learned.labels])
    np.testing.assert_array_equal(np.bincount(interior)[1:], usage)


def test_the_objective_of_the_alignment_never_rises(learned):
    for before, after in itertools.pairwise(learned.alignment):
        assert after <= before * (1 + 1e-6)


def test_the_objective_never_rises_under_any_contrast():
    image = texture() * np.linspace(0.2, 1, 48) + np.linspace(0, 3, 40)[:, None]
    result = run_to_end(saf.PatchDictionary.iterate([image], any_contrast=True, **QUICK))
    assert result.dictionary.any_contrast
    assert len(result.alignment) > QUICK["n_atoms"]
    for before, after in itertools.pairwise(result.alignment):
        assert after <= before * (1 + 1e-6)


def test_textures_are_told_apart(learned):
    """No atom serves both halves of the image, away from the seam."""
    labels = learned.labels[0]
    assert not set(labels[:, :18].ravel()) & set(labels[:, 30:].ravel())


def test_the_same_seed_gives_the_same_atoms(learned):
    problem = saf.Problem.from_images([texture(), texture(30, 36, seed=1)], **PLAIN)
    again = saf.PatchDictionaryLearning(**QUICK).run(problem)
    np.testing.assert_array_equal(again.dictionary.atoms, learned.dictionary.atoms)
    other = saf.PatchDictionaryLearning(**QUICK, seed=1).run(problem)
    assert not np.array_equal(other.dictionary.atoms, learned.dictionary.atoms)


def test_snapshots_have_live_labels_and_atoms():
    snapshots = []

    def look(snapshot):
        snapshots.append(snapshot)
        (labels,), atoms = snapshot.labels, snapshot.prototypes
        assert labels.shape == (40, 48) and atoms.shape == (6, 25)
        present = np.unique(labels[2:-2, 2:-2]) - 1
        assert np.isfinite(atoms[present]).mean() > 0.5

    result = run_to_end(saf.PatchDictionary.iterate([texture()], names=["wall"], **QUICK), look)
    fractions = [snapshot.fraction for snapshot in snapshots]
    assert len(fractions) > 3
    assert fractions[0] == 0
    assert (np.diff(fractions) > -0.05).all()
    assert fractions[-1] == pytest.approx(1)
    assert result.dictionary.images == ("wall",)
    with pytest.raises(saf.SafError, match="out of date"):
        _ = snapshots[0].labels


@pytest.mark.parametrize("calls", [0, 10])
def test_a_cancelled_run_leaves_a_dictionary(calls):
    count = itertools.count()
    steps = saf.PatchDictionary.iterate(
        [texture()], cancelled=lambda: next(count) >= calls, **QUICK
    )
    result = run_to_end(steps)
    assert result.status is saf.Status.CANCELLED
    assert np.isfinite(result.dictionary.atoms).all()
    assert result.labels[0].shape == (40, 48)


def test_colour_and_any_s():
    image = np.stack([texture(), texture(seed=1), texture(seed=2)], axis=-1)
    dictionary = saf.PatchDictionary.learn([image], s=0.5, **QUICK)
    assert dictionary.atoms.shape[1:] == (5, 5, 3)
    assert dictionary.s == 0.5


@pytest.mark.parametrize("any_contrast", [False, True])
def test_one_update_of_the_atoms_agrees_with_its_formula(any_contrast):
    """One round of (6.13), done slowly; under any contrast a step of the power method."""
    rng = np.random.default_rng(0)
    blocks, atoms = rng.random((9, 2, 5, 5)), rng.random((2, 2, 3, 3))
    labels, weights = rng.integers(0, 2, 9), rng.random(9)
    found, value = update_atoms(
        *map(torch.from_numpy, (blocks, atoms, labels, weights)), any_contrast=any_contrast
    )
    sums, total = np.zeros((2, 3, 3, 2)), 0.0
    for block, label, weight in zip(blocks, labels, weights, strict=True):
        image, target = np.moveaxis(block, 0, -1), np.moveaxis(atoms[label], 0, -1)
        centres = itertools.product(range(3), range(3), range(8))
        moved = [turned(image[y : y + 3, x : x + 3], k) for y, x, k in centres]
        nearest = [fitted(patch, target) if any_contrast else target for patch in moved]
        pairs = zip(moved, nearest, strict=True)
        distances = [np.square(patch - near).sum() for patch, near in pairs]
        best = moved[int(np.argmin(distances))]
        if any_contrast:
            zero_mean = best - best.mean()
            best = np.linalg.norm(fitted(best, target) - best.mean()) * zero_mean
        sums[label] += weight * best
        total += weight * min(distances)
    assert value == pytest.approx(total / weights.sum())
    for label, atom in enumerate(found.movedim(1, -1).numpy()):
        if any_contrast:
            atom, expected = (
                (x - x.mean()) / np.linalg.norm(x - x.mean()) for x in (atom, sums[label])
            )
        else:
            expected = sums[label] / weights[labels == label].sum()
        np.testing.assert_allclose(atom, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("images", "options", "words"),
    [
        ([np.zeros((9, 9)) + np.arange(9)], {"patch_size": 4}, "odd number from 3 to 31, got 4"),
        ([np.zeros((9, 9)) + np.arange(9)], {"patch_size": 11}, "sides of the image, 9 x 9"),
        ([np.zeros((9, 9)) + np.arange(9)], {"shift_window": 2}, "odd"),
        ([np.zeros((9, 9))], {}, "differing"),
        ([texture(), np.stack([texture()] * 3, axis=-1)], {}, "channels"),
        ([np.full((20, 20), np.nan)], {}, "all of them are NaN"),
        ([np.random.default_rng(0).random((9, 12, 12))], {}, "2 axes"),
    ],
)
def test_bad_input_is_named(images, options, words):
    with pytest.raises(saf.InvalidInput, match=words):
        saf.PatchDictionary.learn(images, **options)


def test_masks_are_refused():
    mask = np.ones((40, 48), dtype=bool)
    mask[0] = False
    with pytest.raises(saf.InvalidInput, match="mask"):
        saf.PatchDictionaryLearning(**QUICK).run(
            saf.Problem.from_image(texture(), mask=mask, **PLAIN)
        )


def colourful():
    image = np.stack([texture(), 1 - texture(seed=1), texture(seed=2).T.repeat(2, 1)[:40, :48]], -1)
    return (255 * image.clip(0, 1)).astype(np.uint8)


@pytest.mark.parametrize("features", ["lab", "patterns"])
def test_atoms_of_features_rebuild_the_colours_of_images(features, tmp_path):
    image = colourful()
    dictionary = saf.PatchDictionary.learn(image, features=features, **QUICK)
    assert dictionary.features == features and dictionary.n_channels == 3
    dictionary.save(tmp_path / "d.safetensors")
    again = saf.PatchDictionary.load(tmp_path / "d.safetensors")
    found, turned_ = again.apply(image), again.apply(np.rot90(image))
    assert found.reconstruction.shape == image.shape
    # Better than the best single colour.
    flat = image.reshape(-1, 3) / 255.0
    assert found.psnr > 1 - 10 * np.log10(flat.var(axis=0).mean())
    alike = np.rot90(found.labels)[8:-8, 8:-8] == turned_.labels[8:-8, 8:-8]
    assert alike.mean() > 0.95


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ("position", "'position' change when a patch is shifted"),
        ("multiscale", "'multiscale' cannot be converted to colours"),
        (np.zeros((40, 48, 2)), "expected a name"),
    ],
)
def test_features_without_atoms_are_refused_with_the_reason(features, words):
    with pytest.raises(saf.InvalidInput, match=words):
        saf.PatchDictionaryLearning(**QUICK).run(
            saf.Problem.from_image(texture(), **PLAIN | {"features": features})
        )


@pytest.mark.parametrize(
    "features", ["intensity", "lab", "texture", "local", "patterns", "multiscale"]
)
def test_features_said_to_be_equivariant_turn_with_the_image(features):
    image = colourful()[:, :40].astype(np.float32) / 255
    extractor = FEATURES[features]()
    assert extractor.is_equivariant
    whole = extractor.features(image)
    for turn in (np.rot90, np.fliplr):
        found = extractor.features(np.ascontiguousarray(turn(image)))
        np.testing.assert_allclose(found, turn(whole), atol=0.03)
        assert np.abs(found - turn(whole)).mean() < 1e-3


def test_a_file_with_other_features_is_refused(learned, tmp_path):
    for features in ("deep", "none such", "texture", "lab"):
        with pytest.raises(saf.InvalidInput, match="features"):
            dataclasses.replace(learned.dictionary, features=features)
