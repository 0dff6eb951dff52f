"""What does not go together is refused in words, never by an exception in a slot."""

from __future__ import annotations

import numpy as np
import pytest
from gui_cases import blocks

from napari_saf._gui.scribbles.dock import ScribblesWidget

pytestmark = pytest.mark.gui


@pytest.fixture
def viewer(model):
    return model


def test_labels_of_another_size_are_no_start_for_strokes(viewer, open_on):
    viewer.add_image(blocks(), name="blocks")
    other = viewer.add_labels(np.ones((7, 9), np.uint8), name="other")
    dock = open_on(viewer, ScribblesWidget)
    dock.new_strokes()
    dock.base.choose(other)
    assert dock.status.is_error
    assert "32 x 32" in dock.status.text and "7 x 9" in dock.status.text
    assert set(dock.strokes.names) == {1, 2}
