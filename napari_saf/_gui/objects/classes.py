"""The Classes section of the Objects dock: names, training clicks, counts, files."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt, QTimer, Signal
from qtpy.QtWidgets import QHeaderView, QLabel, QTableWidget, QTableWidgetItem, QVBoxLayout, QWidget
from superqt.utils import signals_blocked

from napari_saf._gui.docks.tables import RIGHT, ROW_HEIGHT, square_icon
from napari_saf._gui.forms.controls import ask_for_path
from napari_saf._gui.forms.display_text import named
from napari_saf._gui.forms.layout import create_button, create_row, enable, fill_layout
from napari_saf._gui.objects.learning import (
    Cancelled,
    ClassClicks,
    ClassImage,
    Learn,
    Learned,
    classify_others,
    learn_from,
    learner,
)
from napari_saf._gui.runs.task import BackgroundTasks
from napari_saf.errors import SafError, counted
from napari_saf.methods import METHODS
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
"""Colours of classes 1 to 9: the palette of Okabe and Ito, grey and brown."""
MOST_CLASSES = len(COLORS)
_PALEST = 0.35
"""Opacity of an object whose class is maximally uncertain."""
_PATIENCE = 700
"""Milliseconds without a click after which measures and method are selected again."""
_DELAY = 150
"""Milliseconds that counts of clicks wait for the new classes: the window is painted once."""
_NO_CLASS = (0.5, 0.5, 0.5, 0.5)
_FEWEST_ROWS, _MOST_ROWS = 2, 4
_FILTER, _FILE = "Classes of objects (*.classes.json *.json)", "objects.classes.json"
_HELP = {
    "table": "Select a class (keys 1 to 9), then click its objects in one or several images; 0 "
    "clears the selection. Double-click a name to rename it.",
    "add": "Add a class.",
    "lasso": "Draw around objects to assign the selected class to them.",
    "suggest": "Select the object whose class is least certain: its class helps most.",
    "undo": "Undo the last click.",
    "load": "Load saved classes, and classify all objects with them.",
    "save": "Save the classes for other images: napari-saf objects --classes.",
}
_UPDATE, _CHOOSE, _OTHERS = "classes", "choice of measures", "classes of other images"
"""Keys of the background tasks."""


class ClassSection(QWidget):
    """Table of classes; the selected class is assigned to clicked objects.

    Each image has a key, one image is current. Tasks run in `background`; `note` shows a line of
    text, files are offered in `folder`.
    """

    clicked = Signal()
    """Emitted when clicks or class names change."""
    changed = Signal(list)
    """Emitted with the keys of the images whose objects changed class."""
    suggested = Signal(int)
    """Emitted with the number of an object of the current image to bring into view."""
    lasso_toggled = Signal(bool)
    """Emitted with whether the lasso is active."""

    def __init__(
        self,
        background: BackgroundTasks,
        note: Callable[[str], object],
        folder: Callable[[], Path],
    ) -> None:
        super().__init__()
        self._background, self.note = background, note
        self.state, self.images = ClassClicks(), dict[str, ClassImage]()
        self.current, self.clicked_at = "", 0.0
        self.loaded: ObjectClasses | None = None
        self.learned: ObjectClasses | None = None
        self._choice = QTimer(self, singleShot=True, interval=_PATIENCE)
        self._choice.timeout.connect(self._choose)
        self._counts = QTimer(self, singleShot=True, interval=_DELAY)
        self._counts.timeout.connect(lambda: self._show(self.label))
        self.table = self._create_table()
        slots: dict[str, Callable[[], object]] = {
            "add": self.add,
            "lasso": lambda: self.lasso_toggled.emit(self.is_lasso),
            "suggest": self.suggest,
            "undo": self.undo,
            "load": lambda: ask_for_path(
                self, "Load classes", str(folder()), _FILTER, self.load_from, opens=True
            ),
            "save": lambda: ask_for_path(
                self, "Save classes", str(folder() / _FILE), _FILTER, self.save_to
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

    @property
    def image(self) -> ClassImage | None:
        """The current image."""
        return self.images.get(self.current)

    def classified_of(self, key: str) -> ClassifiedObjects | None:
        return self.images[key].classified if key in self.images else None

    @property
    def clicks(self) -> dict[int, int]:
        """The clicks on the current image."""
        return self.state.clicks.get(self.current, {})

    @property
    def label(self) -> int | None:
        """The class assigned to clicked objects; None: a click only selects."""
        rows = self.table.selectionModel().selectedRows()
        return [*self.state.names][rows[0].row()] if rows else None

    @property
    def is_lasso(self) -> bool:
        return bool(self.buttons["lasso"].isChecked())

    def stop_lasso(self) -> None:
        self.buttons["lasso"].setChecked(False)

    def shut_down(self) -> None:
        self._choice.stop()
        self._counts.stop()
        self.images.clear()

    def choose_label(self, label: int) -> None:
        """Select a class, adding it if it is the next number; 0 clears the selection."""
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
        """Make an image current, with a function that measures its objects.

        `clicks` and `names` replace the stored ones, for a new set of objects.
        """
        image = self.images.get(key) if clicks is None else None
        kept = (None, None) if image is None else (image.tracks, image.classified)
        self.images[key], self.current = ClassImage(measure, kept[0], classified=kept[1]), key
        self._take_clicks(key, clicks, names)
        self._update()

    def add_objects(
        self,
        key: str,
        measure: Callable[[Cancelled], ObjectMeasures],
        clicks: Mapping[int, int],
        names: Mapping[int, str],
    ) -> None:
        """Add the objects of an image that is not current, unless already added."""
        if key not in self.images:
            self.images[key] = ClassImage(measure)
            self._take_clicks(key, clicks, names)

    def forget(self, key: str) -> None:
        """Remove an image and its clicks."""
        self.images.pop(key, None)
        self.state.forget(key)
        if key == self.current:
            self.current = ""
        self._update()

    def set_tracks(self, tracks: Tracks) -> None:
        """Set the tracks of the current image: all objects of a track share one class."""
        if self.current in self.images:
            image = self.images[self.current]
            self.images[self.current] = dataclasses.replace(image, tracks=tracks)
            self.changed.emit([self.current])
            self._update()

    def click(self, objects: Collection[int]) -> bool:
        """Assign the selected class to objects; return False without a class or an object."""
        label, objects = self.label, {number for number in objects if number}
        if label is None or not objects or self.current not in self.images:
            return False
        self.clicked_at = time.monotonic()
        linked = self.images[self.current].same_tracks(objects)
        self.state.click(self.current, objects, label, linked)
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
        """Load classes from a file; clicks of classes that it does not contain are removed."""
        try:
            self.loaded = load_classes(path)
        except SafError as error:
            self.note(str(error))
            return
        numbers = np.unique(self.loaded.classes).tolist()
        names = {k: self.loaded.names.get(k, f"class {k}") for k in numbers}
        clicks = {
            key: {number: label for number, label in clicked.items() if label in names}
            for key, clicked in self.state.clicks.items()
        }
        self.state, self.learned = ClassClicks(names, clicks), None
        self._after_click()

    def save_to(self, path: str) -> None:
        """Save the classes; the suffix defaults to .classes.json."""
        if self.learned is not None:
            path = path if path.endswith(".json") else f"{path}.classes.json"
            try:
                self.note(f"saved {named(save_classes(path, self.learned))}")
            except SafError as error:
                self.note(str(error))

    def colors(self, key: str, numbers: NDArray[np.integer]) -> NDArray[np.floating] | None:
        """Return RGBA (n, 4) of objects, paler where uncertain; None without classes."""
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
            self.state.renumber(key, dict(clicks))
        self.state.names = dict(sorted({**(names or {}), **self.state.names}.items()))
        self._show(self.label)

    def _after_click(self) -> None:
        self._counts.start()
        self.clicked.emit()
        self._update()

    def _update(self) -> None:
        """Train on the clicks and classify the objects of the current image, in the background."""
        self._choice.stop()
        for key in (_CHOOSE, _OTHERS):
            self._background.drop(key)
        labels = {label for clicks in self.state.clicks.values() for label in clicks.values()}
        if self.current not in self.images or not (self.loaded or len(labels) > 1):
            self._background.drop(_UPDATE)
            self._forget_classes()
            return
        learn = learner(self._names, self.learned, self.loaded)
        self._learn(_UPDATE, lambda cancelled: learn)

    @property
    def _names(self) -> dict[int, str]:
        return dict(self.state.names)

    def _choose(self) -> None:
        """Select measures and method from the clicks, in the background."""
        if self.current in self.images:
            learn = partial(learn_classes, names=self._names)
            self._learn(_CHOOSE, lambda cancelled: partial(learn, cancelled=cancelled))

    def _learn(self, task: str, create_learn: Callable[[Cancelled], Learn]) -> None:
        images, current = dict(self.images), self.current
        clicks = {key: dict(clicked) for key, clicked in self.state.clicks.items()}
        self._background.run(
            task,
            lambda cancelled: learn_from(
                images, clicks, current, create_learn(cancelled), cancelled
            ),
            partial(self._on_learned, task),
        )

    def _on_learned(self, task: str, learned: Learned) -> None:
        self._keep(learned)
        if learned.classes is None:
            self._forget_classes()
            return
        self.learned = learned.classes
        self._show(self.label)
        self.changed.emit([self.current])
        if len(self.images) > 1:
            others = partial(classify_others, dict(self.images), learned.classes, self.current)
            self._background.run(_OTHERS, others, self._on_others)
        if task == _UPDATE and self.loaded is None:
            self._choice.start()

    def _on_others(self, learned: Learned) -> None:
        self._keep(learned)
        self._show(self.label)
        self.changed.emit([*learned.images])

    def _keep(self, learned: Learned) -> None:
        """Store results of the images that still exist."""
        self.images |= {key: image for key, image in learned.images.items() if key in self.images}

    def _forget_classes(self) -> None:
        was_learned, self.learned = self.learned is not None, None
        for key, image in self.images.items():
            was_learned |= image.classified is not None
            self.images[key] = dataclasses.replace(image, classified=None)
        self._show(self.label)
        if was_learned:
            self.changed.emit([*self.images])

    def _show(self, label: int | None = None) -> None:
        """Show classes with their counts over all images, and select one."""
        self._counts.stop()
        state = self.state
        classified = [x.classified for x in self.images.values() if x.classified is not None]
        classes = np.concatenate([np.zeros(0, int), *(x.classes for x in classified)])
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
        names, learned, label = self.state.names, self.learned, self.label
        no_objects = "" if self.current in self.images else "split objects first"
        no_class = no_objects or ("" if label else "choose a class first")
        not_learned = no_objects or ("" if learned else "click objects of two classes first")
        reasons = {
            "add": "no more than nine classes" if len(names) == MOST_CLASSES else "",
            "lasso": no_class,
            "suggest": not_learned,
            "undo": "" if self.state.can_undo else "no click to undo",
            "load": "",
            "save": not_learned,
        }
        for name, reason in reasons.items():
            enable(self.buttons[name], reason, _HELP[name])
        if no_class and self.is_lasso:
            self.stop_lasso()
            self.lasso_toggled.emit(False)
        text = ""
        if learned is not None:
            n_images = sum(map(bool, self.state.clicks.values()))
            share = (
                ""
                if learned.agreement is None
                else f"{100 * learned.agreement:.0f} % of clicks right"
            )
            images = f"clicks on {counted(n_images, 'image')}" if n_images > 1 else ""
            method = METHODS.get(learned.method)
            title = f"by {learned.method if method is None else method.title}"
            text = ": ".join(filter(None, [title, ", ".join(filter(None, [share, images]))]))
        elif not no_objects:
            text = "choose a class" if names else "press Add for the first class"
            text += ", then click its objects"
            text = text if label is None else f"click objects that are {names[label]}"
        self.text.setText(text)
        self.text.setToolTip("" if learned is None else f"By {', '.join(learned.groups)}.")

    def _on_renamed(self, item: QTableWidgetItem) -> None:
        number = [*self.state.names][item.row()]
        self.state.names[number] = item.text().strip() or f"class {number}"
        if self.learned is not None:
            self.learned = dataclasses.replace(self.learned, names=self._names)
        for key, image in self.images.items():
            if image.classified is not None:
                classified = dataclasses.replace(image.classified, names=self._names)
                self.images[key] = dataclasses.replace(image, classified=classified)
        self._show(self.label)
        self.clicked.emit()
        self.changed.emit([*self.images])
