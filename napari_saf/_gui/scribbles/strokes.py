"""The Labels layer of painted strokes: creation, events, class names, colours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from napari.utils.colormaps import CyclicLabelColormap
from numpy.typing import NDArray
from qtpy.QtCore import QObject, QTimer, Signal
from scipy.ndimage import gaussian_filter

from napari_saf._gui.layers.live import N_COLORS, label_colors
from napari_saf._gui.layers.metadata import NAMES_KEY
from napari_saf._gui.layers.placement import Placement
from napari_saf._gui.layers.reading import fingerprint
from napari_saf.errors import InvalidInput
from napari_saf.io import PaintedClass

_DEBOUNCE_MILLISECONDS = 30
_COMPARED_VALUES = 20_000_000
_NEAR = 1e-3
"""Share of painted pixels around a place above which it counts as painted."""


def add_strokes(
    viewer: napari.Viewer, image: Image, pixels: NDArray[np.integer], placement: Placement
) -> Labels:
    """Add a layer of strokes over an image, ready to be painted on."""
    layer = viewer.add_labels(
        pixels,
        name=f"{image.name} strokes",
        colormap=CyclicLabelColormap(colors=label_colors(), background_value=0),
        metadata={NAMES_KEY: {1: "class 1", 2: "class 2"}},
        opacity=1.0,
        **placement.transform,
    )
    layer.brush_size = max(3, round(min(pixels.shape[-2:]) / 80))
    layer.selected_label = 1
    layer.mode = "paint"
    return layer


class Strokes(QObject):
    """The strokes on one layer at a time.

    Painting sends an event of its own; undo and redo send only the event that every change of
    slice sends too, so the pixels are compared.
    """

    changed = Signal()
    selected = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.layer: Any = None
        self._checksum = 0
        self._is_painted = False
        self._erased_names: dict[int, str] = {}
        self._debounce = QTimer(self)
        self._debounce.setSingleShot(True)
        self._debounce.setInterval(_DEBOUNCE_MILLISECONDS)
        self._debounce.timeout.connect(self._compare)

    def follow(self, layer: Labels | None) -> None:
        """Follow another layer, or none."""
        if self.layer is not None:
            self.layer.events.paint.disconnect(self._on_paint)
            self.layer.events.set_data.disconnect(self._on_event)
            self.layer.events.selected_label.disconnect(self._on_selected)
        self.layer = layer
        self._debounce.stop()
        self._is_painted = False
        self._erased_names.clear()
        if layer is not None:
            self._checksum = fingerprint(layer.data, _COMPARED_VALUES)
            layer.events.paint.connect(self._on_paint)
            layer.events.set_data.connect(self._on_event)
            layer.events.selected_label.connect(self._on_selected)

    @property
    def names(self) -> dict[int, str]:
        """The names of the classes, by number, in the layer's metadata."""
        if self.layer is None:
            return {}
        names: dict[int, str] = self.layer.metadata.setdefault(NAMES_KEY, {})
        return names

    def counts(self) -> dict[int, int]:
        """Return how many pixels of each class are painted."""
        if self.layer is None:
            return {}
        numbers, counts = np.unique(_painted(self.layer.data), return_counts=True)
        return {int(n): int(k) for n, k in zip(numbers, counts, strict=True) if n > 0}

    def classes(self) -> list[int]:
        """Return the numbers of the classes that have a name or strokes."""
        return sorted({*self.names, *self.counts()})

    def why_too_few(self, seeds: NDArray[Any], follows_seeds: bool) -> str:
        """Return what to paint before these strokes label anything; empty if nothing."""
        classes = np.unique(_painted(seeds))
        classes = classes[classes > 0]
        if not len(classes):
            return "paint a few pixels of class 1, then of class 2"
        if follows_seeds and len(classes) == 1:
            return f"only {self.name(int(classes[0]))} is painted: paint another class too"
        return ""

    def name(self, number: int) -> str:
        """Return the name of a class."""
        return self.names.get(number, f"class {number}")

    def rename(self, number: int, name: str) -> None:
        """Name a class; an empty name leaves it as it was."""
        if name.strip():
            self.names[number] = name.strip()

    def add_class(self) -> None:
        """Add a class and choose it for painting."""
        number = max(self.classes(), default=0) + 1
        self.names[number] = f"class {number}"
        self.paint_with(number)

    def erase_class(self, number: int) -> None:
        """Erase the strokes of a class; its name comes back with them when that is undone."""
        self._erased_names[number] = self.name(number)
        self.names.pop(number, None)
        pixels = np.nonzero(np.asarray(self.layer.data) == number)
        if len(pixels[0]):
            # napari fails on one that was hidden while it was turned.
            self.layer.visible = True
            self.layer.data_setitem(pixels, 0)

    def paint_with(self, number: int) -> None:
        """Choose the class that the brush paints."""
        if self.layer is not None:
            self.layer.selected_label = number
            if self.layer.mode not in ("paint", "polygon", "fill"):
                self.layer.mode = "paint"

    def color(self, number: int) -> NDArray[np.float32]:
        """Return the colour (r, g, b, a) of a class."""
        return np.asarray(self.layer.get_color(number), dtype=np.float32)

    def set_color(self, number: int, color: tuple[float, float, float]) -> None:
        """Change the colour of a class."""
        colors = np.array([self.layer.get_color(k) for k in range(1, N_COLORS + 1)])
        colors[(number - 1) % N_COLORS, :3] = color
        table = np.concatenate([np.zeros((1, 4)), colors])
        self.layer.colormap = CyclicLabelColormap(colors=table, background_value=0)

    def named_classes(self) -> dict[int, PaintedClass]:
        """Return names and colours of the classes that have a name."""
        names = self.names
        # A colormap that shows the chosen class alone would leave the others black.
        colormap = self.layer.colormap.model_copy(update={"use_selection": False})
        colors = np.asarray(colormap.map(np.array([*names], dtype=np.int64)), dtype=float)
        return {
            number: PaintedClass(name, (float(red), float(green), float(blue)))
            for (number, name), (red, green, blue, _) in zip(
                names.items(), colors.reshape(-1, 4), strict=True
            )
        }

    def restore(self, classes: Mapping[int, PaintedClass]) -> None:
        """Give the classes the names and colours that they had."""
        self.names.clear()
        for number, one in classes.items():
            self.names[number] = one.name
            self.set_color(number, one.color)

    def _on_paint(self, event: Any) -> None:
        # Of a large stack only a sample is compared, which may miss a thin stroke.
        self._is_painted = np.size(self.layer.data) > _COMPARED_VALUES
        self._debounce.start()

    def _on_event(self, event: Any) -> None:
        self._debounce.start()

    def _on_selected(self, event: Any) -> None:
        self.selected.emit(int(self.layer.selected_label))

    def _compare(self) -> None:
        checksum = fingerprint(self.layer.data, _COMPARED_VALUES)
        if checksum != self._checksum or self._is_painted:
            self._checksum, self._is_painted = checksum, False
            for number in self._erased_names.keys() & self.counts():
                self.names.setdefault(number, self._erased_names.pop(number))
            self.changed.emit()


