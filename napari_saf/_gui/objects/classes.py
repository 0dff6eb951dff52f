"""Classes of objects: the section in which they are named, clicked, counted and saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt, QTimer, Signal
from qtpy.QtWidgets import QHeaderView, QLabel, QTableWidget, QTableWidgetItem, QVBoxLayout, QWidget
from superqt.utils import signals_blocked

from napari_saf._gui.docks.tables import RIGHT, ROW_HEIGHT, square_icon
from napari_saf._gui.forms.controls import ask_for_path
from napari_saf._gui.forms.layout import create_button, create_row, enable, fill_layout
from napari_saf._gui.objects.lessons import (
    Cancelled,
    ClassClicks,
    ClassImage,
    Learn,
    Lesson,
    classify_others,
    learn_from,
    teach,
)
from napari_saf._gui.runs.run import BackgroundTasks
from napari_saf.errors import SafError, counted
from napari_saf.objects import (
    ClassifiedObjects,
    ObjectClasses,
    ObjectMeasures,
    Tracks,
    learn_classes,
    load_classes,
    save_classes,
)

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
_PATIENCE = 700
"""Milliseconds without a click after which measures and method are chosen anew."""
_NO_CLASS = (0.5, 0.5, 0.5, 0.5)
_FEWEST_ROWS, _MOST_ROWS = 2, 4
_FILTER = "Classes of objects (*.classes.json *.json)"
_HELP = {
    "table": "Choose a class, also by the keys 1 to 9, then click its objects in the image, or in "
    "several; 0 ends that. A double click on its name renames it.",
    "add": "Add a class.",
    "lasso": "Then draw around objects of the chosen class.",
    "suggest": "Choose the object whose class is least certain: to click it teaches most.",
    "undo": "Take the last click back.",
    "load": "Load classes that were saved: all objects here are told by them.",
    "save": "Save the classes for other images: napari-saf objects --classes.",
}
_TEACH, _CHOOSE, _OTHERS = "classes", "choice of measures", "classes of other images"
"""Keys of work in the background."""


class ClassSection(QWidget):
    """A table of classes, of which one is given to objects that are clicked.

    Objects of several images are known by a key; one image is current. Work is done by
    `background`; `note` shows a line of text.
    """

    clicked = Signal()
    """Other clicks were made, or there are other names."""
    changed = Signal(list)
    """Objects of images, by key, have other classes."""
    suggested = Signal(int)
    """An object of the current image to look at."""
    lasso_toggled = Signal(bool)
    """Whether lines are drawn around objects."""

    def __init__(self, background: BackgroundTasks, note: Callable[[str], object]) -> None:
        super().__init__()
        self._background, self._note = background, note
        self.state, self.images = ClassClicks(), dict[str, ClassImage]()
        self.current = ""
        self.loaded: ObjectClasses | None = None
        self.taught: ObjectClasses | None = None
        self._choice = QTimer(self, singleShot=True, interval=_PATIENCE)
        self._choice.timeout.connect(self._choose)
        self.table = self._create_table()
        slots: dict[str, Callable[[], object]] = {
            "add": self.add,
            "lasso": lambda: self.lasso_toggled.emit(self.is_lasso),
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
        buttons = [*self.buttons.values()]
        rows = create_row(*buttons[:4]), create_row(*buttons[4:])
        fill_layout(QVBoxLayout(self), self.table, *rows, self.text)
        self._show()

    def _create_table(self) -> QTableWidget:
        table = QTableWidget(0, 3, toolTip=_HELP["table"])
        table.setHorizontalHeaderLabels(["class", "clicked", "objects"])
        header, mode = table.horizontalHeader(), QHeaderView.ResizeMode
        for column, how in enumerate((mode.Stretch, mode.ResizeToContents, mode.ResizeToContents)):
            header.setSectionResizeMode(column, how)
        header.setHighlightSections(False)
        table.verticalHeader().setDefaultSectionSize(ROW_HEIGHT)
        table.verticalHeader().hide()
        table.setShowGrid(False)
        table.setSelectionBehavior(QTableWidget.SelectionBehavior.SelectRows)
        table.setSelectionMode(QTableWidget.SelectionMode.SingleSelection)
        table.itemSelectionChanged.connect(self._update_buttons)
        table.itemChanged.connect(self._on_renamed)
        return table

    @property
    def classified(self) -> ClassifiedObjects | None:
        """The classes of the objects of the current image."""
        return self.classified_of(self.current)

    def classified_of(self, key: str) -> ClassifiedObjects | None:
        return self.images[key].classified if key in self.images else None

    @property
    def clicks(self) -> dict[int, int]:
        """The clicks on the current image."""
        return self.state.clicks.get(self.current, {})

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
        self.images.clear()

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
        key: str,
        measure: Callable[[Cancelled], ObjectMeasures],
        clicks: Mapping[int, int] | None = None,
        names: Mapping[int, str] | None = None,
    ) -> None:
        """Take what measures the objects of an image as they are now; it becomes the current one.

        With `clicks` they are other objects than before, of which these were clicked.
        """
        before, self.current = self.images.get(key), key
        is_other = clicks is not None or before is None
        tracks = None if is_other or before is None else before.tracks
        classified = None if is_other or before is None else before.classified
        self.images[key] = ClassImage(measure, tracks, classified=classified)
        self._take_clicks(key, clicks, names)
        self._teach()

    def add_objects(
        self,
        key: str,
        measure: Callable[[Cancelled], ObjectMeasures],
        clicks: Mapping[int, int],
        names: Mapping[int, str],
    ) -> None:
        """Take along the objects of an image that is not the current one, unless that was done."""
        if key not in self.images:
            self.images[key] = ClassImage(measure)
            self._take_clicks(key, clicks, names)

    def forget(self, key: str) -> None:
        """Forget an image, and the clicks on it."""
        self.images.pop(key, None)
        self.state.forget(key)
        if key == self.current:
            self.current = ""
        self._teach()

    def set_tracks(self, tracks: Tracks) -> None:
        """Give all objects of a track of the current image one class."""
        if self.current in self.images:
            image = self.images[self.current]
            self.images[self.current] = dataclasses.replace(image, tracks=tracks)
            self._teach()

    def click(self, objects: Collection[int]) -> bool:
        """Give objects the chosen class; False if none is chosen, or there is no object."""
        label, objects = self.label, {number for number in objects if number}
        if label is None or not objects or self.current not in self.images:
            return False
        besides = self.images[self.current].same_tracks(objects)
        self.state.click(self.current, objects, label, besides)
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
        classified = self.classified
        if classified is not None:
            self.suggested.emit(int(classified.numbers[classified.uncertainty.argmax()]))

    def load_from(self, path: str) -> None:
        """Load classes; what was clicked before stays, if it is of one of them."""
        try:
            self.loaded = load_classes(path)
        except SafError as error:
            self._note(str(error))
            return
        numbers = np.unique(self.loaded.classes).tolist()
        names = {k: self.loaded.names.get(k, f"class {k}") for k in numbers}
        clicks = {
            key: {number: label for number, label in clicked.items() if label in names}
            for key, clicked in self.state.clicks.items()
        }
        self.state, self.taught = ClassClicks(names, clicks), None
        self._after_click()

    def save_to(self, path: str) -> None:
        """Save the classes; .classes.json where there is no ending."""
        if self.taught is not None:
            path = path if path.endswith(".json") else f"{path}.classes.json"
            try:
                self._note(f"saved {save_classes(path, self.taught).name}")
            except SafError as error:
                self._note(str(error))

    def colors(self, key: str, numbers: NDArray[np.integer]) -> NDArray[np.floating] | None:
        """Return colours (n, 4) of objects, paler where uncertain; None without classes."""
        classified = self.classified_of(key)
        if classified is None:
            return None
        rows = np.searchsorted(classified.numbers, numbers).clip(max=len(classified.numbers) - 1)
        opacity = 1 - (1 - _PALEST) * classified.uncertainty[rows]
        colors = np.column_stack([COLORS[(classified.classes[rows] - 1) % MOST_CLASSES], opacity])
        colors[classified.numbers[rows] != numbers] = _NO_CLASS
        return colors

    def _take_clicks(
        self, key: str, clicks: Mapping[int, int] | None, names: Mapping[int, str] | None
    ) -> None:
        if clicks is not None:
            self.state.forget(key)
            self.state.clicks[key] = dict(clicks)
        self.state.names = dict(sorted({**(names or {}), **self.state.names}.items()))
        self._show(self.label)

    def _after_click(self) -> None:
        self._show(self.label)
        self.clicked.emit()
        self._teach()

    def _teach(self) -> None:
        """Classify the objects of the current image, in the background, if clicks teach classes."""
        self._choice.stop()
        for key in (_CHOOSE, _OTHERS):
            self._background.drop(key)
        labels = {label for clicks in self.state.clicks.values() for label in clicks.values()}
        if self.current not in self.images or not (self.loaded or len(labels) > 1):
            self._background.drop(_TEACH)
            self._forget_classes()
            return
        learn = teach(self._names, self.taught, self.loaded)
        self._learn(_TEACH, lambda cancelled: learn)

    @property
    def _names(self) -> dict[int, str]:
        return dict(self.state.names)

    def _choose(self) -> None:
        """Let clicks choose measures and method, in the background."""
        if self.current in self.images:
            learn = partial(learn_classes, names=self._names)
            self._learn(_CHOOSE, lambda cancelled: partial(learn, cancelled=cancelled))

    def _learn(self, task: str, learner: Callable[[Cancelled], Learn]) -> None:
        images, current = dict(self.images), self.current
        clicks = {key: dict(clicked) for key, clicked in self.state.clicks.items()}
        self._background.run(
            task,
            lambda cancelled: learn_from(images, clicks, current, learner(cancelled), cancelled),
            partial(self._on_learned, task),
        )

    def _on_learned(self, task: str, lesson: Lesson) -> None:
        self._keep(lesson)
        if lesson.classes is None:
            self._forget_classes()
            return
        self.taught = lesson.classes
        self._show(self.label)
        self.changed.emit([self.current])
        if len(self.images) > 1:
            others = partial(classify_others, dict(self.images), lesson.classes, self.current)
            self._background.run(_OTHERS, others, self._on_others)
        if task == _TEACH and self.loaded is None:
            self._choice.start()

    def _on_others(self, lesson: Lesson) -> None:
        self._keep(lesson)
        self._show(self.label)
        self.changed.emit([*lesson.images])

    def _keep(self, lesson: Lesson) -> None:
        """Keep what was computed of images that are still there."""
        self.images |= {key: image for key, image in lesson.images.items() if key in self.images}

    def _forget_classes(self) -> None:
        was_taught, self.taught = self.taught is not None, None
        changed = [key for key, image in self.images.items() if image.classified is not None]
        for key in changed:
            self.images[key] = dataclasses.replace(self.images[key], classified=None)
        self._show(self.label)
        if was_taught or changed:
            self.changed.emit(changed)

    def _show(self, label: int | None = None) -> None:
        """Show classes with their counts in all images, one of them chosen."""
        state = self.state
        known = [x.classified.classes for x in self.images.values() if x.classified is not None]
        classes = np.concatenate([np.zeros(0, int), *known])
        with signals_blocked(self.table):
            self.table.setRowCount(len(state.names))
            for row, (number, name) in enumerate(state.names.items()):
                item = QTableWidgetItem(square_icon(COLORS[(number - 1) % MOST_CLASSES]), name)
                self.table.setItem(row, 0, item)
                counts = state.of_class(number), (classes == number).sum()
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
        names, taught, label = self.state.names, self.taught, self.label
        no_objects = "" if self.current in self.images else "split objects first"
        no_class = no_objects or ("" if label else "choose a class first")
        no_lesson = no_objects or ("" if taught else "click objects of two classes first")
        reasons = {
            "add": "there are nine" if len(names) == MOST_CLASSES else "",
            "lasso": no_class,
            "suggest": no_lesson,
            "undo": "" if self.state.can_undo else "nothing was clicked",
            "load": "",
            "save": no_lesson,
        }
        for name, reason in reasons.items():
            enable(self.buttons[name], reason, _HELP[name])
        if no_class and self.is_lasso:
            self.stop_lasso()
            self.lasso_toggled.emit(False)
        text = ""
        if taught is not None:
            where = sum(map(bool, self.state.clicks.values()))
            share = (
                ""
                if taught.agreement is None
                else f"{100 * taught.agreement:.0f} % of clicks right"
            )
            images = f"clicks on {counted(where, 'image')}" if where > 1 else ""
            text = ": ".join(
                filter(None, [taught.method, ", ".join(filter(None, [share, images]))])
            )
        elif not no_objects:
            text = "choose a class, then click its objects"
            text = text if label is None else f"click objects that are {names[label]}"
        self.text.setText(text)
        self.text.setToolTip("" if taught is None else f"By {', '.join(taught.groups)}.")

    def _on_renamed(self, item: QTableWidgetItem) -> None:
        number = [*self.state.names][item.row()]
        self.state.names[number] = item.text().strip() or f"class {number}"
        if self.taught is not None:
            self.taught = dataclasses.replace(self.taught, names=self._names)
        for key, image in self.images.items():
            if image.classified is not None:
                classified = dataclasses.replace(image.classified, names=self._names)
                self.images[key] = dataclasses.replace(image, classified=classified)
        self._show(self.label)
        self.clicked.emit()
        self.changed.emit([*self.images])
