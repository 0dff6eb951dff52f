"""What strokes on several images teach together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.errors import Cancelled, InvalidInput
from napari_saf.io import PrototypeSet
from napari_saf.methods import AbstractMethod, run_to_end
from napari_saf.problem import ImageOptions, Problem
from napari_saf.result import LabelMap, Status

_SHARED = ("features", "window", "weights", "channel_axis", "max_side")


def teach_together(
    images: Sequence[NDArray[Any]],
    seeds: Sequence[NDArray[Any]],
    method: AbstractMethod,
    options: ImageOptions,
    *,
    finite_only: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
) -> PrototypeSet:
    """Return what the strokes on several images teach, as a few means of features of each label.

    Those of all pixels that the method labels by the strokes, where all images show the same
    classes, else of the painted pixels alone: where a class was not painted its pixels would count
    for another one.

    Parameters
    ----------
    images : sequence of array
        Of as many channels.
    seeds : sequence of array of int
        Image-shaped, 0 where nothing was painted.
    method : AbstractMethod
        What labels by strokes.
    options : ImageOptions
        How the images become one problem; the result has them with the scaling that was found.
    finite_only : bool
        Leave out pixels that are NaN or infinite.
    cancelled : callable, optional
        Asked now and then; Cancelled is raised.

    Raises
    ------
    InvalidInput
        As `Problem.from_images`, or if the features say nothing of another image.
    """
    problem = Problem.from_images(
        list(images),
        seeds=list(seeds),
        masks="finite" if finite_only else None,
        **{name: getattr(options, name) for name in _SHARED},
    )
    if len({tuple(np.unique(one[one > 0])) for one in seeds}) > 1:
        return PrototypeSet.from_labels(problem)
    assert problem.seeds is not None
    classes = LabelMap.from_seeds(problem.seeds)
    problem = problem.with_seeds(classes.unpaint(problem.seeds))
    result = run_to_end(method.iterate(problem, cancelled=cancelled))
    if result.status is Status.CANCELLED:
        raise Cancelled
    labels = result.labels if isinstance(result.labels, list) else [result.labels]
    painted = [classes.extended(int(one.max(initial=0))).paint(one) for one in labels]
    taught = PrototypeSet.taught_by(problem, painted)
    if taught is None:
        raise InvalidInput("features: those of a layer, and positions, say nothing of other images")
    return taught
