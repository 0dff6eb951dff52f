"""Flows run again and again, each with what the one before it found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from napari_saf.methods._flow import Flow, run_flow
from napari_saf.methods._method import Call, Iteration, map_steps
from napari_saf.methods._reporting import to_label_image
from napari_saf.result import Segmentation, Snapshot, Status

__all__ = ["run_in_rounds"]

_STILL = 0.002
"""Share of the nodes; if fewer change label from one round to the next, the last is done."""


def run_in_rounds(
    call: Call,
    n_rounds: int,
    labels: NDArray[np.int64] | None,
    make_flow: Callable[[Call, NDArray[np.int64] | None], Flow],
    tidy: Callable[[NDArray[np.int64]], NDArray[np.int64]] | None,
) -> Iteration:
    """Integrate several flows one after the other; see `AbstractMethod.iterate`.

    Parameters
    ----------
    call : Call
        Of the whole run.
    n_rounds : int
        At most; fewer where labels stay as they are.
    labels : array of shape (n_nodes,) or None
        What the first flow knows.
    make_flow : callable
        Makes a flow for a call, given labels 1, 2, ... of the nodes.
    tidy : callable or None
        Makes of the labels of a round what the next one knows.
    """
    result: Segmentation | None = None
    for k in range(n_rounds):
        part = _rest_of(call, result, k)
        if result is not None and part.max_iterations == 0:
            break
        later = yield from _as_part(part, make_flow(part, labels), result, k / n_rounds, n_rounds)
        if result is not None and later.status is Status.CANCELLED:
            return dataclasses.replace(result, status=Status.CANCELLED)
        before, labels = labels, later.assignment.argmax(axis=1) + 1
        if tidy is not None:
            labels = tidy(labels)
            later = dataclasses.replace(later, labels=to_label_image(call.problem, labels))
        result = _joined(result, later)
        if later.status is Status.CANCELLED:
            break
        if before is not None and np.count_nonzero(before != labels) < _STILL * len(labels):
            break
    assert result is not None
    return result


def _rest_of(call: Call, before: Segmentation | None, n_runs: int) -> Call:
    if before is None or call.max_iterations is None:
        return call
    n_steps = len(before.history) - n_runs
    return dataclasses.replace(call, max_iterations=max(0, call.max_iterations - n_steps))


def _as_part(
    call: Call, flow: Flow, before: Segmentation | None, begin: float, n_rounds: int
) -> Iteration:
    """Run a flow whose snapshots go on from an earlier one."""

    def as_part(snapshot: Snapshot) -> Snapshot:
        fraction = begin + snapshot.fraction / n_rounds
        snapshot = dataclasses.replace(snapshot, fraction=fraction)
        return snapshot if before is None else _after(snapshot, before)

    return map_steps(run_flow(flow, call), as_part)


def _after(snapshot: Snapshot, before: Segmentation) -> Snapshot:
    """Return a snapshot that shows the labels from before: its own begin undecided."""
    record = dataclasses.replace(
        snapshot.record,
        time=snapshot.record.time + before.history.time[-1],
        n_evaluations=snapshot.record.n_evaluations + before.n_evaluations,
    )
    return dataclasses.replace(
        snapshot,
        record=record,
        _read_labels=lambda: before.labels,
        _read_prototypes=lambda: before.prototypes,
        _read_logarithm=lambda: np.log(before.assignment.clip(1e-10)),
    )


def _joined(before: Segmentation | None, later: Segmentation) -> Segmentation:
    if before is None:
        return later
    return dataclasses.replace(
        later,
        history=before.history.then(later.history),
        n_evaluations=before.n_evaluations + later.n_evaluations,
    )
