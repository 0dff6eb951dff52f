"""Images of a project as a list: picture, state; what to do with those that are not found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from qtpy.QtCore import QModelIndex, QSize, Qt, Signal
from qtpy.QtGui import QColor, QFont, QIcon, QPixmap
from qtpy.QtWidgets import QFileDialog, QHBoxLayout, QHeaderView, QWidget

from napari_saf._gui.docks.run_dock import RunDock
from napari_saf._gui.docks.tables import TableModel, TableView, to_qimage
from napari_saf._gui.forms.layout import create_button, fill_layout
from napari_saf._gui.session.session import Entry, ProjectSession
from napari_saf.project import FileReference, FoundFile, find_files

_HEADINGS = (
    ("Image", "Double-click, or Next and Previous, shows an image with its layers."),
    ("State", "How far the work is: untouched, taught by strokes, labelled, exported."),
)
_ROW_HEIGHT, _STATE_WIDTH, _PICTURE = 44, 84, QSize(40, 40)
_WARNING = QColor(229, 83, 75)
_LOOK_HELP = "Find all missing images by their content in a folder and those in it."
_FIND_HELP = "Say which file the chosen image is."
_ACCEPT_HELP = (
    "Put the strokes and labels of the chosen image on it, although its content is another than "
    "when they were made."
)


class _ImageModel(TableModel):
    def __init__(self, session: ProjectSession) -> None:
        super().__init__(_HEADINGS)
        self._session = session

    def text(self, row: Entry, column: int) -> str | None:
        if column == 0:
            return row.name
        return row.state if row.state != "found" else self._session.stage(row)

    def key(self, row: Entry, column: int) -> Any:
        return (self.text(row, column) or "").lower() if column >= 0 else 0

    def look(self, row: Entry, column: int, role: int) -> Any:
        if role == Qt.ItemDataRole.DecorationRole and column == 0 and row.picture is not None:
            pixels, keep = to_qimage(row.picture), Qt.AspectRatioMode.KeepAspectRatio
            return QIcon(QPixmap.fromImage(pixels).scaled(_PICTURE, keep))
        if role == Qt.ItemDataRole.ForegroundRole and row.state != "found":
            return _WARNING
        if role == Qt.ItemDataRole.FontRole and row is self._session.current:
            return QFont("", -1, QFont.Weight.Bold)
        return str(row.path or "in memory") if role == Qt.ItemDataRole.ToolTipRole else None


class ImageTable(TableView):
    """The images of a session; the one on screen is bold, the chosen one is selected."""

    wanted = Signal(object)

    def __init__(self, session: ProjectSession) -> None:
        self._model, self._session = _ImageModel(session), session
        super().__init__(self._model, _ROW_HEIGHT)
        self.setIconSize(_PICTURE)
        self.allow_sorting()
        header = self.horizontalHeader()
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        header.resizeSection(1, _STATE_WIDTH)
        self.doubleClicked.connect(self._on_double_clicked)

    @property
    def entries(self) -> list[Entry]:
        return list(self._model.rows)

    @property
    def chosen(self) -> Entry | None:
        rows = self.selectionModel().selectedRows()
        return self._model.rows[rows[0].row()] if rows else None

    def choose(self, entry: Entry) -> None:
        if entry in self._model.rows:
            self.selectRow(self._model.rows.index(entry))

    def refresh(self) -> None:
        """Show the images as they are now; the chosen one stays chosen."""
        chosen = self.chosen
        self._model.show_rows(self._session.entries)
        if chosen is not None:
            self.choose(chosen)

    def missing_pictures(self) -> list[Entry]:
        """Return the images without a picture; those on screen get theirs at once."""
        missing = [one for one in self._session.entries if one.picture is None]
        for entry in missing:
            if entry.layer is not None:
                entry.picture = entry.layer.thumbnail[..., :3]
        return [one for one in missing if one.picture is None and one.state != "missing"]

    def _on_double_clicked(self, index: QModelIndex) -> None:
        self.wanted.emit(self._model.rows[index.row()])


class MissingSection(QWidget):
    """Buttons to find images all by a folder, or one by one; in sight where some are not found."""

    taken = Signal()

    def __init__(self, dock: RunDock, session: ProjectSession) -> None:
        super().__init__()
        self._dock, self._session = dock, session
        self._chosen: Entry | None = None
        self.look = create_button("Look in folder …", _LOOK_HELP, self._ask_for_folder)
        self.find = create_button("Find …", _FIND_HELP, self._ask_for_file)
        self.accept = create_button("Use as it is", _ACCEPT_HELP, self._on_accepted)
        fill_layout(QHBoxLayout(self), self.look, self.find, self.accept)

    @property
    def note(self) -> str:
        """How many images are missing, or have changed; empty where none is."""
        lines = []
        for state in ("missing", "changed"):
            n = sum(entry.state == state for entry in self._session.entries)
            if n:
                lines.append(f"{n} {'image is' if n == 1 else 'images are'} {state}")
        return "\n".join(lines)

    def refresh(self, chosen: Entry | None, is_free: bool) -> None:
        """Show what can be done for the image that is chosen in the list."""
        self._chosen, states = chosen, {entry.state for entry in self._session.entries}
        self.setVisible(bool(states - {"found"}))
        self.accept.setVisible("changed" in states)
        self.look.setEnabled(is_free)
        self.find.setEnabled(is_free and chosen is not None and chosen.state != "found")
        self.accept.setEnabled(is_free and chosen is not None and chosen.state == "changed")

    def look_in(self, folder: Path) -> None:
        wanted = [one for one in self._session.entries if one.state != "found"]
        files = [entry.file for entry in wanted if entry.file is not None]

        def look(report: object, cancelled: Callable[[], bool]) -> list[FoundFile]:
            own: dict[str, Any] = {"digest": self._session.digests, "cancelled": cancelled}
            return find_files(files, None, [folder], **own)

        self._dock.begin_task("looking for images", look, partial(self._take, wanted))

    def take_file(self, entry: Entry, path: Path) -> None:
        """Take a file for an image that is missing; one of other content is a changed one."""
        with self._dock.showing_errors():
            now = FileReference.of(path, self._session.digests)
            is_same = entry.file is not None and now.digest == entry.file.digest
            self._take([entry], [FoundFile(now.path, "found" if is_same else "changed")])

    def _take(self, wanted: Sequence[Entry], found: Sequence[FoundFile]) -> None:
        self._session.take_found(wanted, found)
        self.taken.emit()

    def _ask_for_folder(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, "Look for missing images in")
        if folder:
            self.look_in(Path(folder))

    def _ask_for_file(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Find image", str(Path.cwd()))
        if path and self._chosen is not None:
            self.take_file(self._chosen, Path(path))

    def _on_accepted(self) -> None:
        if self._chosen is not None:
            self._session.accept(self._chosen)
            self.taken.emit()
