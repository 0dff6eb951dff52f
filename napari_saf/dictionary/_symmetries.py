"""The 8 symmetries of the square, as they act on patches.

Symmetry k < 4 turns by k quarter turns counter-clockwise; symmetry 4 + k mirrors left and right
first, then turns. Turns undo each other, what mirrors undoes itself.
"""

from __future__ import annotations

import torch

__all__ = ["INVERSE", "N_SYMMETRIES", "all_transforms", "transform"]

N_SYMMETRIES = 8
INVERSE = (0, 3, 2, 1, 4, 5, 6, 7)
"""The symmetry that undoes each symmetry."""


def transform(patches: torch.Tensor, symmetry: int) -> torch.Tensor:
    """Return patches (..., p, p) under one symmetry."""
    mirrored = patches.flip(-1) if symmetry >= 4 else patches
    return torch.rot90(mirrored, symmetry % 4, (-2, -1))


def all_transforms(patches: torch.Tensor) -> torch.Tensor:
    """Return patches (n, channels, p, p) under every symmetry: (n, 8, channels, p, p)."""
    return torch.stack([transform(patches, k) for k in range(N_SYMMETRIES)], dim=1)
