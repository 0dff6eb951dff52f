"""What to compare: methods, and values of up to two parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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

from napari_saf._gui.compare.names import OPTION_WORDS
from napari_saf._gui.forms.layout import FormSection
from napari_saf._gui.forms.scale import with_side
from napari_saf.comparison import Variant, read_values, variants_of
from napari_saf.features import FEATURES
from napari_saf.image_options import WEIGHTS
from napari_saf.methods import METHODS, AbstractMethod
from napari_saf.parameters import Parameter, describe
from napari_saf.problem import ImageOptions

__all__ = ["ComparisonChoice"]

_GAP = 2
_KINDS = ("int", "float", "choice", "bool")
_NOT_VARIED = ("device", "dtype")
_OPTIONS = {
    "window": ("3, 9, 21", "Side of the window over which labels are averaged."),
    "features": (", ".join(FEATURES), "What describes a pixel."),
    "weights": (", ".join(WEIGHTS), "How much each pixel in the window counts."),
    "max_side": ("240, 480", "The longest side at which to work."),
}
"""By name: values to begin with, help."""
_VALUES_HELP = "Values with commas between; every combination is run."
_FIRST, _SECOND = ("s", "0, 0.5, 1"), ("window", "3, 9")


class ComparisonChoice(QWidget):
    """Methods to tick, two rows of a parameter and its values."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._boxes = {name: QCheckBox(method.title) for name, method in METHODS.items()}
        self._settings = QComboBox()
        self._settings.addItem("defaults", "defaults")
        self._settings.addItem("as in Segment", "segment")
        self._settings.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._rows = [_AxisRow("Vary"), _AxisRow("and")]
        self._create_layout()
        next(iter(self._boxes.values())).setChecked(True)
        self._offer_axes()
        for row, start in zip(self._rows, (_FIRST, _SECOND), strict=True):
            row.choose(*start)
        for box in self._boxes.values():
            box.toggled.connect(self._on_methods_changed)
        for row in self._rows:
            row.changed.connect(self.changed)
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

    def tick(self, *names: str) -> None:
        """Tick these methods and no others."""
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

    def _create_layout(self) -> None:
        methods, column, section = QWidget(), QVBoxLayout(), FormSection()
        methods.setLayout(column)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(_GAP)
        for name, box in self._boxes.items():
            box.setToolTip(f"Run this method ({name}).")
            column.addWidget(box)
        section.add_row("Settings", self._settings, "What the parameters are that do not vary.")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        for widget in (methods, section, *self._rows):
            layout.addWidget(widget)

    def _on_methods_changed(self) -> None:
        self._offer_axes()
        self.changed.emit()

    def _offer_axes(self) -> None:
        entries = _entries([METHODS[name] for name in self.names])
        for row in self._rows:
            row.offer(entries)


class _AxisRow(QWidget):
    """A word, a parameter and its values."""

    changed = Signal()

    def __init__(self, words: str) -> None:
        super().__init__()
        label = QLabel(words)
        label.setFixedWidth(label.fontMetrics().horizontalAdvance("Vary  "))
        self._box, self._line = QComboBox(), QLineEdit()
        self._box.setToolTip("The parameter that takes several values.")
        self._line.setToolTip(_VALUES_HELP)
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

    def offer(self, entries: Sequence[tuple[str, str, str, str]]) -> None:
        """Offer names, words, values to begin with and help; keep the choice if it is there."""
        before = self.name
        self._starts = {name: start for name, _, start, _ in entries}
        blocked = self._box.blockSignals(True)
        self._box.clear()
        self._box.addItem("nothing", "")
        for name, words, _, about in entries:
            self._box.addItem(words, name)
            help_words = f"{about} ({name})"
            self._box.setItemData(self._box.count() - 1, help_words, Qt.ItemDataRole.ToolTipRole)
        self._box.setCurrentIndex(max(0, self._box.findData(before)))
        self._box.blockSignals(blocked)
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


def _entries(methods: Sequence[type[AbstractMethod]]) -> list[tuple[str, str, str, str]]:
    """Return what may vary: name, words, values to begin with, help."""
    found: dict[str, Parameter] = {}
    for method in methods:
        for item in describe(method):
            if item.kind in _KINDS and item.name not in _NOT_VARIED and item.in_form:
                found.setdefault(item.name, item)
    basic = [item for item in found.values() if not item.advanced]
    advanced = [item for item in found.values() if item.advanced]
    options = [(name, OPTION_WORDS[name], *told) for name, told in _OPTIONS.items()]
    return [
        *map(_entry, basic),
        *options,
        *map(_entry, advanced),
    ]


def _entry(item: Parameter) -> tuple[str, str, str, str]:
    return item.name, item.label, _values_of(item), item.help


def _values_of(item: Parameter) -> str:
    """Return values to begin with."""
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
    low = -float("inf") if item.minimum is None else item.minimum
    high = float("inf") if item.maximum is None else item.maximum
    within = dict.fromkeys(min(max(value, low), high) for value in values)
    return ", ".join(f"{value:g}" for value in within)