def _painted(pixels: Any) -> NDArray[np.integer]:
    """Return the numbers of the pixels that are not 0: few, which is less to sort."""
    flat = np.asarray(pixels).reshape(-1)
    return flat[np.flatnonzero(flat)]


def follow_strokes(
    base: NDArray[np.unsignedinteger[Any]], strokes: NDArray[np.unsignedinteger[Any]]
) -> NDArray[np.int64]:
    """Return the labels of an earlier result as strokes merge and split them.

    A label on which one class was painted becomes that class; a label on which several were
    painted becomes 0, to be divided between them; others are what they were.
    """
    if base.shape != strokes.shape:
        of_base, of_strokes = (" x ".join(map(str, own.shape)) for own in (base, strokes))
        raise InvalidInput(
            f"start from: expected labels of {of_strokes} pixels, as many as the strokes "
            f"have, got {of_base}"
        )
    becomes = np.arange(int(base.max(initial=0)) + 1)
    both = (base > 0) & (strokes > 0)
    for label in np.unique(base[both]):
        painted = np.unique(strokes[both & (base == label)])
        becomes[label] = painted[0] if len(painted) == 1 else 0
    return np.asarray(becomes[base])


def suggest_spot(
    uncertainty: NDArray[np.floating], strokes: NDArray[np.unsignedinteger[Any]]
) -> tuple[int, ...] | None:
    """Return the place around which pixels are most uncertain and nothing was painted.

    None where nothing is uncertain.
    """
    sigma = [max(1.0, side / 100) if side > 1 else 0.0 for side in uncertainty.shape]
    around = gaussian_filter(np.asarray(uncertainty, dtype=np.float32), sigma)
    around[gaussian_filter((strokes > 0).astype(np.float32), sigma) > _NEAR] = 0
    best = int(around.argmax())
    if around.flat[best] <= 0:
        return None
    return tuple(int(at) for at in np.unravel_index(best, around.shape))
