"""timm is imported in processes of their own, whatever is wrong with torchvision."""

import subprocess
import sys

import numpy as np
import pytest

_WAYS = {"as installed": "", "missing": "sys.modules['torchvision'] = None"}
_PROGRAM = """
import sys
{way}
import numpy as np
from napari_saf.features import DeepFeatures

DeepFeatures("test_vit", sys.argv[1], n_components=4).features(np.load("image.npy"))
left = sys.modules.get("torchvision")
assert left is None or left.__spec__.origin, "a placeholder is left"
"""


@pytest.mark.parametrize("way", _WAYS)
def test_a_new_process_has_deep_features_whatever_torchvision_is(
    way, weights, tmp_path, monkeypatch
):
    file = weights("test_vit")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    image = np.random.default_rng(0).random((48, 64, 3))
    np.save(tmp_path / "image.npy", image.astype(np.float32))
    command = [sys.executable, "-c", _PROGRAM.format(way=_WAYS[way]), str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
