"""A network of random weights in a file, and folders of its own for what is kept on disk."""

import socket

import pytest
import safetensors.torch
import torch

from napari_saf.features import _cache, _network


@pytest.fixture(scope="session")
def timm():
    """Return timm also where torchvision is not of torch's build, whose operators nothing needs."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor a, Tensor b, float c) -> Tensor")
    return pytest.importorskip("timm")


@pytest.fixture(scope="session")
def weights(timm, tmp_path_factory):
    """Return what saves random weights of an architecture, and returns the file."""
    folder, files = tmp_path_factory.mktemp("weights"), {}

    def save(architecture):
        if architecture not in files:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                state = timm.create_model(architecture, pretrained=False).state_dict()
            files[architecture] = folder / f"{architecture}.safetensors"
            safetensors.torch.save_file(state, files[architecture])
        return files[architecture]

    return save


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(_cache, "cache_folder", lambda: tmp_path / "features")
    monkeypatch.setattr(_network, "known_weights", lambda: tmp_path / "weights.json")


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
