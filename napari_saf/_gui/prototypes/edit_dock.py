"""A dock that edits labels, with undo and redo for every edit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import napari

from napari_saf._gui.docks.run_dock import STATUS_WORDS, RunDock, rescale_action
from napari_saf._gui.layers.live import EditedLayer
from napari_saf._gui.prototypes.edits import Canvas, Edited
from napari_saf._gui.prototypes.history import History, Moment, PackedLabels
from napari_saf._gui.prototypes.restart import Restart
from napari_saf._gui.prototypes.sheet import FileBook, LayerBook, Sheet
from napari_saf._gui.runs.controller import RunJob
from napari_saf.errors import InvalidInput
from napari_saf.result import Segmentation

__all__ = ["Book", "EditDock"]

Book = LayerBook | FileBook
Edit = Callable[[Canvas, Sheet, Callable[[], bool]], Edited]


class EditDock(RunDock):
    """A dock that edits the labels of a layer, or the prototypes of a file.

    Subclasses say what is edited, and show it.

    Parameters
    ----------
    viewer : napari.Viewer

    Attributes
    ----------
    history : History
    """

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.history = History()
        self._books: list[LayerBook] = []
        self._files: list[FileBook] = []
        self._next: RunJob | None = None
        self._run_of: tuple[str, Book, Sheet, Restart | None] | None = None
        self._undone: Moment | None = None
        self._wanted: tuple[int, ...] = ()
        viewer.layers.events.removed.connect(self._on_layer_removed)

    @property
    @abstractmethod
    def book(self) -> Book | None:
        """What is edited."""

    @abstractmethod
    def choose(self, value: object) -> None:
        """Choose a Labels layer, or the book of a file."""

    @abstractmethod
    def image_of_labels(self) -> Any:
        """Return the image that was labelled, or None."""

    @abstractmethod
    def _show_rows(self) -> None:
        """Show what is edited."""

    @abstractmethod
    def _measure(self) -> None:
        """Count pixels anew."""

    @abstractmethod
    def _offer_files(self) -> None:
        """Offer the files that are open."""

    def book_of(self, layer: Any) -> LayerBook:
        """Return the book of a layer, the same at every call while the viewer has the layer."""
        known = next((book for book in self._books if book.layer == layer), None)
        if known is None:
            known = LayerBook(layer)
            if layer in self._viewer.layers:
                self._books.append(known)
        return known

    def rename(self, number: int, name: str) -> None:
        """Name a label."""
        if self.book is None or self.book.sheet.name(number) == name.strip():
            return
        self._change_sheet(f"name of label {number}", lambda sheet: sheet.renamed(number, name))

    def lock(self, number: int, locked: bool = True) -> None:
        """Lock a label, or let it go."""
        self._change_sheet(f"lock of label {number}", lambda sheet: sheet.with_lock(number, locked))

    def undo(self) -> None:
        """Take the last edit back."""
        if self.history.past:
            self._go_to(self.history.past[-1], is_undo=True)

    def redo(self) -> None:
        """Do again what was taken back."""
        if self.history.future:
            self._go_to(self.history.future[-1], is_undo=False)

    def _edit(
        self,
        words: str,
        name: str,
        edit: Edit,
        edit_sheet: Callable[[Sheet], Sheet] | None = None,
    ) -> None:
        """Edit the pixels of a layer in a thread; of a file only its sheet."""
        book = self.book
        if book is None or self.is_busy:
            return
        if isinstance(book, FileBook):
            if edit_sheet is not None:
                self._change_sheet(name, edit_sheet)
            return
        canvas, sheet = Canvas.of(book.layer, self.image_of_labels()), book.sheet
        image, layer = self.image_of_labels(), book.layer

        def apply(edited: Edited) -> None:
            if layer not in self._viewer.layers or layer.data is not canvas.data:
                self.status.reset("the layer has changed meanwhile: nothing was done")
                return
            self.history.push(Moment(name, book, sheet, edited.before))
            live = EditedLayer(self._viewer, image, layer)
            if edited.where.any():
                live.write(edited.labels, edited.where)
            book.sheet = edited.sheet
            self._wanted = edited.chosen
            self._show_rows()
            self.status.reset(f"done: {name}")
            if edited.restart is not None and edited.job is not None:
                assert edited.method is not None
                self._run_of = (name, book, edited.sheet, edited.restart)
                place = live.placement
                self._next = RunJob(
                    image, edited.job, edited.method, place, live=live, start=edited.restart
                )

        self.begin_task(words, lambda report, cancelled: edit(canvas, sheet, cancelled), apply)

    def _on_task_finished(self) -> None:
        super()._on_task_finished()
        request, self._next = self._next, None
        if request is not None and request.image in self._viewer.layers:
            self.controller.start(request)
        else:
            self._measure()

    def _change_sheet(self, name: str, change: Callable[[Sheet], Sheet]) -> None:
        """Change what stands beside the pixels."""
        book = self.book
        if book is not None:
            self.history.push(Moment(name, book, book.sheet))
            book.sheet = change(book.sheet)
            self._show_rows()
            self._update_enabled()

    def _go_to(self, moment: Moment, *, is_undo: bool) -> None:
        """Go to a moment; where labels have to be packed, in a thread."""
        if self.is_busy:
            return
        words = f"{'undone' if is_undo else 'done again'}: {moment.words}"
        if moment.added is not None:
            self._take_or_put(moment, is_undo=is_undo)
            self.status.reset(words)
            return
        layer, pixels = moment.book.layer, moment.pixels
        if layer is None or pixels is None:
            self._finish_going(moment, None, is_undo=is_undo)
            self.status.reset(words)
            return
        canvas = Canvas.of(layer, None)

        def exchange(*told: Any) -> tuple[PackedLabels, Any, Any]:
            now, then = canvas.read(told[1]), pixels.unpack()
            if now.shape != then.shape:
                raise InvalidInput("the layer has another shape now: this cannot be undone")
            return PackedLabels.of(now), then, now != then

        def show(found: tuple[PackedLabels, Any, Any]) -> None:
            if layer in self._viewer.layers:
                EditedLayer(self._viewer, None, layer).write(found[1], found[2])
                self._finish_going(moment, found[0], is_undo=is_undo)
                self.status.reset(words)

        self.begin_task("undoing" if is_undo else "redoing", exchange, show)

    def _finish_going(self, moment: Moment, pixels: PackedLabels | None, *, is_undo: bool) -> None:
        book = moment.book
        now = Moment(moment.words, book, book.sheet, pixels)
        self.history.exchange(moment, now, is_undo=is_undo)
        assert moment.sheet is not None
        book.sheet = moment.sheet
        self.choose(book.layer or book)
        self._show_rows()
        self._update_enabled()

    def _take_or_put(self, moment: Moment, *, is_undo: bool) -> None:
        """Remove what an edit added, or add it again."""
        self._undone = moment
        layers, added = self._viewer.layers, moment.added
        if isinstance(added, FileBook):
            if is_undo:
                self._files.remove(added)
                self._offer_files()
            else:
                self._add_file(added)
        elif is_undo and added in layers:
            layers.remove(added)
        elif not is_undo and added not in layers:
            self._viewer.add_layer(added)
        self._undone = None
        self.history.exchange(moment, moment, is_undo=is_undo)
        self._update_enabled()

    def _add_file(self, book: FileBook) -> None:
        self._files.append(book)
        self._offer_files()
        self.choose(book)

    def _on_returned(self, result: Segmentation) -> None:
        found, live, request = self._run_of, self.controller.live, self.controller.job
        if found is None or request is None:
            return
        name, book, sheet, restart = found
        words = f"{name}: {STATUS_WORDS[result.status]} in {self.controller.seconds:.1f} s"
        self.status.show_progress(
            1.0, self.controller.outcome_text(words, result), rescale_action(self.controller)
        )
        if live is None or live.layer not in self._viewer.layers:
            return
        if restart is not None:
            # A run that does not hold the other labels has its prototypes from the sheet.
            if restart.holds:
                book.sheet = book.sheet.followed(restart.numbers, result.prototypes)
        else:
            self.book_of(live.layer).sheet = Sheet(sheet.names, points=sheet.points)
            self.history.push(Moment(name, book, added=live.layer))

    def _on_finished(self) -> None:
        super()._on_finished()
        self._run_of = None
        self._measure()

    def _on_layer_removed(self, event: Any) -> None:
        gone = event.value
        self._books = [book for book in self._books if book.layer != gone]
        self.history.forget(gone, self._undone)
        self._update_enabled()

    def _release(self) -> None:
        self._viewer.layers.events.removed.disconnect(self._on_layer_removed)
        self._books.clear()
        self._files.clear()
        self._run_of = self._next = None
        self.history = History()
