"""What a run was like on its way, kept within a bound of memory."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
from numcodecs import Blosc
from numpy.typing import NDArray
from scipy.special import entr, softmax

from napari_saf.result import History, LabelImage, Record, Segmentation, Snapshot

__all__ = ["LabelMoment", "Recording", "StateMoment"]

_BLOCK_BYTES = 2**24
_LEAST = 1e-10
_LABEL_MEMORY = 0.25
_LABEL_TIME = 0.2
_FREE_SECONDS = 0.02
"""What packing labels, and soft labels, may take in any case: short runs are kept whole."""
_LABEL_CODEC = Blosc("lz4", clevel=1, shuffle=Blosc.NOSHUFFLE)
_STATE_CODEC = Blosc("lz4", clevel=1, shuffle=Blosc.BITSHUFFLE)
"""A state of a photograph takes 8 ms and two thirds of its memory, late ones less; zstd would
spare another sixth in three times the time."""

Step = Callable[[NDArray[Any]], NDArray[Any]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Packed:
    """An array in little memory, packed a block of rows at a time."""

    blocks: tuple[bytes, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, array: NDArray[Any], codec: Blosc, change: Step = np.asarray) -> _Packed:
        """Pack an array, each block of rows changed before."""
        n_rows = max(1, _BLOCK_BYTES // max(1, array[:1].nbytes))
        blocks = []
        for start in range(0, len(array), n_rows):
            block = np.ascontiguousarray(change(array[start : start + n_rows]))
            blocks.append(codec.encode(block))
        return cls(tuple(blocks), array.shape, block.dtype if blocks else array.dtype)

    @property
    def n_bytes(self) -> int:
        return sum(len(block) for block in self.blocks)

    def read(self, codec: Blosc) -> NDArray[Any]:
        """Return the array."""
        whole = np.empty(self.shape, self.dtype)
        flat, start = whole.reshape(-1).view(np.uint8), 0
        for block in self.blocks:
            part = np.frombuffer(codec.decode(block), np.uint8)
            flat[start : start + len(part)] = part
            start += len(part)
        return whole


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Moment:
    """A moment of a run.

    Attributes
    ----------
    time : float
        Flow time, or the number of the iteration.
    step : int
        Number of its record in the history.
    """

    time: float
    step: int
    _packed: tuple[_Packed, ...]

    @property
    def n_bytes(self) -> int:
        """Memory that it takes."""
        return sum(packed.n_bytes for packed in self._packed)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LabelMoment(_Moment):
    """The labels at a moment of a run; `time` and `step` as recorded."""

    def labels(self) -> list[LabelImage]:
        """Return the label image, column + 1, of each image; 0 outside the mask."""
        return [packed.read(_LABEL_CODEC) for packed in self._packed]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class StateMoment(_Moment):
    """The soft labels at a moment of a run; `time` and `step` as recorded."""

    def assignment(self) -> NDArray[np.float32]:
        """Return the assignment (n_nodes, n_columns); a column that had died is 0."""
        logarithm = self._logarithm()
        found: NDArray[np.float32] = softmax(logarithm, axis=1)
        found[:, (logarithm <= math.log(_LEAST)).all(axis=0)] = 0
        return found

    def columns(self) -> NDArray[np.int64]:
        """Return the column that each node prefers, of shape (n_nodes,)."""
        return np.asarray(self._logarithm().argmax(axis=1))

    def entropies(self) -> NDArray[np.float32]:
        """Return the entropy of each node as a share of that of no preference, 0 to 1."""
        assignment = self.assignment()
        most = math.log(max(assignment.shape[1], 2))
        return np.asarray(np.clip(entr(assignment).sum(axis=1) / most, 0, 1), dtype=np.float32)

    def _logarithm(self) -> NDArray[np.float32]:
        (packed,) = self._packed
        return packed.read(_STATE_CODEC).astype(np.float32)


M = TypeVar("M", bound=_Moment)


class _Track(Generic[M]):
    """Moments at even distances, within a bound of memory and a share of the time.

    When memory is full every second one goes, and from then on half as many are taken. The first
    and the newest stay, unless these two alone are too much: then the newest, if it fits.

    One thread writes; what another reads of `kept` stays as it is.

    Parameters
    ----------
    memory : int
        In bytes.
    share : float
        Of the time of the run.

    Attributes
    ----------
    kept : tuple of moments
        By rising step.
    stride : int
        Least number of steps between two of them, but for the last two.
    """

    def __init__(self, memory: int, share: float) -> None:
        self.kept: tuple[M, ...] = ()
        self.stride = 1
        self._memory = memory
        self._share = share
        self._spent = self._cost = 0.0

    def offer(self, step: int, seconds: float, make: Callable[[], M]) -> None:
        """Take a moment, if it is time for one; the run has taken so many seconds."""
        if self.kept and step - self.kept[-1].step < self.stride:
            return
        allowed = max(_FREE_SECONDS, self._share * seconds)
        if self.kept and self._spent + self._cost > allowed:
            return
        began = time.thread_time()
        self.add(make())
        self._cost = time.thread_time() - began
        self._spent += self._cost

    def add(self, moment: M) -> None:
        """Take a moment; it replaces one of the same step."""
        kept = list(self.kept)
        if kept and kept[-1].step >= moment.step:
            kept.pop()
        elif len(kept) > 1 and kept[-1].step - kept[-2].step < self.stride:
            kept.pop()
        kept.append(moment)
        while len(kept) > 2 and _n_bytes(kept) > self._memory:
            self.stride *= 2
            kept = self._thinned(kept)
        if _n_bytes(kept) > self._memory:
            kept = [moment] if moment.n_bytes <= self._memory else []
        self.kept = tuple(kept)

    def until(self, step: int) -> _Track[M]:
        """Return a track that goes on from the moments up to a step."""
        track: _Track[M] = _Track(self._memory, self._share)
        track.kept = tuple(moment for moment in self.kept if moment.step <= step)
        track.stride = self.stride
        return track

    def _thinned(self, kept: list[M]) -> list[M]:
        thinned = kept[:1]
        for moment in kept[1:-1]:
            if moment.step - thinned[-1].step >= self.stride:
                thinned.append(moment)
        return [*thinned, kept[-1]]


def _n_bytes(moments: list[M]) -> int:
    return sum(moment.n_bytes for moment in moments)


class Recording:
    """The records of a run, and its labels and soft labels at moments spread over it.

    Soft labels are kept as logarithms in half precision. A run of the same method that starts
    from them ends like the one that was recorded: with the flows 99.4 % of the nodes of a
    photograph or more get the same label, but 98.6 % from the very start for s = 1. The
    clusterings find their prototypes anew from it, and may find others.

    One thread records, another may read meanwhile.

    Parameters
    ----------
    memory : int
        Bytes for labels and soft labels together.
    share : float
        Of the processor time of the thread that packing may take, beyond a twentieth of a second.
    """

    def __init__(self, *, memory: int = 2**28, share: float = 0.03) -> None:
        label_memory = int(memory * _LABEL_MEMORY)
        label_share = share * _LABEL_TIME
        self._labels: _Track[LabelMoment] = _Track(label_memory, label_share)
        self._states: _Track[StateMoment] = _Track(memory - label_memory, share - label_share)
        self._clock: float | None = None
        self._records: list[Record] = []
        self._begin = (0.0, 0)

    @property
    def label_moments(self) -> tuple[LabelMoment, ...]:
        """The moments of which labels are kept, by rising time."""
        return self._labels.kept

    @property
    def state_moments(self) -> tuple[StateMoment, ...]:
        """The moments of which soft labels are kept, by rising time."""
        return self._states.kept

    @property
    def n_bytes(self) -> int:
        """Memory of labels and soft labels."""
        return _n_bytes([*self._labels.kept, *self._states.kept])

    def __len__(self) -> int:
        return len(self._records)

    def record(self, step: int) -> Record:
        """Return the numbers of a step."""
        return self._records[step]

    def history(self, at_most: int | None = None) -> History:
        """Return the records so far; with `at_most`, so many of them, evenly over all steps."""
        records = list(self._records)
        if at_most is not None and len(records) > at_most:
            numbers = np.linspace(0, len(records) - 1, at_most).round().astype(int)
            records = [records[number] for number in numbers]
        return History.of(records)

    def watch(self, snapshot: Snapshot) -> None:
        """Take note of the present step of a run; call it for each, in the thread of the run."""
        if not self._take(snapshot.record):
            return
        step = len(self._records) - 1
        if self._clock is None:
            self._clock = time.thread_time() - snapshot.seconds
        at, seconds = self._records[-1].time, time.thread_time() - self._clock
        self._labels.offer(step, seconds, lambda: _pack_labels(at, step, snapshot.labels))
        if snapshot.has_assignment:
            self._states.offer(
                step, seconds, lambda: _pack_state(at, step, snapshot.read_logarithm(), _to_half)
            )

    def finish(self, result: Segmentation) -> None:
        """Take note of how the run ended."""
        if not self._records:
            return
        step, at = len(self._records) - 1, self._records[-1].time
        images = result.labels if isinstance(result.labels, list) else [result.labels]
        self._labels.add(_pack_labels(at, step, list(map(result.label_map.unpaint, images))))
        if self._states.kept and self._states.kept[-1].step < step:
            self._states.add(_pack_state(at, step, result.assignment, _to_half_logarithm))

    def until(self, moment: StateMoment) -> Recording:
        """Return a recording that goes on from a moment, for a run that starts there."""
        other = Recording()
        other._records = self._records[: moment.step + 1]
        other._labels = self._labels.until(moment.step)
        other._states = self._states.until(moment.step)
        last = other._records[-1]
        other._begin = (last.time, last.n_evaluations)
        return other

    def _take(self, record: Record) -> bool:
        """Keep a record that is news; return whether it is."""
        time_before, n_before = self._begin
        record = dataclasses.replace(
            record,
            time=record.time + time_before,
            n_evaluations=record.n_evaluations + n_before,
        )
        if self._records and record.time <= self._records[-1].time:
            if not math.isnan(self._records[-1].objective):
                return False
            # The first snapshot of a run comes before its objective is known.
            self._records[-1] = record
        else:
            self._records.append(record)
        return True


def _pack_labels(at: float, step: int, labels: LabelImage | list[LabelImage]) -> LabelMoment:
    images = labels if isinstance(labels, list) else [labels]
    return LabelMoment(at, step, tuple(_Packed.of(image, _LABEL_CODEC) for image in images))


def _pack_state(at: float, step: int, state: NDArray[np.floating], change: Step) -> StateMoment:
    return StateMoment(at, step, (_Packed.of(state, _STATE_CODEC, change),))


def _to_half(logarithm: NDArray[np.floating]) -> NDArray[np.float16]:
    return logarithm.astype(np.float16)


def _to_half_logarithm(assignment: NDArray[np.floating]) -> NDArray[np.float16]:
    logarithm = np.log(assignment.clip(_LEAST))
    return np.asarray(logarithm - logarithm.max(axis=1, keepdims=True)).astype(np.float16)
