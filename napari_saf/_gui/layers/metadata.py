"""Metadata of layers: recipe, prototypes, history, names and soft labels of results."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import napari
import numpy as np
from napari.layers import Labels, Layer
from numpy.typing import NDArray

from napari_saf.arrays import JsonObject
from napari_saf.errors import InvalidInput
from napari_saf.graph import GraphUnion, GridGraph
from napari_saf.io import PrototypeSet, count_labels, soft_images, with_prototypes
from napari_saf.methods import METHODS
from napari_saf.pipeline import Pipeline
from napari_saf.problem import Problem
from napari_saf.result import LabelImage, Segmentation

METADATA_KEY = "napari_saf"
"""Metadata key of a result: a dict of recipe, prototypes, label numbers of columns, status,
history, and the part of the image that was labelled."""

PARTS_KEY = "parts"
"""Key in that dict: the prototypes of labels that have several, by label."""

SCORE_KEY = "napari_saf_score"
"""Metadata key of a layer that shows the errors of labels."""

MAP_KEY = "is_map"
"""Key in that dict of a probability map."""

STORE_KEY = "store"
"""Key in that dict for labels of a large image: the folder that they are written to."""

LEVEL_KEY = "level"
"""Key in that dict for numbered regions: the level at which they were merged."""

UNCHOSEN_KEY = "napari_saf_unchosen"
"""Metadata key of numbered regions that were selected automatically, not by the user."""

STROKES_KEY = "napari_saf_strokes"
"""Metadata key of strokes: the id of the image that they were painted on."""

ARE_STROKES = "these are strokes, not the labels computed from them: most pixels may be 0"

RESTORED_KEY = "napari_saf_restored"
"""Metadata key of strokes and labels loaded from a project."""

OBJECTS_KEY = "napari_saf_objects"
"""Metadata key of an objects layer: the kind of each object by its number."""

CLASSES_KEY = "napari_saf_classes"
"""Metadata key of an objects layer: class names, and the class of each clicked object."""

EDITED_KEY = "napari_saf_edited"
"""Metadata key of labels edited by hand; for a result in the dict that its next run replaces."""

EDITS_KEY = "napari_saf_edits"
"""Key beside it: descriptions of the edits."""

FOLLOWED_KEY = "followed"
"""Metadata key of a result: checksum of the strokes that its labels were computed from."""

UNCERTAINTY_KEY = "uncertainty"
"""Metadata key of labels of a project: the share of uncertain pixels."""

NAMES_KEY = "class_names"
"""Metadata key: names by label."""

Metadata = dict[str, Any]
"""Metadata of a napari layer, or an entry of them."""
SOFT_KEY = "soft_labels"
"""Metadata key of a result: its soft labels."""
_MOST_BYTES = 2**29
"""Memory limit in bytes of the soft labels of all layers of a viewer."""


def metadata_of(layer: Any) -> Metadata:
    """Return the metadata of a result; empty for other layers."""
    entry = layer.metadata.get(METADATA_KEY)
    return entry if isinstance(entry, dict) else {}


def image_id_of(layer: Any) -> str:
    """Return the image id of a result or of strokes; empty if unknown."""
    return str(metadata_of(layer).get("image") or layer.metadata.get(STROKES_KEY) or "")


def restored_layers(viewer: napari.Viewer, image: Any) -> list[Any]:
    """Return the strokes and labels of an image loaded from a project, the lowest first."""
    layers = [layer for layer in viewer.layers if RESTORED_KEY in layer.metadata]
    return [layer for layer in layers if image_id_of(layer) == str(image.unique_id)]


def is_strokes(layer: Any) -> bool:
    return layer is not None and STROKES_KEY in layer.metadata


def is_given(layer: Layer) -> bool:
    """Return whether a layer was not computed by this plugin."""
    return METADATA_KEY not in layer.metadata


def prototypes_of(layer: Any) -> NDArray[np.floating] | None:
    """Return the prototypes of a layer, row l - 1 for label l, or None."""
    prototypes = metadata_of(layer).get("prototypes")
    return prototypes if isinstance(prototypes, np.ndarray) and prototypes.ndim == 2 else None


def points_of(layer: Any) -> dict[int, NDArray[np.floating]]:
    """Return the prototypes (n_rows, n_features) by label, ascending.

    A merged label has the prototypes of all its parts.
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


