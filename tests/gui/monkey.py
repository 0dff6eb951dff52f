"""Random actions on a real window: layers, dims, undo, and every control of every dock.

    python tests/gui/monkey.py --seed 0 --actions 1000

Docks are found through the manifest. Each fault (exception, warning, logged error, run that does
not end) is printed with the actions before it; the exit status is their number, 99 at most.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import gc
import logging
import os
import sys
import tempfile
import threading
import time
import traceback
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import dask.array
import npe2
import numpy as np
from qtpy.QtCore import QPoint, Qt, QUrl
from qtpy.QtGui import QColor, QDesktopServices
from qtpy.QtTest import QTest
from qtpy.QtWidgets import (
    QAbstractButton,
    QAbstractSpinBox,
    QApplication,
    QColorDialog,
    QComboBox,
    QDockWidget,
    QDoubleSpinBox,
    QFileDialog,
    QLineEdit,
    QListWidget,
    QMessageBox,
    QSlider,
    QSpinBox,
    QTableView,
    QTabWidget,
    QWidget,
)

PLUGIN = "napari-saf"
_HANG_SECONDS = 120
_STOP_SECONDS = 30.0
_MOST_LAYERS = 9
_REMEMBERED = 12
_KEYS = (
    (Qt.Key.Key_R, Qt.KeyboardModifier.ShiftModifier),
    (Qt.Key.Key_S, Qt.KeyboardModifier.ShiftModifier),
    (Qt.Key.Key_Period, Qt.KeyboardModifier.NoModifier),
    (Qt.Key.Key_Comma, Qt.KeyboardModifier.NoModifier),
)
_TEXTS = ("", "a", "ä b/c", "1, 2", "0.5; 0.5", "nonsense", "-1", "x" * 300, ".")


def dock_names() -> list[str]:
    """Return the display names of the docks in the manifest."""
    manifest = npe2.PluginManager.instance().get_manifest(PLUGIN)
    return [widget.display_name for widget in manifest.contributions.widgets or ()]


_FAULTS_OF_NAPARI = ("/napari/_vispy/", "in _load_history")
"""Labels that are painted while axes change break its textures; undo, data that were replaced."""


class Faults(logging.Handler):
    """Collects what must not happen."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []
        self.n_of_napari = 0
        self.actions: collections.deque[str] = collections.deque(maxlen=_REMEMBERED)
        self._seen: collections.Counter[str] = collections.Counter()

    def add(self, text: str) -> None:
        """Keep a fault, once of its kind."""
        if any(place in text for place in _FAULTS_OF_NAPARI) and "napari_saf" not in text:
            self.n_of_napari += 1
            return
        kind = text.strip().splitlines()[-1]
        self._seen[kind] += 1
        if self._seen[kind] == 1:
            before = "\n".join(f"    {action}" for action in self.actions)
            self.found.append(f"{text}\nafter\n{before}")

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what is logged as a warning or worse."""
        text = record.getMessage()
        if record.exc_info:
            text = "".join(traceback.format_exception(*record.exc_info))
        self.add(f"logged by {record.name}: {text}")

    @contextmanager
    def watching(self):
        """Collect exceptions of slots and threads, warnings and what our loggers say."""

        def failed(kind, error, trace, *_):
            self.add("".join(traceback.format_exception(kind, error, trace)))

        def warned(message, category, filename, lineno, file=None, line=None):
            where = "".join(traceback.format_stack(limit=8))
            self.add(f"{where}{filename}:{lineno}: {category.__name__}: {message}")

        before = (sys.excepthook, threading.excepthook, sys.unraisablehook)
        sys.excepthook = failed
        threading.excepthook = lambda args: failed(*args)
        sys.unraisablehook = lambda args: failed(args.exc_type, args.exc_value, args.exc_traceback)
        logger = logging.getLogger("napari_saf")
        logger.addHandler(self)
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.filterwarnings("ignore", "Call to deprecated class Scaler")
            warnings.showwarning = warned
            try:
                yield self
            finally:
                logger.removeHandler(self)
                sys.excepthook, threading.excepthook, sys.unraisablehook = before


@contextmanager
def answered_dialogs(rng: np.random.Generator, folder: Path):
    """Answer modal dialogs at random; nothing is written outside the folder."""

    def path(*_, **__):
        names = ("", "new", "a.safetensors", "b.recipe.json", "c.json", "d.tif", "e.npz", "f.csv")
        name = names[rng.integers(len(names))]
        return (str(folder / name) if name else "", "")

    def color(*_, **__):
        return (
            QColor(*(int(c) for c in rng.integers(0, 256, 3))) if rng.random() < 0.8 else QColor()
        )

    answers = {
        (QFileDialog, "getOpenFileName"): path,
        (QFileDialog, "getSaveFileName"): path,
        (QFileDialog, "getOpenFileNames"): lambda *a, **k: ([path()[0]], ""),
        (QFileDialog, "getExistingDirectory"): lambda *a, **k: (
            str(folder) * int(rng.random() < 0.8)
        ),
        (QColorDialog, "getColor"): color,
        (QMessageBox, "question"): lambda *a, **k: QMessageBox.StandardButton.Yes,
        (QDesktopServices, "openUrl"): lambda url: isinstance(url, QUrl),
    }
    before = {(cls, name): getattr(cls, name) for cls, name in answers}

    def put(functions) -> None:
        for (cls, name), function in functions.items():
            setattr(cls, name, staticmethod(function))

    put(answers)
    try:
        yield
    finally:
        put(before)


class Monkey:
    """Acts at random on a viewer with docks.

    Parameters
    ----------
    viewer : napari.Viewer
    seed : int
    faults : Faults
    """

    def __init__(self, viewer, seed: int, faults: Faults) -> None:
        self.viewer, self.faults = viewer, faults
        self.rng = np.random.default_rng(seed)
        self.docks: dict[str, QWidget] = {}
        self.trace: TextIO | None = None
        self.counts: collections.Counter[str] = collections.Counter()
        self._actions = (
            (self.control, 50),
            (self.button, 18),
            (self.run, 6),
            (self.paint, 8),
            (self.add_layer, 4),
            (self.delete_layer, 4),
            (self.open_dock, 4),
            (self.close_dock, 2),
            (self.dims, 4),
            (self.undo, 4),
            (self.select_layer, 3),
            (self.rename, 2),
            (self.alter_layer, 3),
            (self.rest, 4),
            (self.key, 3),
            (self.move_dock, 1),
        )

    def act(self) -> None:
        """Do something, and let the window follow."""
        weights = np.array([weight for _, weight in self._actions], dtype=float)
        action = self._actions[self.rng.choice(len(weights), p=weights / weights.sum())][0]
        self.counts[action.__name__] += 1
        self._say(action.__name__)
        faulthandler.dump_traceback_later(_HANG_SECONDS, exit=True)
        try:
            action()
            self._follow(self.rng.integers(1, 4))
        except Exception:  # noqa: BLE001 - whatever it is, it is a fault
            self.faults.add(traceback.format_exc())
        finally:
            faulthandler.cancel_dump_traceback_later()

    def finish(self) -> None:
        """Stop all runs, close all docks; nothing may go on after that."""
        self.settle()
        for name in list(self.docks):
            self._close(name)
        self._follow(5)
        left = [t.name for t in threading.enumerate() if PLUGIN in t.name]
        if left:
            self.faults.add(f"threads left after closing: {left}")

    def settle(self) -> None:
        """Press Stop everywhere; runs must end."""
        self._say("settle")
        end = time.monotonic() + _STOP_SECONDS
        while any(PLUGIN in thread.name for thread in threading.enumerate()):
            for button in self._widgets(QAbstractButton):
                if button.text().startswith("Stop"):
                    button.click()
            self._follow(2)
            if time.monotonic() > end:
                frames = sys._current_frames()
                stacks = [
                    "".join(traceback.format_stack(frames[t.ident], limit=12))
                    for t in threading.enumerate()
                    if PLUGIN in t.name and t.ident in frames
                ]
                self.faults.add("\n".join(["", *stacks, "a run did not end after Stop"]))
                return

    def _say(self, words: str) -> None:
        self.faults.actions.append(words)
        if self.trace is not None:
            print(words, file=self.trace, flush=True)

    def _follow(self, turns: int) -> None:
        for _ in range(turns):
            QApplication.processEvents()
            time.sleep(float(self.rng.choice([0, 0.002, 0.01, 0.04], p=[0.5, 0.3, 0.15, 0.05])))

    def _one(self, things):
        return things[int(self.rng.integers(len(things)))] if len(things) else None

    def _widgets(self, kind=QWidget) -> list[QWidget]:
        """Return what can be used in the docks."""
        return [
            widget
            for dock in self.docks.values()
            for widget in dock.findChildren(kind)
            if widget.isVisibleTo(dock) and widget.isEnabled()
        ]

    def open_dock(self) -> None:
        name = self._one(dock_names())
        self._say(f"open {name}")
        if name not in self.docks:
            self._opened(name)
        else:
            self.viewer.window.add_plugin_dock_widget(PLUGIN, name)

    def close_dock(self) -> None:
        name = self._one(sorted(self.docks))
        if name is not None and len(self.docks) > 1:
            self._close(name)

    def _opened(self, name: str) -> None:
        self.docks[name] = self.viewer.window.add_plugin_dock_widget(PLUGIN, name)[1]
        controller = getattr(self.docks[name], "controller", None)
        if controller is not None:
            controller.returned.connect(lambda result: self.counts.update([f"{name} returned"]))

    def move_dock(self) -> None:
        """Let a dock float, or bring it back."""
        frame = self.docks[self._one(sorted(self.docks))].parentWidget()
        while not isinstance(frame, QDockWidget):
            frame = frame.parentWidget()
        frame.setFloating(not frame.isFloating())

    def key(self) -> None:
        """Press a shortcut in a dock."""
        key, modifier = self._one(_KEYS)
        name = self._one(sorted(self.docks))
        self._say(f"key {key} in {name}")
        QTest.keyClick(self.docks[name], key, modifier)

    def _close(self, name: str) -> None:
        self._say(f"close {name}")
        self.viewer.window.remove_dock_widget(self.docks.pop(name))

    def add_layer(self) -> None:
        kinds = ("grey", "rgb", "stack", "channels", "float", "nan", "lazy", "tiny", "labels")
        kind = self._one(kinds)
        self._say(f"add {kind}")
        if len(self.viewer.layers) > _MOST_LAYERS:
            self.delete_layer()
        side = int(self.rng.integers(6, 28))
        noise = self.rng.random((side, side + 3))
        steps = (np.indices(noise.shape).sum(axis=0) // 7 % 2) * 0.5 + 0.3 * noise
        add = self.viewer.add_image
        if kind == "labels":
            pixels = np.zeros(self._shape_of_some_image(), np.uint8)
            self.viewer.add_labels(pixels)
        elif kind == "rgb":
            add((255 * np.stack([steps, steps[::-1], noise], axis=-1)).astype(np.uint8))
        elif kind == "stack":
            add(np.stack([steps, noise, steps[::-1]]).astype(np.float32), scale=(2, 1, 1))
        elif kind == "channels":
            add(np.stack([steps, noise], axis=-1))
        elif kind == "float":
            add(steps * 1e4 - 5e3, scale=(0.5, 0.5), translate=(3, 4))
        elif kind == "nan":
            add(np.where(noise > 0.95, np.nan, steps), contrast_limits=(0, 1))
        elif kind == "lazy":
            add(dask.array.from_array(steps, chunks=7), contrast_limits=(0, 1))
        elif kind == "tiny":
            add(np.ones((1, int(self.rng.integers(1, 4)))))
        else:
            add((255 * steps).astype(np.uint8))

    def _shape_of_some_image(self) -> tuple[int, ...]:
        images = [layer for layer in self.viewer.layers if layer._type_string == "image"]
        image = self._one(images)
        return (12, 12) if image is None else image.data.shape[: image.ndim]

    def delete_layer(self) -> None:
        layer = self._one(self.viewer.layers)
        if layer is not None:
            self._say(f"delete {layer.name}")
            self.viewer.layers.remove(layer)

    def select_layer(self) -> None:
        layer = self._one(self.viewer.layers)
        if layer is not None:
            self.viewer.layers.selection.active = layer

    def rename(self) -> None:
        layer = self._one(self.viewer.layers)
        if layer is not None:
            layer.name = self._one(_TEXTS)

    def alter_layer(self) -> None:
        """Hide, move, replace the data, change colours or scale."""
        layer = self._one(self.viewer.layers)
        if layer is None:
            return
        what = self._one(("hide", "move", "data", "crop", "scale", "mode", "opacity"))
        self._say(f"{what} {layer.name}")
        if what == "hide":
            layer.visible = not layer.visible
        elif what == "move":
            layers = self.viewer.layers
            layers.move(layers.index(layer), int(self.rng.integers(len(layers))))
        elif what == "data":
            layer.data = layer.data.copy()
        elif what == "crop":
            layer.data = np.asarray(layer.data)[: max(1, len(layer.data) - 2)].copy()
        elif what == "scale":
            layer.scale = [float(self.rng.choice([0.5, 1, 3]))] * layer.ndim
        elif what == "mode":
            layer.mode = self._one(("pan_zoom", "transform"))
        else:
            layer.opacity = float(self.rng.random())

    def _labels(self) -> list:
        return [layer for layer in self.viewer.layers if layer._type_string == "labels"]

    def paint(self) -> None:
        active, found = self.viewer.layers.selection.active, self._labels()
        layer = active if active in found and self.rng.random() < 0.7 else self._one(found)
        if layer is None:
            return
        number = int(self.rng.integers(0, 4))
        place = tuple(float(self.rng.integers(side)) for side in layer.data.shape)
        self._say(f"paint {number} at {place} on {layer.name}")
        if self.rng.random() < 0.1:
            layer.fill(place, number)
        else:
            layer.brush_size = int(self.rng.integers(1, 4))
            layer.paint(place, number)

    def undo(self) -> None:
        layer = self._one(self._labels())
        if layer is not None:
            self._one((layer.undo, layer.undo, layer.redo))()

    def dims(self) -> None:
        dims = self.viewer.dims
        what = self.rng.random()
        if what < 0.15:
            self._say("2-D or 3-D")
            dims.ndisplay = 5 - dims.ndisplay
        elif what < 0.3:
            self._say("order of axes")
            dims.order = tuple(int(axis) for axis in self.rng.permutation(dims.ndim))
        elif what < 0.35:
            grid = self.viewer.canvas.grid
            grid.enabled = not grid.enabled
        else:
            axis = int(self.rng.integers(dims.ndim))
            dims.set_current_step(axis, int(self.rng.integers(0, max(1, dims.nsteps[axis]))))

    def rest(self) -> None:
        """Let runs go on for a while, or end them all."""
        if self.rng.random() < 0.1:
            self.settle()
        else:
            self._follow(12)

    def button(self) -> None:
        button = self._one(self._widgets(QAbstractButton))
        if button is not None:
            self._say(f"press {button.text()!r} ({type(button).__name__})")
            menu = button.menu() if hasattr(button, "menu") else None
            if menu is None:
                button.click()
            else:  # which would wait for a choice
                menu.aboutToShow.emit()
                action = self._one([action for action in menu.actions() if action.isEnabled()])
                if action is not None:
                    self._say(f"choose {action.text()!r}")
                    action.trigger()

    def run(self) -> None:
        """Start what a dock is for, and look at it for a while."""
        name = self._one(sorted(self.docks))
        start = getattr(self.docks[name], "start", None)
        if start is not None:
            self._say(f"start {name}")
            start()
            self._follow(int(self.rng.integers(1, 25)))

    def control(self) -> None:
        """Change a control, or click into what has no other use."""
        kinds = (QComboBox, QAbstractSpinBox, QSlider, QLineEdit, QTableView, QListWidget)
        known = (*kinds, QTabWidget)
        found = [w for w in self._widgets() if isinstance(w, known) or _is_own(w)]
        widget = self._one(found)
        if widget is None:
            return
        for kind, use in (
            (QComboBox, self._use_combobox),
            (QSpinBox, self._use_spin_box),
            (QDoubleSpinBox, self._use_spin_box),
            (QSlider, self._use_slider),
            (QLineEdit, self._use_line),
            (QTableView, self._use_table),
            (QListWidget, self._use_list),
            (QTabWidget, self._use_combobox),
            (QWidget, self._click),
        ):
            if isinstance(widget, kind):
                use(widget)
                return

    def _use_combobox(self, box) -> None:
        if box.count():
            index = int(self.rng.integers(box.count()))
            if isinstance(box, QComboBox) and not box.model().item(index).isEnabled():
                return
            what = box.itemText(index) if isinstance(box, QComboBox) else index
            self._say(f"choose {what!r} in {type(box).__name__}")
            box.setCurrentIndex(index)

    def _use_spin_box(self, box) -> None:
        low, high, now, step = box.minimum(), box.maximum(), box.value(), box.singleStep()
        near = (now + step, now - step, now + 2 * step)
        value = self._one((low, high, *near, *near, min(high, low + 2)))
        self._say(f"set {value} in {type(box).__name__} [{low}, {high}]")
        box.setValue(min(max(value, low), high))

    def _use_slider(self, slider) -> None:
        value = int(self.rng.integers(slider.minimum(), slider.maximum() + 1))
        self._say(f"slide to {value}")
        slider.setValue(value)

    def _use_line(self, line) -> None:
        if isinstance(line.parent(), (QAbstractSpinBox, QComboBox)) or line.isReadOnly():
            return
        text = self._one((*_TEXTS, str(Path.cwd())))
        self._say(f"write {text[:20]!r}")
        line.setText(text)
        QTest.keyClick(line, Qt.Key.Key_Return)

    def _use_table(self, table) -> None:
        model, checked = table.model(), Qt.CheckState.Checked
        if not model.rowCount() or not model.columnCount():
            return
        row, column = (int(self.rng.integers(n)) for n in (model.rowCount(), model.columnCount()))
        self._say(f"table {row}, {column} of {type(table).__name__}")
        index = model.index(row, column)
        flags, kind, role = model.flags(index), Qt.ItemFlag, Qt.ItemDataRole.CheckStateRole
        if flags & kind.ItemIsUserCheckable:
            is_on = model.data(index, role) in (checked, getattr(checked, "value", checked))
            state = Qt.CheckState.Unchecked if is_on else checked
            model.setData(index, getattr(state, "value", state), role)
        elif flags & kind.ItemIsEditable and self.rng.random() < 0.5:
            model.setData(index, self._one(_TEXTS))
        else:
            self._click(table.viewport(), table.visualRect(index).center())

    def _use_list(self, items) -> None:
        item = items.item(int(self.rng.integers(items.count()))) if items.count() else None
        if item is not None and item.flags() & Qt.ItemFlag.ItemIsUserCheckable:
            self._say(f"tick {item.text()!r}")
            is_on = item.checkState() == Qt.CheckState.Checked
            item.setCheckState(Qt.CheckState.Unchecked if is_on else Qt.CheckState.Checked)

    def _click(self, widget, where=None) -> None:
        if where is None:
            width, height = max(1, widget.width()), max(1, widget.height())
            where = QPoint(int(self.rng.integers(width)), int(self.rng.integers(height)))
        self._say(f"click {type(widget).__name__} at {where.x()}, {where.y()}")
        modifiers = (Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.ControlModifier)
        QTest.mouseClick(widget, Qt.MouseButton.LeftButton, self._one(modifiers), where)


def _is_own(widget: QWidget) -> bool:
    """Tell whether a widget was made for the plugin and has a use for clicks."""
    return any(
        "mousePressEvent" in vars(kind)
        for kind in type(widget).__mro__
        if kind.__module__.startswith(("napari_saf", "matplotlib.backends"))
    )


def walk(
    viewer, seed: int, n_actions: int, folder: Path, trace: TextIO | None = None
) -> tuple[Faults, Monkey]:
    """Do so many actions in a viewer, with all docks open at first; return what was found."""
    faults = Faults()
    monkey = Monkey(viewer, seed, faults)
    monkey.trace = trace
    with faults.watching(), answered_dialogs(monkey.rng, folder):
        for _ in range(3):
            monkey.add_layer()
        for name in dock_names():
            monkey._opened(name)
        for _ in range(n_actions):
            monkey.act()
        monkey.finish()
        gc.collect()
    return faults, monkey


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--actions", type=int, default=1000)
    parser.add_argument("--trace", action="store_true", help="print actions as they are done")
    chosen = parser.parse_args()
    faulthandler.enable()
    with tempfile.TemporaryDirectory() as name:
        os.environ["HOME"] = name
        os.environ["NAPARI_CONFIG"] = str(Path(name) / "settings.yaml")
        os.chdir(name)
        import napari

        trace = sys.stdout if chosen.trace else None
        began = time.perf_counter()
        viewer = napari.Viewer()
        faults, monkey = walk(viewer, chosen.seed, chosen.actions, Path(name), trace)
        viewer.close()
        QApplication.processEvents()
        seconds = time.perf_counter() - began
        print(f"seed {chosen.seed}: {chosen.actions} actions in {seconds:.0f} s")
        print(dict(sorted(monkey.counts.items())))
        for fault in faults.found:
            print("-" * 80, fault, sep="\n")
        print(f"{len(faults.found)} faults; {faults.n_of_napari} of napari itself")
        sys.stdout.flush()
    return min(99, len(faults.found))


if __name__ == "__main__":
    sys.exit(main())
