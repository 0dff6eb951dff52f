"""Choice of the device and the floating point type of the large fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import psutil
import torch

from napari_saf.errors import ComputeError, InvalidInput

__all__ = [
    "DeviceName",
    "FloatName",
    "check_memory",
    "float_type",
    "memory_limit",
    "resolve_device",
]

DeviceName = Literal["auto", "cpu", "cuda", "mps"]
FloatName = Literal["float32", "float64"]

_limit: ContextVar[float | None] = ContextVar("memory limit", default=None)


def resolve_device(name: str) -> torch.device:
    """Return the torch device that a name stands for.

    Parameters
    ----------
    name : str
        ``"auto"`` (CUDA, then MPS, then the CPU), or a torch device name such as
        ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"``.

    Raises
    ------
    InvalidInput
        If torch knows no such device name.
    ComputeError
        If this machine does not have the device.
    """
    available: dict[str, Callable[[], bool]] = {
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
        "cpu": lambda: True,
    }
    if name == "auto":
        return torch.device(next(kind for kind, is_there in available.items() if is_there()))
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidInput(f"device: expected auto, cpu, cuda or mps, got {name!r}") from error
    if not available.get(device.type, lambda: False)():
        raise ComputeError(f"device {name!r} is not available on this machine; use 'auto' or 'cpu'")
    return device


def float_type(name: str, device: torch.device) -> torch.dtype:
    """Return the torch type of the (nodes, labels) fields.

    Raises
    ------
    InvalidInput
        If `name` is not ``"float32"`` or ``"float64"``, or if the device has no float64.
    """
    if name not in ("float32", "float64"):
        raise InvalidInput(f"dtype: expected float32 or float64, got {name!r}")
    if name == "float64" and device.type == "mps":
        raise InvalidInput("dtype: MPS devices have no float64; use float32")
    return torch.float64 if name == "float64" else torch.float32


@contextmanager
def memory_limit(n_bytes: float | None) -> Iterator[None]:
    """Let runs of this thread take no more than `n_bytes`, even where more is free.

    Parameters
    ----------
    n_bytes : float or None
        > 0; None: all that is free.
    """
    token = _limit.set(n_bytes)
    try:
        yield
    finally:
        _limit.reset(token)


def check_memory(n_bytes: float, device: torch.device, proposal: str) -> None:
    """Raise ComputeError if a device has not `n_bytes` free, or a limit forbids them.

    The message ends with a proposal that fits.
    """
    free, limit = _free_memory(device), _limit.get()
    room, there = float(free), f"are free on {device.type}"
    if limit is not None and limit < free:
        room, there = limit, "may be taken"
    if n_bytes > room:
        raise ComputeError(
            f"not enough memory: the run needs about {_gib(n_bytes)} and {_gib(room)} {there}; "
            f"{proposal}"
        )


def _gib(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:,.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**30:.2g} GiB"


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)
