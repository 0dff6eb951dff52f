"""Colours of labels, the first of them far apart and seen on any image."""

from __future__ import annotations

import numpy as np
from napari.utils.colormaps import label_colormap
from numpy.typing import NDArray

__all__ = ["N_COLORS", "label_colors"]

N_COLORS = 255
"""Of labels; those of larger numbers repeat."""
_FIRST = (
    (0.90, 0.62, 0.00),
    (0.34, 0.71, 0.91),
    (0.00, 0.62, 0.45),
    (0.94, 0.89, 0.26),
    (0.80, 0.47, 0.65),
    (0.84, 0.37, 0.00),
    (0.00, 0.45, 0.70),
)
"""Okabe and Ito, told apart by all people; those of napari begin nearly black."""


def label_colors() -> NDArray[np.float32]:
    """Return red, green, blue and alpha by label, of shape (256, 4); that of 0 is for none."""
    colors = np.array(label_colormap(N_COLORS).colors, dtype=np.float32)
    colors[1 : 1 + len(_FIRST), :3] = _FIRST
    return colors
