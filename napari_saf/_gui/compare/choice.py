"""What to compare, and what the results are called: with the labels of the form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)
from superqt.utils import signals_blocked

from napari_saf._gui.forms.image_input import with_side
from napari_saf._gui.forms.layout import FormSection
from napari_saf.comparison import (
    OPTION_AXES,
    Variant,
    lay_out,
    open_axes,
    parameter_named,
    read_values,
    variants_of,
)
from napari_saf.methods import METHODS, AbstractMethod
from napari_saf.parameters import Parameter, describe
from napari_saf.problem import ImageOptions


class _Axis(NamedTuple):
    """Something that may vary: what it is called, values to begin with."""

    name: str
    label: str
    start: str
    help: str


_KINDS = ("int", "float", "choice", "bool")
_NOT_VARIED = ("device", "dtype")
_OPTIONS = {option.name: option for option in describe(ImageOptions)}
_OPTION_VALUES = {"window": "3, 9, 21", "max_side": "240, 480"}
_START = (("s", "0, 0.5, 1"), ("window", "3, 9"))
_MOST_LETTERS = 68
"""Of the names in a row of panels, in a small window."""
_N_GIVEN = 2
"""Panels of image and truth."""


class ComparisonChoice(QWidget):
    """Methods to tick, two rows of a parameter and its values."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._boxes = {name: QCheckBox(method.title) for name, method in METHODS.items()}
        self._settings = QComboBox()
        self._settings.addItem("defaults", "defaults")
        self._settings.addItem("as in Segment", "segment")
        self._rows = [_AxisRow("Vary"), _AxisRow("and")]
        section, layout = FormSection(), QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        methods = QVBoxLayout()
        methods.setSpacing(2)
        for name, box in self._boxes.items():
            box.setToolTip(f"Run this method ({name}).")
            methods.addWidget(box)
        section.add_row("Settings", self._settings, "What the parameters are that do not vary.")
        layout.addLayout(methods)
        for widget in (section, *self._rows):
            layout.addWidget(widget)
        next(iter(self._boxes.values())).setChecked(True)
        self._offer_axes()
        for row, start in zip(self._rows, _START, strict=True):
            row.choose(*start)
            row.changed.connect(self.changed)
        for box in self._boxes.values():
            box.toggled.connect(self._on_methods_changed)
        self._settings.currentIndexChanged.connect(self.changed)

    @property
    def names(self) -> list[str]:
        """The names of the methods that are ticked."""
        return [name for name, box in self._boxes.items() if box.isChecked()]

    @property
    def axis_names(self) -> list[str]:
        """The names of what varies."""
        return [row.name for row in self._rows if row.name]

    @property
    def follows_segment(self) -> bool:
        """Whether the parameters of the Segment dock count."""
        return bool(self._settings.currentData() == "segment")

    def choose_methods(self, *names: str) -> None:
        """Choose these methods and no others."""
        for name, box in self._boxes.items():
            box.setChecked(name in names)

    def vary(self, number: int, name: str | None, values: str = "") -> None:
        """Choose what row 0 or 1 varies, and its values; None: nothing."""
        self._rows[number].choose(name, values)

    def follow_segment(self, wanted: bool) -> None:
        """Choose whose parameters count."""
        self._settings.setCurrentIndex(int(wanted))

    def variants(self, options: ImageOptions, known: Mapping[str, AbstractMethod]) -> list[Variant]:
        """Return what is asked for.

        Parameters
        ----------
        options : ImageOptions
            What is the same for all.
        known : mapping of str to AbstractMethod
            Methods with parameters of their own; the others have their defaults.

        Raises
        ------
        InvalidInput
            If no method is ticked, or values are wrong.
        """
        types = [METHODS[name] for name in self.names]
        axes = {row.name: read_values(row.name, row.text, types) for row in self._rows if row.name}
        if isinstance(options.window, tuple) and "window" in axes:
            axes["window"] = [
                with_side(options.window, side) if isinstance(side, int) else side
                for side in axes["window"]
            ]
        methods = [known.get(name) or METHODS[name]() for name in self.names]
        return variants_of(methods, axes, options)

    def _on_methods_changed(self) -> None:
        self._offer_axes()
        self.changed.emit()

    def _offer_axes(self) -> None:
        axes = _axes_of([METHODS[name] for name in self.names])
        for row in self._rows:
            row.offer(axes)


