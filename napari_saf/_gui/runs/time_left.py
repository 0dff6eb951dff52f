"""How long a run will take or goes on, and at what size it would be short."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from napari_saf._gui.forms.words import duration_text
from napari_saf._gui.layers.reading import ImageJob, Pixels, ProblemReader
from napari_saf._gui.runs.run import RunStart, load_libraries
from napari_saf._gui.settings import current_settings
from napari_saf.device import memory_limit, size_text
from napari_saf.errors import SafError
from napari_saf.graph import coarse_shape
from napari_saf.methods import AbstractMethod

_RECENT = 0.3
"""Share of the time so far over which progress is taken."""
_SLOWDOWN = 2.0
"""The last steps of a flow move few pixels, and the share that is done rises ever more slowly: of
twelve runs of flows and clusterings on photographs, a third to all of the true time was left at the
present pace in four cases of five."""
_LEAST_FRACTION = 0.05
_FORESEEABLE = 4.0
"""Times the time so far; what would go on longer stands still, and may end at any time."""
LONG = 60.0
SHORT = 30.0
_LONG_PREPARATION = 8.0
_LARGE, _USUAL = 960, 640
_LEAST_SIDE = 120
MANY = 2**20
"""Pixels of a run that is tried beforehand: fewer take some seconds."""
_N_FIRST, N_SAMPLED, _LEAST_SAMPLED = 1000, 40_000, 32
"""Pixels of two trials, and the least along an axis, if the image has as many."""
TRIAL_SECONDS = 5.0


class TimeLeft:
    """An estimate from how fast the share that is done rose of late, in steps that do not jump."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._fractions: list[float] = []
        self._end: float | None = None

    def update(self, seconds: float, fraction: float) -> None:
        """Take note of the share that is done after so many seconds."""
        self._times.append(seconds)
        self._fractions.append(fraction)
        left = self._estimate()
        if left is None or self._end is None:
            self._end = None if left is None else seconds + left
            return
        shown = max(self._end - seconds, 1.0)
        weight = 1.0 if not shown / 3 < left < shown * 2 else 0.3
        self._end += weight * (seconds + left - self._end)

    def seconds_left(self, seconds: float) -> float | None:
        """Return about how many seconds are left after so many; None where nobody knows."""
        return None if self._end is None else max(self._end - seconds, 1.0)

    def words(self, seconds: float) -> str:
        left = self.seconds_left(seconds)
        return "" if left is None else f"{duration_text(left)} left"

    def _estimate(self) -> float | None:
        times, fractions = self._times, self._fractions
        passed = times[-1] - times[0]
        if passed < 1 or len(times) < 3 or fractions[-1] < _LEAST_FRACTION:
            return None
        since = int(np.searchsorted(times[:-1], times[-1] - _RECENT * passed, side="right")) - 1
        rise = fractions[-1] - fractions[max(since, 0)]
        span = times[-1] - times[max(since, 0)]
        left = _SLOWDOWN * (1 - fractions[-1]) * span / rise if rise > 0 else np.inf
        return left if left <= _FORESEEABLE * passed else None


