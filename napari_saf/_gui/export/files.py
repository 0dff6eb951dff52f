"""What Export writes: a tick and a format for each kind of file, and which probability maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QCheckBox, QGridLayout, QSizePolicy, QSpinBox, QWidget
from superqt.utils import signals_blocked

from napari_saf._gui.docks.tables import LabelList
from napari_saf._gui.forms.choices import Choice
from napari_saf._gui.forms.layout import FormSection, create_button, create_row, enable
from napari_saf._gui.layers import placement
from napari_saf._gui.layers.large import is_large
from napari_saf._gui.layers.live import N_COLORS
from napari_saf._gui.layers.metadata import (
    class_names,
    colors_of,
    points_of,
    raw_recipe,
    show_probabilities,
    soft_labels_of,
)
from napari_saf._gui.layers.reading import Pixels
from napari_saf._gui.runs.tasks import BackgroundTasks
from napari_saf.device import memory_errors_translated
from napari_saf.errors import SafError, raise_if
from napari_saf.io import (
    Export,
    ExportSelection,
    Labelling,
    PrototypeSet,
    count_labels,
    origin_of,
    scale_of,
)
from napari_saf.parameters import describe
from napari_saf.project import FileReference

_FORMAT_WIDTH = 124
_INDENT = 23
_LARGEST_LEAST = 10_000_000
_SETTINGS = ("connected", "min_pixels", "in_bytes")
_PARAMETERS = {item.name: item for item in describe(ExportSelection)}
_KINDS = {name: item for name, item in _PARAMETERS.items() if name not in _SETTINGS}
"""The kinds of files by their name in `ExportSelection`."""
_TICKED = ("masks", "regions")
_ROWS = (("a row for each label", False), ("a row for each region", True))
NO_PROBABILITIES = (
    "these labels come without: they were not computed here since napari was opened, or were edited"
)
_SHOW_HELP = "Show how much each pixel is of each ticked label, black to its colour, as an image."
_BYTES_HELP = _PARAMETERS["in_bytes"].help


class ExportChoice(QWidget):
    """A tick and a format for each kind of file."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.ticks: dict[str, QCheckBox] = {}
        self._put_off: set[str] = set()  # ticks that come back
        self._formats: dict[str, Choice] = {}
        self.rows, self._least = Choice(_ROWS), QSpinBox()
        self.rows.setToolTip(_PARAMETERS["connected"].help)
        self.rows.currentIndexChanged.connect(self._on_changed)
        self._least.setRange(1, _LARGEST_LEAST)
        self._least.setSpecialValueText("regions of any size")
        self._least.setPrefix("regions of ")
        self._least.setSuffix(" pixels or more")
        self._least.setToolTip(_PARAMETERS["min_pixels"].help)
        self._least.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        below: dict[str, QWidget] = {"regions": self.rows, "numbered": self._least}
        layout = QGridLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setVerticalSpacing(4)
        layout.setColumnStretch(0, 1)
        for name, item in _KINDS.items():
            row, tooltip = layout.rowCount(), item.help
            tick = self.ticks[name] = QCheckBox(item.label)
            tick.setChecked(name in _TICKED)
            tick.setToolTip(tooltip)
            tick.toggled.connect(self._on_changed)
            layout.addWidget(tick, row, 0)
            if item.choices:
                box = self._formats[name] = Choice([(s, s) for s in item.choices if s != ".tiff"])
                box.setToolTip(tooltip)
                box.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
                box.setFixedWidth(_FORMAT_WIDTH)
                layout.addWidget(box, row, 1)
            if name in below:
                indented = create_row(below[name])
                indented.layout().setContentsMargins(_INDENT, 0, 0, 0)
                layout.addWidget(indented, row + 1, 0, 1, 2)
        self._on_changed()

    @property
    def selection(self) -> ExportSelection:
        chosen: dict[str, Any] = {
            name: self._formats[name].value if name in self._formats else True
            for name, tick in self.ticks.items()
            if tick.isEnabled() and tick.isChecked()
        }
        if "outlines" in chosen:
            chosen["outlines"] = (chosen["outlines"],)
        least = self._least.value() if self._least.isEnabled() else 1
        return ExportSelection(**chosen, connected=self.rows.value, min_pixels=least)

    def offer(self, name: str, reason: str) -> None:
        """Let a kind of file be ticked, as it was before, or take its tick away for a reason."""
        tick = self.ticks[name]
        if reason and tick.isChecked():
            self._put_off.add(name)
            tick.setChecked(False)
        elif not reason and name in self._put_off:
            self._put_off.remove(name)
            tick.setChecked(True)
        tick.setEnabled(not reason)
        tick.setToolTip(reason or _KINDS[name].help)
        self._on_changed()

    def choose(self, name: str, suffix: str | bool) -> None:
        """Tick a kind of file, in a format; an empty one takes the tick away."""
        self.ticks[name].setChecked(bool(suffix))
        if name in self._formats:
            self._formats[name].choose(suffix)

    def _on_changed(self, *changed: object) -> None:
        for name, box in self._formats.items():
            box.setEnabled(self.ticks[name].isEnabled() and self.ticks[name].isChecked())
        is_numbered = self._formats["numbered"].isEnabled()
        if is_numbered:
            with signals_blocked(self.rows):
                self.rows.choose(True)  # each number has its row
        self.rows.setEnabled(self._formats["regions"].isEnabled() and not is_numbered)
        has_rows = self.rows.isEnabled() and self.rows.value
        self._least.setEnabled(has_rows or is_numbered or self._formats["outlines"].isEnabled())
        self.changed.emit()


