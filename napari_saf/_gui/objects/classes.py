"""Classes of objects: the clicks that teach them, and the section that shows what follows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt, QTimer, Signal
from qtpy.QtWidgets import QHeaderView, QLabel, QTableWidget, QTableWidgetItem, QVBoxLayout, QWidget
from superqt.utils import signals_blocked

from napari_saf._gui.docks.tables import RIGHT, ROW_HEIGHT, square_icon
from napari_saf._gui.forms.controls import ask_for_path
from napari_saf._gui.forms.layout import create_button, create_row, enable, fill_layout
from napari_saf._gui.runs.run import BackgroundTasks
from napari_saf.errors import SafError
from napari_saf.objects import (
    ClassifiedObjects,
    ClassSpace,
    ObjectClasses,
    ObjectMeasures,
    class_methods,
    learn_classes,
    load_classes,
    save_classes,
)

Cancelled = Callable[[], bool]
COLORS = np.array(
    [
        (0.90, 0.62, 0.00), (0.34, 0.71, 0.91), (0.00, 0.62, 0.45), (0.94, 0.89, 0.26),
        (0.84, 0.37, 0.00), (0.80, 0.47, 0.65), (0.00, 0.45, 0.70), (0.60, 0.60, 0.60),
        (0.55, 0.34, 0.29),
    ]
)  # fmt: skip
"""Of classes 1 to 9: those of Okabe and Ito, grey and brown."""
MOST_CLASSES = len(COLORS)
_PALEST = 0.35
"""Opacity of an object that could be of any class."""
_N_SHADES = 8
_PATIENCE = 700
"""Milliseconds without a click after which measures and method are chosen anew."""
_NO_CLASS = (0.5, 0.5, 0.5, 0.5)
_FEWEST_ROWS, _MOST_ROWS = 2, 4
_FILTER = "Classes of objects (*.classes.json *.json)"
_HELP = {
    "table": "Choose a class, also by the keys 1 to 9, then click its objects in the image; 0 ends "
    "that. A double click on its name renames it.",
    "add": "Add a class.",
    "lasso": "Then draw around objects of the chosen class.",
    "suggest": "Choose the object whose class is least certain: to click it teaches most.",
    "undo": "Take the last click back.",
    "load": "Load classes that were saved: all objects here are told by them.",
    "save": "Save the classes for other images: napari-saf objects --classes.",
}


@dataclasses.dataclass
class ClassClicks:
    """Names of classes, and the class of each object that was clicked, with steps back."""

    names: dict[int, str] = dataclasses.field(default_factory=dict)
    clicks: dict[int, int] = dataclasses.field(default_factory=dict)
    _earlier: list[dict[int, int]] = dataclasses.field(default_factory=list)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Mapping[int, Any]]) -> ClassClicks:
        return cls(dict(plain.get("names", {})), dict(plain.get("clicks", {})))

    def to_plain(self) -> dict[str, dict[int, Any]]:
        return {"names": dict(self.names), "clicks": dict(self.clicks)}

    def add(self) -> int:
        """Add a class; return its number."""
        number = next(k for k in range(1, len(self.names) + 2) if k not in self.names)
        self.names[number] = f"class {number}"
        return number

    def click(self, objects: Collection[int], label: int) -> None:
        """Give objects a class; those that have it already, if all have, lose it."""
        self._earlier.append(dict(self.clicks))
        if all(self.clicks.get(number) == label for number in objects):
            for number in objects:
                del self.clicks[number]
        else:
            self.clicks |= dict.fromkeys(objects, label)

    @property
    def can_undo(self) -> bool:
        return bool(self._earlier)

    def undo(self) -> None:
        self.clicks = self._earlier.pop()


@dataclasses.dataclass(frozen=True)
class Lesson:
    """What clicks teach, and the objects by it."""

    classes: ObjectClasses
    space: ClassSpace
    classified: ClassifiedObjects

    @classmethod
    def of(cls, classes: ObjectClasses, space: ClassSpace) -> Lesson:
        return cls(classes, space, classes.classify(space))

    def suggest(self) -> int:
        """Return the object whose class is least certain."""
        return int(self.classified.numbers[self.classified.uncertainty.argmax()])

    @property
    def text(self) -> str:
        """The method, and the share of clicks that others tell right."""
        agreement = self.classes.agreement
        share = "" if agreement is None else f": {100 * agreement:.0f} % of clicks right"
        return f"{self.classes.method}{share}"


def teach(
    measures: ObjectMeasures,
    clicks: Mapping[int, int],
    names: Mapping[int, str],
    previous: Lesson | None,
    loaded: ObjectClasses | None,
) -> Lesson:
    """Classify by clicks, with the measures and method of the previous lesson or the defaults."""
    if loaded is not None:
        classes = loaded
        if clicks:
            clicked = loaded.with_clicks(measures, clicks)
            vectors = np.concatenate([loaded.vectors, clicked.vectors])
            labels = np.concatenate([loaded.classes, clicked.classes])
            classes = dataclasses.replace(loaded, vectors=vectors, classes=labels)
    elif previous is not None:
        classes = previous.classes.with_clicks(measures, clicks)
    else:
        groups = [group for group in ("shape", "intensity", "texture") if group in measures.groups]
        method = class_methods()[0]
        classes = learn_classes(measures, clicks, groups=groups, method=method)
    classes = dataclasses.replace(classes, names=dict(names))
    is_same = previous is not None and previous.space.measures is measures
    is_same = previous is not None and is_same and previous.classes.groups == classes.groups
    space = previous.space if previous is not None and is_same else classes.space(measures)
    return Lesson.of(classes, space)


def choose(
    measures: ObjectMeasures,
    clicks: Mapping[int, int],
    names: Mapping[int, str],
    cancelled: Cancelled,
) -> Lesson:
    """Let clicks choose measures and method, and classify by them."""
    classes = learn_classes(measures, clicks, names=names, cancelled=cancelled)
    return Lesson.of(classes, classes.space(measures))


class ClassSection(QWidget):
    """A table of classes, of which one is given to objects that are clicked.

    Work is done by `background`; `note` shows a line of text.
    """

    clicked = Signal()
    """Other clicks were made, or there are other names."""
    changed = Signal()
    """Objects have other classes."""
    suggested = Signal(int)
    """An object to look at."""
    lasso_toggled = Signal(bool)
    """Whether lines are drawn around objects."""

    def __init__(self, background: BackgroundTasks, note: Callable[[str], object]) -> None:
        super().__init__()
        self._background, self._note = background, note
        self.state = ClassClicks()
        self.loaded: ObjectClasses | None = None
        self.lesson: Lesson | None = None
        self._measure: Callable[[Cancelled], ObjectMeasures] | None = None
        self._measures: ObjectMeasures | None = None
        self._choice = QTimer(self, singleShot=True, interval=_PATIENCE)
        self._choice.timeout.connect(self._choose)
        self.table = QTableWidget(0, 3, toolTip=_HELP["table"])
        self.table.setHorizontalHeaderLabels(["class", "clicked", "objects"])
        header, mode = self.table.horizontalHeader(), QHeaderView.ResizeMode
        header.setSectionResizeMode(0, mode.Stretch)
        for column in (1, 2):
            header.setSectionResizeMode(column, mode.ResizeToContents)
        header.setHighlightSections(False)
        self.table.verticalHeader().setDefaultSectionSize(ROW_HEIGHT)
        self.table.verticalHeader().hide()
        self.table.setShowGrid(False)
        self.table.setSelectionBehavior(QTableWidget.SelectionBehavior.SelectRows)
        self.table.setSelectionMode(QTableWidget.SelectionMode.SingleSelection)
        self.table.itemSelectionChanged.connect(self._update_buttons)
        self.table.itemChanged.connect(self._on_renamed)
        slots: dict[str, Callable[[], object]] = {
            "add": self.add,
            "lasso": self._on_lasso,
            "suggest": self.suggest,
            "undo": self.undo,
            "load": lambda: ask_for_path(
                self, "Load classes", "", _FILTER, self.load_from, opens=True
            ),
            "save": lambda: ask_for_path(
                self, "Save classes", "objects.classes.json", _FILTER, self.save_to
            ),
        }
        self.buttons = {
            name: create_button(name.capitalize(), _HELP[name], lambda *_, slot=slot: slot())
            for name, slot in slots.items()
        }
        self.buttons["lasso"].setCheckable(True)
        for name in ("load", "save"):
            self.buttons[name].setText(f"{name.capitalize()} …")
        self.text = QLabel(wordWrap=True)
        rows = [create_row(*[self.buttons[name] for name in names])
                for names in (("add", "lasso", "suggest", "undo"), ("load", "save"))]  # fmt: skip
        fill_layout(QVBoxLayout(self), self.table, *rows, self.text)
        self._show()

    @property
    def classified(self) -> ClassifiedObjects | None:
        return None if self.lesson is None else self.lesson.classified

    @property
    def label(self) -> int | None:
        """The class that is given to objects that are clicked; None: they are merely chosen."""
        rows = self.table.selectionModel().selectedRows()
        return [*self.state.names][rows[0].row()] if rows else None

    @property
    def is_lasso(self) -> bool:
        return bool(self.buttons["lasso"].isChecked())

    def stop_lasso(self) -> None:
        self.buttons["lasso"].setChecked(False)

    def shut_down(self) -> None:
        self._choice.stop()
        self._measure = None

    def choose_label(self, label: int) -> None:
        """Choose a class, which is added if it is the next one; 0: none."""
        if label == 0 or label == self.label:
            self.table.clearSelection()
        elif label in self.state.names:
            self.table.selectRow([*self.state.names].index(label))
        elif label == len(self.state.names) + 1:
            self.add()

    def show_objects(
        self,
        measure: Callable[[Cancelled], ObjectMeasures] | None,
        plain: Mapping[str, Mapping[int, Any]] | None = None,
    ) -> None:
        """Take what measures the objects as they are now; with `plain`, the clicks on others."""
        self._measure, self._measures = measure, None
        if measure is None or plain is not None:
            self._background.drop("classes")
            self.lesson, label = None, self.label
            self.state = ClassClicks.from_plain(plain or {"names": self.state.names})
            self._show(label)
        self._teach()

    def click(self, objects: Collection[int]) -> bool:
        """Give objects the chosen class; False if none is chosen, or there is no object."""
        label, objects = self.label, [number for number in objects if number]
        if label is None or not objects or self._measure is None:
            return False
        self.state.click(objects, label)
        self._after_click()
        return True

    def undo(self) -> None:
        if self.state.can_undo:
            self.state.undo()
            self._after_click()

    def add(self) -> None:
        if len(self.state.names) < MOST_CLASSES:
            self._show(self.state.add())
            self.clicked.emit()

    def suggest(self) -> None:
        if self.lesson is not None:
            self.suggested.emit(self.lesson.suggest())

    def load_from(self, path: str) -> None:
        """Load classes; what was clicked before stays, if it is of one of them."""
        try:
            self.loaded = load_classes(path)
        except SafError as error:
            self._note(str(error))
            return
        numbers = np.unique(self.loaded.classes).tolist()
        names = {k: self.loaded.names.get(k, f"class {k}") for k in numbers}
        clicks = {number: label for number, label in self.state.clicks.items() if label in names}
        self.state, self.lesson = ClassClicks(names, clicks), None
        self._after_click()

    def save_to(self, path: str) -> None:
        """Save the classes; .classes.json where there is no ending."""
        if self.lesson is not None:
            path = path if path.endswith(".json") else f"{path}.classes.json"
            try:
                self._note(f"saved {save_classes(path, self.lesson.classes).name}")
            except SafError as error:
                self._note(str(error))

    def colors(self, numbers: NDArray[np.integer]) -> NDArray[np.floating] | None:
        """Return colours (n, 4) of objects, paler where uncertain; None without classes."""
        if self.classified is None:
            return None
        classified = self.classified
        rows = np.searchsorted(classified.numbers, numbers).clip(max=len(classified.numbers) - 1)
        # In few steps: napari is slow where there are many colours.
        uncertainty = np.round(classified.uncertainty[rows] * _N_SHADES) / _N_SHADES
        opacity = 1 - (1 - _PALEST) * uncertainty
        colors = np.column_stack([COLORS[(classified.classes[rows] - 1) % MOST_CLASSES], opacity])
        colors[classified.numbers[rows] != numbers] = _NO_CLASS
        return colors

    def _after_click(self) -> None:
        self._show(self.label)
        self.clicked.emit()
        self._teach()

    def _teach(self) -> None:
        """Classify all objects again, in the background, if clicks are of two or more classes."""
        measure, state, loaded, previous = self._measure, self.state, self.loaded, self.lesson
        self._choice.stop()
        self._background.drop("choice of measures")
        if measure is None or not (loaded or len({*state.clicks.values()}) > 1):
            if previous is not None:
                self.lesson = None
                self._show(self.label)
                self.changed.emit()
            return
        clicks, names, measured = dict(state.clicks), dict(state.names), self._measures

        def work(cancelled: Cancelled) -> tuple[ObjectMeasures, Lesson | None]:
            measures = measure(cancelled) if measured is None else measured
            present = _present(clicks, measures)
            if loaded is None and len({*present.values()}) < 2:
                return measures, None
            return measures, teach(measures, present, names, previous, loaded)

        self._background.run("classes", work, self._on_taught)

    def _on_taught(self, result: tuple[ObjectMeasures, Lesson | None]) -> None:
        self._measures, self.lesson = result
        self._show(self.label)
        self.changed.emit()
        if self.lesson is not None and self.loaded is None:
            self._choice.start()

    def _choose(self) -> None:
        """Let clicks choose measures and method, in the background."""
        measures = self._measures
        if measures is None:
            return
        clicks, names = _present(self.state.clicks, measures), dict(self.state.names)
        self._background.run(
            "choice of measures",
            partial(choose, measures, clicks, names),
            self._on_chosen_measures,
        )

    def _on_chosen_measures(self, lesson: Lesson) -> None:
        self.lesson = lesson
        self._show(self.label)
        self.changed.emit()

    def _show(self, label: int | None = None) -> None:
        """Show classes with their counts, one of them chosen."""
        state, lesson = self.state, self.lesson
        clicked = np.array([*state.clicks.values()], int)
        classes = np.zeros(0, int) if lesson is None else lesson.classified.classes
        with signals_blocked(self.table):
            self.table.setRowCount(len(state.names))
            for row, (number, name) in enumerate(state.names.items()):
                item = QTableWidgetItem(square_icon(COLORS[(number - 1) % MOST_CLASSES]), name)
                self.table.setItem(row, 0, item)
                counts = (clicked == number).sum(), (classes == number).sum()
                for column, count in enumerate(counts, 1):
                    cell = QTableWidgetItem(f"{count:,}".replace(",", "\u2009") if count else "")
                    cell.setFlags(cell.flags() & ~Qt.ItemFlag.ItemIsEditable)
                    cell.setTextAlignment(RIGHT)
                    self.table.setItem(row, column, cell)
            edges = self.table.horizontalHeader().sizeHint().height() + 2 * self.table.frameWidth()
            n_rows = min(max(len(state.names), _FEWEST_ROWS), _MOST_ROWS)
            self.table.setFixedHeight(edges + n_rows * ROW_HEIGHT)
            self.table.clearSelection()
            if label in state.names:
                self.table.selectRow([*state.names].index(label))
        self._update_buttons()

    def _update_buttons(self) -> None:
        state, lesson, has_objects = self.state, self.lesson, self._measure is not None
        no_objects = "" if has_objects else "split objects first"
        no_class = no_objects or ("" if self.label else "choose a class first")
        no_lesson = no_objects or ("" if lesson else "click objects of two classes first")
        reasons = {
            "add": "there are nine" if len(state.names) == MOST_CLASSES else "",
            "lasso": no_class,
            "suggest": no_lesson,
            "undo": "" if state.can_undo else "nothing was clicked",
            "load": "",
            "save": no_lesson,
        }
        for name, reason in reasons.items():
            enable(self.buttons[name], reason, _HELP[name])
        if no_class and self.buttons["lasso"].isChecked():
            self.buttons["lasso"].setChecked(False)
            self.lasso_toggled.emit(False)
        text = "" if lesson is None else lesson.text
        if not text and has_objects:
            label = self.label
            text = "choose a class, then click its objects" if label is None else (
                f"click objects that are {state.names[label]}")  # fmt: skip
        self.text.setText(text)
        measures = "" if lesson is None else f"By {', '.join(lesson.classes.groups)}."
        self.text.setToolTip(measures)

    def _on_renamed(self, item: QTableWidgetItem) -> None:
        number = [*self.state.names][item.row()]
        self.state.names[number] = item.text().strip() or f"class {number}"
        if self.lesson is not None:
            names = dict(self.state.names)
            classes = dataclasses.replace(self.lesson.classes, names=names)
            classified = dataclasses.replace(self.lesson.classified, names=names)
            self.lesson = Lesson(classes, self.lesson.space, classified)
        self._show(self.label)
        self.clicked.emit()
        self.changed.emit()

    def _on_lasso(self) -> None:
        self.lasso_toggled.emit(self.buttons["lasso"].isChecked())


def _present(clicks: Mapping[int, int], measures: ObjectMeasures) -> dict[int, int]:
    """Return the clicks on objects that are still there."""
    numbers = {*measures.numbers.tolist()}
    return {number: label for number, label in clicks.items() if number in numbers}
