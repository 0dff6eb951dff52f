"""Tasks for dask workers: local processes, threads, or a cluster."""

from __future__ import annotations

import importlib.metadata
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from napari_saf.errors import ComputeError, SafError

if TYPE_CHECKING:
    from distributed import Client, Future, LocalCluster

T = TypeVar("T")
_AHEAD = 4
"""Tasks submitted per worker thread, which bounds the load of the scheduler."""
_COUNTED_SECONDS = 1.0
"""Interval in seconds of counting workers, which may join and leave."""
_PATIENCE = "20s"
_NOT_INTERRUPTED = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
"""Start code of processes that ignore an interrupt; they end with their parent process."""
_WANT_OF_MEMORY = "perhaps out of memory; try fewer --jobs"
_ATTEMPTS = 2
"""Number of tolerated worker deaths per task, or during start."""


@contextmanager
def local_client(n_processes: int) -> Iterator[Client]:
    """Yield a client of `n_processes` local processes, which share the threads.

    They end whenever this process ends. ComputeError if they do not start.
    """
    import dask
    import torch
    from distributed import Client

    share = str(max(1, torch.get_num_threads() // n_processes))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    settings = {
        "distributed.scheduler.allowed-failures": _ATTEMPTS - 1,
        # One task at a time, to identify the task a worker died of.
        "distributed.scheduler.worker-saturation": 1.0,
        # Workers would monitor themselves a hundred times per second.
        "distributed.worker.profile.enabled": False,
        "distributed.nanny.pre-spawn-environ": dict.fromkeys(names, share),
        "distributed.comm.timeouts.connect": "60s",
        "distributed.worker.preload": [_NOT_INTERRUPTED],
        # Logs of workers are suppressed; their deaths are raised as errors.
        "distributed.logging.distributed": "critical",
    }
    with (
        dask.config.set(settings),
        _local_cluster(n_processes) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
        with suppress(TimeoutError):  # a starting process cannot be terminated
            client.wait_for_workers(n_processes, timeout=_PATIENCE)


def _local_cluster(n_processes: int) -> LocalCluster:
    """Start processes; restart all of them if one dies during the start."""
    from distributed import LocalCluster

    for _ in range(_ATTEMPTS):
        try:
            return LocalCluster(
                n_workers=n_processes,
                threads_per_worker=1,
                memory_limit=0,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )
        except RuntimeError as error:
            reason = error
    raise ComputeError(f"a process died while it started, {_WANT_OF_MEMORY}") from reason


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """Yield a client of the scheduler at an address; SafError if there is none."""
    from distributed import Client

    try:
        client = Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise SafError(f"{address}: no dask scheduler responds: {error}") from error
    with client:
        check_versions(client)
        yield client


def check_versions(client: Client) -> None:
    """Raise SafError if a worker has another version of napari-saf.

    Tasks that a worker cannot unpickle would block forever.
    """
    expected = importlib.metadata.version("napari-saf")
    versions = client.run(importlib.metadata.version, "napari-saf", on_error="return")
    for worker, version in versions.items():
        if version != expected:
            state = "lacks napari-saf" if isinstance(version, Exception) else f"has {version}"
            raise SafError(f"{worker}: the worker {state}, expected napari-saf {expected}")


def run_tasks(
    client: Client | None, function: Callable[[T], Any], items: deque[T]
) -> Iterator[tuple[T, Callable[[], Any]]]:
    """Yield each completed item with a callable that returns its result or raises its error.

    Without a client an item is computed in this process when its result is requested. A few tasks
    per worker are submitted at any time, and cancelled if the iteration ends. The caller may add
    items.
    """
    if client is None:
        while items:
            item = items.popleft()
            yield item, partial(function, item)
        return
    from distributed import as_completed

    running, queue = dict[Any, T](), as_completed(loop=client.loop)
    n_most, counted = 0, -math.inf

    def send() -> None:
        nonlocal n_most, counted
        if time.monotonic() - counted > _COUNTED_SECONDS:
            n_most, counted = _AHEAD * sum(client.nthreads().values()), time.monotonic()
        n_sent = min(len(items), max(4, n_most) - len(running))
        if n_sent > 0:
            # A single message to the scheduler; one per task would dominate its time.
            next_items = [items.popleft() for _ in range(n_sent)]
            futures = client.map(function, next_items, pure=False)
            running.update(zip(futures, next_items, strict=True))
            queue.update(futures)

    try:
        send()
        for batch in queue.batches():
            done = [(future, running.pop(future)) for future in batch]
            send()
            for future, item in done:
                yield item, partial(_outcome, future)
                future.release()
            send()
    finally:
        client.cancel(list(running))


def _outcome(future: Future) -> Any:
    from distributed import CancelledError, KilledWorker

    try:
        return future.result()
    except KilledWorker as error:
        raise ComputeError(f"the process died, {_WANT_OF_MEMORY}") from error
    except (CancelledError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ComputeError(f"the cluster lost the task: {error}") from error


def is_in_process(client: Client) -> bool:
    """Return whether the workers are threads of this process, with shared memory."""
    return str(client.scheduler.address).startswith("inproc")
