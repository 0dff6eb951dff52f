"""What results keep of their soft labels, and the images that show them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import napari
import numpy as np
from napari.layers import Labels
from napari.utils.colormaps import Colormap
from numpy.typing import NDArray

from napari_saf._gui.layers.metadata import METADATA_KEY, image_id_of, metadata_of
from napari_saf.graph import GraphUnion, GridGraph
from napari_saf.io import soft_images
from napari_saf.problem import Problem
from napari_saf.result import LabelMap, Segmentation

SOFT_KEY = "soft_labels"
"""Entry of the metadata of a result: its soft labels."""
_MOST_BYTES = 2**29
"""Of the soft labels of all layers of a viewer."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SoftLabels:
    """The assignment of a run at the nodes of a grid, and the label on screen of each column."""

    grid: GridGraph
    assignment: NDArray[np.float32]
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, problem: Problem, result: Segmentation, classes: LabelMap) -> SoftLabels | None:
        """Return those of the image that was asked for, the last; `classes` are its labels."""
        grid, assignment = problem.graph, result.assignment
        if isinstance(grid, GraphUnion):
            own = grid.slices[-1]
            grid, assignment = grid.grids[-1], assignment[own]
        if not isinstance(grid, GridGraph) or len(assignment) != grid.n_nodes:
            return None
        columns = result.label_map.numbers
        shown = classes.extended(int(columns.max(initial=0))).numbers
        numbers = np.concatenate([[0], shown])[columns]
        return cls(grid.without_weights(), assignment, numbers)

    @property
    def labels(self) -> list[int]:
        return sorted({*self.numbers.tolist()} - {0})

    def images(self, labels: Collection[int]) -> NDArray[np.float32]:
        """Return maps of labels (n_labels, ...) in the shape of what was labelled."""
        return np.asarray(soft_images(self.grid, self.assignment, self.numbers, labels))


def trim_soft_labels(viewer: napari.Viewer, newest: Labels) -> None:
    """Let layers keep their soft labels only as far as memory goes; that of the newest comes first.

    After it come those at the top of the list.
    """
    left = _MOST_BYTES
    for layer in (newest, *(one for one in reversed(viewer.layers) if one != newest)):
        soft = soft_labels_of(layer)
        left -= 0 if soft is None else soft.assignment.nbytes
        if left < 0:
            forget_soft_labels(layer)


def forget_soft_labels(layer: Any) -> None:
    metadata_of(layer).pop(SOFT_KEY, None)


def soft_labels_of(layer: Any) -> SoftLabels | None:
    """Return the soft labels that a layer carries, or None."""
    found = None if layer is None else metadata_of(layer).get(SOFT_KEY)
    return found if isinstance(found, SoftLabels) else None


def show_probabilities(
    viewer: napari.Viewer,
    labels: Labels,
    name: str,
    color: NDArray[Any],
    values: NDArray[Any],
    covers: bool,
) -> None:
    """Show a map of a label, black to its colour, in place of an earlier one of the same name.

    The first covers what is below it, to which the others are added: their colours then mix.
    """
    title = f"{labels.name} P({name})"
    names = ("scale", "translate", "rotate", "shear", "units", "axis_labels")
    where = {one: getattr(labels, one) for one in names}
    pixels = values.reshape(labels.data.shape)
    same = (one for one in viewer.layers if one.name == title and one.data.shape == pixels.shape)
    layer = next(same, None)
    if layer is not None:
        layer.data, layer.visible = pixels, True
        layer.blending = "opaque" if covers else "additive"
        return
    ramp = Colormap([(0, 0, 0, 1), (*map(float, color[:3]), 1)], name=f"black to {name}")
    viewer.add_image(
        pixels,
        name=title,
        colormap=ramp,
        contrast_limits=(0, 1),
        blending="opaque" if covers else "additive",
        affine=labels.affine.affine_matrix,
        metadata={METADATA_KEY: {"image": image_id_of(labels)}},
        **where,
    )
