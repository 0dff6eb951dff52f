"""State of a clustering: assignments of one problem, or of many tasks with their rows stacked."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from napari_saf.flow import check_seeds_fit, from_assignment, normalize_, one_hot_, softmax
from napari_saf.methods._method import Call
from napari_saf.points import weighted_means


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tasks:
    """Problems of the same numbers of nodes, features and classes, on the device of the run.

    Attributes
    ----------
    blocks : Tensor of shape (n_tasks, n_nodes, n_features)
        Features.
    seed_blocks : Tensor of shape (n_tasks, n_nodes), or None
        Labels 1, 2, ... that were given; 0 for none.
    initial : array of shape (n_nodes, n_columns), optional
        Assignment of the one task to start from.
    raise_if_cancelled : callable
        Raises Cancelled once the run is cancelled.
    """

    blocks: torch.Tensor
    seed_blocks: torch.Tensor | None
    initial: ArrayLike | None = None
    raise_if_cancelled: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, call: Call) -> Tasks:
        """Return the one task of a call."""
        seeds = None if call.seeds is None else call.seeds[None]
        return cls(call.features[None], seeds, call.initial, call.raise_if_cancelled)

    @property
    def n_classes(self) -> int:
        """Number of classes that have seeds."""
        return 0 if self.seed_blocks is None else int(self.seed_blocks.max())

    def class_indicators(self) -> torch.Tensor:
        """Return (n_tasks, n_nodes, n_classes) with 1 where a node is a seed of a class."""
        assert self.seed_blocks is not None
        classes = torch.arange(1, self.n_classes + 1, device=self.blocks.device)
        return (self.seed_blocks[..., None] == classes).to(self.blocks)

    def class_means(self, features: torch.Tensor) -> torch.Tensor:
        """Return the means (n_tasks, n_classes, n_features) of the seeds of each class."""
        return weighted_means(self.class_indicators(), features)

    def start(self) -> torch.Tensor | None:
        """Return log coordinates of the assignment to start from."""
        if self.initial is None:
            return None
        return from_assignment(self.initial, self.blocks.flatten(0, 1))


class AbstractState(ABC):
    """State of a clustering: of one problem, or of several tasks with their rows stacked.

    Every task ends by itself: those that are no longer active stay as they are.

    Parameters
    ----------
    tasks : Tasks
    n_columns : int

    Attributes
    ----------
    v, assignment : Tensor of shape (n_nodes, n_columns)
        Log coordinates, whose rows have a maximum of 0, and their softmax.
    objectives : Tensor of shape (n_tasks,)
        In float64, on the CPU. Where they decide on the end, they never rise.
    active : Tensor of bool of shape (n_tasks,)
        On the CPU.
    n_evaluations : int
        Inner updates so far.
    notes : list of str
        What a person should know of the run.
    is_recorded : bool
        Whether the objectives are read.
    """

    def __init__(self, tasks: Tasks, n_columns: int) -> None:
        self.tasks = tasks
        self.features = tasks.blocks.flatten(0, 1)
        self.n_tasks = len(tasks.blocks)
        self.raise_if_cancelled = tasks.raise_if_cancelled
        self.objectives = torch.full((self.n_tasks,), torch.nan, dtype=torch.float64)
        self.active = torch.ones(self.n_tasks, dtype=torch.bool)
        self.n_evaluations = 0
        self.notes: list[str] = []
        self.is_recorded = True
        self.v = torch.zeros(len(self.features), n_columns).to(self.features)
        self.assignment = torch.full_like(self.v, 1 / n_columns)
        self._seeds = None if tasks.seed_blocks is None else tasks.seed_blocks.flatten()
        check_seeds_fit(self._seeds, n_columns)

    def warm_up(self) -> Iterator[None]:
        """Go to where the run starts; yields where there is something to show."""
        yield from ()

    @abstractmethod
    def begin(self) -> None:
        """Compute the objectives of the start."""

    @abstractmethod
    def advance(self) -> None:
        """Make one outer iteration: the assignment, then the prototypes."""

    def conclude(self) -> bool:
        """Take the prototypes that belong to the assignment; return whether they are others."""
        return False

    def gains(self, before: torch.Tensor) -> torch.Tensor:
        """Return by which share the last iteration lowered the objectives, or what ends a run."""
        return (before - self.objectives) / self.objectives.abs().clamp(min=1e-300)

    def measures(self, labels: torch.Tensor) -> dict[str, float]:
        """Return what else is recorded, such as the objective of the hard labels."""
        return {}

    def prototypes(self) -> torch.Tensor:
        """Return the representative (n_columns, n_features) of every column."""
        return weighted_means(self.assignment, self.features)

    def exemplars(self) -> NDArray[np.int64] | None:
        """Return the node (n_columns,) that stands for each column, if nodes do."""
        return None

    def final_notes(self, labels: torch.Tensor) -> tuple[str, ...]:
        """Return what a person should know of the hard labels at the end."""
        return ()

    def move(self, v: torch.Tensor) -> None:
        """Go to log coordinates, which are overwritten; seeds stay where they are."""
        self.v = self.constrain(v)
        softmax(self.v, out=self.assignment)

    def constrain(self, v: torch.Tensor) -> torch.Tensor:
        """Normalise log coordinates in place and make the rows of seeds vertices."""
        normalize_(v)
        if self._seeds is not None:
            rows = self._seeds.nonzero()[:, 0]
            one_hot_(v, rows, self._seeds[rows] - 1)
        return v

    def by_task(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows as (n_tasks, n_nodes, n_columns)."""
        return rows.view(self.n_tasks, -1, rows.shape[1])

    def totals(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the sum of the entries of each task: of rows as they are, then in float64."""
        if rows.ndim == 2:
            rows = torch.mv(rows, rows.new_ones(rows.shape[1]))
        return rows.cpu().double().view(self.n_tasks, -1).sum(dim=1)

    def choose(self, mask: torch.Tensor, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        """Return the new values of some tasks and the old ones of others."""
        if mask.all():
            return new
        own = mask.to(new.device)
        if len(new) != self.n_tasks:
            own = own.repeat_interleave(len(new) // self.n_tasks)
        return torch.where(own.view(-1, *[1] * (new.ndim - 1)), new, old)
