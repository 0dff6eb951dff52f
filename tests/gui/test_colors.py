"""The largest labels have colours that can be told apart."""

import numpy as np
import pytest
from gui_cases import TIMEOUT
from napari.layers import Labels
from skimage.color import deltaE_ciede2000, rgb2lab

from napari_saf._gui.layers.live import label_colors, separate
from napari_saf._gui.layers.metadata import colors_of
from napari_saf._gui.segment.dock import SegmentWidget


def least_difference(colors):
    lab = rgb2lab(np.asarray(colors)[:, :3])
    far = 1000 * np.eye(len(lab))
    return (deltaE_ciede2000(lab[:, None], lab[None]) + far).min()


def test_the_first_colors_and_ten_of_any_are_apart():
    assert least_difference(label_colors()[1:22]) >= 20
    for seed in range(5):
        apart = separate(label_colors()[1 + np.random.default_rng(seed).permutation(255)[:30]])
        assert least_difference(apart) >= 20 and len(apart) == 10


@pytest.mark.gui
def test_ten_largest_labels_of_a_run_are_apart(model, qtbot):
    viewer = model
    rng = np.random.default_rng(2)
    viewer.add_image(np.kron(rng.random((8, 8, 3)), np.ones((6, 6, 1))).astype(np.float32))
    dock = SegmentWidget(viewer)
    qtbot.addWidget(dock)
    dock.form.set_values({"max_labels": 60})
    with qtbot.waitSignal(dock.controller.returned, timeout=TIMEOUT):
        dock.start()
    (labels,) = (layer for layer in viewer.layers if isinstance(layer, Labels))
    assert labels.data.max() > 25
    assert least_difference(colors_of(labels, np.arange(1, 11))) >= 20
