"""Layers that objects are read from and shown in, with their mouse and key bindings."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels, Shapes
from napari.utils.colormaps import Colormap, CyclicLabelColormap, DirectLabelColormap
from numpy.typing import NDArray
from qtpy.QtCore import QObject, QTimer, Signal
from skimage.draw import line_nd, polygon

from napari_saf._gui.layers.metadata import OBJECTS_KEY, class_names, soft_labels_of
from napari_saf._gui.layers.placement import (
    image_region,
    labelled_image,
    pixels_of,
    place,
    place_entry,
    placement_of,
    squeezed_axes,
    steps_of,
    world_affine,
)
from napari_saf._gui.layers.reading import Pixels
from napari_saf._gui.layers.view import center_on, insert_above, visibility_of
from napari_saf._gui.napari_workarounds import camera_of, dims_of
from napari_saf._gui.objects.learning import ClassImage
from napari_saf.arrays import JsonObject
from napari_saf.io import (
    MASK_SUFFIXES,
    OUTLINE_SUFFIXES,
    TABLE_SUFFIXES,
    Scale,
    label_axes,
    mask_suffix,
    origin_of,
    save_masks,
    save_objects,
    save_table,
    scale_of,
)
from napari_saf.objects import (
    ObjectMeasures,
    Objects,
    Parts,
    Tracks,
    find_parts,
    lower_numbers,
    measure_objects,
    object_table,
)

Cancelled = Callable[[], bool]
Measures = dict[str, NDArray[Any]]
SAVE_FILTER = (
    "Table (*.csv *.parquet);;QuPath (*.geojson);;ImageJ ROIs (*.zip);;COCO (*.json);;"
    "Mask (*.tif *.png *.npy *.ome.zarr)"
)
_MOST_TRACKED = 4
"""Maximal number of axes of a Tracks layer."""
_KNOWN = (*TABLE_SUFFIXES, *OUTLINE_SUFFIXES, *MASK_SUFFIXES)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Snapshot of the layers that objects are read from.

    Axes of one pixel that stand for the labelled slice are left out. Pixels are read in the worker
    thread, as layers may be lazy. `uncertainty` is a layer, or None for that of the run that made
    the labels.
    """

    layer: Labels
    labels: Pixels
    axes: tuple[int, ...]
    names: Mapping[int, str]
    image: Pixels | None
    uncertainty: Callable[[Cancelled], NDArray[Any]] | None
    scale: Scale | None
    units: Sequence[str]
    channel_axis: int | None
    slice_axis: int | None
    sizes: tuple[float, ...]
    origin: Sequence[float] | None
    place: JsonObject | None

    @classmethod
    def of(
        cls, layer: Labels, image: Image | None, uncertainty: Image | str | None, *, by_slice: bool
    ) -> Source:
        axes = tuple(squeezed_axes(layer))
        index = tuple(slice(None) if axis in axes else 0 for axis in range(layer.ndim))
        region = None if image is None else image_region(layer, image)
        world = world_affine(layer)
        return cls(
            layer,
            Pixels(pixels_of(layer), index),
            axes,
            class_names(layer),
            None if region is None else Pixels(pixels_of(image), region[0]),
            _uncertainty_reader(layer, uncertainty),
            scale_of(world, axes),
            [str(layer.units[axis]) for axis in axes],
            None if region is None else region[1],
            0 if by_slice and len(axes) > 2 else None,
            steps_of(layer, axes).sizes,
            origin_of(world, axes),
            place_entry(layer),
        )

    def find_parts(self, kinds: Sequence[int], cancelled: Cancelled) -> Parts:
        parts, _ = find_parts(
            self.labels.read(cancelled),
            image=None if self.image is None else self.image.read(cancelled),
            channel_axis=self.channel_axis,
            uncertainty=None if self.uncertainty is None else self.uncertainty(cancelled),
            spacing=self.scale,
            axis=self.slice_axis,
            kinds=kinds,
        )
        return parts

    def split(
        self, kinds: Sequence[int], smallest: int, neck: float, cancelled: Cancelled
    ) -> tuple[Parts, tuple[Objects, Measures]]:
        """Split labels into parts; return the parts, and the objects with their measures."""
        Labels(np.zeros((1, 1), np.uint32))  # napari computes the colours of a dtype at first use
        parts = self.find_parts(kinds, cancelled)
        return parts, self.join(parts, smallest, neck, cancelled)

    def join(
        self, parts: Parts, smallest: int, neck: float, cancelled: Cancelled
    ) -> tuple[Objects, Measures]:
        joined = parts.join(smallest=smallest, neck=neck)
        objects = dataclasses.replace(joined, names=self.names)
        return objects, self.measure(objects, cancelled)

    def measure(self, objects: Objects, cancelled: Cancelled) -> Measures:
        image = None if self.image is None else self.image.read(cancelled)
        return object_table(
            objects,
            image,
            scale=self.scale,
            units=self.units,
            channel_axis=self.channel_axis,
            axis=self.slice_axis,
        )

    def measure_vectors(self, objects: Objects, cancelled: Cancelled) -> ObjectMeasures:
        """Measure the feature vectors for the classification of objects."""
        image = None if self.image is None else self.image.read(cancelled)
        return measure_objects(
            objects,
            image,
            axes=None if self.slice_axis is None else "tyx",
            cancelled=cancelled,
            scale=self.scale,
            channel_axis=self.channel_axis,
        )

    def in_layer(self, numbers: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
        """Return object numbers in the shape of the layer."""
        gaps = (axis not in self.axes for axis in range(self.layer.ndim))
        return numbers[tuple(np.newaxis if gap else slice(None) for gap in gaps)]

    def save(
        self,
        path: Path,
        objects: Objects,
        image: ClassImage | None,
        cancelled: Cancelled,
    ) -> Path:
        """Save in the format of the suffix, by default .csv; return the path.

        Tables and outlines hold the classes of the `image`, tables its tracks, too.
        """
        suffix, classified = mask_suffix(path, _KNOWN), None if image is None else image.classified
        if suffix is None:
            path = path.with_name(f"{path.name}.csv")
        if suffix in OUTLINE_SUFFIXES:
            save_objects(path, objects if classified is None else classified.as_kinds(objects))
        elif suffix in MASK_SUFFIXES:
            save_masks(
                path,
                objects.labels,
                scale=self.scale,
                units=self.units,
                origin=self.origin,
                place=self.place,
            )
        else:
            table = self.measure(objects, cancelled) or {"object": np.zeros(0, int)}
            save_table(path, table if image is None else table | image.columns(table["object"]))
        return path

    def left_out(self, path: Path) -> str:
        """Return a note on the parts of the transform that a saved mask does not hold."""
        suffix = mask_suffix(path, _KNOWN)
        axes = label_axes(len(self.axes), None, self.scale, self.units, self.origin)
        words = axes.left_out(suffix) if suffix in MASK_SUFFIXES else ()
        return f", without {', '.join(words)}" if words else ""


def show_tracks(viewer: napari.viewer.Viewer, source: Source, tracks: Tracks) -> None:
    """Show the tracks of the objects of labels as a layer, in place of earlier ones."""
    rows, graph = tracks.layer_data
    layer, every = source.layer, tuple(range(source.axes[0], source.layer.ndim))
    name = f"{layer.name.partition(' [')[0]} [Tracks]"
    # napari aligns layers by their last axes, so axes of one pixel are kept.
    every = every if len(every) <= _MOST_TRACKED else source.axes
    gaps = [k for k, axis in enumerate(every) if axis not in source.axes]
    columns = [1 + k - n for n, k in enumerate(gaps)]
    transform = place(layer, every, {}).transform
    if name in viewer.layers:
        viewer.layers.remove(name)
    viewer.add_tracks(np.insert(rows, columns, 0, 1), graph=graph, name=name, **transform)


def compile_lines(cancelled: Cancelled) -> None:
    """Compile the functions by which napari draws lines: ten seconds, once per installation."""
    Shapes([np.eye(2)], shape_type="path")


def key_of(layer: Any) -> str:
    """Return the key of a layer, the same for the layer and its proxy."""
    return str(layer.unique_id)


def stored_objects(
    layer: Labels, numbers: NDArray[np.integer[Any]], names: Mapping[int, str]
) -> Objects:
    """Return the objects of a layer; those painted since have kind 0."""
    labels, kinds = numbers.astype(np.uint32), layer.metadata[OBJECTS_KEY]
    lower_numbers(labels, len(kinds))
    n_painted = max(0, int(labels.max(initial=0)) + 1 - len(kinds))
    return Objects(labels, np.pad(kinds, (0, n_painted)), names)


_LINE, _LINE_WIDTH, _LINE_COLOR = "line", 2, "yellow"
_CLEAR = (0.0, 0.0, 0.0, 0.0)
_LEAST_LINE = 2
"""Least length of a cut in pixels; a shorter one is a click."""
_MOST_COLORS = 2**16
"""Maximal length of a colour cycle."""
_FLASH_MILLISECONDS = 400
_LEAST_SAME = 0.9
"""Least share of object pixels whose label is the kind; the others were corrected."""


def _uncertainty_reader(
    layer: Labels, chosen: Image | str | None
) -> Callable[[Cancelled], NDArray[Any]] | None:
    if isinstance(chosen, Image):
        region = image_region(layer, chosen)
        return None if region is None else Pixels(pixels_of(chosen), region[0]).read
    soft = soft_labels_of(layer) if chosen is None else None
    if soft is None or soft.uncertainty is None:
        return None
    grid, values = soft.grid, soft.uncertainty
    shape = [layer.data.shape[axis] for axis in squeezed_axes(layer)]
    return lambda cancelled: np.reshape(grid.to_image(values), shape)


class ObjectCanvas(QObject):
    """The layer of object numbers above the labels, and the line drawn on it.

    Signals: `picked` of the clicked object (0 for none), with whether to extend the selection;
    `drawn` of a line (n, ndim) in pixels; `painted` after a brush stroke; `numbered` of a number
    key, see `bind_numbers`.
    """

    picked = Signal(int, bool)
    drawn = Signal(object)
    painted = Signal()
    numbered = Signal(int)
    undo_asked = Signal()
    redo_asked = Signal()

    def __init__(self, viewer: napari.viewer.Viewer, parent: QObject) -> None:
        super().__init__(parent)
        self._viewer = viewer
        self.layer: Any = None
        self._line: Any = None
        self._takes_numbers = False
        self._flashing = 0  # number of the object that is shown alone
        self._plain = dict[str, Colormap]()  # of the layers before objects were coloured

    def show(
        self, labels: Labels, numbers: NDArray[Any], fits: Callable[[Image], bool], *, anew: bool
    ) -> None:
        """Show object numbers above labels; with `anew` in a new layer."""
        image = labelled_image(self._viewer, labels, fits)
        is_fitting = self.layer is not None and self.layer.data.shape == numbers.shape
        if is_fitting and not anew:
            is_fitting = np.allclose(world_affine(self.layer), world_affine(labels))
        if anew or not is_fitting:
            self._add(labels, numbers)
            if image is not None:
                insert_above(self._viewer, self.layer, image)
        else:
            self.layer.data = numbers
        labels.visible = False
        if image is not None:
            region = image_region(labels, image)
            index = () if region is None else region[0]
            visibility_of(self._viewer).show_result(image, self.layer, index)

    def find(self, labels: Labels) -> Any:
        """Return the objects layer of labels in an opened project, or None.

        As objects layers of one image share a name, the label at most pixels must be the kind.
        """
        pixels, name = pixels_of(labels), _name_over(labels)
        for layer in self._viewer.layers:
            kinds = layer.metadata.get(OBJECTS_KEY)
            if kinds is None or layer.data.shape != pixels.shape or not layer.name.startswith(name):
                continue
            inside = (layer.data > 0) & (layer.data < len(kinds))
            same = kinds[layer.data[inside]] == np.asarray(pixels)[inside]
            if same.size and same.mean() > _LEAST_SAME:
                return layer
        return None

    def layers(self) -> list[Any]:
        """Return all objects layers of the viewer."""
        labels = [layer for layer in self._viewer.layers if isinstance(layer, Labels)]
        return [layer for layer in labels if OBJECTS_KEY in layer.metadata]

    def others(self) -> list[Any]:
        """Return all objects layers but the current one."""
        return [layer for layer in self.layers() if layer != self.layer]

    def _add(self, labels: Labels, numbers: NDArray[Any]) -> None:
        metadata, name = {OBJECTS_KEY: np.zeros(0, int)}, _name_over(labels)
        transform = placement_of(labels).transform
        self.follow(self._viewer.add_labels(numbers, name=name, metadata=metadata, **transform))

    def follow(self, layer: Labels) -> None:
        """Bind mouse and keys of a layer, in place of the previous one, also in sight."""
        was_shown = self.layer is not None and self.layer.visible
        self.leave()
        self.layer = layer
        if was_shown:
            self.reveal()
        self.layer.mouse_drag_callbacks.append(self.on_mouse)
        self.layer.events.paint.connect(self._on_paint)
        for keys, signal in (("Control-Z", self.undo_asked), ("Control-Shift-Z", self.redo_asked)):
            self.layer.bind_key(keys, lambda layer, signal=signal: signal.emit(), overwrite=True)

        if self._takes_numbers:
            self.bind_numbers(True)

    def leave(self) -> None:
        if self.layer is not None:
            self.layer.events.paint.disconnect(self._on_paint)
            self.layer.mouse_drag_callbacks.remove(self.on_mouse)
            for keys in ("Control-Z", "Control-Shift-Z"):
                self.layer.bind_key(keys, None)
        self.layer = None
        self.draw_lines(False)

    def color(
        self, layer: Labels, numbers: NDArray[np.integer], colors: NDArray[np.floating] | None
    ) -> None:
        """Set the RGBA (n, 4) of the objects of a layer; None restores the original colours."""
        key = key_of(layer)
        if colors is None:
            if key in self._plain:
                layer.colormap = self._plain.pop(key)
            return
        self._plain.setdefault(key, layer.colormap)
        table = np.zeros((int(numbers.max(initial=1)) + 1, 4), np.float32)
        table[numbers] = colors
        if len(table) <= _MOST_COLORS:  # a cycle without repetition is fast in napari
            previous, events = layer.colormap, layer.events
            is_alike = isinstance(previous, CyclicLabelColormap) and len(previous) == len(table)
            with ExitStack() as stack:
                if is_alike:  # the labels that the canvas holds stay valid
                    stack.enter_context(events.set_data.blocker())
                    stack.enter_context(events.selected_label.blocker())
                layer.colormap = CyclicLabelColormap(colors=table)
        else:
            layer.colormap = DirectLabelColormap(color_dict=dict(enumerate(table)) | {None: _CLEAR})

    def bind_numbers(self, is_on: bool) -> None:
        """Let the keys 0 to 9 emit `numbered`, or restore their bindings in napari."""
        self._takes_numbers = is_on
        for number in range(10 if self.layer is not None else 0):
            # napari reads the name of each function that is bound, which partials lack.
            call = (lambda layer, number=number: self.numbered.emit(number)) if is_on else None
            self.layer.bind_key(str(number), call, overwrite=True)

    def go_to(self, number: int) -> None:
        """Bring an object into view, if it is not, and show it alone for a moment."""
        if number == self._flashing:
            return
        self.reveal()
        inside = np.argwhere(self.layer.data == number)
        if len(inside):
            middle = tuple(inside[len(inside) // 2].tolist())
            center_on(self._viewer, self.layer, middle, only_if_hidden=True)
        layer, previous = self.layer, self.layer.selected_label
        if layer.show_selected_label:
            return

        def end() -> None:
            self._flashing = 0
            layer.show_selected_label = False
            if str(layer.mode) != "pan_zoom":
                layer.selected_label = previous

        self._flashing = number
        layer.selected_label, layer.show_selected_label = number, True
        QTimer.singleShot(_FLASH_MILLISECONDS, end)

    def reveal(self) -> None:
        """Show the layer if it is hidden, in place of other results of its image."""
        visibility_of(self._viewer).restore(self.layer)
        if not self.layer.visible:
            self.layer.visible = True

    def paint(self, number: int) -> None:
        self.reveal()
        self._viewer.layers.selection.active = self.layer
        self.layer.selected_label = number
        self.layer.mode = "paint"

    @property
    def is_flat(self) -> bool:
        """Whether lines can be drawn: in a 2-D view."""
        return bool(dims_of(self._viewer).ndisplay == 2)

    def draw_lines(self, is_on: bool) -> None:
        """Turn the mode for drawing lines on the canvas on or off."""
        line, self._line = self._line, None
        if line is not None and line in self._viewer.layers:
            self._viewer.layers.remove(line)
        if self.layer is None:
            return
        if is_on:
            self.reveal()
            transform = placement_of(self.layer).transform
            self._line = self._viewer.add_shapes(
                ndim=self.layer.ndim, name=_LINE, edge_color=_LINE_COLOR, **transform
            )
        self._viewer.layers.selection.active = self.layer
        self.layer.mode = "pan_zoom"
        self.layer.mouse_pan = not is_on

    def object_under(self, line: NDArray[Any]) -> int:
        """Return the object that contains most of a line (n, ndim), 0 for none."""
        corners, shape = np.round(line).astype(int), self.layer.data.shape
        between = (line_nd(*ends, endpoint=True) for ends in itertools.pairwise(corners))
        dense = np.concatenate([corners[:1], *(np.array(pixels).T for pixels in between)])
        dense = dense[((dense >= 0) & (dense < shape)).all(axis=1)]
        under = np.asarray(self.layer.data)[tuple(dense.T)]
        numbers, counts = np.unique(under[under > 0], return_counts=True)
        return int(numbers[counts.argmax()]) if len(numbers) else 0

    def objects_inside(self, line: NDArray[Any]) -> list[int]:
        """Return the objects with at least half of their visible pixels inside a line (n, ndim)."""
        index = tuple(np.round(line[0, :-2]).astype(int))
        plane = np.asarray(self.layer.data[index])
        inside = plane[polygon(*line[:, -2:].T, plane.shape)]
        numbers, counts = np.unique(inside[inside > 0], return_counts=True)
        sizes = np.array([(plane == number).sum() for number in numbers])
        return [*map(int, numbers[2 * counts >= sizes])] if len(numbers) else []

    def on_mouse(self, layer: Labels, event: Any) -> Iterator[None]:
        """Emit the clicked object or the drawn line."""
        if str(layer.mode) != "pan_zoom":
            return
        line = [layer.world_to_data(event.position)]
        yield
        while event.type == "mouse_move":
            line.append(layer.world_to_data(event.position))
            self._show_line(line)
            yield
        cuts = self._line is not None
        if cuts:
            self._show_line([])
        if cuts and np.ptp(line, axis=0).max() >= _LEAST_LINE:
            self.drawn.emit(np.array(line))
        elif cuts or len(line) < 3:
            value = layer.get_value(event.position, world=True)
            self.picked.emit(int(value or 0), "Control" in event.modifiers)

    def _show_line(self, line: list[Any]) -> None:
        if self._line is None or self._line not in self._viewer.layers:
            return
        width = _LINE_WIDTH / camera_of(self._viewer).zoom / min(steps_of(self.layer).sizes)
        self._line.data = []
        if line:
            self._line.add_paths([np.array(line)], edge_width=width, edge_color=_LINE_COLOR)

    def _on_paint(self, event: Any) -> None:
        self.painted.emit()


def _name_over(labels: Labels) -> str:
    return f"{labels.name.partition(' [')[0]} [Objects]"
