"""Images of a project: table, navigation, and search for missing files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from qtpy.QtCore import QModelIndex, QSize, Qt, QTimer, Signal
from qtpy.QtGui import QColor, QFont, QIcon, QPixmap
from qtpy.QtWidgets import QFileDialog, QHeaderView, QPushButton, QVBoxLayout, QWidget

from napari_saf._gui.docks.tables import RIGHT, TableModel, TableView, to_qimage
from napari_saf._gui.forms.layout import create_button, create_row, fill_layout
from napari_saf._gui.layers.placement import image_folder
from napari_saf._gui.runs.panel import RunPanel
from napari_saf._gui.session.session import ProjectSession
from napari_saf.io import find_images
from napari_saf.project import FileReference, FoundFile, ImageEntry, find_files, thumbnail_of

_HEADINGS = (
    ("Image", "Double-click, or Next and Previous, shows an image with its layers."),
    ("State", "Stage of the work: untouched, taught by strokes, labelled, exported."),
    (
        "Uncertainty",
        "Share of uncertain pixels after Label all, averaged over the labels; strokes help most "
        "where it is high. Click to sort.",
    ),
)
_ROW_HEIGHT, _WIDTHS, _PICTURE = 44, {1: 78, 2: 88}, QSize(40, 40)
_WARNING = QColor(229, 83, 75)
NEXT_KEY, PREVIOUS_KEY = "PageDown", "PageUp"
_ROWS = (
    {
        "look_in_folder": (
            "Look in folder …",
            "Search a folder and its subfolders for all missing images, by content.",
        ),
        "find_file": ("Find …", "Choose the file of the selected image."),
        "use_as_it_is": (
            "Use as it is",
            "Use the strokes and labels of the selected image although its content has changed "
            "since they were made.",
        ),
    },
    {
        "add_images": ("Add …", "Add image files; each is opened when it is shown."),
        "remove_image": ("Remove", "Remove the selected image from the project, not from disk."),
    },
    {
        "go_to_previous": (
            "◂ Previous",
            f"Close this image and show the previous one ({PREVIOUS_KEY}).",
        ),
        "go_to_next": ("Next ▸", f"Close this image and show the next one ({NEXT_KEY})."),
        "go_to_uncertain": (
            "Next uncertain",
            "Show the image without strokes whose labels are least certain: strokes there help "
            "most. Then run Label all again.",
        ),
    },
)
"""Text and tooltip of each button by method name; the first row is for missing images."""


class _ImageModel(TableModel):
    def __init__(self, session: ProjectSession) -> None:
        super().__init__(_HEADINGS)
        self._session, self._stages = session, dict[ImageEntry, str]()

    def show_images(self, entries: Sequence[ImageEntry]) -> None:
        self._stages = {entry: self._session.stage(entry) for entry in entries}
        self.show_rows(entries)

    def text(self, row: ImageEntry, column: int) -> str | None:
        if column == 0:
            return row.name
        if column == 2:
            share = self._session.uncertainty(row)
            return None if share is None else f"{100 * share:.1f} %"
        return row.state if row.state != "found" else self._stages[row]

    def key(self, row: ImageEntry, column: int) -> Any:
        if column == 2:
            return self._session.uncertainty(row) or 0.0
        return (self.text(row, column) or "").lower() if column >= 0 else 0

    def look(self, row: ImageEntry, column: int, role: int) -> Any:
        is_picture = role == Qt.ItemDataRole.DecorationRole and column == 0
        if is_picture and row.picture is not None and row.picture.size:
            pixels, keep = to_qimage(row.picture), Qt.AspectRatioMode.KeepAspectRatio
            return QIcon(QPixmap.fromImage(pixels).scaled(_PICTURE, keep))
        if role == Qt.ItemDataRole.ForegroundRole and row.state != "found":
            return _WARNING
        if role == Qt.ItemDataRole.FontRole and row is self._session.current:
            bold = QFont()  # inherits the font family of the table
            bold.setBold(True)
            return bold
        if role == Qt.ItemDataRole.TextAlignmentRole and column == 2:
            return int(RIGHT)
        return str(row.path or "in memory") if role == Qt.ItemDataRole.ToolTipRole else None


class ImageTable(TableView):
    """The images of a session, the one on screen in bold."""

    def __init__(self, session: ProjectSession) -> None:
        self._model, self._session = _ImageModel(session), session
        super().__init__(self._model, _ROW_HEIGHT)
        self.setIconSize(_PICTURE)
        self.setMinimumHeight(self.height_of(5))
        self.allow_sorting()
        header = self.horizontalHeader()
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        for column, width in _WIDTHS.items():
            header.resizeSection(column, width)

    @property
    def entries(self) -> list[ImageEntry]:
        return list(self._model.rows)

    def refresh(self) -> None:
        """Update the rows, keeping the selection."""
        chosen = self.chosen
        self._model.show_images(self._session.model.entries)
        self.choose(chosen)


class ImagesSection(QWidget):
    """The images of a project as a table, with buttons to show, add, remove and find them.

    `changed` is emitted when the images or the selection change.
    """

    changed = Signal()

    def __init__(self, session: ProjectSession, panel: RunPanel) -> None:
        super().__init__()
        self.session, self.model, self._panel = session, session.model, panel
        self.table = ImageTable(session)
        self.buttons: dict[str, QPushButton] = {}
        rows = []
        for texts in _ROWS:
            row = [create_button(*texts[name], getattr(self, name)) for name in texts]
            self.buttons |= dict(zip(texts, row, strict=True))
            rows.append(create_row(*row))
        self.missing = rows[0]
        fill_layout(QVBoxLayout(self), self.table, *rows)
        self._refreshing = QTimer(self, singleShot=True, interval=0)
        self._refreshing.timeout.connect(self.refresh)
        session.changed.connect(self.refresh_soon)
        self.table.doubleClicked.connect(self._on_double_clicked)
        self.table.selectionModel().selectionChanged.connect(self.changed)

    def refresh_soon(self, event: object = None) -> None:
        self._refreshing.start()

    def refresh(self) -> None:
        """Update the table; thumbnails of images that are not on screen follow asynchronously."""
        self.table.refresh()
        for entry in self.model.entries:
            if entry.picture is None and entry.layer is not None:
                entry.picture = entry.layer.thumbnail[..., :3]
        entries = [entry for entry in self.model.entries if entry.state != "missing"]
        first = next((entry for entry in entries if entry.picture is None), None)
        if first is not None and not self._panel.background.is_running("picture"):
            make = partial(thumbnail_of, first.path)
            self._panel.background.run("picture", make, partial(self._show_picture, first))
        self.changed.emit()

    def _show_picture(self, entry: ImageEntry, pixels: Any) -> None:
        entry.picture = pixels
        self.refresh()

    def update_enabled(self, is_free: bool) -> None:
        entries, chosen = self.model.entries, self.table.chosen
        state, states = "found" if chosen is None else chosen.state, {e.state for e in entries}
        is_possible = {
            "remove_image": chosen is not None,
            "go_to_previous": len(entries) > 1,
            "go_to_next": len(entries) > 1,
            "go_to_uncertain": bool(self.session.uncertain()),
            "look_in_folder": True,
            "find_file": state != "found",
            "use_as_it_is": state == "changed",
        }
        for name, enabled in is_possible.items():
            self.buttons[name].setEnabled(is_free and enabled)
        self.missing.setVisible(bool(states - {"found"}))
        self.buttons["use_as_it_is"].setVisible("changed" in states)

    def _folder(self) -> str:
        return str(image_folder(self.session.viewer))

    def add_images(self) -> None:
        paths, _ = QFileDialog.getOpenFileNames(self, "Add images", self._folder())
        self.add_files([Path(path) for path in paths])

    def add_files(self, paths: Sequence[Path]) -> None:
        with self._panel.showing_errors():
            self.model.add_files(find_images(paths) if paths else [])
            if self.session.current is None and self.model.entries:
                self.go_to(self.model.entries[0])

    def remove_image(self) -> None:
        if self.table.chosen is not None:
            self.model.remove(self.table.chosen)

    def go_to(self, entry: ImageEntry) -> str:
        """Show an image; return, and display, a note on what could not be shown."""
        note = ""
        with self._panel.showing_errors():
            note = self.session.go_to(entry)
            self._panel.note(note)
        self.table.refresh()
        self.table.choose(entry)
        return note

    def go_to_next(self) -> None:
        self._step(1, self.table.entries)

    def go_to_previous(self) -> None:
        self._step(-1, self.table.entries)

    def go_to_uncertain(self) -> None:
        self._step(1, self.session.uncertain())

    def _step(self, n_rows: int, entries: Sequence[ImageEntry]) -> None:
        """Show the next available image, wrapping around at the ends of the list."""
        openable = [entry for entry in entries if entry.state == "found"]
        current = self.session.current
        if openable and not self._panel.is_busy:
            index = openable.index(current) + n_rows if current in openable else 0
            self.go_to(openable[index % len(openable)])

    def _on_double_clicked(self, index: QModelIndex) -> None:
        self.go_to(self.table.entries[index.row()])

    @property
    def missing_note(self) -> str:
        """Number of missing and changed images as text; empty without any."""
        states = [entry.state for entry in self.model.entries]
        counts = [(states.count(state), state) for state in ("missing", "changed")]
        return "\n".join(
            f"{n} {'image is' if n == 1 else 'images are'} {state}" for n, state in counts if n
        )

    def look_in_folder(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, "Look for missing images in")
        if folder:
            self.look_in(Path(folder))

    def look_in(self, folder: Path) -> None:
        entries = [entry for entry in self.model.entries if entry.state != "found"]
        files = [entry.file for entry in entries if entry.file is not None]
        digest = self.model.digests

        def look(report: object, cancelled: Callable[[], bool]) -> list[FoundFile]:
            return find_files(files, None, [folder], digest=digest, cancelled=cancelled)

        self._panel.begin_task("looking for images", look, partial(self._relocate, entries))

    def find_file(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Find image", self._folder())
        if path and self.table.chosen is not None:
            self.take_file(self.table.chosen, Path(path))

    def take_file(self, entry: ImageEntry, path: Path) -> None:
        """Assign a file to a missing image; if its content differs the image counts as changed."""
        with self._panel.showing_errors():
            now = FileReference.of(path, self.model.digests)
            is_same = entry.file is not None and now.digest == entry.file.digest
            self._relocate([entry], [FoundFile(now.path, "found" if is_same else "changed")])

    def use_as_it_is(self) -> None:
        if self.table.chosen is not None:
            self.model.accept(self.table.chosen)
            self._relocate([], [])

    def _relocate(self, entries: Sequence[ImageEntry], files: Sequence[FoundFile]) -> None:
        self.model.relocate(entries, files)
        openable = [entry for entry in self.model.entries if entry.state == "found"]
        if self.session.current is None and openable:
            self.go_to(openable[0])
        self._panel.note(self.missing_note or "all images are found")
