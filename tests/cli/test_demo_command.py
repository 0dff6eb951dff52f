import os
import sys
import types

import imageio.v3 as iio
import numpy as np
import pytest

from napari_saf import METHODS
from napari_saf.cli import _about
from napari_saf.io import ImageFile, read_image
from napari_saf.pipeline import load_recipe


@pytest.fixture
def small_samples(monkeypatch):
    """Replace the sample images by something that takes no time."""
    pixels = np.zeros((12, 14, 3), np.uint8)
    pixels[:, 7:] = 200, 100, 50
    pixels += np.random.default_rng(0).integers(0, 20, pixels.shape, dtype=np.uint8)
    monkeypatch.setattr(_about, "read_sample", lambda name: ImageFile(pixels, 2, "yxc"))
    return pixels


@pytest.fixture
def screen(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    return monkeypatch


@pytest.fixture
def window(monkeypatch):
    """Catch what would be shown."""
    shown = []
    module = types.ModuleType("napari_saf._gui.demo")
    module.show = lambda *arguments: shown.append(arguments)
    monkeypatch.setitem(sys.modules, "napari_saf._gui.demo", module)
    return shown


def test_demo_writes_mask_figure_and_recipe(cli, small_samples, screen, window):
    files = ["astronaut.figure.png", "astronaut.labels.tif", "astronaut.recipe.json"]
    for _ in range(2):  # it can be repeated
        outcome = cli("demo", "-o", "out")
        assert outcome.code == 0 and "no screen" in outcome.out
        assert sorted(os.listdir("out")) == files
        assert all(f"out/{name}" in outcome.out for name in files)
    assert not window
    assert isinstance(load_recipe(f"out/{files[2]}").method, METHODS["saf"])
    assert read_image(f"out/{files[1]}").array.shape == small_samples.shape[:2]
    assert iio.imread(f"out/{files[0]}").std() > 10


def test_with_a_screen_a_window_opens_unless_it_is_not_wanted(cli, small_samples, screen, window):
    screen.setenv("WAYLAND_DISPLAY", ":7")
    assert cli("demo", "--headless").code == 0 and not window
    assert cli("demo").code == 0
    ((image, result, title),) = window
    assert result.labels.shape == image.array.shape[:2]
    assert title == "astronaut"


def test_without_a_qt_binding_the_files_are_there_all_the_same(cli, small_samples, screen):
    screen.setenv("DISPLAY", ":7")
    screen.setitem(sys.modules, "napari_saf._gui.demo", None)
    outcome = cli("demo")
    assert outcome.code == 0
    assert "napari cannot be opened" in outcome.err
    assert len(os.listdir("demo")) == 3
