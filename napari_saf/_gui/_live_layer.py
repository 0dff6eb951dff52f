"""The layer that shows a run. The only place that assigns the data of a layer."""

from __future__ import annotations

from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from napari.utils.colormaps import CyclicLabelColormap, label_colormap
from numpy.typing import NDArray

from napari_saf._gui._placement import Placement
from napari_saf.graph import AbstractGraph, GridGraph
from napari_saf.result import LabelImage, Segmentation

__all__ = ["METADATA_KEY", "LiveLayer", "is_result"]

METADATA_KEY = "napari_saf"
"""Entry of a result layer's metadata: recipe, prototypes, columns, status."""

_N_COLORS = 255


def is_result(layer: object) -> bool:
    """Tell whether a layer is a result that carries prototypes."""
    entry = layer.metadata.get(METADATA_KEY) if isinstance(layer, Labels) else None
    return isinstance(entry, dict) and entry.get("prototypes") is not None


class LiveLayer:
    """A Labels layer that follows a run, made with the first labels.

    All methods are for the main thread. A layer that the person removed, or whose array was
    replaced, is left alone.

    Parameters
    ----------
    viewer : napari.Viewer
    image : Image
        The layer that is labelled.
    method_name : str
        For the name of the layer.
    placement : Placement
        Where the labels lie.
    strokes : Labels, optional
        Strokes whose colours the labels take.
    """

    def __init__(
        self,
        viewer: napari.Viewer,
        image: Image,
        method_name: str,
        placement: Placement,
        strokes: Labels | None = None,
    ) -> None:
        self.image = image
        self.layer: Any = None
        self.points: Any = None
        self._viewer = viewer
        self._method_name = method_name
        self._placement = placement
        self._pixels: NDArray[Any] | None = None
        self._colors = label_colormap(_N_COLORS).colors
        if strokes is not None:
            self._colors[1:] = [strokes.get_color(label) for label in range(1, _N_COLORS + 1)]

    @property
    def is_lost(self) -> bool:
        """Whether the layer was made and is no longer there to write to."""
        if self.layer is None:
            return False
        return self.layer not in self._viewer.layers or self.layer.data is not self._pixels

    def color(self, column: int) -> NDArray[np.float32]:
        """Return the colour (r, g, b, a) of a column of the start."""
        return np.asarray(self._colors[column % _N_COLORS + 1])

    def show(self, labels: LabelImage, n_columns: int) -> None:
        """Show the labels (column + 1) of a run under way."""
        if self.layer is None:
            self._add(labels, n_columns)
        elif not self.is_lost:
            self._write(labels)
            self.layer.refresh(extent=False, thumbnail=False, highlight=False)

    def finish(self, result: Segmentation, graph: AbstractGraph | None = None) -> None:
        """Show the final labels, by size; each region keeps its colour.

        With the graph, pixels that stand for a label are marked by points.
        """
        assert not isinstance(result.labels, list)
        if self.layer is None:
            self._add(result.labels, len(result.history.label_shares.T))
        if self.is_lost:
            return
        self._write(result.labels)
        self.layer.colormap = self._colormap_by_rank(result.columns)
        self.layer.metadata[METADATA_KEY] = {
            "recipe": result.recipe,
            "prototypes": result.prototypes,
            "columns": result.columns,
            "status": result.status.value,
        }
        self.layer.refresh(extent=False)
        if result.exemplars is not None and isinstance(graph, GridGraph):
            self._mark(graph.positions(result.exemplars), result.columns)

    def _mark(self, positions: NDArray[np.int64], columns: NDArray[np.int64]) -> None:
        """Show points at pixels, in the colours of their columns."""
        places = np.array([self._placement.shape(tuple(place)) for place in positions], float)
        places[:, list(self._placement.singletons)] = 0
        colors = np.array([self.color(column) for column in columns])
        numbers = {"label": np.arange(1, len(columns) + 1)}
        if self.points is not None and self.points in self._viewer.layers:
            self.points.data = places
            self.points.features, self.points.face_color = numbers, colors
            return
        assert self._pixels is not None
        sides = [side for side in self._pixels.shape if side > 1]
        self.points = self._viewer.add_points(
            places,
            name=f"{self.layer.name} typical pixels",
            features=numbers,
            face_color=colors,
            border_color="white",
            border_width=0.15,
            size=max(3, min(sides[-2:]) / 40),
            out_of_slice_display=len(sides) > 2,
            **self._placement.transform,
        )
        self._viewer.layers.selection.active = self.layer

    def _add(self, labels: LabelImage, n_columns: int) -> None:
        shape = self._placement.shape(labels.shape)
        self._pixels = labels.reshape(shape).astype(np.uint8 if n_columns < 256 else np.uint16)
        self.layer = self._viewer.add_labels(
            self._pixels,
            name=f"{self.image.name} [{self._method_name.upper()}]",
            colormap=CyclicLabelColormap(colors=self._colors, background_value=0),
            metadata={METADATA_KEY: {}},
            **self._placement.transform,
        )
        self._pixels = self.layer.data

    def _write(self, labels: LabelImage) -> None:
        assert self._pixels is not None
        self._pixels[...] = labels.reshape(self._pixels.shape)

    def _colormap_by_rank(self, columns: NDArray[np.int64]) -> CyclicLabelColormap:
        """Return the colormap that gives label l the colour of its column.

        The columns that died come after, so that labels a person paints later have colours.
        """
        used = columns % _N_COLORS
        free = np.setdiff1d(np.arange(_N_COLORS), used)
        order = np.concatenate([used, free])[:_N_COLORS]
        colors = np.concatenate([self._colors[:1], self._colors[1:][order]])
        return CyclicLabelColormap(colors=colors, background_value=0)
