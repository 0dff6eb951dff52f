"""Learn a dictionary of patches from an image, look at its atoms, save it."""

import imageio.v3 as iio
import numpy as np
import pytest
from scenes import share_told_apart, wall

import napari_saf as saf
from napari_saf._gui.dictionary.atoms import AtomView

pytestmark = pytest.mark.gui


@pytest.mark.exhaustive
def test_walk(hands, take_picture, tmp_path):
    image, _ = wall()
    iio.imwrite(tmp_path / "wall.png", image)
    hands.open_file(tmp_path / "wall.png")
    dock = hands.open_dock("Patch dictionary")
    hands.type(hands.field(dock, "Atoms up to"), "8")
    hands.press(dock, "Learn")
    hands.wait_until(lambda: dock.current is not None)
    hands.wait_for_end(dock)
    dictionary = dock.current.dictionary
    assert 4 <= dictionary.n_atoms <= 8 and dictionary.images == ("wall",)

    gallery = hands.part(dock, AtomView)
    assert gallery.shown is dock.current
    hands.click(gallery.viewport(), gallery.center_of(1))
    layer = hands.viewer.layers["wall [dictionary]"]
    alphas = [layer.colormap.map(number)[3] for number in (1, 2, 3)]
    assert layer.selected_label == 2 and alphas[1] > 2 * max(alphas[0], alphas[2])
    hands.go_home()
    take_picture(hands, "walk_4_dictionary")

    hands.click(gallery.viewport(), gallery.center_of(1))
    with hands.answer(tmp_path / "wall.safetensors"):
        hands.press(dock, "Save …")
    hands.wait_until(lambda: "saved" in dock.status.text)
    kept = saf.PatchDictionary.load(tmp_path / "wall.safetensors")
    np.testing.assert_array_equal(kept.atoms, dictionary.atoms)
    other, texture = wall(seed=1)
    assert share_told_apart(kept.apply(other).labels, texture) > 0.95
