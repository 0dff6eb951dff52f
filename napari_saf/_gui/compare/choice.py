"""What to compare: chosen, named by the labels of the form, run in the thread that computes."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QCheckBox,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QVBoxLayout,
    QWidget,
)

from napari_saf import comparison as compare
from napari_saf._gui.forms.choices import Choice
from napari_saf._gui.forms.image_input import with_side
from napari_saf._gui.forms.layout import FormSection, fill_layout
from napari_saf._gui.forms.method_form import described
from napari_saf._gui.layers.placement import ImageRegion
from napari_saf._gui.layers.reading import ImageJob, Pixels, ProblemReader
from napari_saf.errors import InvalidInput
from napari_saf.input import AUTO
from napari_saf.methods import METHODS, AbstractMethod, run_to_end
from napari_saf.parameters import Parameter, describe, parameter_named
from napari_saf.pipeline import without_gaps
from napari_saf.problem import ImageOptions, Problem

_KINDS = ("int", "float", "choice", "bool")
_NOT_VARIED = ("device", "dtype")
_OPTIONS = {option.name: option for option in describe(ImageOptions)}
_FIRST_VALUES = {"window": "3, 9, 21", "max_side": "240, 480", "max_labels": "4, 8, 16"}
_START = (("max_labels", "3, 6, 12"), ("window", "3, 13"))
"""Pictures that differ: over four photographs their mean adjusted Rand index is .47."""
_MOST_LETTERS = 68
"""Of the names in a row of panels, in a small window."""
_REPORT_SECONDS = 0.1
_N_GIVEN = 2
"""Panels of image and truth."""


class ComparisonChoice(QWidget):
    """Methods to tick, whose settings count, two rows of a parameter and its values."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.boxes = {name: QCheckBox(method.title) for name, method in METHODS.items()}
        self.settings = Choice((("defaults", False), ("as in Segment", True)))
        self.rows = (_AxisRow("Vary"), _AxisRow("and"))
        section, methods, layout = FormSection(), QVBoxLayout(), QVBoxLayout(self)
        section.add_row("Settings", self.settings, "What the parameters are that do not vary.")
        methods.setSpacing(2)
        layout.addLayout(methods)
        fill_layout(layout, section, *self.rows)
        for name, box in self.boxes.items():
            box.setToolTip(described(METHODS[name]))
            box.toggled.connect(self._on_methods_changed)
            methods.addWidget(box)
        next(iter(self.boxes.values())).setChecked(True)
        for row, start in zip(self.rows, _START, strict=True):
            row.choose(*start)
            row.changed.connect(self.changed)
        self.settings.currentIndexChanged.connect(self.changed)

    @property
    def methods(self) -> list[type[AbstractMethod]]:
        return [METHODS[name] for name, box in self.boxes.items() if box.isChecked()]

    @property
    def axis_names(self) -> list[str]:
        return [row.name for row in self.rows if row.name]

    def variants(
        self, options: ImageOptions, configured: Mapping[str, AbstractMethod]
    ) -> list[compare.Variant]:
        """Return the variants of the ticked methods: as in `configured`, else with their defaults.

        InvalidInput is raised if no method is ticked, or values are wrong.
        """
        types, rows = self.methods, [row for row in self.rows if row.name]
        axes = {row.name: compare.read_values(row.name, row.text, types) for row in rows}
        if isinstance(options.window, tuple) and "window" in axes:
            axes["window"] = [
                with_side(options.window, side) if isinstance(side, int) else side
                for side in axes["window"]
            ]
        methods = [configured.get(method.name) or method() for method in types]
        return compare.variants_of(methods, axes, options)

    def _on_methods_changed(self) -> None:
        """Offer what may vary: basic parameters, options of the image, advanced parameters."""
        parameters: dict[str, Parameter] = {}
        for item in (item for method in self.methods for item in describe(method)):
            if item.kind in _KINDS and item.name not in _NOT_VARIED and item.in_form:
                parameters.setdefault(item.name, item)
        basic = [item for item in parameters.values() if not item.advanced]
        advanced = [item for item in parameters.values() if item.advanced]
        for row in self.rows:
            row.offer([*basic, *(_OPTIONS[name] for name in compare.OPTION_AXES), *advanced])
        self.changed.emit()


class _AxisRow(QWidget):
    """A word, a parameter and its values."""

    changed = Signal()

    def __init__(self, text: str) -> None:
        super().__init__()
        label = QLabel(text)
        label.setFixedWidth(label.fontMetrics().horizontalAdvance("Vary  "))
        self._box = Choice()
        self._box.setToolTip("The parameter that takes several values.")
        self._line = QLineEdit(toolTip="Values with commas between; every combination is run.")
        self._line.setSizePolicy(self._box.sizePolicy())
        layout = QHBoxLayout(self)
        fill_layout(layout, label, self._box, self._line)
        layout.setStretch(1, 5)
        layout.setStretch(2, 3)
        self._items: dict[str, Parameter] = {}
        self._box.currentIndexChanged.connect(self._on_chosen)
        self._line.textChanged.connect(self.changed)

    @property
    def name(self) -> str:
        """What varies; empty for nothing."""
        return self._box.value or ""

    @property
    def text(self) -> str:
        return str(self._line.text())

    def offer(self, items: Iterable[Parameter]) -> None:
        previous = self.name
        self._items = {item.name: item for item in items}
        entries = [(item.label, name) for name, item in self._items.items()]
        self._box.offer([("nothing", ""), *entries])
        for name, item in self._items.items():
            self._box.explain(name, f"{item.help} ({name})")
        if self.name != previous:
            self._on_chosen()

    def choose(self, name: str | None, values: str = "") -> None:
        self._box.choose(name or "")
        if values:
            self._line.setText(values)

    def _on_chosen(self) -> None:
        item = self._items.get(self.name)
        self._line.setEnabled(item is not None)
        self._line.setText("" if item is None else _first_values(item))
        self.changed.emit()


