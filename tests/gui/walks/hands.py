"""What a person can do to a window: look for words, point, click, drag, type."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from gui_cases import TIMEOUT
from qtpy.QtCore import QEvent, QPoint, QPointF, QRect, Qt, QTimer
from qtpy.QtGui import QMouseEvent, QWheelEvent
from qtpy.QtTest import QTest
from qtpy.QtWidgets import (
    QAbstractButton,
    QAbstractScrollArea,
    QApplication,
    QComboBox,
    QDockWidget,
    QFileDialog,
    QLabel,
    QLineEdit,
    QMenu,
    QScrollArea,
    QTabBar,
    QTableView,
    QWidget,
)

LEFT = Qt.MouseButton.LeftButton
NO_KEY = Qt.KeyboardModifier.NoModifier
CONTROL = Qt.KeyboardModifier.ControlModifier
_NOTCH, _MOST_NOTCHES = 120, 200
_TICK, _MOST_TICKS = 50, 400
_STROKE_STEPS = 4
_THROTTLE = 5
"""Milliseconds within which napari heeds one movement of a mouse without a button."""
_PATIENCE, _MOST_CLICKS = 3000, 10


class Hands:
    """Mouse and keyboard on the window of a viewer.

    Everything is found by the words on screen, and used only where it is in sight: inside the
    window, enabled, not covered. What lies outside a scroll area is scrolled to by the wheel.
    `clicks` counts what a person does but for menus and strokes: a click, a choice in a box, words
    that are typed, a key are one each.

    Parameters
    ----------
    viewer : napari.Viewer
        Shown.
    qtbot : pytestqt.qtbot.QtBot
    """

    def __init__(self, viewer, qtbot) -> None:
        self.viewer, self._qtbot, self.clicks = viewer, qtbot, 0

    @contextmanager
    def _counting(self, n_clicks: int) -> Iterator[None]:
        """Count all that is done within as so many clicks."""
        before = self.clicks
        yield
        self.clicks = before + n_clicks

    @property
    def window(self):
        """The window; not kept, for a test must let go of it."""
        return self.viewer.window._qt_window

    @property
    def _canvas(self) -> QWidget:
        return self.viewer.window._qt_viewer.canvas.native

    # wait

    def wait_until(self, is_done) -> None:
        """Let the app go on until something is so."""
        self._qtbot.waitUntil(is_done, timeout=TIMEOUT)

    def wait_for_end(self, dock) -> None:
        """Wait until Stop has nothing to stop any more."""
        stops = self._buttons(dock, "Stop")
        assert stops
        self.wait_until(lambda: not any(stop.isEnabled() for stop in stops))

    # look

    def button(self, inside: QWidget, words: str) -> QAbstractButton:
        """Return the button, tick box or fold that shows these words."""
        return _only(self._buttons(inside, words))

    def _buttons(self, inside: QWidget, words: str) -> list[QAbstractButton]:
        return [
            widget
            for widget in inside.findChildren(QAbstractButton)
            if widget.text().replace("&", "").strip("▸▾ ") == words and widget.isVisible()
        ]

    def field(self, inside: QWidget, words: str) -> QWidget:
        """Return what stands beside a label."""
        return _only(
            label.buddy()
            for label in inside.findChildren(QLabel)
            if label.text() == words and label.buddy() is not None and label.isVisible()
        )

    def part(self, inside: QWidget, kind: type):
        """Return the only widget of a kind."""
        return _only(widget for widget in inside.findChildren(kind) if widget.isVisible())

    # point

    def click(self, widget: QWidget, at: QPoint | None = None, *, twice: bool = False) -> None:
        """Click a widget where it can be clicked."""
        spot = self._reach(widget, at)
        self.clicks += 1
        QTest.mouseClick(widget, LEFT, NO_KEY, spot)
        if twice:
            QTest.mouseDClick(widget, LEFT, NO_KEY, spot)
        QApplication.processEvents()

    def _click_until(self, is_open, widget: QWidget, at: QPoint) -> None:
        """Click what opens something, and again where it closed at once: the window was busy."""
        for _ in range(_MOST_CLICKS):
            self.click(widget, at)
            with suppress(self._qtbot.TimeoutError):
                self._qtbot.waitUntil(is_open, timeout=_PATIENCE)
                return
        raise AssertionError(f"{type(widget).__name__} opens nothing")

    def press(self, inside: QWidget, words: str) -> None:
        """Click the button with these words."""
        self.click(self.button(inside, words))

    def center_on(self, widget: QWidget) -> None:
        """Scroll to a widget."""
        self._reach(widget, None)

    def go_home(self) -> None:
        """Bring all of the image into sight by the button of the viewer."""
        self.click(self.viewer.window._qt_viewer.viewerButtons.resetViewButton)

    def open_menu(self, *words: str) -> None:
        """Click through the menu bar; the last words are those of the entry."""
        bar = self.window.menuBar()
        action = _action(bar, words[0])
        menu = action.menu()
        with self._counting(0):
            self._click_until(menu.isVisible, bar, bar.actionGeometry(action).center())
            for entry in words[1:]:
                self.wait_until(menu.isVisible)
                action = _action(menu, entry)
                self.click(menu, menu.actionGeometry(action).center())
                menu = action.menu() or menu
        self.wait_until(lambda: QApplication.activePopupWidget() is None)

    def open_file(self, path: Path) -> None:
        """Open a file from the menu File."""
        n_layers = len(self.viewer.layers)
        with self.answer(path):
            self.open_menu("File", "Open File(s)...")
        self.wait_until(lambda: len(self.viewer.layers) > n_layers)

    def open_dock(self, name: str) -> QWidget:
        """Open a dock of the plugin from the menu Layers; return its content, all in sight."""
        size = self.window.size()
        self.open_menu("Layers", "Segment", f"{name} (napari-saf)")
        dock = self.frame(name).widget()
        self.wait_until(lambda: dock.isVisible() and self._is_inside(dock))
        assert self.window.size() == size
        return dock

    def _is_inside(self, widget: QWidget) -> bool:
        """Tell whether all of a widget is inside the window."""
        place = QRect(widget.mapTo(self.window, QPoint()), widget.size())
        return self.window.rect().contains(place)

    def frame(self, name: str) -> QDockWidget:
        """Return the frame of a dock that is open."""
        return _only(
            frame
            for frame in self.window.findChildren(QDockWidget)
            if frame.objectName() == f"{name} (napari-saf)"
        )

    def turn_to(self, name: str) -> None:
        """Click the tab of a dock."""
        for bar in self.window.findChildren(QTabBar):
            for number in range(bar.count()):
                title = bar.tabText(number).partition(" (")[0]
                if bar.isVisible() and title == name:
                    self.click(bar, bar.tabRect(number).center())
                    return
        raise AssertionError(f"{name} has no tab")

    def choose(self, box: QComboBox, words: str) -> None:
        """Open a combobox and go to an entry by keys."""
        texts = [box.itemText(k) for k in range(box.count())]
        assert words in texts, texts
        arrow = QPoint(box.width() - 10, box.height() // 2)
        with self._counting(1):
            self._click_until(box.view().isVisible, box, arrow)
        QTest.keyClick(box.view(), Qt.Key.Key_Home)
        for _ in range(texts.index(words)):
            QTest.keyClick(box.view(), Qt.Key.Key_Down)
        QTest.keyClick(box.view(), Qt.Key.Key_Return)
        self.wait_until(lambda: not box.view().isVisible())
        assert box.currentText() == words

    def click_cell(self, table: QTableView, row: int, column: int, *, twice: bool = False) -> None:
        """Click a cell of a table."""
        place = table.visualRect(table.model().index(row, column))
        self.click(table.viewport(), place.center(), twice=twice)

    # type

    def type(self, field: QWidget, words: str) -> None:
        """Write words in place of those in a field, and press Enter."""
        line = field if isinstance(field, QLineEdit) else self.part(field, QLineEdit)
        self.click(line)
        _write(line, words)
        QTest.keyClick(line, Qt.Key.Key_Return)
        QApplication.processEvents()

    def press_key(self, key, widget: QWidget | None = None, *, control: bool = False) -> None:
        """Press a key over a widget, or over the canvas."""
        widget = widget or self._canvas
        self._reach(widget, None)
        self.clicks += 1
        widget.window().activateWindow()  # as that of a person is, or no shortcut acts
        QApplication.processEvents()
        QTest.keyClick(widget, key, CONTROL if control else NO_KEY)
        QApplication.processEvents()

    def rename(self, table: QTableView, row: int, column: int, words: str) -> None:
        """Double-click a name in a table and write another."""
        self.click_cell(table, row, column, twice=True)
        line = self.part(table, QLineEdit)
        _write(line, words)
        QTest.keyClick(line, Qt.Key.Key_Return)
        QApplication.processEvents()

    @contextmanager
    def answer(self, path: Path) -> Iterator[None]:
        """Write a path in the file dialog that a click opens within the block."""
        ticks, entered = itertools.count(), list[Path]()

        def on_tick() -> None:
            dialog = QApplication.activeModalWidget()
            if not isinstance(dialog, QFileDialog) or not dialog.isVisible():
                return
            (line,) = dialog.findChildren(QLineEdit, "fileNameEdit")
            if next(ticks) > _MOST_TICKS:
                dialog.reject()
            elif line.text() != str(path):
                # As one pastes: letter by letter the dialog would complete them to other paths.
                QTest.keyClick(line, Qt.Key.Key_A, CONTROL)
                line.insert(str(path))
            else:
                entered.append(path)
                QTest.keyClick(line, Qt.Key.Key_Return)

        timer = QTimer()
        timer.setInterval(_TICK)
        timer.timeout.connect(on_tick)
        timer.start()
        yield
        self.wait_until(lambda: entered and QApplication.activeModalWidget() is None)
        timer.stop()
        assert next(ticks) <= _MOST_TICKS, "no file dialog took the path"

    # the canvas

    def drag(self, layer, way: Sequence[tuple[float, float]]) -> None:
        """Drag the mouse over the canvas, along rows and columns of a layer."""
        canvas, points = self._canvas, self._points(layer, way)
        QTest.mousePress(canvas, LEFT, NO_KEY, points[0])
        for point in points[1:]:
            _move(canvas, point)
        QTest.mouseRelease(canvas, LEFT, NO_KEY, points[-1])
        QApplication.processEvents()

    def encircle(self, layer, way: Sequence[tuple[float, float]]) -> None:
        """Click with the right button and go round an area, which napari fills."""
        canvas, points = self._canvas, self._points(layer, [*way, way[0]])
        QTest.mouseClick(canvas, Qt.MouseButton.RightButton, NO_KEY, points[0])
        for point in points[1:]:
            _move(canvas, point, Qt.MouseButton.NoButton)
            QTest.qWait(2 * _THROTTLE)
        QApplication.processEvents()

    def _points(self, layer, way: Sequence[tuple[float, float]]) -> list[QPoint]:
        """Return places on the canvas along rows and columns of a layer, all in sight."""
        canvas = self._canvas
        corners = [self._on_canvas(layer, place) for place in way]
        spots = [
            start + (end - start) * k / _STROKE_STEPS
            for start, end in itertools.pairwise(corners)
            for k in range(_STROKE_STEPS + 1)
        ]
        points = [QPoint(*(round(float(value)) for value in spot)) for spot in spots]
        for point in points:
            self._assert_in_sight(canvas, point)
        return points

    def _on_canvas(self, layer, place: tuple[float, float]) -> np.ndarray:
        """Return where a pixel of a layer is on the canvas, as x and y."""
        canvas, camera = self._canvas, self.viewer.scene.camera
        world = np.array(layer.data_to_world(place)[-2:])
        row, column = (world - camera.center[-2:]) * camera.zoom
        return np.array([column + canvas.width() / 2, row + canvas.height() / 2])

    # what can be reached

    def _reach(self, widget: QWidget, at: QPoint | None) -> QPoint:
        """Scroll to a widget until it can be clicked; return the spot."""

        def look() -> None:
            spot, area = at or _spot(widget), _scroll_area(widget)
            while area is not None:
                _scroll_to(area, widget, spot)
                area = _scroll_area(area)
            self._assert_in_sight(widget, spot)

        self.wait_until(look)
        return at or _spot(widget)

    def _assert_in_sight(self, widget: QWidget, spot: QPoint) -> None:
        name = f"{type(widget).__name__} {getattr(widget, 'text', str)()!r}"
        assert widget.isVisible() and widget.isEnabled(), f"{name} cannot be used"
        window = widget.window()
        place = widget.mapTo(window, spot) if window is not widget else spot
        assert window.rect().contains(place), f"{name} is outside the window"
        hit = window.childAt(place) or window
        assert hit is widget or widget.isAncestorOf(hit), f"{name} is covered by {hit}"


def _only(found):
    found = list(found)
    assert len(found) == 1, found
    return found[0]


def _write(line: QLineEdit, words: str) -> None:
    """Type words in place of those in a line."""
    QTest.keyClick(line, Qt.Key.Key_A, CONTROL)
    QTest.keyClicks(line, words)


def _action(menu: QMenu, words: str):
    return _only(a for a in menu.actions() if a.text().replace("&", "") == words and a.isVisible())


def _spot(widget: QWidget) -> QPoint:
    """Return where a person clicks: on the box of a tick box, else in the middle."""
    wide = isinstance(widget, QAbstractButton) and widget.isCheckable()
    return QPoint(
        min(12, widget.width() // 2) if wide else widget.width() // 2, widget.height() // 2
    )


def _scroll_area(widget: QWidget) -> QScrollArea | None:
    parent = widget.parentWidget()
    while parent is not None and not isinstance(parent, QScrollArea):
        parent = parent.parentWidget()
    return parent


def _scroll_to(area: QAbstractScrollArea, widget: QWidget, spot: QPoint) -> None:
    """Turn the wheel until all of a widget is in sight, or as much as fits around a spot."""
    for _ in range(_MOST_NOTCHES):
        QApplication.processEvents()
        view = area.viewport().rect()
        place = QRect(widget.mapTo(area.viewport(), QPoint()), widget.size())
        if place.height() > view.height():
            place = QRect(widget.mapTo(area.viewport(), spot), place.size() * 0)
        before = area.verticalScrollBar().value()
        if place.bottom() > view.bottom():
            _turn_wheel(area.viewport(), -_NOTCH)
        elif place.top() < view.top():
            _turn_wheel(area.viewport(), _NOTCH)
        if area.verticalScrollBar().value() == before:
            return


def _turn_wheel(widget: QWidget, angle: int) -> None:
    """Turn the wheel over a widget, for which QTest has no words."""
    spot = QPointF(widget.rect().center())
    event = QWheelEvent(
        spot,
        QPointF(widget.mapToGlobal(spot.toPoint())),
        QPoint(),
        QPoint(0, angle),
        Qt.MouseButton.NoButton,
        NO_KEY,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(widget, event)


def _move(widget: QWidget, point: QPoint, held: Qt.MouseButton = LEFT) -> None:
    """Move the mouse with a button down.

    QTest would move the pointer of the screen, which other windows on it share.
    """
    spots = (QPointF(point), QPointF(widget.mapToGlobal(point)))
    event = QMouseEvent(QEvent.Type.MouseMove, *spots, Qt.MouseButton.NoButton, held, NO_KEY)
    QApplication.sendEvent(widget, event)
    QApplication.processEvents()
