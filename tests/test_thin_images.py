"""Images that are one pixel thin along an axis."""

from __future__ import annotations

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.features import FEATURES

SHAPES = [(1, 12, 9, 3), (12, 1, 3), (1, 12, 3), (1, 2, 3)]


@pytest.mark.parametrize("features", [name for name in FEATURES if name != "deep"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_kind_of_features_takes_them(shape, features):
    image = np.random.default_rng(0).random(shape)
    problem = saf.Problem.from_image(
        image, features=features, window=1, channel_axis=-1, weights="uniform", max_side=None
    )
    assert len(problem.features) == np.prod(shape[:-1])
    assert np.isfinite(problem.features).all()
