"""When to stop."""

from __future__ import annotations

import dataclasses

import torch

from napari_saf.parameters import check_bounds, parameter
from napari_saf.result import Status

__all__ = ["StopWatch", "StoppingRule"]


@dataclasses.dataclass(frozen=True, slots=True)
class StoppingRule:
    """When a flow has done its work.

    Parameters
    ----------
    entropy : float
        CONVERGED once the mean entropy, in nats, is below this.
    changed : float
        STALLED once, over a unit of flow time, a smaller share of the nodes than this changed
        label, or labels came round to what they were before but for such a share, and the
        entropy fell by less than 1 %. A start near the barycentre looks the same: it counts
        only when half of the first entropy is gone, or after 50 units.
    max_steps : int
        MAX_ITERATIONS after so many steps.
    """

    entropy: float = parameter(
        1e-3,
        label="Stop at entropy",
        help="Stop once labels are this certain on average (mean entropy in nats).",
        minimum=0,
        maximum=1,
        step=1e-3,
        advanced=True,
    )
    changed: float = parameter(
        1e-4,
        label="Stop at change",
        help="Stop once a smaller share of the pixels than this changes its label, and labels "
        "no longer become more certain.",
        minimum=0,
        maximum=1,
        step=1e-4,
        advanced=True,
    )
    max_steps: int = parameter(
        2000,
        label="Most steps",
        help="Stop after this many steps in any case.",
        minimum=1,
        maximum=1_000_000,
        step=100,
        advanced=True,
    )

    def __post_init__(self) -> None:
        check_bounds(self)


_PATIENCE = 50.0


class StopWatch:
    """A stopping rule at work on one run.

    A few nodes between two labels may change to and fro for ever. Such a round of any length is
    found by Brent's method, https://doi.org/10.1007/BF01933190: labels are compared with those
    of the first, second, fourth, eighth ... time they were looked at.
    """

    def __init__(self, rule: StoppingRule, labels: torch.Tensor, entropy: float) -> None:
        self._rule = rule
        self._since = 0.0
        self._labels = labels.clone()
        self._earlier = labels.clone()
        self._n_looks = 0
        self._entropy = self._first_entropy = entropy
        self._n_steps = 0

    def status(self, time: float, labels: torch.Tensor, entropy: float) -> Status | None:
        """Return why to stop after a step, or None to go on."""
        self._n_steps += 1
        if entropy < self._rule.entropy:
            return Status.CONVERGED
        if time - self._since >= 1 and self._stands_still(time, labels, entropy):
            return Status.STALLED
        return Status.MAX_ITERATIONS if self._n_steps >= self._rule.max_steps else None

    def _stands_still(self, time: float, labels: torch.Tensor, entropy: float) -> bool:
        span = time - self._since
        changed = min(
            _share(labels != self._labels) / span,
            _share(labels != self._earlier),
        )
        still = changed < self._rule.changed and entropy > self._entropy * 0.99**span
        self._since, self._entropy = time, entropy
        self._labels.copy_(labels)
        self._n_looks += 1
        if self._n_looks.bit_count() == 1:
            self._earlier.copy_(labels)
        return still and (entropy < self._first_entropy / 2 or time >= _PATIENCE)


def _share(nodes: torch.Tensor) -> float:
    return float(nodes.sum()) / len(nodes)
