"""What the integrators need of a flow."""

from __future__ import annotations

from typing import Protocol

import torch

__all__ = ["VectorField"]


class VectorField(Protocol):
    """Right-hand side of dV/dt = S(V), V the log coordinates of an assignment.

    Attributes
    ----------
    assignment : Tensor of shape (n_nodes, n_columns)
        softmax(V) of the last evaluation.
    scratch : pair of Tensor of shape (n_nodes, n_columns)
        Memory that anybody may overwrite between two evaluations.
    """

    @property
    def assignment(self) -> torch.Tensor:
        """See above."""

    @property
    def scratch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """See above."""

    def __call__(self, v: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Write the right-hand side at `v` into `out` and return it.

        The maxima of the rows of `v` lie within 40 of 0.
        """

    def tick(self) -> None:
        """Take notice of a wish to end, between blocks of work: raise what ends the run."""

    def new_field(self) -> torch.Tensor:
        """Return memory for a field of the shape of `assignment`."""

    def keep_columns(self, kept: torch.Tensor) -> None:
        """Forget all columns but those of the given indices."""
