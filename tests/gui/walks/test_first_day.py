"""The task of a new user's first day: how many clicks it takes, and what it ends with."""

import imageio.v3 as iio
import pytest
from napari.layers import Labels
from skimage.data import astronaut

pytestmark = pytest.mark.gui


def test_a_photograph_is_labelled_in_4_clicks(hands, take_picture, tmp_path):
    iio.imwrite(tmp_path / "photograph.png", astronaut()[::4, ::4])
    hands.open_file(tmp_path / "photograph.png")
    hands.clicks = len(("Layers", "Segment", "Segment (napari-saf)"))  # what opens the dock
    dock = hands.open_dock("Segment")
    hands.press(dock, "Run")
    hands.wait_for_end(dock)
    hands.wait_until(lambda: len(hands.viewer.layers) == 3)
    assert hands.clicks == 4
    labels, regions = (layer for layer in hands.viewer.layers if isinstance(layer, Labels))
    assert regions.visible and regions.data.max() > labels.data.max() >= 2
    take_picture(hands, "first_day_label")