_AXIS_NAMES = {
    "t": ("time", "frame", "frames"),
    "z": ("depth", "plane", "slice"),
    "y": ("height", "row"),
    "x": ("width", "column"),
}
_LETTERS = {name: letter for letter, names in _AXIS_NAMES.items() for name in names}
_TIMES = ("second", "millisecond", "microsecond", "nanosecond", "minute", "hour", "day")


def is_read_in_parts(layer: Labels) -> bool:
    """Tell whether labels are not read whole; those with axes of one pixel are."""
    return is_large(layer) and len(placement.squeezed_axes(layer)) == layer.ndim


def labelling_reader(
    viewer: napari.Viewer,
    layer: Labels,
    image: Image | None,
    maps: Callable[[], Mapping[int, NDArray[np.floating]]] = dict,
) -> Callable[[Callable[[], bool]], Labelling]:
    """Return a function that reads a layer as it is now, without singleton axes off the plane.

    The writing thread calls it, as the pixels of the layer may be lazy. It also calls `maps`, which
    returns the probability maps to save.
    """
    axes = placement.squeezed_axes(layer)
    index = tuple(slice(None) if axis in axes else 0 for axis in range(layer.ndim))
    labels, pixels = Pixels(placement.pixels_of(layer), index), None
    region = None if image is None else placement.image_region(layer, image)
    if image is not None and region is not None:
        pixels = Pixels(placement.pixels_of(image), region[0])
    points, world = points_of(layer), placement.world_affine(layer)
    # A colormap that shows the chosen label alone would draw all other labels black.
    colormap = layer.colormap.model_copy(update={"use_selection": False})
    labelling = Labelling(
        np.empty(0),
        scale=scale_of(world, axes),
        units=tuple(str(layer.units[axis]) for axis in axes),
        axes=_letters([(layer.axis_labels[a], str(layer.units[a])) for a in axes]),
        names=class_names(layer),
        prototypes=PrototypeSet.from_points(points) if points else None,
        recipe=raw_recipe(layer),
        plane=tuple(placement.positions_on_screen(viewer, layer, axes[:-2]).values()),
        title="" if image is None else image.name,
        channel_axis=None if region is None else region[1],
        place=placement.place_entry(layer),
        origin=origin_of(world, axes),
    )

    def read(cancelled: Callable[[], bool]) -> Labelling:
        with memory_errors_translated("choose a smaller part of the layers"):
            if is_read_in_parts(layer):
                colors = np.clip(colormap.map(np.arange(N_COLORS + 1)), 0, 1)
                named = dict(enumerate(np.asarray(colors, dtype=float).tolist()))
                under = None if pixels is None else pixels.data
                return dataclasses.replace(labelling, labels=labels.data, image=under, colors=named)
            array = labels.read(cancelled).copy()
            shown = None if pixels is None else pixels.read(cancelled)
            present = count_labels(array)[0]
            colors = colormap.map(present) if len(present) else np.empty((0, 4))
            colors = np.clip(np.asarray(colors, dtype=float), 0, 1)
            named = dict(zip(present.tolist(), colors.tolist(), strict=True))
            soft = {label: values.reshape(array.shape) for label, values in maps().items()}
            result = dataclasses.replace(labelling, labels=array, image=shown, colors=named)
            return dataclasses.replace(result, probabilities=soft)

    return read