def _first_values(item: Parameter) -> str:
    if item.name in _FIRST_VALUES:
        return _FIRST_VALUES[item.name]
    if item.kind == "choice":
        return ", ".join(choice for choice in item.choices if choice != AUTO)  # it is one of these
    if item.kind == "bool":
        return "false, true"
    if item.minimum is not None and item.maximum is not None and item.ends is not None:
        values = [item.minimum, (item.minimum + item.maximum) / 2, item.maximum]
    elif isinstance(item.default, (int, float)) and item.default > 0:
        values = [item.default / 2, item.default, item.default * 2]
    else:
        values = [0, 1]
    numbers = np.clip(np.array(values, float), item.minimum, item.maximum)
    numbers = np.round(numbers) if item.kind == "int" else numbers
    return ", ".join(f"{number:g}" for number in np.unique(numbers))


def whole_name(variant: compare.Variant, n_words: int | None = None) -> str:
    """Return the coordinates of a variant as text, with `n_words` words of each label."""
    texts = []
    for axis, value in variant.coordinates:
        item = _OPTIONS.get(axis) or parameter_named(type(variant.method), axis)
        label = "" if item is None else item.label  # the name of a method is enough
        texts.append(" ".join([*label.split()[:n_words], value]))
    return ", ".join(texts)


def panel_names(variants: Sequence[compare.Variant]) -> list[str]:
    """Return for each variant what distinguishes it, as long as there is room for."""
    axes, layout = compare.open_axes(variants), compare.lay_out(variants)
    if not axes:
        return [whole_name(variant) for variant in variants]
    full = [tuple(pair for pair in variant.coordinates if pair[0] in axes) for variant in variants]
    short = [tuple((axis, _short_window(axis, text)) for axis, text in pairs) for pairs in full]
    chosen = short if len({*short}) == len(variants) else full
    shown = [
        dataclasses.replace(variant, coordinates=pairs)
        for variant, pairs in zip(variants, chosen, strict=True)
    ]
    n_columns = layout.n_columns
    if not layout.is_table:
        n_columns = math.ceil(math.sqrt(len(variants) + _N_GIVEN))
    names: list[str] = []
    for n_words in (None, 1, 0):
        names = [whole_name(variant, n_words) for variant in shown]
        if max(map(len, names)) <= _MOST_LETTERS // n_columns:
            break
    return names


def _short_window(axis: str, text: str) -> str:
    """Return the sides of a window without those of 1, each once: 3 for 1 x 3 x 3."""
    sides = dict.fromkeys(side for side in text.split(" x ") if side != "1")
    return " x ".join(sides) or text if axis == "window" else text


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ComparisonJob:
    """What to compare on a region of an image, as read from the form on click; what came of it.

    The rows are the numbers of the results, with those of their agreement where a truth is known.
    """

    image_job: ImageJob
    region: ImageRegion
    variants: Sequence[compare.Variant]
    comparison: compare.Comparison = compare.Comparison(())
    rows: Sequence[compare.Row] = ()
    truth: NDArray[Any] | None = None

    def masked(self) -> ComparisonJob:
        """Return the same without the pixels that are NaN or infinite."""
        job = dataclasses.replace(self.image_job, finite_only=True)
        return dataclasses.replace(self, image_job=job)

    def run(
        self,
        truth: Pixels | None,
        report: Callable[[object], None],
        cancelled: Callable[[], bool],
    ) -> ComparisonJob:
        """Run all variants; report each result once, and fraction and name of what is under way.

        Errors are those of `iterate_comparison` and `with_truth`.
        """
        measured, reader = self.with_truth(truth, cancelled), ProblemReader()
        n_reported, last = 0, 0.0

        def read(options: ImageOptions) -> Problem:
            job = dataclasses.replace(self.image_job, options=options)
            return without_gaps(reader.read(job, cancelled))[0]

        def on_step(step: compare.ComparisonStep) -> None:
            nonlocal n_reported, last
            for result in step.results[n_reported:]:
                report(result)
            n_reported = len(step.results)
            if time.perf_counter() - last > _REPORT_SECONDS:
                last = time.perf_counter()
                report((step.snapshot.fraction, whole_name(step.variant)))

        comparison = run_to_end(
            compare.iterate_comparison(self.variants, read, cancelled=cancelled), on_step
        )
        rows = compare.comparison_table(comparison, measured.truth)
        return dataclasses.replace(measured, comparison=comparison, rows=rows)

    def with_truth(self, truth: Pixels | None, cancelled: Callable[[], bool]) -> ComparisonJob:
        """Return the same, measured by regions as they should be, if they are known.

        InvalidInput is raised if they do not fit the image, or are 0 everywhere.
        """
        regions = None if truth is None else truth.read(cancelled).copy()
        if regions is not None:
            expected = tuple(self.image_job.shape)
            if regions.shape != expected:
                raise InvalidInput(f"truth: expected the shape {expected}, got {regions.shape}")
            if not regions.any():
                raise InvalidInput("truth: expected labelled pixels, got 0 everywhere")
        rows = compare.comparison_table(self.comparison, regions)
        return dataclasses.replace(self, rows=rows, truth=regions)
