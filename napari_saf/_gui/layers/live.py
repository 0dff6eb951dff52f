"""Layers that show a run; the only module that assigns the data of a layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from napari.utils.colormaps import Colormap, CyclicLabelColormap, label_colormap
from numpy.typing import NDArray
from skimage.color import deltaE_ciede2000, rgb2lab

from napari_saf._gui.layers import metadata
from napari_saf._gui.layers.placement import Placement, placement_of, world_affine
from napari_saf._gui.layers.view import insert_above, selection_kept
from napari_saf.arrays import JsonObject
from napari_saf.graph import AbstractGraph, GridGraph
from napari_saf.io import PrototypeSet, with_level, with_prototypes
from napari_saf.regions import RegionHierarchy
from napari_saf.result import LabelImage, Segmentation

N_COLORS = 255
"""Number of distinct label colours; larger labels repeat them."""
_HEX = (
    "e69f00 56b4e9 009e73 f0e442 cc79a7 d55e00 0072b2 "
    "8000e6 666600 b20d40 26f2ff 80ff1a a6e6bf 8073ff "
    "266640 ff8073 bfb2f2 8ca633 805940 73668c ffd9b2"
)
_FIRST = np.frombuffer(bytes.fromhex(_HEX), np.uint8).reshape(-1, 3) / 255
"""Palette of Okabe and Ito, safe for colour blindness, and 14 more distinct colours."""
_N_APART, _APART = 10, 20.0
"""Number of largest labels whose colours are kept apart, and their least CIEDE2000 distance."""

_DARK = 0.45
"""Upper bound of red, green and blue of a dark colour."""
_GROUND_KEY = "napari_saf_ground"
"""Metadata key of a result whose largest label is transparent: that label."""
_N_SAMPLES = 200_000
_MOST_UNDOABLE = 2**22
"""Maximal number of changed pixels of an undo step, which limits the memory of indices."""
_CLEAR_TO_WHITE = Colormap([[1, 1, 1, 0], [1, 1, 1, 1]], name="clear to white")
_LABEL_COLORS = np.array(label_colormap(N_COLORS).colors, dtype=np.float32)
"""Computed on import: the call in napari warns, and warning filters are not thread-safe."""
_LABEL_COLORS[1 : 1 + len(_FIRST), :3] = _FIRST


def label_colors(chosen: Mapping[int, Sequence[float]] | None = None) -> NDArray[np.float32]:
    """Return RGBA by label (256, 4), row 0 for no label.

    Colours in `chosen` override those of their labels.
    """
    colors = _LABEL_COLORS.copy()
    for label, color in sorted((chosen or {}).items(), reverse=True):
        colors[(label - 1) % N_COLORS + 1, : len(color)] = color
    return colors


def separate(colors: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the first colours (n, >= 3), those too similar to an earlier one replaced."""
    result, spare = np.array(colors[:_N_APART]), _FIRST
    for k in range(1, len(result)):
        if _least_difference(result[k : k + 1], result[:k])[0] < _APART:
            apart = _least_difference(spare, np.delete(result, k, axis=0))
            result[k, :3] = spare[apart.argmax()]
    return result


