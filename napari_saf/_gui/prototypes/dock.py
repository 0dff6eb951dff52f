"""The Prototypes dock: the labels of a layer as rows, corrected there, used elsewhere."""

from __future__ import annotations

from typing import Any

import napari
from napari.layers import Image, Labels
from qtpy.QtWidgets import QHBoxLayout, QPushButton, QWidget

from napari_saf._gui.docks.run_dock import RESCALE, describe_error, suggested_action_for
from napari_saf._gui.forms.layer_choice import LayerChoice
from napari_saf._gui.forms.layout import FormSection, create_fold
from napari_saf._gui.layers.alignment import image_region, labelled_image
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.layers.view import LayerWatch, center_on, deepest_pixel
from napari_saf._gui.prototypes.edit_dock import Book, EditDock
from napari_saf._gui.prototypes.edits import Canvas, delete, merge, refine, split, why_no_edit
from napari_saf._gui.prototypes.elsewhere import ElsewhereSection, load_book, save_book, use_request
from napari_saf._gui.prototypes.history import Moment
from napari_saf._gui.prototypes.label_rows import LabelTable, rows_of
from napari_saf._gui.prototypes.restart import count_pixels
from napari_saf._gui.prototypes.sheet import FileBook, LayerBook
from napari_saf.errors import SafError

__all__ = ["PrototypesWidget"]

_NO_LABELS = "run Segment, open a Labels layer, or load prototypes"
_LOCKED = "a chosen label is locked"
_HELP = {
    "merge": "Make one label of the chosen ones; it keeps the prototypes of all (f*).",
    "split": "Divide the chosen label in two: by its features, then by the flow.",
    "delete": "Take the chosen labels away; the flow gives their pixels to the others.",
    "refine": "Let the flow go on from the labels as they are now; locked ones stay (W).",
}
_DELETE_TO_0 = "Take the chosen labels away; their pixels become 0."


