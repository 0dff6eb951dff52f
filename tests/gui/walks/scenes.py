"""Images whose right labels are known."""

from __future__ import annotations

import numpy as np


def wall(seed: int = 0, shape: tuple[int, int] = (64, 80)) -> tuple[np.ndarray, np.ndarray]:
    """Return stripes over a chequered half, and which texture is where."""
    rows, columns = np.indices(shape)
    texture = (rows >= shape[0] // 2).astype(int)
    stripes = np.where(columns // 4 % 2, 0.8, 0.2)
    chequered = np.where((rows // 4 + columns // 4) % 2, 0.7, 0.3)
    noise = np.random.default_rng(seed).normal(0, 0.03, shape)
    image = np.where(texture, chequered, stripes) + noise
    return (255 * np.clip(image, 0, 1)).astype(np.uint8), texture


def share_told_apart(labels: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of pixels that are right once each label stands for its usual truth."""
    counts = np.zeros((int(labels.max()) + 1, int(truth.max()) + 1), dtype=int)
    np.add.at(counts, (labels.ravel(), truth.ravel()), 1)
    return float(counts.max(axis=1).sum() / truth.size)