class _AxisRow(QWidget):
    """A word, a parameter and its values."""

    changed = Signal()

    def __init__(self, text: str) -> None:
        super().__init__()
        label = QLabel(text)
        label.setFixedWidth(label.fontMetrics().horizontalAdvance("Vary  "))
        self._box, self._line = QComboBox(), QLineEdit()
        self._box.setToolTip("The parameter that takes several values.")
        self._line.setToolTip("Values with commas between; every combination is run.")
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(label)
        for widget, stretch in ((self._box, 5), (self._line, 3)):
            widget.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
            layout.addWidget(widget, stretch=stretch)
        self._starts: dict[str, str] = {}
        self._box.currentIndexChanged.connect(self._on_chosen)
        self._line.textChanged.connect(self.changed)

    @property
    def name(self) -> str:
        """What varies; empty for nothing."""
        return self._box.currentData() or ""

    @property
    def text(self) -> str:
        """Its values."""
        return str(self._line.text())

    def offer(self, axes: Sequence[_Axis]) -> None:
        """Offer what may vary; keep the choice if it is there."""
        before = self.name
        self._starts = {axis.name: axis.start for axis in axes}
        with signals_blocked(self._box):
            self._box.clear()
            self._box.addItem("nothing", "")
            for number, axis in enumerate(axes, 1):
                self._box.addItem(axis.label, axis.name)
                tooltip = f"{axis.help} ({axis.name})"
                self._box.setItemData(number, tooltip, Qt.ItemDataRole.ToolTipRole)
            self._box.setCurrentIndex(max(0, self._box.findData(before)))
        if self.name != before:
            self._on_chosen()

    def choose(self, name: str | None, values: str = "") -> None:
        """Choose what varies, and its values."""
        self._box.setCurrentIndex(max(0, self._box.findData(name or "")))
        if values:
            self._line.setText(values)

    def _on_chosen(self) -> None:
        self._line.setEnabled(bool(self.name))
        self._line.setText(self._starts.get(self.name, ""))
        self.changed.emit()


def _axes_of(methods: Sequence[type[AbstractMethod]]) -> list[_Axis]:
    """Return what may vary: basic parameters, options of the image, advanced parameters."""
    found: dict[str, Parameter] = {}
    for method in methods:
        for item in describe(method):
            if item.kind in _KINDS and item.name not in _NOT_VARIED and item.in_form:
                found.setdefault(item.name, item)
    items = [
        *(item for item in found.values() if not item.advanced),
        *(_OPTIONS[name] for name in OPTION_AXES),
        *(item for item in found.values() if item.advanced),
    ]
    return [_Axis(item.name, item.label, _first_values(item), item.help) for item in items]


def _first_values(item: Parameter) -> str:
    """Return values of a parameter to begin with."""
    if item.name in _OPTION_VALUES:
        return _OPTION_VALUES[item.name]
    if item.kind == "choice":
        return ", ".join(item.choices)
    if item.kind == "bool":
        return "false, true"
    if item.minimum is not None and item.maximum is not None and item.ends is not None:
        values: list[float] = [item.minimum, (item.minimum + item.maximum) / 2, item.maximum]
    elif isinstance(item.default, (int, float)) and item.default > 0:
        values = [item.default / 2, item.default, item.default * 2]
    else:
        values = [0, 1]
    if item.kind == "int":
        values = [round(value) for value in values]
    low = -math.inf if item.minimum is None else item.minimum
    high = math.inf if item.maximum is None else item.maximum
    within = dict.fromkeys(min(max(value, low), high) for value in values)
    return ", ".join(f"{value:g}" for value in within)


def whole_name(variant: Variant) -> str:
    """Return all that was chosen for a variant."""
    return _join((_label(variant, axis), value) for axis, value in variant.place)


def panel_names(variants: Sequence[Variant]) -> list[str]:
    """Return for each variant what distinguishes it, as long as there is room for."""
    axes = open_axes(variants)
    if not axes:
        return [whole_name(variant) for variant in variants]
    sides = [_sides(dict(variant.place).get("window", "")) for variant in variants]
    is_short = len(set(sides)) == len({dict(variant.place).get("window") for variant in variants})
    groups = [
        [
            (_label(variant, axis), side if is_short and axis == "window" else value)
            for axis, value in variant.place
            if axis in axes
        ]
        for variant, side in zip(variants, sides, strict=True)
    ]
    most = _MOST_LETTERS // _count_columns(variants)
    names: list[str] = []
    for n_words in (None, 1, 0):
        names = [
            _join((" ".join(label.split()[:n_words]), value) for label, value in pairs)
            for pairs in groups
        ]
        if max(map(len, names)) <= most:
            break
    return names


def _join(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{label} {value}".strip() for label, value in pairs)


def _label(variant: Variant, axis: str) -> str:
    """Return the label of an axis in the form; empty for the method, whose name is enough."""
    if axis in _OPTIONS:
        return _OPTIONS[axis].label
    item = parameter_named(type(variant.method), axis)
    return "" if item is None else item.label


def _sides(window: str) -> str:
    """Return the sides of a window without those of 1, each once: 3 for 1 x 3 x 3."""
    return " x ".join(dict.fromkeys(side for side in window.split(" x ") if side != "1")) or window


def _count_columns(variants: Sequence[Variant]) -> int:
    """Return how many panels stand side by side."""
    layout = lay_out(variants)
    if layout.is_table:
        return layout.n_columns
    return math.ceil(math.sqrt(len(variants) + _N_GIVEN))
