"""The labels of a patch dictionary in tiles are those of the whole image."""

import numpy as np
import pytest

import napari_saf as saf


@pytest.fixture(scope="module")
def taught():
    """An image of stripes in patches of two directions, and a dictionary of it."""
    rng = np.random.default_rng(0)
    rows, columns = np.indices((150, 180))
    stripes = np.where((rows // 30 + columns // 45) % 2, rows, columns) // 4 % 2
    image = np.clip(90 * stripes + 60 + rng.normal(0, 12, stripes.shape), 0, 255).astype(np.uint8)
    dictionary = saf.PatchDictionary.learn(image, n_atoms=4, patch_size=5, n_samples=800)
    return image, dictionary


def test_tiles_are_labelled_as_the_whole(tmp_path, taught):
    image, dictionary = taught
    found = saf.label_large(image, dictionary, tmp_path / "a.ome.zarr", tile=48)
    dictionary.save(tmp_path / "d.safetensors")
    other = saf.label_large(image, tmp_path / "d.safetensors", tmp_path / "b.ome.zarr", tile=64)
    assert found.n_tiles == 16 and other.n_tiles == 9
    assert (found.labels[:] == other.labels[:]).mean() > 0.9999
    assert (found.labels[:] == dictionary.apply(image).labels).mean() > 0.995
    assert set(found.sizes) <= {1, 2, 3, 4}


def test_masks_and_what_does_not_suit(tmp_path, taught):
    image, dictionary = taught
    mask = np.zeros(image.shape, bool)
    mask[:60] = True
    found = saf.label_large(image, dictionary, tmp_path / "m.ome.zarr", tile=64, mask=mask)
    np.testing.assert_array_equal(found.labels[:] > 0, mask)
    for source, words in (
        (np.repeat(image[..., None], 3, -1), "channels"),
        (image.reshape(15, 10, 180), "2 axes"),
    ):
        with pytest.raises(saf.InvalidInput, match=words):
            saf.label_large(source, dictionary, tmp_path / "n.ome.zarr")
    assert not (tmp_path / "n.ome.zarr").exists()