class PrototypesWidget(EditDock):
    """A row for each label: what it stands for, to look at, correct, use and keep.

    Parameters
    ----------
    viewer : napari.Viewer

    Attributes
    ----------
    table : LabelTable
    elsewhere : ElsewhereSection
    """

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.table, self.elsewhere = LabelTable(), ElsewhereSection(viewer)
        self._sizes: dict[int, int] = {}
        self._finite_only = False
        self._brightness_of: Book | None = None
        self._watch = LayerWatch(self)
        self._labels = LayerChoice(viewer, lambda layer: isinstance(layer, Labels))
        self._image = LayerChoice(viewer, self._fits, none="none")
        self._create_layout()
        self._connect()
        active = viewer.layers.selection.active
        self.choose(active if isinstance(active, Labels) else self._newest())
        self._on_labels_changed()

    @property
    def book(self) -> Book | None:
        """What is chosen: a layer or a file, or None."""
        value = self._labels.value
        return value if value is None or isinstance(value, FileBook) else self.book_of(value)

    def choose(self, value: object) -> None:
        """Choose a Labels layer, or the book of a file that was loaded."""
        self._labels.choose(value)

    def image_of_labels(self) -> Any:
        """Return the image that was labelled, or None."""
        return self._image.layer

    def choose_image(self, layer: Image | None) -> None:
        """Choose the image that was labelled."""
        self._image.choose(layer)

    def merge(self) -> None:
        """Make one label of the chosen ones."""
        chosen = self.table.chosen()
        self._edit(
            "merging",
            "merge",
            lambda canvas, sheet, cancelled: merge(canvas, sheet, chosen, cancelled),
            lambda sheet: sheet.merged(chosen, chosen[0]),
        )

    def split(self) -> None:
        """Divide the chosen label in two."""
        number, reader = self.table.chosen()[0], self.controller.reader
        self._edit(
            "splitting",
            f"split of {number}",
            lambda canvas, sheet, cancelled: split(canvas, sheet, number, reader, cancelled),
        )

    def delete(self) -> None:
        """Take the chosen labels away."""
        chosen, reader = self.table.chosen(), self.controller.reader
        self._edit(
            "deleting",
            "delete",
            lambda canvas, sheet, cancelled: delete(canvas, sheet, chosen, reader, cancelled),
            lambda sheet: sheet.deleted(chosen),
        )

    def refine(self) -> None:
        """Let the flow go on from the labels as they are."""
        self._edit("preparing", "refinement", refine)

    def use(self) -> None:
        """Label another image with these prototypes."""
        self._finite_only = False
        self._use()

    def _use(self) -> None:
        book, image = self.book, self.elsewhere.image
        if book is None or image is None or self.is_busy:
            return
        try:
            request = use_request(self._viewer, book, image, self.elsewhere.brightness.rescale)
        except SafError as error:
            self._show_error(str(error))
            return
        self._run_of = (f"use on {image.name}", book, book.sheet, None)
        self.controller.start(request.masked() if self._finite_only else request)

    def save_to(self, path: str) -> None:
        """Save the prototypes as a small file."""
        if self.book is None:
            return
        try:
            rescale = self.elsewhere.brightness.rescale
            self.status.reset(f"saved {save_book(path, self.book, rescale).name}")
        except SafError as error:
            self._show_error(str(error))

    def load_from(self, path: str) -> None:
        """Show the prototypes of a file as rows."""
        try:
            book = load_book(path)
        except SafError as error:
            self._show_error(str(error))
            return
        self._add_file(book)
        self.history.push(Moment(f"load of {book.title}", book, added=book))
        self._update_enabled()

    def _create_layout(self) -> None:
        rows = FormSection()
        rows.add_row("Labels", self._labels, "The Labels layer whose labels are the rows.")
        rows.add_row("Image", self._image, "The image that was labelled: the flow needs it.")
        self._buttons = {
            "merge": QPushButton("Merge"),
            "split": QPushButton("Split"),
            "delete": QPushButton("Delete"),
            "refine": QPushButton("Refine"),
        }
        self._undo_button, self._redo_button = QPushButton("Undo"), QPushButton("Redo")
        row = QWidget()
        layout = QHBoxLayout(row)
        layout.setContentsMargins(0, 0, 0, 0)
        for button in self._buttons.values():
            layout.addWidget(button, stretch=1)
        self._lay_out(
            [rows, self.table, row, create_fold("Use elsewhere, save, load", self.elsewhere)],
            [self._undo_button, self._redo_button, self._stop_button],
            [],
        )

    def _connect(self) -> None:
        for name, button in self._buttons.items():
            button.clicked.connect(getattr(self, name))
        self._undo_button.clicked.connect(self.undo)
        self._redo_button.clicked.connect(self.redo)
        self._labels.layer_changed.connect(self._on_labels_changed)
        self._labels.currentIndexChanged.connect(self._on_labels_changed)
        self._image.layer_changed.connect(self._update_enabled)
        self._watch.changed.connect(self._measure)
        self.table.chosen_changed.connect(self._on_chosen_changed)
        self.table.renamed.connect(self.rename)
        self.table.lock_asked.connect(self.lock)
        self.elsewhere.use_clicked.connect(self.use)
        self.status.suggested_action_clicked.connect(self._on_suggested_action_clicked)
        self.elsewhere.save_asked.connect(self.save_to)
        self.elsewhere.load_asked.connect(self.load_from)
        self._viewer.layers.events.inserted.connect(self._on_layer_inserted)

    def _release(self) -> None:
        self._viewer.layers.events.inserted.disconnect(self._on_layer_inserted)
        self._watch.follow(None)
        self._labels.disconnect_viewer()
        self._image.disconnect_viewer()
        self.elsewhere.release()
        super()._release()

    def _newest(self) -> Any:
        found = [layer for layer in self._viewer.layers if isinstance(layer, Labels)]
        return found[-1] if found else None

    def _fits(self, layer: object) -> bool:
        labels = self._labels.layer
        return (
            isinstance(layer, Image)
            and METADATA_KEY not in layer.metadata
            and labels is not None
            and image_region(labels, layer) is not None
        )

    def _on_layer_inserted(self, event: Any) -> None:
        """Turn to a new result, unless there is one to work on."""
        if isinstance(event.value, Labels) and self.book is None:
            self.choose(event.value)

    def _on_labels_changed(self, *changed: object) -> None:
        layer = self._labels.layer
        if layer is None or layer != self._watch.layer:
            self._watch.follow(layer)
            self._sizes = {}
            self.table.clearSelection()
            self._image.refresh()
            self._choose_own_image()
            self._show_rows()
        self._measure()
        self._update_enabled()

    def _choose_own_image(self) -> None:
        labels = self._labels.layer
        if labels is not None:
            self._image.choose(labelled_image(self._viewer, labels, self._fits))

    def _measure(self) -> None:
        """Count the pixels of each label, in a thread."""
        layer = self._labels.layer
        if layer is None or self.controller.is_running:
            return
        canvas = Canvas.of(layer, None)

        def show(sizes: dict[int, int]) -> None:
            if self._labels.layer == layer:
                self._sizes = sizes
                self._show_rows()
                if self._wanted and sizes.keys() >= {*self._wanted}:
                    self.table.choose(self._wanted)
                self._wanted = ()
                self._update_enabled()

        self.run_in_background(
            "sizes", lambda cancelled: count_pixels(canvas.read(cancelled)), show
        )

    def _offer_files(self) -> None:
        self._labels.set_others([(book.title, book) for book in self._files])
        self._on_labels_changed()

    def _show_rows(self) -> None:
        book = self.book
        self.table.show_rows([] if book is None else rows_of(book, self._sizes))

    def _on_chosen_changed(self) -> None:
        chosen, layer = self.table.chosen(), self._labels.layer
        if layer is not None and len(chosen) == 1:
            self._watch.highlight(chosen[0])
            self._centre(layer, chosen[0])
        else:
            self._watch.show_all()
        self._update_enabled()

    def _centre(self, layer: Labels, number: int) -> None:
        """Bring the largest region of a label to the middle of the screen."""
        canvas = Canvas.of(layer, None)

        def look(where: tuple[int, ...] | None) -> None:
            if where is not None and layer in self._viewer.layers:
                whole, rest = list(canvas.index), iter(where)
                place = [0 if isinstance(at, int) else next(rest) for at in whole]
                center_on(self._viewer, layer, tuple(place))

        self.run_in_background(
            "centre",
            lambda cancelled: deepest_pixel(canvas.read(cancelled), number, cancelled),
            look,
        )

    def _on_failed(self, error: Exception) -> None:
        self._show_error(describe_error(error), suggested_action_for(error))

    def _on_suggested_action_clicked(self) -> None:
        """Use the prototypes again, without the pixels or the scaling that were in the way."""
        if self.status.suggested_action == RESCALE:
            self.elsewhere.brightness.choose(True)
        else:
            self._finite_only = True
        self._use()

    def _update_enabled(self, *changed: object) -> None:
        super()._update_enabled()
        book, layer = self.book, self._labels.layer
        if book is not None and book is not self._brightness_of and book.options is not None:
            self.elsewhere.brightness.choose(book.options.rescale or book.options.scaling is None)
        self._brightness_of = book
        canvas = None if layer is None else Canvas.of(layer, self._image.layer)
        reasons = self._reasons(book, canvas)
        for name, button in self._buttons.items():
            help_words = _HELP[name]
            if name == "delete" and canvas is not None and canvas.reason:
                help_words = _DELETE_TO_0
            _enable(button, reasons[name], help_words)
        for button, moments, verb in (
            (self._undo_button, self.history.past, "Take back"),
            (self._redo_button, self.history.future, "Do again"),
        ):
            reason = "" if moments else "nothing was edited here"
            words = f"{verb}: {moments[-1].words} ({moments[-1].book.title})." if moments else ""
            _enable(button, "wait for the end, or stop" if self.is_busy else reason, words)
        no_points = "" if book is not None and book.sheet.points else "these have no prototypes"
        why_not_use = no_points or ("" if book.options else "their features are not known")  # type: ignore[union-attr]
        if self.is_busy:
            why_not_use = "wait for the end, or stop"
        self.elsewhere.update_enabled(
            why_not_use, no_points, "labels" if book is None else book.title
        )

    def _reasons(self, book: Book | None, canvas: Canvas | None) -> dict[str, str]:
        """Return why each button has nothing to do; empty where it has."""
        chosen = self.table.chosen()
        common = _NO_LABELS if book is None else ""
        if isinstance(book, LayerBook):
            common = why_no_edit(book.layer)
        if self.is_busy:
            common = "wait for the end, or stop"
        no_flow = "a file has no pixels" if canvas is None else canvas.reason
        locked = book is not None and bool(book.sheet.locked & set(chosen))
        own = {
            "merge": "choose two rows or more, with Ctrl or Shift" if len(chosen) < 2 else "",
            "split": "choose one row" if len(chosen) != 1 else no_flow,
            "delete": "" if chosen else "choose a row",
            "refine": no_flow,
        }
        for name in ("merge", "split", "delete"):
            own[name] = own[name] or (_LOCKED if locked else "")
        return {name: common or reason for name, reason in own.items()}


def _enable(button: QPushButton, reason: str, words: str) -> None:
    button.setEnabled(not reason)
    button.setToolTip(f"{reason[:1].upper()}{reason[1:]}." if reason else words)
