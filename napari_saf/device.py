"""torch, imported lazily; device and type of the fields; memory limits and interruption."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import psutil

from napari_saf.errors import Cancelled, ComputeError, InvalidInput, one_line

resource: ModuleType | None
try:
    import resource
except ImportError:  # on Windows
    resource = None

if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor
else:

    class _Torch:
        """torch, imported at the first use of one of its names, as that takes seconds."""

        def __getattr__(self, name: str) -> Any:
            import torch

            setattr(self, name, getattr(torch, name))  # bypasses this method from now on
            return getattr(torch, name)

    torch = _Torch()
    Tensor = Any

T = TypeVar("T")
R = TypeVar("R")
DeviceName = Literal["auto", "cpu", "cuda", "mps"]
FloatName = Literal["float32", "float64"]

_OWN_GROUP = Path("/proc/self/cgroup")
_limit: ContextVar[float | None] = ContextVar("memory limit", default=None)
_cancelled: ContextVar[Callable[[], bool] | None] = ContextVar("cancelled", default=None)
_proposal: ContextVar[str] = ContextVar("proposal", default="")
_watch: ContextVar[Callable[[float, float], object] | None] = ContextVar("watch", default=None)


def _compute_in_one_thread() -> None:
    """Restrict torch to one thread in a forked process, which lacks its OpenMP threads."""
    if "torch" in sys.modules:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_compute_in_one_thread)


def resolve_device(name: str) -> torch.device:
    """Return a torch device, ``"auto"`` the best one; InvalidInput or ComputeError without it."""
    available: dict[str, Callable[[], bool]] = {
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
        "cpu": lambda: True,
    }
    if name == "auto":
        return torch.device(next(name for name, is_there in available.items() if is_there()))
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidInput(f"device: expected auto, cpu, cuda or mps, got {name!r}") from error
    if not available.get(device.type, lambda: False)():
        raise ComputeError(f"device {name!r} is not available on this machine; use 'auto' or 'cpu'")
    return device


def float_type(name: str, device: torch.device) -> torch.dtype:
    """Return the torch type of the fields (n_nodes, n_labels), or raise InvalidInput."""
    if name not in ("float32", "float64"):
        raise InvalidInput(f"dtype: expected float32 or float64, got {name!r}")
    if name == "float64" and device.type == "mps":
        raise InvalidInput("dtype: MPS devices have no float64; use float32")
    return torch.float64 if name == "float64" else torch.float32


@contextmanager
def memory_limit(
    n_bytes: float | None, watch: Callable[[float, float], object] | None = None
) -> Iterator[None]:
    """Limit memory in this thread, within outer limits; `watch` takes needed and free bytes."""
    limits = [limit for limit in (n_bytes, _limit.get()) if limit is not None]
    tokens = _limit.set(min(limits, default=None)), _watch.set(watch)
    try:
        yield
    finally:
        _limit.reset(tokens[0])
        _watch.reset(tokens[1])


@contextmanager
def proposing(proposal: str) -> Iterator[None]:
    """Replace the proposal of `check_memory` in this thread."""
    token = _proposal.set(proposal)
    try:
        yield
    finally:
        _proposal.reset(token)


@contextmanager
def interruptible(cancelled: Callable[[], bool]) -> Iterator[None]:
    """Make `raise_if_interrupted` poll `cancelled` in this thread."""
    token = _cancelled.set(cancelled)
    try:
        yield
    finally:
        _cancelled.reset(token)


def is_interrupted() -> bool:
    """Return whether the computation within `interruptible` is cancelled."""
    cancelled = _cancelled.get()
    return cancelled is not None and cancelled()


def raise_if_interrupted() -> None:
    """Raise `Cancelled` if cancelled within `interruptible`; called during long computations."""
    if is_interrupted():
        raise Cancelled


def in_threads(function: Callable[[T], R], parts: Sequence[T]) -> list[R]:
    """Return the results of a function for each part, in order, by interruptible threads."""
    outcomes = []
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        try:
            tasks = [pool.submit(copy_context().run, function, part) for part in parts]
            for task in tasks:
                outcomes.append(task.result())
                raise_if_interrupted()
        finally:
            pool.shutdown(cancel_futures=True)
    return outcomes


def check_memory(
    n_bytes: float, device: torch.device, proposal: str | Callable[[float], str]
) -> None:
    """Raise ComputeError with a `proposal`, by the share that fits, unless `n_bytes` are free."""
    is_cuda, limit = device.type == "cuda", _limit.get()
    room = float(torch.cuda.mem_get_info(device)[0] if is_cuda else free_memory())
    there = f"are free on {device.type}"
    if limit is not None and limit < room:
        room, there = limit, "may be taken"
    watch = _watch.get()
    if watch is not None:
        watch(n_bytes, room)
    if n_bytes > room:
        text = proposal if isinstance(proposal, str) else proposal(room / n_bytes)
        message = _proposal.get() or text
        raise ComputeError(
            f"not enough memory: the run needs about {size_text(n_bytes)} and {size_text(room)} "
            f"{there}; "
            f"{message}"
        )


@contextmanager
def memory_errors_translated(
    proposal: str = "use fewer labels, a mask, or a smaller image",
) -> Iterator[None]:
    """Translate memory and device errors of torch and numpy into ComputeError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        message = one_line(error)
        is_shortage = isinstance(error, MemoryError | torch.cuda.OutOfMemoryError)
        if is_shortage or "memory" in message:
            message = f"not enough memory ({message}); {proposal}"
        raise ComputeError(message) from error


def free_memory() -> int:
    """Return the free bytes, within RLIMIT_AS and the limits of a container (cgroup v2)."""
    free = min(psutil.virtual_memory().available, free_in_group())
    if resource is not None:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            free = min(free, limit - psutil.Process().memory_info().vms)
    return max(0, int(free))


def free_in_group(root: Path = Path("/sys/fs/cgroup"), membership: Path = _OWN_GROUP) -> float:
    """Return the least free memory of the control groups of this process."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return math.inf
    name = next((line[4:] for line in lines if line.startswith("0::/")), "")
    folder, free = root / name, math.inf
    for group in (folder, *folder.parents):
        with suppress(OSError, ValueError, LookupError):
            limit = int((group / "memory.max").read_text(encoding="utf-8"))
            used = int((group / "memory.current").read_text(encoding="utf-8"))
            counts = (group / "memory.stat").read_text(encoding="utf-8").split()
            # Inactive file pages are reclaimable.
            used -= int(counts[counts.index("inactive_file") + 1])
            free = min(free, limit - used)
    return free


def size_text(n_bytes: float) -> str:
    power, unit = (30, "GiB") if n_bytes >= 2**30 else (20, "MiB")
    return f"{n_bytes / 2**power:,.1f} {unit}"