def _least_difference(
    colors: NDArray[np.floating], references: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Return the least CIEDE2000 distance of each colour to the reference colours."""
    lab, reference_lab = rgb2lab(colors[:, None, :3]), rgb2lab(references[None, :, :3])
    return np.asarray(deltaE_ciede2000(lab, reference_lab).min(axis=1))


def colormap_of(colors: NDArray[np.floating]) -> CyclicLabelColormap:
    """Return a colormap of colours by label; 0 is the background."""
    return CyclicLabelColormap(colors=colors, background_value=0)


def show_ground(layer: Any, is_shown: bool) -> None:
    """Show the largest label of a result, or make it transparent, as in 3-D views."""
    colors = np.array(getattr(layer.colormap, "colors", ()))
    if is_shown:
        label = layer.metadata.pop(_GROUND_KEY, None)
    else:
        sample = layer.data.reshape(-1)[:: max(1, layer.data.size // _N_SAMPLES)]
        numbers, sizes = np.unique(sample, return_counts=True)
        label = int(numbers[np.where(numbers > 0, sizes, 0).argmax()])
        layer.metadata[_GROUND_KEY] = label
    if label and len(colors) > 1:
        colors[(label - 1) % (len(colors) - 1) + 1, 3] = is_shown
        layer.colormap = colormap_of(colors)


class LiveLayer:
    """A Labels layer that follows a run, created with the first labels.

    All methods must be called in the main thread. A layer that the user removed, or whose array
    was replaced, is not written to. The title is appended to the name in brackets. Labels take
    the colours of the strokes or of `colors` (256, 4), and their names from `names`.
    """

    def __init__(
        self,
        viewer: napari.Viewer,
        image: Image,
        title: str,
        placement: Placement,
        strokes: Labels | None = None,
        colors: NDArray[np.floating] | None = None,
        names: Mapping[int, str] | None = None,
    ) -> None:
        self.image, self._names = image, names
        self.layer: Any = None
        self.points: Any = None
        self.placement = placement
        self._viewer, self.title, self._strokes = viewer, title, strokes
        self._pixels: NDArray[Any] | None = None
        self._edited: NDArray[Any] | None = None
        self._keeps_colors = strokes is not None or colors is not None
        self._is_by_rank = False
        self._colors = label_colors() if colors is None else colors
        self._take_colors()

    def take_up(self, layer: Labels, shape: tuple[int, ...]) -> bool:
        """Continue in an existing layer, if labels of this shape fit into it."""
        world = self.placement.world
        n_bytes = 1 if self._strokes is None else self._strokes.data.dtype.itemsize
        fits = type(layer.data) is np.ndarray and layer.data.shape == self.placement.shape(shape)
        fits = fits and layer.data.dtype.itemsize >= n_bytes
        if fits and world is not None and np.allclose(world_affine(layer), world):
            self.layer, self._pixels = layer, layer.data
        return self.layer is layer

    @property
    def is_lost(self) -> bool:
        """Whether the layer was created and can no longer be written to."""
        if self.layer is None:
            return False
        return self.layer not in self._viewer.layers or self.layer.data is not self._pixels

    def color(self, column: int) -> NDArray[np.float32]:
        return np.asarray(self._colors[column % N_COLORS + 1])

    def color_of(self, label: int) -> NDArray[np.floating]:
        if self.layer is None:
            return self.color(label - 1)
        return np.asarray(metadata.colors_of(self.layer, np.array([label]))[0])

    @property
    def source(self) -> JsonObject:
        return self.placement.entry(self.image)

    def show(self, labels: LabelImage, n_labels: int) -> None:
        if self.layer is None:
            self._add(labels, n_labels)
        elif not self.is_lost:
            self._write(labels)
            if self._is_by_rank:
                self._is_by_rank = False
                self.layer.colormap = colormap_of(self._colors)
            self.layer.refresh(extent=False, highlight=False)

    def finish(
        self,
        result: Segmentation,
        graph: AbstractGraph | None = None,
        soft: metadata.SoftLabels | None = None,
    ) -> None:
        """Show the final labels, numbered by size or as the strokes; regions keep their colours.

        With the graph, representative pixels of labels are marked by points. The soft labels are
        stored in the metadata.
        """
        assert not isinstance(result.labels, list)
        if self.layer is None:
            self._add(result.labels, int(result.labels.max()))
        if self.is_lost:
            return
        self._write(result.labels)
        self._add_undo_step()
        self._describe(result, graph, soft)
        self.layer.refresh(extent=False)

    def _describe(
        self, result: Segmentation, graph: AbstractGraph | None, soft: metadata.SoftLabels | None
    ) -> None:
        if not self._keeps_colors:
            # Extinct columns come last, so that labels painted later have colours.
            order = result.label_map.extended(N_COLORS).columns[:N_COLORS] % N_COLORS
            largest = order[: min(_N_APART, len(result.columns))] + 1
            self._colors[largest] = separate(self._colors[largest])
            self.layer.colormap = colormap_of(self._colors[[0, *(order + 1)]])
            self._is_by_rank = True
        self.layer.metadata[metadata.METADATA_KEY] = self.source | {
            "recipe": result.recipe,
            "prototypes": result.prototypes,
            metadata.PARTS_KEY: result.parts,
            "numbers": result.label_map.numbers,
            "status": result.status.value,
            "history": result.history,
            metadata.SOFT_KEY: soft,
        }
        metadata.trim_soft_labels(self._viewer, self.layer)
        if result.exemplars is not None and isinstance(graph, GridGraph):
            self._mark(graph, result.exemplars)

    def teach(self, prototypes: PrototypeSet) -> None:
        """Store prototypes learned from the strokes with the result, for other images."""
        entry = metadata.metadata_of(self.layer)
        if not self.is_lost and isinstance(entry.get("recipe"), dict):
            parts = prototypes.by_label()
            # Locked labels were excluded from the run and have no row yet.
            rows = metadata.prototype_entries({**parts, **metadata.points_of(self.layer)})
            recipe = with_prototypes(entry["recipe"], prototypes)
            learned = rows | {metadata.PARTS_KEY: parts, "recipe": recipe}
            self.layer.metadata[metadata.METADATA_KEY] = entry | learned
            self.layer.events.set_data()  # metadata have no event of their own

    def labels(self) -> LabelImage:
        """Return the labels on screen, in the shape of the labelled region."""
        assert self._pixels is not None
        return np.squeeze(self._pixels, axis=self.placement.singletons)

    def clear(self) -> None:
        if self._pixels is not None and not self.is_lost:
            self._pixels[...] = 0
            self.layer.refresh(extent=False, highlight=False)

    def recolor(self) -> None:
        self._take_colors()
        if not self.is_lost and self.layer is not None:
            self.layer.colormap = colormap_of(self._colors)

    def _take_colors(self) -> None:
        if self._strokes is not None:
            self._colors[1:] = metadata.colors_of(self._strokes, np.arange(1, N_COLORS + 1))

    def _mark(self, graph: GridGraph, nodes: NDArray[np.int64]) -> None:
        """Show a point at the node of each label, in its colour, hidden with the labels."""
        labels = np.flatnonzero(nodes >= 0) + 1
        previous = self.points
        sides = [side for side in self.layer.data.shape if side > 1]
        self.points = show_points(
            self._viewer,
            self.image,
            self.points,
            graph.positions(nodes[labels - 1]),
            self.placement,
            name=f"{self.layer.name} typical pixels",
            size=max(3, min(sides[-2:]) / 40),
            projection_mode="rescale_linear",
        )
        if self.points is not previous:
            points = self.points

            def follow(event: Any) -> None:  # napari holds bound methods weakly
                points.visible = event.source.visible

            self.layer.events.visible.connect(follow)
        self.points.features = {"label": labels}
        self.points.face_color = metadata.colors_of(self.layer, labels)

    def _add(self, labels: LabelImage, n_labels: int) -> None:
        # Strokes of a larger dtype may contain larger labels.
        n_bytes = 1 if self._strokes is None else self._strokes.data.dtype.itemsize
        least = {1: np.uint8, 2: np.uint16}.get(n_bytes, np.uint32)
        dtype = np.result_type(least, np.min_scalar_type(n_labels))
        # The new layer is selected, unless strokes are being painted.
        with nullcontext() if self._strokes is None else selection_kept(self._viewer):
            self.layer = self._viewer.add_labels(
                labels.reshape(self.placement.shape(labels.shape)).astype(dtype),
                name=f"{self.image.name} [{self.title}]",
                colormap=colormap_of(self._colors),
                metadata={metadata.METADATA_KEY: self.source}
                | ({metadata.NAMES_KEY: dict(self._names)} if self._names else {}),
                **self.placement.transform,
            )
        self._pixels = self.layer.data
        insert_above(self._viewer, self.layer, self.image, self._strokes)

    def _write(self, labels: LabelImage) -> None:
        assert self._pixels is not None
        if self._edited is None and metadata.metadata_of(self.layer).get(metadata.EDITED_KEY):
            self._edited = self._pixels.copy()
        self._pixels[...] = labels.reshape(self._pixels.shape)

    def _add_undo_step(self) -> None:
        """Add an undo step for edited labels that the run overwrites."""
        edited, pixels, self._edited = self._edited, self._pixels, None
        if edited is None or pixels is None:
            return
        changed = np.nonzero(edited != pixels)
        if 0 < len(changed[0]) <= _MOST_UNDOABLE:
            labels = pixels[changed]
            pixels[changed] = edited[changed]
            with self.layer.events.paint.blocker():  # no user edit
                self.layer.data_setitem(changed, labels, refresh=False)


class RegionsLayer(LiveLayer):
    """A layer of the numbered regions of a result at any level, above it, not made active.

    A region has the colour of its largest part at every level.
    """

    def __init__(self, viewer: napari.Viewer, result: LiveLayer) -> None:
        title = ", ".join(filter(None, [result.title, "regions"]))
        super().__init__(viewer, result.image, title, result.placement)
        self._result, self._palette, self._level = result, label_colors(), 0.0
        is_dark = self._palette[:, :3].max(axis=1) < _DARK
        self._palette[1:][is_dark[1:], :3] += _DARK  # dark regions would look like gaps

    @property
    def source(self) -> JsonObject:
        recipe = metadata.raw_recipe(self._result.layer)
        source = super().source | {metadata.LEVEL_KEY: self._level}
        if isinstance(recipe, dict):
            source["recipe"] = with_level(recipe, self._level)
        return source

    def show_level(self, tree: RegionHierarchy, level: float) -> int:
        """Show the regions of a hierarchy at a level, and return how many there are."""
        self._level, numbers = level, tree.numbers_at_level(level).astype(np.uint32)
        descending = 1 + np.argsort(-tree.sizes[1:], kind="stable")
        _, first = np.unique(numbers[descending], return_index=True)
        shown = first[:N_COLORS]  # the rank, by size, of the largest part of each region
        self._colors = self._palette.copy()
        self._colors[1 : len(shown) + 1] = self._palette[shown % N_COLORS + 1]
        if self.layer is not None and not self.is_lost:
            self.layer.metadata[metadata.METADATA_KEY] = self.source
            self.layer.colormap = colormap_of(self._colors)
        self.show(numbers[tree.finest], len(tree.sizes) - 1)
        return int(numbers.max())

    def _add(self, labels: LabelImage, n_labels: int) -> None:
        layers = self._viewer.layers
        with selection_kept(self._viewer):
            super()._add(labels, n_labels)
        layers.move(layers.index(self.layer), layers.index(self._result.layer) + 1)


class EditedLayer(LiveLayer):
    """An existing Labels layer of a numpy array, with its colours and metadata."""

    def __init__(self, viewer: napari.Viewer, image: Any, layer: Labels) -> None:
        title = layer.name.partition("[")[2].partition("]")[0]
        super().__init__(viewer, image, title, placement_of(layer))
        self.layer, self._pixels = layer, layer.data

    def write(self, labels: NDArray[Any], mask: NDArray[np.bool_]) -> None:
        """Write labels at the pixels of a mask; both arrays have the labelled axes only."""
        if not self.is_lost:
            np.copyto(self.labels(), labels, where=mask, casting="unsafe")
            metadata.forget_soft_labels(self.layer)
            self.layer.refresh(extent=False)

    def _describe(
        self, result: Segmentation, graph: AbstractGraph | None, soft: metadata.SoftLabels | None
    ) -> None:
        """Remove the soft labels, now outdated; other metadata is left to the caller."""
        metadata.forget_soft_labels(self.layer)


@dataclasses.dataclass(eq=False)
class UncertaintyLayer:
    """Image of the uncertainty of each pixel, above the labels and below strokes.

    The uncertainty `full` is brightest. Without `covers`, certain pixels are transparent and show
    the labels below.
    """

    viewer: napari.Viewer
    image: Image
    name: str
    placement: Placement
    strokes: Labels | None = None
    full: float = 0.5
    covers: bool = False
    layer: Any = None

    def show(self, values: NDArray[np.floating]) -> None:
        pixels = values.reshape(self.placement.shape(values.shape))
        if self.layer is not None and self.layer in self.viewer.layers:
            self.layer.data, self.layer.visible = pixels, True
            return
        with selection_kept(self.viewer):
            self.layer = self.viewer.add_image(
                pixels,
                name=f"{self.image.name} {self.name}",
                metadata=_metadata(self.image),
                colormap="magma" if self.covers else _CLEAR_TO_WHITE,
                contrast_limits=(0, self.full),
                blending="translucent",
                **self.placement.transform,
            )
        insert_above(self.viewer, self.layer, self.image, self.strokes)

    def hide(self) -> None:
        if self.layer is not None and self.layer in self.viewer.layers:
            self.layer.visible = False


def show_points(
    viewer: napari.Viewer,
    image: Image,
    points: Any,
    pixels: Any,
    placement: Placement,
    *,
    name: str,
    size: float,
    face_color: str = "white",
    projection_mode: str = "none",
) -> Any:
    """Show points at pixels of the labelled region of an image; return their layer."""
    positions = np.array([placement.shape(tuple(pixel)) for pixel in pixels], dtype=float)
    positions[:, list(placement.singletons)] = 0
    if points is not None and points in viewer.layers:
        points.data = positions
        return points
    with selection_kept(viewer):
        points = viewer.add_points(
            positions,
            name=name,
            size=size,
            face_color=face_color,
            border_color="white",
            border_width=0.15,
            projection_mode=projection_mode,
            metadata=_metadata(image),
            **placement.transform,
        )
    insert_above(viewer, points, image)
    return points


def _metadata(image: Image) -> metadata.Metadata:
    """Return metadata of a layer computed from an image."""
    return {metadata.METADATA_KEY: {"image": str(image.unique_id)}}
