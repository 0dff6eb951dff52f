"""Metadata of layers: recipe, prototypes, history, names and soft labels of results."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import napari
import numpy as np
from napari.layers import Labels, Layer
from numpy.typing import NDArray

from napari_saf.errors import InvalidInput
from napari_saf.graph import GraphUnion, GridGraph
from napari_saf.io import PrototypeSet, count_labels, soft_images, with_prototypes
from napari_saf.methods import METHODS
from napari_saf.pipeline import Pipeline
from napari_saf.problem import Problem
from napari_saf.result import LabelImage, Segmentation

METADATA_KEY = "napari_saf"
"""Entry of a result layer's metadata: recipe, prototypes, label numbers of columns, status,
history, and which part of which image it is."""

PARTS_KEY = "parts"
"""Entry of that: the prototypes of labels that have several, by label."""

MAP_KEY = "is_map"
"""Entry of that of a probability map."""

STORE_KEY = "store"
"""Entry of that of labels of a large image: the folder that they are written to."""

LEVEL_KEY = "level"
"""Entry of that of numbered regions: the level at which they were merged."""

UNCHOSEN_KEY = "napari_saf_unchosen"
"""Entry of numbered regions that are selected because they came into view by themselves."""

STROKES_KEY = "napari_saf_strokes"
"""Entry of the metadata of a layer of strokes: the id of the image they were painted on."""

ARE_STROKES = "these are strokes, not the labels that came of them: most pixels may be 0"

RESTORED_KEY = "napari_saf_restored"
"""Entry of the metadata of strokes and labels that came with a project."""

OBJECTS_KEY = "napari_saf_objects"
"""Entry of the metadata of a layer of objects: the kind of each object by its number."""

CLASSES_KEY = "napari_saf_classes"
"""Entry of a layer of objects: names of their classes, and the class of those that were clicked."""

EDITED_KEY = "napari_saf_edited"
"""Entry of labels that were changed by hand; of a result among those that its next run replaces."""

EDITS_KEY = "napari_saf_edits"
"""Entry at the same place: what was done to the labels since, in words."""

FOLLOWED_KEY = "followed"
"""Entry of the metadata of a result: checksum of the strokes that its labels follow."""

UNCERTAINTY_KEY = "uncertainty"
"""Entry of the metadata of a result: the share of uncertain pixels, of labels of a project."""

NAMES_KEY = "class_names"
"""Entry of a layer's metadata: the name of each label that has one."""

SOFT_KEY = "soft_labels"
"""Entry of the metadata of a result: its soft labels."""
_MOST_BYTES = 2**29
"""Of the soft labels of all layers of a viewer."""


def metadata_of(layer: Any) -> dict[str, Any]:
    """Return what a layer carries as a result; empty if it is none."""
    entry = layer.metadata.get(METADATA_KEY)
    return entry if isinstance(entry, dict) else {}


def image_id_of(layer: Any) -> str:
    """Return the id of the image that a result or strokes are of; empty where not known."""
    return str(metadata_of(layer).get("image") or layer.metadata.get(STROKES_KEY) or "")


def restored_layers(viewer: napari.Viewer, image: Any) -> list[Any]:
    """Return the strokes and labels of an image that came with a project, the lowest first."""
    layers = [layer for layer in viewer.layers if RESTORED_KEY in layer.metadata]
    return [layer for layer in layers if image_id_of(layer) == str(image.unique_id)]


def is_strokes(layer: Any) -> bool:
    return layer is not None and STROKES_KEY in layer.metadata


def is_given(layer: Layer) -> bool:
    """Tell whether a layer was not computed here."""
    return METADATA_KEY not in layer.metadata


def prototypes_of(layer: Any) -> NDArray[np.floating] | None:
    """Return the prototypes that a layer carries, row l - 1 for label l, or None."""
    prototypes = metadata_of(layer).get("prototypes")
    return prototypes if isinstance(prototypes, np.ndarray) and prototypes.ndim == 2 else None


def points_of(layer: Any) -> dict[int, NDArray[np.floating]]:
    """Return the prototypes (n_rows, n_features) of each label that has some, ascending.

    Merged labels have those of all their parts.
    """
    table, parts = prototypes_of(layer), metadata_of(layer).get(PARTS_KEY)
    if table is None:
        return {}
    finite = np.isfinite(table).all(axis=1)
    points = {int(k) + 1: table[k : k + 1] for k in np.flatnonzero(finite)}
    several = parts if isinstance(parts, dict) else {}
    width = table.shape[1:]
    return points | {
        label: rows
        for label, rows in several.items()
        if label in points
        and isinstance(rows, np.ndarray)
        and rows.shape[1:] == width
        and len(rows)
    }


def prototype_entries(points: Mapping[int, NDArray[np.floating]]) -> dict[str, Any]:
    """Return entries of a result for the prototypes (n_rows, n_features) of labels."""
    means = None
    if points:  # that of label l in row l - 1
        width = next(iter(points.values())).shape[1]
        means = np.full((max(points), width), np.nan, dtype=np.float32)
        for label, rows in points.items():
            means[label - 1] = rows.mean(axis=0)
    return {
        "prototypes": means,
        PARTS_KEY: {n: rows for n, rows in points.items() if len(rows) > 1},
    }


def is_result(layer: object) -> bool:
    return isinstance(layer, Labels) and metadata_of(layer).get("prototypes") is not None


def is_regions(layer: object) -> bool:
    return isinstance(layer, Labels) and LEVEL_KEY in metadata_of(layer)


