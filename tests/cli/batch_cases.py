"""A method whose process dies on some images, where other processes can import it."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, ClassVar

from napari_saf.methods import SelfAssignmentFlow

DEADLY = 63
"""Pixels of an image that no process survives."""


@dataclasses.dataclass(frozen=True)
class Deadly(SelfAssignmentFlow):
    """Self-assignment, but not of every image."""

    name: ClassVar[str] = "saf"

    def iterate(self, problem: Any, *arguments: Any, **options: Any) -> Any:
        """End the process, or do as usual."""
        if problem.n_nodes == DEADLY:
            os._exit(9)
        return super().iterate(problem, *arguments, **options)
