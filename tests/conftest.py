"""What all tests share."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Make the kernels of flows before the first test: what torch computes may differ a little."""
    if not hasattr(config, "workerinput"):
        from napari_saf.flow import _fused

        _fused.wait_for_kernels()
