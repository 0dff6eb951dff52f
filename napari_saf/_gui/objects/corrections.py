"""Buttons that correct objects: merge, cut, delete, paint, undo, redo."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from napari.layers import Labels
from numpy.typing import NDArray
from qtpy.QtCore import QObject, QTimer, Signal
from qtpy.QtWidgets import QPushButton

from napari_saf._gui.docks.tables import LabelList
from napari_saf._gui.forms.layout import create_button
from napari_saf._gui.objects.layers import ObjectCanvas, Source, stored_objects
from napari_saf._gui.objects.table import ObjectTable
from napari_saf._gui.runs.panel import RunPanel
from napari_saf.errors import counted, format_count
from napari_saf.objects import Corrections, ObjectEditor, Objects, Parts, learn

PATIENCE = 60
"""Milliseconds without a change after which objects are shown again."""
NUMBERS = ("neck", "smallest")
"""Numeric parameters of a split, in the order of the messages."""
_REFIT_AFTER = 10
"""Number of new corrections after which the parameters are fitted to all corrections."""
_HELP = {
    "merge": "Merge the selected objects (of one kind).",
    "cut": "Draw a line across an object in the image to cut it.",
    "delete": "Delete the selected objects.",
    "new": "Paint a new object, of the first ticked kind, with napari's brush.",
    "keep": "Delete all objects except those that the table shows.",
    "undo": "Undo the last correction.",
    "redo": "Redo the last undone correction.",
}


@dataclasses.dataclass(eq=False)
class OpenObjects:
    """Objects on screen with their editor and their source layers.

    `parts` are those of the split, or None for objects from a project or after the ticked kinds
    changed; the parameters were last fitted to `n_fitted` corrections. `n_strokes` of the brush can
    be undone in the layer, and `n_undone` redone.
    """

    source: Source
    editor: ObjectEditor
    parts: Parts | None = None
    n_fitted: int = 0
    n_strokes: int = 0
    n_undone: int = 0

    @property
    def can_undo(self) -> bool:
        return self.editor.can_undo or self.n_strokes > 0

    @property
    def can_redo(self) -> bool:
        return self.editor.can_redo or self.n_undone > 0

    @classmethod
    def stored(cls, layer: Labels, source: Source) -> OpenObjects:
        """Open the objects of a layer that this dock did not create."""
        objects = stored_objects(layer, layer.data[source.labels.index], source.names)
        editor = ObjectEditor(objects)
        editor.adopt(int(objects.kinds.max(initial=1)))  # objects painted since
        layer.data = source.in_layer(editor.labels)
        return cls(source, editor)


class CorrectionTools(QObject):
    """Buttons that correct the open objects; split parameters are fitted to the corrections."""

    corrected = Signal()
    """Emitted when the objects change."""
    fitted = Signal(int, float)
    """Emitted with the smallest size and neck that fit the corrections."""

    def __init__(
        self, panel: RunPanel, canvas: ObjectCanvas, table: ObjectTable, kinds: LabelList
    ) -> None:
        super().__init__(panel)
        self._panel, self._canvas, self._table, self._kinds = panel, canvas, table, kinds
        self.open: OpenObjects | None = None
        self._painted = QTimer(self, singleShot=True, interval=PATIENCE)
        self._painted.timeout.connect(self._adopt)
        self.edited_at = 0.0
        canvas.painted.connect(self._on_painted)
        canvas.redo_asked.connect(self.redo)
        slots: dict[str, Callable[[], object]] = {
            "merge": lambda: self._edit("merged", lambda e: e.merge(table.selected)),
            "cut": lambda: None,  # `ClassLayers` connects to `clicked`
            "delete": lambda: self._edit("deleted", lambda e: e.delete(table.selected)),
            "new": self._paint,
            "keep": self._keep,
            "undo": self.undo,
            "redo": self.redo,
        }
        self.buttons: dict[str, QPushButton] = {
            name: create_button(name.capitalize(), _HELP[name], lambda *_, slot=slot: slot())
            for name, slot in slots.items()
        }
        self.buttons["cut"].setCheckable(True)
        self.buttons["keep"].setText("Keep these")

    @property
    def editor(self) -> ObjectEditor | None:
        return None if self.open is None else self.open.editor

    def objects(self) -> Objects:
        """Return the current objects, including painted ones."""
        self._adopt_now()
        assert self.editor is not None
        return self.editor.objects

    def undo(self) -> None:
        """Undo the last correction, or the last brush stroke if it is newer."""
        self._step_back("undone", ObjectEditor.undo, "undo")

    def redo(self) -> None:
        """Redo the last undone step."""
        self._step_back("redone", ObjectEditor.redo, "redo")

    def cut(self, line: NDArray[Any]) -> None:
        """Cut the object that contains most of a line (n, ndim)."""
        number = self._canvas.object_under(line)
        if not number:
            self._panel.note("the line crosses no object")
            return
        self._edit(f"object {number} cut", lambda editor: editor.cut(number, line[:, -2:]))

    def refresh(self) -> None:
        """Enable the buttons that apply to the selection."""
        shown, n_chosen = self.open, len(self._table.selected)
        is_possible = {
            "merge": n_chosen > 1,
            "delete": n_chosen > 0,
            "keep": shown is not None and len(self._table.shown) < len(shown.editor.numbers),
            "undo": shown is not None and shown.can_undo,
            "redo": shown is not None and shown.can_redo,
        }
        is_free = shown is not None and not self._panel.is_busy
        for name, button in self.buttons.items():
            button.setEnabled(is_free and is_possible.get(name, True))

    def leave(self) -> None:
        """Close the objects."""
        self._painted.stop()
        self._panel.background.drop("learned")
        self.open = None

    def _edit(self, words: str, call: Callable[[ObjectEditor], object]) -> None:
        self._adopt_now()
        editor = self.editor
        if editor is None or self._panel.is_busy:
            return
        parameters = editor.split_by
        with self._panel.showing_errors():
            self._canvas.reveal()
            call(editor)
            self._canvas.layer.refresh()
            self._panel.note(words)
        if editor.split_by != parameters:
            self.fitted.emit(*editor.split_by)
        self._on_corrected()

    def _on_corrected(self) -> None:
        self.edited_at = time.monotonic()
        self.corrected.emit()
        self._learn()

    def _step_back(self, words: str, call: Callable[[ObjectEditor], object], name: str) -> None:
        self._adopt_now()
        shown = self.open
        if shown is None or self._panel.is_busy:
            return
        if getattr(shown.editor, f"can_{name}"):
            self._edit(words, call)
        elif shown.n_strokes if name == "undo" else shown.n_undone:
            step = 1 if name == "undo" else -1
            shown.n_strokes, shown.n_undone = shown.n_strokes - step, shown.n_undone + step
            getattr(self._canvas.layer, name)()  # of the layer, for brush strokes
            self._painted.start()

    def _keep(self) -> None:
        assert self.editor is not None
        hidden = np.setdiff1d(self.editor.numbers, self._table.shown)
        words = f"{counted(len(hidden), 'object')} deleted"
        self._edit(words, lambda editor: editor.delete(hidden.tolist()))

    def _paint(self) -> None:
        assert self.editor is not None
        self._canvas.paint(self.editor.next_number)
        self._panel.note("paint an object in the image")

    def _on_painted(self) -> None:
        if self.open is not None:
            self.open.n_strokes, self.open.n_undone = self.open.n_strokes + 1, 0
        self._painted.start()

    def _adopt_now(self) -> None:
        if self._painted.isActive():
            self._adopt()

    def _adopt(self) -> None:
        """Add painted pixels as objects of the first ticked kind."""
        self._painted.stop()
        if self.editor is not None:
            self.editor.adopt((self._kinds.ticked or [1])[0])
            self._on_corrected()

    def _learn(self) -> None:
        """Fit the parameters in the background after every ten corrections."""
        shown = self.open
        if shown is None or shown.parts is None:
            return
        editor, parts, corrections = shown.editor, shown.parts, shown.editor.corrections
        if editor.n_corrections >= shown.n_fitted + _REFIT_AFTER:
            self._panel.background.run(
                "learned",
                lambda cancelled: learn(parts, corrections),
                partial(self._on_learned, shown, editor.n_corrections, corrections),
            )

    def _on_learned(
        self, shown: OpenObjects, count: int, old: Corrections, new: Corrections | None
    ) -> None:
        is_old = shown is not self.open or not np.array_equal(shown.editor.labels, old.labels)
        if is_old or self._panel.is_busy:
            return  # fitted again after the next correction
        shown.n_fitted = count
        if new is not None:
            numbers = [(name, getattr(old, name), getattr(new, name)) for name in NUMBERS]
            changes = [f"{name} {a:g} → {b:g}" for name, a, b in numbers if a != b]
            n_old, n_new = (int((corrections.kinds > 0).sum()) for corrections in (old, new))
            words = f"{', '.join(changes)} after {counted(count, 'correction')}: "
            words += f"{format_count(n_old)} → {counted(n_new, 'object')} (Undo restores them)"
            self._edit(words, lambda editor: editor.replace(new))