def shorter_side(job: ImageJob, seconds: float, left: float | None) -> int | None:
    """Return the longest side at which a run that takes long would be short; None if it does not.

    It takes long where it goes on for more than a minute, as far as is foreseen; or where a large
    image has still no end in sight (`left` None) after some seconds: the usual size is enough then.
    One that is nearly done does not.
    """
    sides = [
        side for side, own in zip(job.shape, _widths(job), strict=True) if own != 1 and side > 1
    ]
    assert not isinstance(job.options.max_side, str)
    longest = max(sides, default=1)
    now = min(job.options.max_side or longest, longest)
    if left is not None and left < SHORT:
        return None
    if seconds + (left or 0.0) > LONG:
        wanted = now * (SHORT / (seconds + (left or 0.0))) ** (1 / max(len(sides), 1))
    elif left is None and seconds > _LONG_PREPARATION and now > _LARGE:
        wanted = float(_USUAL)
    else:
        return None
    side = max(int(wanted) // 20 * 20, _LEAST_SIDE)
    return side if side <= 0.8 * now else None


def may_take_long(job: ImageJob) -> bool:
    return _n_pixels(job) > MANY


@dataclasses.dataclass(frozen=True, slots=True)
class Forecast:
    """What a run will take: seconds, bytes of memory; and the side at which it would be short."""

    seconds: float
    n_bytes: float
    side: int | None

    def __str__(self) -> str:
        return f"{duration_text(self.seconds)} and {size_text(self.n_bytes)} of memory"


def forecast(
    job: ImageJob, method: AbstractMethod, cancelled: Callable[[], bool]
) -> Forecast | None:
    """Try a method on a sample of the pixels; return what all of them take, None where it fails.

    On photographs of 4 to 17 million pixels that was .9 to 2.6 times the true processor time. A
    run that lacks memory counts as a long one.
    """
    load_libraries(cancelled)
    with suppress(SafError):  # loads what is needed, which takes long
        _try(_sampled(job, _N_FIRST), method, cancelled)
    with suppress(SafError):
        sample = _sampled(job, N_SAMPLED)
        seconds, n_bytes, room = _try(sample, method, cancelled)
        ratio = _n_pixels(job) / _n_pixels(sample)
        longer = max(ratio * seconds, LONG * ratio * n_bytes / room)
        return Forecast(ratio * seconds, ratio * n_bytes, shorter_side(job, 0.0, longer))
    return None


def _try(
    job: ImageJob, method: AbstractMethod, cancelled: Callable[[], bool]
) -> tuple[float, float, float]:
    """Return how many seconds a run takes, how many bytes, and how many there are."""
    asked, limit, began = [(0.0, math.inf)], current_settings().memory_limit, time.perf_counter()
    with memory_limit(limit, lambda need, room: asked.append((need, room))):
        problem, _ = RunStart().begin(ProblemReader().read(job, cancelled), method)
        fraction, begun = 1.0, time.perf_counter()
        for snapshot in method.iterate(problem, cancelled=cancelled):
            if time.perf_counter() - begun > TRIAL_SECONDS:
                fraction = max(snapshot.fraction, _LEAST_FRACTION)
                break
    needs, rooms = zip(*asked, strict=True)
    return begun - began + (time.perf_counter() - begun) / fraction, sum(needs), min(rooms)


def _widths(job: ImageJob) -> tuple[int, ...]:
    window = job.options.window
    assert not isinstance(window, str)
    return window if isinstance(window, tuple) else (window,) * len(job.shape)


def _n_pixels(job: ImageJob) -> int:
    """Return how many pixels there are at the size at which a job is computed."""
    side = job.options.max_side
    assert not isinstance(side, str)
    return math.prod(coarse_shape(job.shape, side or max(job.shape), _widths(job)))


def _sampled(job: ImageJob, n_pixels: int) -> ImageJob:
    """Return a job of few pixels: every k-th along each axis; of a lazy array as many in a row."""
    shape, longest = job.shape, max(job.shape)
    is_lazy = not isinstance(job.pixels.data, np.ndarray)

    def stride(side: int, k: int) -> int:
        return max(1, min(k, side // _LEAST_SAMPLED))

    def length(side: int, k: int) -> int:
        return -(-side // stride(side, k))

    k = 1
    while k < longest and math.prod(length(side, k) for side in shape) > n_pixels:
        k += 1

    def part(pixels: Pixels, channels: int | None = None) -> Pixels:
        index = list(pixels.index)
        read = [axis for axis, at in enumerate(index) if isinstance(at, slice)]
        for axis in (axis for n, axis in enumerate(read) if n != channels):
            at = index[axis]
            assert isinstance(at, slice)
            every = range(*at.indices(np.shape(pixels.data)[axis]))
            side = len(every)
            start = (side - length(side, k)) // 2
            own = every[start : start + length(side, k)] if is_lazy else every[:: stride(side, k)]
            index[axis] = slice(own.start, own.stop, own.step)
        return dataclasses.replace(pixels, index=tuple(index))

    sides = [length(side, k) for side in shape]
    window = tuple(
        min(own, side - 1 + side % 2) for own, side in zip(_widths(job), sides, strict=True)
    )
    return dataclasses.replace(
        job,
        options=dataclasses.replace(job.options, window=window, max_side=None),
        pixels=part(job.pixels, job.options.channel_axis),
        features=job.features and part(job.features, job.features_axis),
        mask=job.mask and part(job.mask),
        groups=job.groups and part(job.groups),
        seeds=job.seeds and part(job.seeds),
    )