def measure(
    read: Callable[[Callable[[], bool]], Labelling],
    selection: ExportSelection,
    cancelled: Callable[[], bool],
) -> tuple[Mapping[str, NDArray[Any]] | str, Mapping[int, Sequence[float]]]:
    """Return the table of a layer, or why there is none, and the colours of its labels."""
    try:
        labelling = read(cancelled)
        table = labelling.table(selection.connected, selection.min_pixels, brief=True)
        return table, labelling.colors
    except SafError as error:
        return f"{error}.", {}


def write_files(
    read: Callable[[Callable[[], bool]], Labelling],
    path: Path,
    selection: ExportSelection,
    may_replace: bool,
    report: Callable[[tuple[float, str]], object],
    cancelled: Callable[[], bool],
) -> tuple[list[FileReference], list[Path], str]:
    """Write the selected files; return those written, those in the way, and a note.

    Nothing is written if files are in the way. The note tells what of the position of pixels the
    files do not hold. The path is a folder, made if its parent exists, and the start of the file
    names. Raises Cancelled if stopped while reading; after a SafError, earlier files are complete.
    """

    def follow(file: Path, fraction: float) -> None:
        raise_if(cancelled)
        report((fraction, f"writing {file.name}"))

    try:
        export = Export(path.parent, path.name, read(cancelled), selection, follow)
        if export.in_the_way and not may_replace:
            return [], export.in_the_way, ""
        path.parent.mkdir(exist_ok=True)
        return [FileReference.of(file) for file in export.write()], [], export.note
    except OSError as error:
        raise SafError(f"{path.parent}: {error.strerror or error}") from error


def _letters(axes: list[tuple[str, str]]) -> str | None:
    """Return a letter for each axis by its name and unit, None for an unnamed axis."""
    letters = ["t" if unit in _TIMES else _LETTERS.get(name.lower(), name) for name, unit in axes]
    single = [letter for letter in letters if len(letter) == 1]
    unused = iter([letter for letter in "xyz" if letter not in single])
    if not single or len({*single}) < len(single):
        return None
    for k in reversed(range(len(letters))):
        if len(letters[k]) > 1:
            letters[k] = next(unused, "")
    return "".join(letters) if all(letters) else None


class ProbabilitySection(FormSection):
    """The labels whose maps are wanted, and a button that shows them as layers."""

    def __init__(self, background: BackgroundTasks, viewer: napari.Viewer) -> None:
        super().__init__()
        self._background, self._viewer, self._layer = background, viewer, None
        self.labels, self.in_bytes = LabelList(), QCheckBox("bytes")
        self.button = create_button("Show as image layer", _SHOW_HELP, self.show_layers)
        self.add_row("Labels", self.labels, "Of which labels maps are shown and saved.")
        self.add_row("In files", self.in_bytes, _BYTES_HELP)
        self.layout().addWidget(self.button)

    @property
    def in_the_way(self) -> str:
        """Why there are no maps; empty if there are."""
        return "" if soft_labels_of(self._layer) is not None else NO_PROBABILITIES

    def choose(self, layer: Labels | None) -> None:
        """Offer the labels of a layer, if it carries how much each pixel is of them."""
        soft, self._layer = soft_labels_of(layer), layer
        if layer is not None:
            numbers = np.array([] if soft is None else soft.labels, dtype=np.int64)
            self.labels.show_labels(layer, numbers)
        enable(self.button, self.in_the_way, _SHOW_HELP)

    def reader(self) -> Callable[[], Mapping[int, NDArray[np.floating]]]:
        """Return what makes the maps of the ticked labels, for another thread."""
        soft, ticked = soft_labels_of(self._layer), self.labels.ticked
        if soft is None or not ticked:
            return dict
        return lambda: dict(zip(ticked, soft.images(ticked), strict=True))

    def show_layers(self) -> None:
        layer, read, names = self._layer, self.reader(), class_names(self._layer)

        def show(maps: Mapping[int, Any]) -> None:
            transform = placement.placement_of(layer).transform
            colors = colors_of(layer, np.array([*maps], dtype=np.int64))
            for (label, values), color in zip(maps.items(), colors, strict=True):
                name, is_first = names.get(label, f"label {label}"), label == next(iter(maps))
                show_probabilities(self._viewer, layer, name, color, values, transform, is_first)

        if layer in self._viewer.layers:
            self._background.run("maps", lambda cancelled: read(), show)