def labels_to_choose(viewer: Any) -> Any:
    """Return the active Labels layer, else the topmost, visible ones first; None without one.

    Instead of strokes it is their result, and regions only if they are active.
    """
    active = viewer.layers.selection.active
    # Pyramids cannot be edited.
    labels = [
        layer for layer in viewer.layers if isinstance(layer, Labels) and not layer.multiscale
    ]
    if active in labels and not is_strokes(active) and not active.metadata.get(UNCHOSEN_KEY):
        return active
    image = image_id_of(active) if active in labels else ""

    def rank(layer: Labels) -> tuple[bool, ...]:
        is_of_image = not image or image_id_of(layer) == image
        return not is_strokes(layer), not is_regions(layer), is_of_image, layer.visible

    return max(reversed(labels), key=rank, default=None)


def colors_of(layer: Labels, numbers: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the colours (r, g, b, a) of labels on a layer, of shape (n, 4)."""
    # A colormap that shows the chosen label alone would leave the others black.
    colormap = layer.colormap.model_copy(update={"use_selection": False})
    colors = np.asarray(colormap.map(numbers), dtype=float).reshape(-1, 4)
    return np.asarray(np.clip(colors, 0, 1))


def stored_recipe(layer: Any) -> Any:
    return metadata_of(layer).get("recipe")


def carry_objects(layer: Any, step: dict[str, Any]) -> None:
    """Let the recipe of a layer, if it has one, split its labels into objects."""
    raw = stored_recipe(layer)
    if isinstance(raw, dict):
        metadata_of(layer)["recipe"] = raw | {"objects": step}


def raw_recipe(layer: Any) -> Any:
    """Return the stored recipe with its prototypes as they are now: edited, named, coloured."""
    raw, points = stored_recipe(layer), points_of(layer)
    if not isinstance(raw, dict) or "taught" not in raw or not points:
        return raw
    colors = colors_of(layer, np.array([*points]))[:, :3].tolist()
    by_label = dict(zip(points, colors, strict=True))
    return with_prototypes(
        raw, PrototypeSet.from_points(points, names=class_names(layer), colors=by_label)
    )


def recipe_of(layer: Any) -> Pipeline:
    """Return the recipe that a layer carries; InvalidInput where none can be repeated."""
    raw = stored_recipe(layer)
    if raw is None:
        raise InvalidInput("these labels come without a recipe: they were not computed here")
    if isinstance(raw, dict) and str(raw.get("method")) not in METHODS:
        raise InvalidInput("what made these labels is repeated in its own dock")
    try:
        return Pipeline.from_plain(raw_recipe(layer))
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InvalidInput(f"the recipe cannot be repeated: {error}") from error


def class_names(layer: Labels) -> dict[int, str]:
    """Return the names of labels that the metadata hold, as far as they are names."""
    names = layer.metadata.get(NAMES_KEY)
    if not isinstance(names, dict):
        return {}
    pairs = {str(key): str(name).strip() for key, name in names.items()}
    return {int(key): name for key, name in pairs.items() if key.isdigit() and name}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SoftLabels:
    """The assignment of a run at the nodes of a grid, and the label on screen of each column.

    Pixels that were `locked`, 0 elsewhere, are of their label alone. The uncertainty of the nodes
    is that of labels by strokes, None for others: it tells where things touch.
    """

    grid: GridGraph
    assignment: NDArray[np.float32]
    numbers: NDArray[np.int64]
    locked: LabelImage | None = None
    uncertainty: NDArray[np.float32] | None = None

    @classmethod
    def of(
        cls, problem: Problem, result: Segmentation, locked: LabelImage | None = None
    ) -> SoftLabels | None:
        """Return those of the image that was asked for, the last; its labels are as on screen."""
        grid, assignment = problem.graph, result.assignment
        uncertainty = None if problem.seeds is None else result.uncertainty
        if isinstance(grid, GraphUnion):
            nodes = grid.slices[-1]
            grid, assignment = grid.grids[-1], assignment[nodes]
            uncertainty = None if uncertainty is None else uncertainty[nodes]
        if not isinstance(grid, GridGraph) or len(assignment) != grid.n_nodes:
            return None
        numbers = result.label_map.numbers
        return cls(grid.without_weights(), assignment, numbers, locked, uncertainty)

    @property
    def labels(self) -> list[int]:
        fixed = [] if self.locked is None else count_labels(self.locked)[0].tolist()
        return sorted({*self.numbers.tolist(), *fixed} - {0})

    def images(self, labels: Collection[int]) -> NDArray[np.float32]:
        """Return maps of labels (n_labels, ...) in the shape of what was labelled."""
        maps = np.asarray(soft_images(self.grid, self.assignment, self.numbers, labels))
        if self.locked is not None:
            for map_, label in zip(maps, labels, strict=True):
                map_[self.locked == label] = 1
        return maps


def trim_soft_labels(viewer: napari.Viewer, newest: Labels) -> None:
    """Drop soft labels beyond a memory limit, those of the newest and topmost layers last."""
    n_bytes = 0
    for layer in (newest, *(layer for layer in reversed(viewer.layers) if layer != newest)):
        soft = soft_labels_of(layer)
        n_bytes += 0 if soft is None else soft.assignment.nbytes
        if n_bytes > _MOST_BYTES:
            forget_soft_labels(layer)


def forget_soft_labels(layer: Any) -> None:
    metadata_of(layer).pop(SOFT_KEY, None)


def soft_labels_of(layer: Any) -> SoftLabels | None:
    """Return the soft labels that a layer carries, or None."""
    soft = None if layer is None else metadata_of(layer).get(SOFT_KEY)
    return soft if isinstance(soft, SoftLabels) else None
