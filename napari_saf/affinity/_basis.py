"""The rows of a factor of the affinity, as many as there are nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch

from napari_saf.geometry import EqualRows, cross_product, row_blocks
from napari_saf.tick import Tick, go_on

__all__ = ["Basis", "DenseBasis", "JoinedBasis", "SharedBasis"]


class Basis(Protocol):
    """A matrix Phi (n_nodes, rank)."""

    @property
    def shape(self) -> tuple[int, int]:
        """Its n_nodes and rank."""

    def overlap(self, assignment: torch.Tensor, tick: Tick) -> torch.Tensor:
        """Return Phi' W for W of shape (n_nodes, n_labels), float64 on the CPU."""

    def plus(
        self, values: torch.Tensor, factor: torch.Tensor, out: torch.Tensor
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """Write values + Phi factor into `out`; yield each block of rows once it is there."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class DenseBasis:
    """All rows.

    Attributes
    ----------
    rows : Tensor of shape (n_nodes, rank)
    """

    rows: torch.Tensor

    @property
    def shape(self) -> tuple[int, int]:
        n_nodes, rank = self.rows.shape
        return n_nodes, rank

    def overlap(self, assignment: torch.Tensor, tick: Tick = go_on) -> torch.Tensor:
        return cross_product(self.rows, assignment, tick)

    def plus(
        self, values: torch.Tensor, factor: torch.Tensor, out: torch.Tensor
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        for rows in row_blocks(self.rows):
            yield rows, torch.addmm(values[rows], self.rows[rows], factor, out=out[rows])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SharedBasis:
    """One row for all nodes of a group.

    Attributes
    ----------
    rows : Tensor of shape (n_groups, rank)
    nodes : EqualRows
    """

    rows: torch.Tensor
    nodes: EqualRows

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.nodes.group), self.rows.shape[1]

    def overlap(self, assignment: torch.Tensor, tick: Tick = go_on) -> torch.Tensor:
        total = torch.zeros(self.shape[1], assignment.shape[1], dtype=torch.float64)
        for groups in row_blocks(self.rows):
            tick()
            total += cross_product(self.rows[groups], self.nodes.sums(assignment, groups))
        return total

    def plus(
        self, values: torch.Tensor, factor: torch.Tensor, out: torch.Tensor
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        product = self.rows @ factor
        for rows in row_blocks(values):
            block = torch.index_select(product, 0, self.nodes.group[rows], out=out[rows])
            yield rows, block.add_(values[rows])


class JoinedBasis:
    """Bases of some nodes and of those that come next, of one rank."""

    def __init__(self, parts: Sequence[Basis]) -> None:
        ends = torch.tensor([part.shape[0] for part in parts]).cumsum(0).tolist()
        self._parts = [
            (slice(end - part.shape[0], end), part) for part, end in zip(parts, ends, strict=True)
        ]

    @property
    def shape(self) -> tuple[int, int]:
        rows, last = self._parts[-1]
        return rows.stop, last.shape[1]

    def overlap(self, assignment: torch.Tensor, tick: Tick = go_on) -> torch.Tensor:
        total = torch.zeros(self.shape[1], assignment.shape[1], dtype=torch.float64)
        for rows, part in self._parts:
            total += part.overlap(assignment[rows], tick)
        return total

    def plus(
        self, values: torch.Tensor, factor: torch.Tensor, out: torch.Tensor
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        for outer, part in self._parts:
            for inner, block in part.plus(values[outer], factor, out[outer]):
                yield slice(outer.start + inner.start, outer.start + inner.stop), block
