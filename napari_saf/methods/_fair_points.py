"""Fair clustering around means or medoids: state and steps, see `FairClustering`."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator

import numpy as np

from napari_saf.arrays import Int64s
from napari_saf.device import torch
from napari_saf.methods._clustering import Tasks
from napari_saf.methods._fairness import (
    MIN_START,
    START_GAP,
    AbstractFairState,
    FairnessTerm,
    FairSetup,
    mean_gap,
)
from napari_saf.points import distances, squared_distances, weighted_means, weighted_medoid

_MAX_TRIALS = 12
_START_BOUND = 10.0
_MIN_BOUND = 4.0
_OVERSHOOT = 0.9
_COOLING = 0.7
_MIN_WEIGHT = 1e-6
_SETTLED = 1e-4
"""Relative gain of the means below which medoids start."""
_MAX_FOLLOWED = 4000
_PLAINLY = 1.01
"""Nodes sampled to compare initial means, and the energy factor of the second start."""
_NEAR_TIE = 1.02
_MAX_COMPARED = 1000
"""Evenly spaced candidate nodes for rival medoids."""
_WARMER = 16.0
"""Factor of the temperature after medoids are exchanged."""
_MAX_TRIED = 30
"""Maximum number of iterations after medoids are exchanged."""


class FairPoints(AbstractFairState):
    """State of a fair clustering around means or medoids, F = sum s_pk a_pk at a temperature T."""

    def __init__(self, tasks: Tasks, setup: FairSetup) -> None:
        super().__init__(tasks, setup)
        self._has_medoids = setup.has_medoids
        self._measure = distances if setup.has_medoids else squared_distances
        self._nodes: torch.Tensor | None = None
        self._seen: torch.Tensor | None = None
        self._rivals: torch.Tensor | None = None

    def warm_up(self) -> Iterator[None]:
        """Start medoids from the solution of fair means, which converges more reliably.

        If the initial labels separate the groups, means also start from labels within the groups,
        and the lower energy is kept; only then is `initial` replaced.
        """
        is_apart = self._keeps_groups_apart()
        if not is_apart and not (self._has_medoids and self._is_fresh):
            return
        unary = squared_distances(self.features, weighted_means(self.assignment, self.features))
        squares = plain = float(self.totals(self.assignment * unary))
        if self._has_medoids:
            plain = float(self.totals(self.assignment * unary.sqrt()))
        weight = self.setup.weight
        weight = max(10 * plain, 1e-12) if weight is None else weight
        if not weight:
            return
        self.setup = self.setup._replace(weight=weight)
        first, candidates = self.v, list[tuple[float, torch.Tensor]]()
        within = self._start_within_groups() if is_apart else None
        for start in (first,) if within is None else (first, within.clamp_(min=MIN_START)):
            self.move(start.clone())
            v, energy = yield from self._follow_means(weight * squares / max(plain, 1e-300))
            if v is not None and self._has_medoids:
                candidates.append((self._energy_from(v) if is_apart else 0.0, v))
            elif v is not None:
                candidates.append((energy if start is first else _PLAINLY * energy, start))
        best = min(candidates, key=lambda candidate: candidate[0])[1] if candidates else first
        self.move(best)
        if best is not first:
            self._points = weighted_means(self.assignment, self.features)
        self._nodes = None

    def _follow_means(
        self, weight: float
    ) -> Generator[None, None, tuple[torch.Tensor | None, float]]:
        """Return log coordinates (None if a label is empty) and energy of converged fair means."""
        points, v = weighted_means(self.assignment, self.features), self.v
        setup = self.setup._replace(points=points, v=v, weight=weight, has_medoids=False)
        tasks, step = self.tasks, -(-len(v) // _MAX_FOLLOWED)
        if not self._has_medoids and step > 1:  # only the energy matters
            groups = self._term.groups
            rows = np.argsort(groups, kind="stable")[::step]  # stratified by group
            term = FairnessTerm(groups[rows], self._term.proportions, self.features)
            tasks = tasks.among(rows)
            setup = setup._replace(term=term, v=v[rows], weight=weight / step)
        means = FairPoints(tasks, setup)
        means.begin()
        gain = math.inf
        while gain > _SETTLED * abs(means.objective):
            previous = means.objective
            means.advance()
            gain = previous - means.objective
            yield
        self.n_evaluations += means.n_evaluations
        has_all = torch.bincount(means.v.argmax(dim=1), minlength=len(points)).all()
        return means.v.clamp_(min=MIN_START) if has_all else None, means.objective

    def _energy_from(self, v: torch.Tensor) -> float:
        self.move(v)
        self._nodes, self._points = None, weighted_means(self.assignment, self.features)
        self.begin()
        return self.objective

    def begin(self) -> None:
        if self._has_medoids:
            self._move_medoids()
        self._unary = self._measure(self.features, self._points)
        tries = self._has_medoids and not self.setup.n_before
        self._rivals = self._find_rivals() if tries else None
        super().begin()
        gap = mean_gap(self._unary)
        self._temperature = gap / START_GAP if self._term.weight else 1e-9 * gap
        factor = max(_START_BOUND * self.setup.lipschitz, _MIN_BOUND)
        self._bound = (factor if self._term.weight else 1.0) * self._temperature
        # A resumed run continues at about its last temperature.
        n_cooled = self.setup.n_before - round(math.log2(factor))
        if self._term.weight and n_cooled > 0:
            self._temperature *= _COOLING**n_cooled
            self._bound = self._temperature

    def advance(self) -> None:
        previous = self.objective
        super().advance()
        gain = previous - self.objective
        if self._rivals is not None and gain <= self.setup.tolerance * abs(self.objective):
            self._try_rivals(self._rivals)

    def _find_rivals(self) -> torch.Tensor | None:
        """Return two near-optimal distant medoids (2, n_columns) per cluster, equal if unimodal."""
        assert self._nodes is not None
        rows = torch.arange(0, len(self.features), -(-len(self.features) // _MAX_COMPARED))
        x, shares, apart = self.features[rows], self.assignment[rows], self._unary[rows]
        costs = (apart * shares).sum(dim=0)
        sums = distances(x, x) @ shares
        sums.masked_fill_(apart * shares.sum(dim=0) <= costs, torch.inf)
        least, best = sums.min(dim=0)
        is_tie = least <= _NEAR_TIE * costs
        rivals = torch.where(is_tie, rows.to(best)[best], self._nodes)
        return torch.stack([self._nodes, rivals]) if is_tie.any() else None

    def _try_rivals(self, rivals: torch.Tensor) -> None:
        """Exchange medoids for the farther rivals if that lowers the final energy."""
        assert self._nodes is not None
        self._rivals, least, is_lower = None, self.objective, False
        saved = vars(self) | {"assignment": self.assignment.clone()}
        multipliers, self._seen = self._term.multipliers, None
        apart = torch.stack([(self.features[row] - self._points).norm(dim=1) for row in rivals])
        farther = rivals.gather(0, apart.argmax(dim=0, keepdim=True))[0]
        self._nodes = torch.where(rivals[0] == rivals[1], self._nodes, farther)
        self._points = self.features[self._nodes]
        self._unary = distances(self.features, self._points)
        self._bound = self._temperature = _WARMER * self._temperature
        self.objective = self._energy(self._plain(self.assignment), self._masses)
        try:
            for _ in range(_MAX_TRIED):
                last = self.objective
                self.advance()
                if last - self.objective <= self.setup.tolerance * abs(self.objective):
                    break
            is_lower = self.objective < least
        finally:  # also if cancelled
            if not is_lower:
                vars(self).update(saved | {"n_evaluations": self.n_evaluations})
                self._term.multipliers = multipliers

    def conclude(self) -> bool:
        if self._has_medoids:
            return False
        self._move_to_means(overshoot=0.0)
        energy = self._energy(self._plain(self.assignment), self._masses)
        self.objective = min(self.objective, energy)
        return True

    def exemplars(self) -> Int64s | None:
        return None if self._nodes is None else self._nodes.cpu().numpy()

    def _lower(self) -> None:
        assert self._bound is not None
        for _ in range(_MAX_TRIALS):
            base = torch.mul(self._unary, -1 / self._bound)
            if self._bound > self._temperature:
                base.add_(self.v, alpha=1 - self._temperature / self._bound)
            step, is_made = self._try_step(base, self._bound)
            if is_made:
                if self._term.weight and step.is_near:  # larger steps, lower temperature
                    self._bound = max(self._bound / 2, self._temperature)
                    if self._bound <= 2 * self._temperature:
                        self._temperature *= _COOLING
                return
            self._bound *= 2 if step.is_near else 4
            self._temperature /= 2 if step.is_near else 1

    def _plain(self, assignment: torch.Tensor) -> float:
        return float(self.totals(assignment * self._unary))

    def _discrete(self, labels: torch.Tensor) -> float:
        """Return F of hard labels about their means, by Steiner's theorem."""
        if self._has_medoids:
            return super()._discrete(labels)
        sizes = torch.bincount(labels, minlength=len(self._points))[:, None]
        means = self.hard_assignment(labels).T @ self.features / sizes.clamp(min=1)
        excess = sizes * (means - self._points).square()
        squares = self._unary.gather(1, labels[:, None])
        return float(self.totals(squares) - self.totals(excess))

    def _update_prototypes(self) -> None:
        """Move to medoids, or overshoot the means: the quadratic F falls up to twice the way."""
        if self._has_medoids:
            self._move_medoids()
        else:
            self._move_to_means(_OVERSHOOT if self._term.weight else 0.0)

    def _move_to_means(self, overshoot: float) -> None:
        means = weighted_means(self.assignment, self.features, self._points)
        self._points = means.lerp(self._points, -overshoot) if overshoot else means
        self._unary = squared_distances(self.features, self._points)

    def _move_medoids(self) -> None:
        """Move clusters to better medoids, approximate ones while steps are long."""
        is_settled = self._gain <= _SETTLED * abs(self.objective)
        columns = range(len(self._points))
        moved = torch.stack([self._medoid(column, exact=is_settled) for column in columns])
        self._seen = self.assignment.clone() if is_settled else None
        unary = distances(self.features, self.features[moved])
        if self._nodes is not None:
            now = (self.assignment * self._unary).sum(dim=0)
            better = (self.assignment * unary).sum(dim=0) < now
            moved = torch.where(better, moved, self._nodes)
            unary = torch.where(better, unary, self._unary)
        self._nodes, self._points, self._unary = moved, self.features[moved], unary

    def _medoid(self, column: int, *, exact: bool) -> torch.Tensor:
        """Return the medoid of a cluster, the last one while the cluster is unchanged."""
        weights = self.assignment[:, column]
        if self._seen is not None and self._nodes is not None:
            change = (self._seen[:, column] - weights).abs().max()
            if float(change) < _MIN_WEIGHT:
                return self._nodes[column]
        self.raise_if_cancelled()
        members = (weights > _MIN_WEIGHT).nonzero()[:, 0]
        if not len(members):
            members = weights.argmax()[None]
        points = self.features[members].cpu().numpy()
        member_weights = weights[members].cpu().numpy()
        return members[weighted_medoid(points, member_weights, exact=exact)[0]]
