"""Scalable Laplacian K-prototypes, SLK."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from napari_saf.arrays import Int64s
from napari_saf.device import torch
from napari_saf.flow import count_classes, row_maxima
from napari_saf.graph import AffinityGraph
from napari_saf.methods._clustering import AbstractClustering, AbstractState, Tasks, start_points
from napari_saf.methods._few_shot import LONG_ROWS, TaskMethod, prepared_in_few_axes
from napari_saf.methods._laplacian import (
    AbstractLaplacianState,
    Laplacian,
    kernel_widths,
    mean_squared_step,
    nearest_operator,
    neighbour_operator,
    neighbours_parameter,
)
from napari_saf.methods._method import Call
from napari_saf.parameters import documented, parameter
from napari_saf.points import squared_distances, weighted_means
from napari_saf.problem import Problem

PrototypeUpdate = Literal["bo", "ms", "means"]

_MAX_INNER = (20, 100)
"""Most updates of an inner loop, and of an inner loop in exact mode."""
_N_CANDIDATES = 16
"""Candidate modes: nodes of the largest log odds."""
_MAX_SAMPLES = 2000
_ROUGHER = 8
_LEAST_EXPONENT = -60.0
_MEAN_SHIFT_STEPS = (10, 50)
_LEAST_WIDTH = 1e-4
"""Least kernel width, as a share of the variance."""
_NUDGE = 1e-4
"""Share of the exponents added to the start, which decides nodes far from every mode. Not for modes
of tables: on Shuttle with unit rows it lowers the energy by .1 %, but NMI from .21 to .18."""


@documented
@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SLK(AbstractClustering, TaskMethod):
    """Scalable Laplacian K-modes: clustering around modes or means with neighbour regularisation.

    Notes
    -----
    Ziko, Granger and Ben Ayed, "Scalable Laplacian K-modes", NeurIPS 2018,
    https://arxiv.org/abs/1810.13044. With lambda = `laplacian_weight`, assignments S descend

        E(S, m) = -sum_pk s_pk a_pk - lambda/2 sum_k s_k'W s_k + sum_pk s_pk log s_pk    (1)

    with a_pk = exp(-|x_p - m_k|^2 / (2 sigma2)), or -|x_p - m_k|^2 / (2 sigma2) for the means,
    by

        S <- softmax(a + lambda W S).    (2)

    W is exp(-|x_p - x_q|^2 / sigma2) within the window of a grid, or a graph's own weights
    ("contrast"); the graph's weights, on a grid 1 within the window ("graph"); 1 for the
    `n_neighbors` nearest features ("features"). By default sigma2 is the mean squared distance
    between neighbours in W; in images and with the neighbours of a grid, where repeated values
    make the nearest distances meaningless, and for means with seeds it is 1.5 % of the variance of
    the features.

    The Laplacian term has the factor 1/2: the gradient of s'W s is 2 W s. The update is a descent
    if W is positive semi-definite. As W, the symmetric part of the weights, seldom is, an update
    that would increase E is shortened,

        S <- S^(1 - t) softmax(a + lambda W S)^t, rows normalised,    (3)

    with t halved until E decreases, which it does for small t; the fixed points are the same.

    The labels are the classes of the seeds, if these are two or more and `new_labels` is off.

    Without seeds this is Algorithm 2.1: after each update of the prototypes S restarts at
    softmax(a); if E would end higher than before, S continues from its last value instead, and
    modes move only to nodes of larger sum_q s_qk a_qk. The initial modes ("bo") are the densest
    nodes of the cells of k-means++ points (section 2.4.2). With seeds S always continues; seeds
    have one-hot rows, and the mode is, among the 16 nodes of largest odds by (2), the one with the
    largest sum_q s_qk a_qk. No two clusters share a mode. Without seeds, except for modes of
    tables, the start is biased towards the nearest mode by 1e-4 of the exponents: otherwise nodes
    far from all modes, where exponentials vanish, converge slowly. If their assignments remain
    equal, they get the label of the nearest mode.

    In `run_tasks` neighbours are the nearest in feature space and labels are the classes of the
    seeds, whatever the fields, as a task has no image.

    For tables (features without an image) whose labels are the classes of the seeds, prototypes are
    means by default, and rows of 64 features or more are centred and normalised to unit length.

    Examples
    --------
    >>> image = np.kron([[0.0, 0.5, 1.0]], np.ones((12, 12)))
    >>> problem = saf.Problem.from_image(image)
    >>> result = saf.SLK(n_clusters=3).run(problem)
    >>> pixels = problem.graph.positions(result.exemplars)  # the mode of each label
    >>> sorted(image[tuple(pixels.T)].tolist())
    [0.0, 0.5, 1.0]
    """

    name: ClassVar[str] = "slk"
    title: ClassVar[str] = "Laplacian K-modes"
    summary: ClassVar[str] = (
        "Clusters pixels around typical pixels, one per label; neighbours tend to the same label."
    )

    # fmt: off
    prototypes: PrototypeUpdate | None = parameter(
        None, label="Prototypes", none="automatic",
        choice_labels={"bo": "typical pixel", "ms": "density peak", "means": "mean"},
        help="Prototype of a label: its most typical pixel (bo), the peak of its density (ms, mean "
        "shift), or its mean; automatic: the mean for tables with seeds, otherwise the most "
        "typical pixel.")
    laplacian_weight: float = parameter(
        1.0, label="Smoothness", bounds=(0, 1e6), step=0.1,
        help="Weight of the labels of neighbours (lambda).")
    laplacian: Laplacian = parameter(
        "contrast", label="Neighbours", advanced=True,
        choice_labels={"contrast": "near, within edges", "graph": "near",
                       "features": "similar, anywhere"},
        help="Neighbours of a pixel: pixels within the scale but not across edges (contrast), all "
        "pixels within it (graph), or those with the most similar features anywhere (features).")
    n_neighbors: int = neighbours_parameter(5)
    sigma2: float | None = parameter(
        None, label="Kernel width", bounds=(1e-12, 1e12), advanced=True,
        help="Squared feature distance at which similarity decays; none: estimated from the "
        "features (sigma squared).")
    new_labels: bool = parameter(
        False, label="New labels", advanced=True, for_seeds=True,
        help="With strokes of two classes or more: whether labels other than those of the strokes "
        "are allowed.")
    # fmt: on

    @property
    def uses_window(self) -> bool:
        return self.laplacian != "features"

    def _start_tasks(self, tasks: Tasks) -> AbstractState:
        return _State(self, tasks, tasks.class_means(tasks.blocks))

    def _n_columns(self, problem: Problem) -> int:
        n_seeded = 0 if problem.seeds is None else count_classes(problem.seeds)
        return max(self.n_clusters, n_seeded) if self.new_labels or n_seeded < 2 else n_seeded

    def _start(self, call: Call) -> AbstractState:
        n_labels = self.n_clusters if call.initial is not None else self._n_columns(call.problem)
        points = start_points(call, n_labels, self.seed)
        return _State(self, Tasks.of(call), points[None], is_first=call.previous is None)


class _State(AbstractLaplacianState):
    """State of an SLK run; `points` are the initial prototypes (n_tasks, n_columns, n_features)."""

    def __init__(
        self, method: SLK, tasks: Tasks, points: torch.Tensor, is_first: bool = True
    ) -> None:
        has_seeds, is_image = tasks.seed_blocks is not None, tasks.is_image
        is_few_shot = not is_image and tasks.n_classes == points.shape[1]
        self._kind = method.prototypes or ("means" if is_few_shot else "bo")
        is_exact = not has_seeds and not is_image
        tolerance = method.tolerance / (10 if is_exact else 1)
        super().__init__(
            tasks,
            points.shape[1],
            method.laplacian_weight,
            tolerance,
            is_exact=is_exact,
            keeps_digits=is_exact or (is_image and self._kind != "means"),
        )
        self._method, self._blocks, self._points = method, tasks.blocks, points
        self._is_prepared = is_few_shot and self._kind == "means" and points.shape[2] >= LONG_ROWS
        if self._is_prepared:
            self._blocks = prepared_in_few_axes(tasks.blocks, "centred unit")
            start = tasks.start()
            weights = tasks.class_indicators() if start is None else torch.softmax(start, 1)[None]
            self._points = weighted_means(weights, self._blocks)
        self._norms = self._blocks.square().sum(dim=2)
        self._takes_nodes = self._kind == "bo"
        self._is_first = is_first
        self._starts_again = True
        if self._takes_nodes:
            self._nodes = self._distinct_nodes(-self._squares(points))
            self._points = self._features_of(self._nodes)
        self.move(-self._squares(self._points).flatten(0, 1))

    def begin(self) -> None:
        method, problem, is_image = self._method, self.tasks.problem, self.tasks.is_image
        if problem is None or method.laplacian == "features":
            product, widths = nearest_operator(self._blocks, method.n_neighbors, self.features)
        else:
            product = neighbour_operator(problem, self.features, method.laplacian, method.sigma2)
            step = problem.remember(
                "mean squared step", lambda: mean_squared_step(problem.graph, problem.features)
            )
            widths = torch.tensor([step]).double()
        has_steps = problem is None or isinstance(problem.graph, AffinityGraph)
        is_table = not is_image and (has_steps or method.laplacian == "features")
        if method.sigma2 is not None:
            widths = torch.full_like(widths, method.sigma2)
        elif not is_table or (self._kind == "means" and self._seeds is not None):
            widths = kernel_widths(self._blocks)
        else:
            widths = torch.maximum(widths, kernel_widths(self._blocks, _LEAST_WIDTH))
        self._sigma2 = widths.to(self.features)[:, None, None]
        self.raise_if_cancelled()
        if self._takes_nodes and self._seeds is None and self.tasks.initial is None:
            self._nodes = self._distinct_nodes(self._densities())
            self._points = self._features_of(self._nodes)
        self.begin_at(self._unaries(self._points).flatten(0, 1), product)

    def start_coordinates(self) -> torch.Tensor:
        # labels spread from seeds to undecided nodes
        if self._seeds is not None or (self._takes_nodes and self._is_exact):
            return super().start_coordinates()
        exponents = self._squares(self._points).mul_(-_NUDGE * 0.5 / self._sigma2)
        return exponents.flatten(0, 1).add_(self._unary)

    def advance(self) -> None:
        if self._is_first or self._seeds is not None:
            self._is_first = False
            self.relax(_MAX_INNER[self._is_exact])
        else:
            self._relax_again()
        self.raise_if_cancelled()
        if self._kind == "means":
            weights = self.by_task(self.assignment)
            self._move_points(weighted_means(weights, self._blocks, self._points), self.active)
        elif self._kind == "ms":
            self._shift_means()
        elif self._seeds is not None:
            self._move_modes()
        self.update_objectives()

    def _densities(self) -> torch.Tensor:
        """Return mean kernels (1, n_nodes, n_columns) within each cell, section 2.4.2; else 0."""
        densities, order = torch.zeros_like(self.v), self.tasks.order
        cells = self._squares(self._points)[0].argmin(dim=1)
        for column in range(densities.shape[1]):
            rows = (cells == column).nonzero()[:, 0]
            if order is not None:  # makes the start independent of the order of nodes
                rows = rows[torch.from_numpy(order)[rows.cpu()].argsort().to(rows.device)]
            samples = rows[:: max(1, -(-len(rows) // _MAX_SAMPLES))]
            if not self._is_exact:
                rows = samples
            elif len(samples) < len(rows):
                rough = self._mean_kernels(rows, samples[::_ROUGHER])
                rows = rows[rough.topk(len(rows) // _ROUGHER).indices]
            densities[rows, column] = self._mean_kernels(rows, samples)
        return densities[None]

    def _mean_kernels(self, rows: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        """Return the mean kernel of nodes `rows` to `samples`."""
        means = []
        for part in torch.split(rows, _MAX_SAMPLES):
            self.raise_if_cancelled()
            squares = squared_distances(self._blocks[0, part], self._blocks[0, samples])
            exponents = squares.mul_(-0.5 / self._sigma2[0, 0]).clamp_(min=_LEAST_EXPONENT)
            means.append(exponents.exp_().mean(dim=1))
        return torch.cat(means)

    def _relax_again(self) -> None:
        """Descend from the softmax of the unaries (Algorithm 2.1), or from S if that is better."""
        if self._starts_again:
            previous, v, unary, points = float(self.objectives), self.v, self._unary, self._points
            nodes = self._nodes if self._takes_nodes else None
            self._starts_again = False
            try:
                if self._takes_nodes:
                    self._nodes = self._distinct_nodes(self.by_task(self._log_odds()))
                    self._move_points(self._features_of(self._nodes), self.active)
                self.start_at(self.start_coordinates())
                self.relax(_MAX_INNER[self._is_exact])
                gain = previous - float(self.objectives)
                self._starts_again = gain > self._tolerance * abs(previous)
            finally:  # also if cancelled
                if not self._starts_again:
                    self._unary, self._points = unary, points
                    if nodes is not None:
                        self._nodes = nodes
                    self.start_at(v)
            if self._starts_again:
                return
        if self._takes_nodes:
            self._move_modes()
            self.update_objectives()
        self.relax(_MAX_INNER[self._is_exact])

    def prototypes(self) -> torch.Tensor:
        return super().prototypes() if self._is_prepared else self._points[0]

    def exemplars(self) -> Int64s | None:
        if self._kind == "means":
            return None
        nodes = self._nodes if self._takes_nodes else self._squares(self._points).argmin(dim=1)
        return nodes[0].cpu().numpy()

    def _move_points(self, points: torch.Tensor, mask: torch.Tensor) -> None:
        self._points = self.choose(mask, points, self._points)
        self._unary = self._unaries(self._points).flatten(0, 1)

    def _move_modes(self) -> None:
        """Move modes to nodes of high s_pk with a better objective of their cluster (BO)."""
        nodes = self._serving_nodes()
        unary = self._unaries(self._features_of(nodes))
        weights, current = self.by_task(self.assignment), self.by_task(self._unary)
        better = (weights * unary).sum(dim=1) > (weights * current).sum(dim=1)
        moved = torch.where(better, nodes, self._nodes)
        points = self._features_of(moved)
        n_points, n_before = ([len(x.unique(dim=0)) for x in y] for y in (points, self._points))
        mask = self.active & (torch.tensor(n_points) >= torch.tensor(n_before))
        if not mask.any():
            return
        self._nodes = self.choose(mask, moved, self._nodes)
        self._points = self.choose(mask, points, self._points)
        unary = torch.where(better[:, None], unary, current)
        self._unary = self.choose(mask, unary, current).flatten(0, 1)

    def _serving_nodes(self) -> torch.Tensor:
        """Return the nodes of largest s_pk or, unless exact, the best of the top candidates."""
        scores, weights = self.by_task(self._log_odds()), self.by_task(self.assignment)
        if self._is_exact:
            return self._distinct_nodes(scores)
        best = scores.topk(min(_N_CANDIDATES, scores.shape[1]), dim=1).indices
        services = torch.zeros_like(best, dtype=scores.dtype)
        for column in range(scores.shape[2]):
            shares = weights[..., column, None]
            parts = torch.split(best[..., column], scores.shape[2], dim=1)  # a field each
            sums = [(shares * self._unaries(self._features_of(part))).sum(dim=1) for part in parts]
            services[..., column] = torch.cat(sums, dim=1)
        scores -= scores.amax(dim=1, keepdim=True)
        return self._distinct_nodes(scores.scatter_(1, best, services))

    def _log_odds(self) -> torch.Tensor:
        """Return log s_pk - log(1 - s_pk), of update (2) unless exact: s_pk may round to 1."""
        if self._is_exact:
            v = self.v
        else:
            v = torch.add(self._unary, self._sums, alpha=self._laplacian_weight)
            v -= row_maxima(v)
        top = v.argmax(dim=1, keepdim=True)
        log_rest = v.scatter(1, top, -torch.inf).logsumexp(dim=1, keepdim=True)
        log_complement = torch.log1p(log_rest.exp() - v.exp()).scatter_(1, top, log_rest)
        return v - log_complement

    def _distinct_nodes(self, scores: torch.Tensor) -> torch.Tensor:
        """Return for each column the node of highest score with unused features."""
        n_nodes, n_columns = scores.shape[1:]
        best = scores.topk(min(4 * n_columns, n_nodes), dim=1).indices
        nodes: list[torch.Tensor] = []
        for column in range(n_columns):
            candidates = best[..., column]
            free = self._differ(self._features_of(candidates), nodes)
            has_free = free.any(dim=1, keepdim=True)
            node = candidates.gather(1, free.int().argmax(dim=1, keepdim=True))
            if not has_free.all():
                free = self._differ(self._blocks, nodes)
                is_open = free | ~free.any(dim=1, keepdim=True)
                open_scores = torch.where(is_open, scores[..., column], -torch.inf)
                node = torch.where(has_free, node, open_scores.argmax(dim=1, keepdim=True))
            nodes.append(node)
        return torch.cat(nodes, dim=1)

    def _differ(self, features: torch.Tensor, nodes: list[torch.Tensor]) -> torch.Tensor:
        """Return which features (n_tasks, n, n_features) differ from those of all `nodes`."""
        free = torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
        for node in nodes:
            free &= (features != self._features_of(node)).any(dim=2)
        return free

    def _shift_means(self) -> None:
        """Climb the density of each cluster by mean shift, m_k = sum s a x / sum s a (MS)."""
        blocks, moving = self._blocks, self.active.clone()
        for _ in range(_MEAN_SHIFT_STEPS[self._is_exact]):
            previous = self._points
            weights = self.by_task(self.assignment * self._unary)
            self._move_points(weighted_means(weights, blocks, previous), moving)
            squares = (self._points - previous).square().sum(dim=2).amax(dim=1)
            moving &= (squares >= 1e-6 * self._sigma2[:, 0, 0]).cpu()
            if not moving.any():
                return
            self.raise_if_cancelled()

    def _unaries(self, points: torch.Tensor) -> torch.Tensor:
        """Return a_pk of eq. (1)."""
        scaled = self._squares(points).mul_(-0.5 / self._sigma2)
        if self._kind == "means":
            return scaled
        # Smaller float32 exponentials are subnormal and ten times slower.
        return scaled.clamp_(min=_LEAST_EXPONENT).exp_()

    def _features_of(self, nodes: torch.Tensor) -> torch.Tensor:
        """Return the features of nodes (n_tasks, n_chosen), indexed within their task."""
        return self._blocks.gather(1, nodes[..., None].expand(-1, -1, self._blocks.shape[2]))

    def _squares(self, points: torch.Tensor) -> torch.Tensor:
        return squared_distances(self._blocks, points, self._norms)
