"""Recordings: labels and soft labels of a run at sampled steps, within a memory limit."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np
from numcodecs import Blosc
from scipy.special import entr, softmax

from napari_saf.arrays import Array, Float32s, Floats, Int64s
from napari_saf.result import History, LabelImage, LabelMap, Record, Segmentation, Snapshot

_BLOCK_BYTES = 2**24
_FLOOR = 1e-10
_LABEL_MEMORY = 0.25
_LABEL_TIME = 0.2
_FREE_SECONDS = 0.02
"""Seconds of packing exempt from the time limit, so that short runs keep all steps."""
_LABEL_CODEC = Blosc("lz4", clevel=1, shuffle=Blosc.NOSHUFFLE)
_STATE_CODEC = Blosc("lz4", clevel=1, shuffle=Blosc.BITSHUFFLE)
"""Compression of a state of a photograph takes 8 ms and leaves two thirds of its size, late states
less; zstd would save another sixth in three times the time."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PackedArray:
    """Array, such as a label image, with lossless compression in blocks of rows."""

    blocks: tuple[bytes, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    _codec: Blosc

    @classmethod
    def of(
        cls,
        array: Array,
        codec: Blosc = _LABEL_CODEC,
        convert: Callable[[Array], Array] = np.asarray,
    ) -> PackedArray:
        """Compress an array by blocks of rows, after `convert` of each block."""
        n_rows = max(1, _BLOCK_BYTES // max(1, array[:1].nbytes))
        blocks = []
        for start in range(0, len(array), n_rows):
            block = np.ascontiguousarray(convert(array[start : start + n_rows]))
            blocks.append(codec.encode(block))
        return cls(tuple(blocks), array.shape, block.dtype if blocks else array.dtype, codec)

    @property
    def n_bytes(self) -> int:
        return sum(len(block) for block in self.blocks)

    def unpack(self) -> Array:
        array = np.empty(self.shape, self.dtype)
        flat, start = array.reshape(-1).view(np.uint8), 0
        for block in self.blocks:
            content = np.frombuffer(self._codec.decode(block), np.uint8)
            flat[start : start + len(content)] = content
            start += len(content)
        return array


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    """Recorded step of a run: its time, and the index of its record."""

    time: float
    step: int
    _packed: tuple[PackedArray, ...]

    @property
    def n_bytes(self) -> int:
        return sum(packed.n_bytes for packed in self._packed)


class RecordedLabels(_Sample):
    def labels(self) -> list[LabelImage]:
        """Return the label images, with values column + 1, 0 outside the mask."""
        return [packed.unpack() for packed in self._packed]


class RecordedState(_Sample):
    def assignment(self) -> Float32s:
        """Return the assignment (n_nodes, n_columns), 0 in removed columns."""
        logarithm = self._logarithm()
        assignment: Float32s = softmax(logarithm, axis=1)
        assignment[:, (logarithm <= math.log(_FLOOR)).all(axis=0)] = 0
        return assignment

    def columns(self) -> Int64s:
        return np.asarray(self._logarithm().argmax(axis=1))

    def entropies(self) -> Float32s:
        """Return the entropy of each node relative to its maximum, 0 to 1."""
        assignment = self.assignment()
        highest = math.log(max(assignment.shape[1], 2))
        return np.asarray(np.clip(entr(assignment).sum(axis=1) / highest, 0, 1), dtype=np.float32)

    def _logarithm(self) -> Float32s:
        (packed,) = self._packed
        return packed.unpack().astype(np.float32)


S = TypeVar("S", bound=_Sample)


class SampledSeries(Generic[S]):
    """Evenly spaced samples limited by memory and by share of run time; one thread writes.

    When memory is full, every second sample is dropped and the `stride` between samples doubles.
    The first and the newest are kept; if they do not fit, the newest alone, if it fits.
    """

    def __init__(self, memory: int, share: float) -> None:
        self.samples: tuple[S, ...] = ()
        self.stride = 1
        self._memory = memory
        self._share = share
        self._spent = self._cost = 0.0

    def offer(self, step: int, seconds: float, make: Callable[[], S]) -> None:
        """Sample a step if it is due after `seconds` of the run."""
        if self.samples and step - self.samples[-1].step < self.stride:
            return
        allowed = max(_FREE_SECONDS, self._share * seconds)
        if self.samples and self._spent + self._cost > allowed:
            return
        began = time.thread_time()
        self.add(make())
        self._cost = time.thread_time() - began
        self._spent += self._cost

    def add(self, sample: S) -> None:
        """Add a sample, replacing one of the same step."""
        samples = list(self.samples)
        if samples and samples[-1].step >= sample.step:
            samples.pop()
        elif len(samples) > 1 and samples[-1].step - samples[-2].step < self.stride:
            samples.pop()
        samples.append(sample)
        while len(samples) > 2 and _n_bytes(samples) > self._memory:
            self.stride *= 2
            thinned = samples[:1]
            for candidate in samples[1:-1]:
                if candidate.step - thinned[-1].step >= self.stride:
                    thinned.append(candidate)
            samples = [*thinned, samples[-1]]
        if _n_bytes(samples) > self._memory:
            samples = [sample] if sample.n_bytes <= self._memory else []
        self.samples = tuple(samples)

    def until(self, step: int) -> SampledSeries[S]:
        """Return a series that continues from the samples up to a step."""
        series: SampledSeries[S] = SampledSeries(self._memory, self._share)
        series.samples = tuple(sample for sample in self.samples if sample.step <= step)
        series.stride = self.stride
        return series


def _n_bytes(samples: Iterable[_Sample]) -> int:
    return sum(sample.n_bytes for sample in samples)


class Recording:
    """Records of a run, with labels and soft labels at sampled steps.

    Soft labels are stored as logarithms in half precision. A run of the same method that starts
    from them reproduces the recorded one approximately: with the flows, 99.4 % or more of the nodes
    of a photograph get the same label, 98.6 % from the first step for s = 1. Clusterings recompute
    their prototypes, which may differ.

    One thread records; other threads may read concurrently.

    Parameters
    ----------
    memory : int
        Maximum number of bytes for labels and soft labels together.
    share : float
        Maximum share of the thread's processor time for compression, beyond 0.05 s.

    Examples
    --------
    >>> problem = saf.Problem.from_image(np.kron([[0.0, 1.0]], np.ones((16, 16))))
    >>> recording = saf.Recording()
    >>> for snapshot in saf.SelfAssignmentFlow(max_labels=2).iterate(problem):
    ...     recording.watch(snapshot)
    >>> len(recording.history()) == len(recording), recording.labels[0].time
    (True, 0.0)
    """

    def __init__(self, *, memory: int = 2**28, share: float = 0.03) -> None:
        label_memory = int(memory * _LABEL_MEMORY)
        label_share = share * _LABEL_TIME
        self._labels: SampledSeries[RecordedLabels] = SampledSeries(label_memory, label_share)
        self._states: SampledSeries[RecordedState] = SampledSeries(
            memory - label_memory, share - label_share
        )
        self._clock: float | None = None
        self._records: list[Record] = []
        self._start = (0.0, 0)
        self.label_map = LabelMap.identity(0)  # of the newest step

    @property
    def labels(self) -> tuple[RecordedLabels, ...]:
        """Samples with labels, in ascending order of time."""
        return self._labels.samples

    @property
    def states(self) -> tuple[RecordedState, ...]:
        """Samples with soft labels, in ascending order of time."""
        return self._states.samples

    @property
    def n_bytes(self) -> int:
        """Bytes of labels and soft labels."""
        return _n_bytes([*self.labels, *self.states])

    def __len__(self) -> int:
        return len(self._records)

    def record(self, step: int) -> Record:
        """Return the record of a step."""
        return self._records[step]

    def history(self, at_most: int | None = None) -> History:
        """Return the history so far, with at most `at_most` evenly spaced records."""
        records = list(self._records)
        if at_most is not None and len(records) > at_most:
            numbers = np.linspace(0, len(records) - 1, at_most).round().astype(int)
            records = [records[number] for number in numbers]
        return History.of(records)

    def watch(self, snapshot: Snapshot) -> None:
        """Record the current step of a run; call it for every step, in the thread of the run."""
        relative, (time_before, n_before) = snapshot.record, self._start
        record = dataclasses.replace(
            relative,
            time=relative.time + time_before,
            n_evaluations=relative.n_evaluations + n_before,
        )
        if self._records and record.time <= self._records[-1].time:
            if not math.isnan(self._records[-1].objective):
                return
            # the first snapshot of a run precedes its first objective
            self._records.pop()
        self._records.append(record)
        step = len(self._records) - 1
        if self._clock is None:
            self._clock = time.thread_time() - snapshot.seconds
        at, seconds = record.time, time.thread_time() - self._clock
        self.label_map = named = snapshot.label_map
        self._labels.offer(step, seconds, lambda: _pack_labels(at, step, snapshot.labels, named))
        if snapshot.has_assignment:
            read = snapshot.read_logarithm
            self._states.offer(step, seconds, lambda: _pack_state(at, step, read(), np.asarray))

    def finish(self, result: Segmentation) -> None:
        """Record the end of a run, which may be resumed."""
        self._clock = None
        if not self._records:
            return
        step, at = len(self._records) - 1, self._records[-1].time
        self._labels.add(_pack_labels(at, step, result.labels, result.label_map))
        if self.states and self.states[-1].step < step:
            self._states.add(_pack_state(at, step, result.assignment, _logarithm))

    def until(self, state: RecordedState) -> Recording:
        """Return the recording up to a state, for a run resumed from that state."""
        recording = Recording()
        recording._records = self._records[: state.step + 1]
        recording._labels = self._labels.until(state.step)
        recording._states = self._states.until(state.step)
        last = recording._records[-1]
        recording._start = (last.time, last.n_evaluations)
        return recording


def _pack_labels(
    at: float, step: int, labels: LabelImage | list[LabelImage], label_map: LabelMap
) -> RecordedLabels:
    images = labels if isinstance(labels, list) else [labels]
    columns = map(label_map.unpaint, images)
    return RecordedLabels(at, step, tuple(map(PackedArray.of, columns)))


def _pack_state(
    at: float, step: int, state: Floats, convert: Callable[[Floats], Floats]
) -> RecordedState:
    packed = PackedArray.of(state, _STATE_CODEC, lambda rows: convert(rows).astype(np.float16))
    return RecordedState(at, step, (packed,))


def _logarithm(rows: Floats) -> Floats:
    logarithm = np.log(rows.clip(_FLOOR))
    return np.asarray(logarithm - logarithm.max(axis=1, keepdims=True))