def prototype_entries(points: Mapping[int, NDArray[np.floating]]) -> JsonObject:
    """Return metadata of a result for the prototypes (n_rows, n_features) by label."""
    means = None
    if points:  # row l - 1 for label l
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
    """Return the active Labels layer, else the topmost, visible ones first; None without any.

    Strokes are replaced by their result; regions count only if active.
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
    """Return the RGBA (n, 4) of labels on a layer."""
    # With `use_selection` all labels but the selected one would be black.
    colormap = layer.colormap.model_copy(update={"use_selection": False})
    colors = np.asarray(colormap.map(numbers), dtype=float).reshape(-1, 4)
    return np.asarray(np.clip(colors, 0, 1))


def stored_recipe(layer: Any) -> Any:
    return metadata_of(layer).get("recipe")


def carry_objects(layer: Any, step: JsonObject) -> None:
    """Add a step to the recipe of a layer, if any, that splits its labels into objects."""
    raw = stored_recipe(layer)
    if isinstance(raw, dict):
        metadata_of(layer)["recipe"] = raw | {"objects": step}


def raw_recipe(layer: Any) -> Any:
    """Return the stored recipe with the current prototypes, names and colours."""
    raw, points = stored_recipe(layer), points_of(layer)
    if not isinstance(raw, dict) or "taught" not in raw or not points:
        return raw
    colors = colors_of(layer, np.array([*points]))[:, :3].tolist()
    by_label = dict(zip(points, colors, strict=True))
    return with_prototypes(
        raw, PrototypeSet.from_points(points, names=class_names(layer), colors=by_label)
    )


def recipe_of(layer: Any) -> Pipeline:
    """Return the recipe of a layer; raise InvalidInput if there is none to repeat."""
    raw = stored_recipe(layer)
    if raw is None:
        raise InvalidInput("these labels have no recipe: they were not computed by napari-saf")
    if isinstance(raw, dict) and str(raw.get("method")) not in METHODS:
        raise InvalidInput("these labels can be recomputed only in the dock that made them")
    try:
        return Pipeline.from_plain(raw_recipe(layer))
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InvalidInput(f"the recipe cannot be repeated: {error}") from error


def class_names(layer: Labels) -> dict[int, str]:
    """Return the valid label names in the metadata."""
    names = layer.metadata.get(NAMES_KEY)
    if not isinstance(names, dict):
        return {}
    pairs = {str(key): str(name).strip() for key, name in names.items()}
    return {int(key): name for key, name in pairs.items() if key.isdigit() and name}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SoftLabels:
    """The assignment of a run at the nodes of a grid, and the displayed label of each column.

    Pixels with a nonzero `locked` label have probability 1 of it. `uncertainty` (n_nodes,) is that
    of a run from strokes, else None; it is high where objects touch.
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
        """Return the soft labels of the last image of a problem, or None without a grid."""
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
        """Return the probability maps (n_labels, ...) of labels, in the shape of the region."""
        maps = np.asarray(soft_images(self.grid, self.assignment, self.numbers, labels))
        if self.locked is not None:
            for map_, label in zip(maps, labels, strict=True):
                map_[self.locked == label] = 1
        return maps


def trim_soft_labels(viewer: napari.Viewer, newest: Labels) -> None:
    """Drop soft labels that exceed the memory limit, those of the lowest layers first."""
    n_bytes = 0
    for layer in (newest, *(layer for layer in reversed(viewer.layers) if layer != newest)):
        soft = soft_labels_of(layer)
        n_bytes += 0 if soft is None else soft.assignment.nbytes
        if n_bytes > _MOST_BYTES:
            forget_soft_labels(layer)


def forget_soft_labels(layer: Any) -> None:
    metadata_of(layer).pop(SOFT_KEY, None)


def soft_labels_of(layer: Any) -> SoftLabels | None:
    """Return the soft labels of a layer, or None."""
    soft = None if layer is None else metadata_of(layer).get(SOFT_KEY)
    return soft if isinstance(soft, SoftLabels) else None
