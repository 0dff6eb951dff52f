"""How strokes change earlier labels, and where the next one is suggested."""

import numpy as np
import pytest
from gui_cases import TIMEOUT
from hypothesis import given
from hypothesis import strategies as st
from napari.layers import Labels

from napari_saf._gui.scribbles.result import follow_strokes, most_uncertain_pixel
from napari_saf._gui.scribbles.strokes import Strokes

pytestmark = pytest.mark.gui


@given(st.integers(0, 2**32 - 1))
def test_strokes_merge_and_split_whole_labels(seed):
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 5, (9, 9)).astype(np.uint8)
    strokes = np.where(rng.random((9, 9)) < 0.1, rng.integers(1, 7, (9, 9)), 0)
    found = follow_strokes(base, strokes)
    for label in range(1, 5):
        painted = set(strokes[(base == label) & (strokes > 0)])
        wanted = {0: label, 1: next(iter(painted), None)}.get(len(painted), 0)
        assert (found[base == label] == wanted).all()
    assert not found[base == 0].any()


def test_the_spot_is_uncertain_not_painted_and_not_at_the_rim():
    uncertainty, strokes = np.zeros((100, 120)), np.zeros((100, 120), np.uint8)
    uncertainty[0], uncertainty[46:55, 56:65], uncertainty[80:84, 10:14] = 1, 0.5, 0.4
    assert most_uncertain_pixel(uncertainty, strokes) == (50, 60)
    strokes[46:55, 56:65] = 1
    row, column = most_uncertain_pixel(uncertainty, strokes)
    assert 80 <= row < 84 and 10 <= column < 14
    uncertainty[1:] = 0
    assert most_uncertain_pixel(uncertainty, strokes)[0] < 6  # where else
    assert most_uncertain_pixel(np.zeros((5, 5)), strokes[:5, :5]) is None


def test_the_name_of_an_erased_class_comes_back_with_its_strokes(qtbot):
    layer, strokes = Labels(np.zeros((8, 8), np.uint8)), Strokes()
    strokes.follow(layer)
    layer.data_setitem((np.arange(3), np.arange(3)), 2)
    strokes.rename(1, "sky")
    strokes.rename(2, "sea")
    strokes.erase_class(2)
    assert strokes.names == {1: "sky"}
    with qtbot.waitSignal(strokes.changed, timeout=TIMEOUT):
        layer.undo()
    assert strokes.names == {1: "sky", 2: "sea"}
    strokes.follow(None)
