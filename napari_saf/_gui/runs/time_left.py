"""How much longer a run goes on."""

from __future__ import annotations

import numpy as np

from napari_saf._gui.forms.display_text import duration_text

_RECENT = 0.3
"""Share of the time so far over which progress is taken."""
_SLOWDOWN = 2.0
"""The last steps of a flow move few pixels, and the share that is done rises ever more slowly: of
twelve runs of flows and clusterings on photographs, a third to all of the true time was left at the
present pace in four cases of five."""
_LEAST_FRACTION = 0.05
_FORESEEABLE = 4.0
"""Times the time so far; what would go on longer stands still, and may end at any time."""


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
