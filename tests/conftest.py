"""What all tests share."""

import gc
import importlib.util
import os
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

# Without these napari takes its functions in Python: numba compiles for each process anew.
sys.modules["napari.layers.shapes._accelerated_triangulate_numba"] = None

_ANY = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}
settings.register_profile("untimed", **_ANY, max_examples=50)
settings.register_profile(
    "fuzz",
    **_ANY,
    max_examples=2000,
    derandomize=False,
    print_blob=True,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
)
settings.load_profile("untimed")
_OF_THE_APP = ["pytestqt.plugin", "npe2._pytest_plugin", "napari.utils._testsupport"]
pytest_plugins = _OF_THE_APP if importlib.util.find_spec("napari") else []


def pytest_configure(config: pytest.Config) -> None:
    """Make the kernels of flows before the first test: what torch computes may differ a little."""
    if not hasattr(config, "workerinput"):
        from napari_saf.flow import _fused

        _fused.wait_for_kernels()


def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are cores: windows, disks and processes are waited for."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for no garbage while modules are imported: what they bring stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def timm():
    if importlib.util.find_spec("timm") is None:
        pytest.skip("no timm")
    from napari_saf.features._timm import import_timm

    return import_timm()


@pytest.fixture(scope="session")
def weights(timm, tmp_path_factory):
    """Return what returns a file of weights of an architecture.

    Those of VGG16 are published ones without its fully connected layers, others are random.
    """
    import safetensors.torch
    import torch

    folder, files = tmp_path_factory.mktemp("weights"), {}

    def save(architecture):
        if architecture == "vgg16":
            return _published("vgg16/vgg16_hed_bsds500.safetensors")
        if architecture not in files:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                state = timm.create_model(architecture, pretrained=False).state_dict()
            files[architecture] = folder / f"{architecture}.safetensors"
            safetensors.torch.save_file(state, files[architecture])
        return files[architecture]

    return save


def _published(name):
    data = os.environ.get("NAPARI_SAF_DATA", Path(__file__).parents[2] / "shared" / "data")
    file = Path(data, name)
    if not file.is_file():
        pytest.skip(f"no weights at {file}: set NAPARI_SAF_DATA")
    return file


@pytest.fixture
def no_socket(monkeypatch):
    """Forbid connections; the event loop of zarr has a pair of sockets of its own."""

    def refuse(*arguments, **options):
        raise AssertionError("a connection was tried")

    for owner, name in (
        (socket.socket, "connect"),
        (socket.socket, "connect_ex"),
        (socket, "getaddrinfo"),
        (socket, "create_connection"),
    ):
        monkeypatch.setattr(owner, name, refuse, raising=False)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """Keep features, and where weights are, in folders of the test."""
    from napari_saf.features import _deep, _network

    monkeypatch.setattr(_deep, "cache_folder", lambda: tmp_path / "features")
    monkeypatch.setattr(_network, "known_weights", lambda: tmp_path / "weights.json")
