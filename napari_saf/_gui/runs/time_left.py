"""How long a run goes on, and at what size it would be short."""

from __future__ import annotations

import numpy as np

from napari_saf._gui.layers.reading import ImageJob

_RECENT = 0.3
"""Share of the time so far over which progress is taken."""
_SLOWDOWN = 2.0
"""The last steps of a flow move few pixels, and the share that is done rises ever more slowly: of
twelve runs of flows and clusterings on photographs, a third to all of the true time was left at the
present pace in four cases of five."""
_LEAST_FRACTION = 0.05
_FORESEEABLE = 4.0
"""Times the time so far; what would go on longer stands still, and may end at any time."""
_WORDS = (5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900, 1800, 3600, 7200)
_LONG = 60.0
_SHORT = 30.0
_LONG_PREPARATION = 8.0
_LARGE, _USUAL = 960, 640
_LEAST_SIDE = 120


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
        """Return that in round numbers, empty where it is not known."""
        left = self.seconds_left(seconds)
        if left is None:
            return ""
        number = next((own for own in _WORDS if left <= own), 0)
        if not number:
            return "hours left"
        return f"about {number} s left" if number < 60 else f"about {number / 60:.2g} min left"

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
    options, shape = job.options, job.shape
    windows = options.window if isinstance(options.window, tuple) else (0,) * len(shape)
    sides = [side for side, own in zip(shape, windows, strict=True) if own != 1 and side > 1]
    assert not isinstance(options.max_side, str)
    longest = max(sides, default=1)
    now = min(options.max_side or longest, longest)
    if left is not None and left < _SHORT:
        return None
    if seconds + (left or 0.0) > _LONG:
        wanted = now * (_SHORT / (seconds + (left or 0.0))) ** (1 / max(len(sides), 1))
    elif left is None and seconds > _LONG_PREPARATION and now > _LARGE:
        wanted = float(_USUAL)
    else:
        return None
    side = max(int(wanted) // 20 * 20, _LEAST_SIDE)
    return side if side <= 0.8 * now else None
