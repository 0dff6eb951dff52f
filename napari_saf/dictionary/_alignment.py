"""Atoms of given labels: the best transforms and the mean of the turned patches, in turn."""

from __future__ import annotations

import torch

from napari_saf.dictionary._sample import PatchSample

__all__ = ["update_atoms"]


def update_atoms(
    sample: PatchSample, atoms: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, float]:
    """Turn and shift each patch onto its atom as well as it fits, and average.

    Parameters
    ----------
    sample : PatchSample
        n patches with their surroundings.
    atoms : Tensor of shape (n_atoms, n_channels, p, p)
        Where to start; atoms of empty labels stay.
    labels : Tensor of int of shape (n,)
        The atom of every patch.
    weights : Tensor of shape (n,)
        Weight of every patch, not negative.

    Returns
    -------
    atoms : Tensor of shape (n_atoms, n_channels, p, p)
    objective : float
        sum_i w_i min |T P_j - P*|^2 / sum_i w_i for the atoms that were given, j over the window
        of patch i and T over the symmetries. From round to round it never rises: the best fit
        lowers it, and so does the mean.

    Notes
    -----
    Eq. (6.13) of Zisler, Zern, Petra and Schnörr, https://doi.org/10.1137/19M1298639.
    """
    found = sample.align(atoms, labels)
    value = float((weights * found.distances).sum(dtype=torch.float64)) / float(weights.sum())
    sums = torch.zeros_like(atoms)
    sums.index_add_(0, labels, found.patches * weights[:, None, None, None])
    masses = torch.zeros_like(atoms[:, 0, 0, 0]).index_add_(0, labels, weights)
    means = sums / masses.clamp(min=1e-12)[:, None, None, None]
    return torch.where((masses > 0)[:, None, None, None], means, atoms), value
