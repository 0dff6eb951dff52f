"""Deep features whatever is wrong with torchvision."""

import subprocess
import sys

import numpy as np
import pytest

from napari_saf.features import DeepFeatures

_PROGRAM = """
import sys
sys.modules["torchvision"] = None
import numpy as np
from napari_saf.features import DeepFeatures

DeepFeatures("test_vit", sys.argv[1], n_components=4).features(np.load("image.npy"))
assert sys.modules.get("torchvision") is None, "a placeholder is left"
"""
IMAGE = np.random.default_rng(0).random((48, 64, 3)).astype(np.float32)


def test_no_placeholder_of_torchvision_is_left(weights, own_cache):
    DeepFeatures("test_vit", str(weights("test_vit")), n_components=4).features(IMAGE)
    left = sys.modules.get("torchvision")
    assert left is None or left.__spec__.origin


@pytest.mark.exhaustive
def test_a_new_process_has_deep_features_where_torchvision_is_missing(
    weights, tmp_path, monkeypatch
):
    file = weights("test_vit")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    np.save(tmp_path / "image.npy", IMAGE)
    command = [sys.executable, "-c", _PROGRAM, str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
