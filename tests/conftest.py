"""What all tests share."""

import importlib.util

import pytest

_OF_THE_APP = ["pytestqt.plugin", "npe2._pytest_plugin", "napari.utils._testsupport"]
pytest_plugins = _OF_THE_APP if importlib.util.find_spec("napari") else []


def pytest_configure(config: pytest.Config) -> None:
    """Make the kernels of flows before the first test: what torch computes may differ a little."""
    if not hasattr(config, "workerinput"):
        from napari_saf.flow import _fused

        _fused.wait_for_kernels()
