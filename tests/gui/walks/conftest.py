"""A window to walk in, and where its pictures go."""

from __future__ import annotations

import os
from pathlib import Path

import imageio.v3 as iio
import pytest
from hands import Hands
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QApplication

SIZE = (1280, 800)
PICTURES = "NAPARI_SAF_PICTURES"
"""Environment variable: the folder for pictures of the walks; `python docs/make_pictures.py walks`
sets it."""


@pytest.fixture
def hands(make_napari_viewer, qtbot):
    """Mouse and keyboard on an empty viewer in a window of 1280 x 800."""
    own_dialogs = Qt.ApplicationAttribute.AA_DontUseNativeDialogs
    before = QApplication.testAttribute(own_dialogs)
    QApplication.setAttribute(own_dialogs)
    viewer = make_napari_viewer(show=True)
    viewer.window.resize(*SIZE)
    hands = Hands(viewer, qtbot)
    hands.wait_until(lambda: (hands.window.width(), hands.window.height()) == SIZE)
    yield hands
    QApplication.setAttribute(own_dialogs, before)


@pytest.fixture
def take_picture():
    """Write a picture of the whole window, if pictures are wanted."""
    folder = os.environ.get(PICTURES)

    def take(hands, name):
        if folder is None:
            return
        for _ in range(5):
            QApplication.processEvents()
        picture = hands.viewer.screenshot(canvas_only=False, flash=False)
        iio.imwrite(Path(folder, f"{name}.png"), picture[..., :3])
        assert picture.shape[:2] == SIZE[::-1]

    return take
