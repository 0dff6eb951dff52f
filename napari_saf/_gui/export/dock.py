"""The Export dock: choose labels, what to save of them and where; repeat their recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import napari
from napari.layers import Image, Labels, Layer
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QLineEdit,
    QPushButton,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from napari_saf._gui.docks.lifetime import DockLifetime
from napari_saf._gui.docks.run_dock import LEAST_WIDTH
from napari_saf._gui.export.choice import ExportChoice
from napari_saf._gui.export.repeat import RepeatSection
from napari_saf._gui.export.source import source_of
from napari_saf._gui.export.writer import Writing
from napari_saf._gui.forms.layer_choice import LayerChoice
from napari_saf._gui.forms.layout import FormSection, create_fold, create_scroll_area
from napari_saf._gui.forms.status import StatusArea
from napari_saf._gui.layers.alignment import image_region, labelled_image
from napari_saf._gui.layers.metadata import METADATA_KEY, prototypes_of, recipe_of
from napari_saf.errors import InvalidInput, SafError
from napari_saf.io import file_stem

__all__ = ["ExportWidget"]

_GAP = 4
_CLOSING_SECONDS = 5.0
_MOST_NAMED = 3
_NO_LABELS = "no labels: run Segment, or open a Labels layer"
_HELP = "Write the ticked files. Before one is replaced, you are asked."


class ExportWidget(QWidget):
    """Save labels for other programs, and repeat what made them.

    Parameters
    ----------
    viewer : napari.Viewer

    Attributes
    ----------
    choice : ExportChoice
        What to save.
    repeat : RepeatSection
    status : StatusArea
    """

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._writing: Writing | None = None
        self._clock = QTimer(self)
        self._clock.setInterval(500)
        self._watched: Any = None
        self.choice, self.status = ExportChoice(), StatusArea(is_quiet=True)
        self.repeat = RepeatSection(viewer)
        self._labels = LayerChoice(viewer, lambda layer: isinstance(layer, Labels))
        self._image = LayerChoice(viewer, self._fits, none="none")
        self._name, self._folder = QLineEdit(), QLineEdit(str(Path.home()))
        self._browse = QToolButton()
        self._button, self._stop = QPushButton("Export"), QPushButton("Stop")
        self._browse.setText("…")
        self._create_layout()
        self.setMinimumWidth(LEAST_WIDTH)
        self._connect()
        self._lifetime = DockLifetime(viewer, self, self.shut_down)
        self.choose_layer(self._first_choice())
        self._on_labels_changed()

    @property
    def layer(self) -> Any:
        """The Labels layer that is chosen, or None."""
        return self._labels.layer

    @property
    def is_writing(self) -> bool:
        """Whether files are being written."""
        return self._writing is not None

    def choose_layer(self, layer: Layer | None) -> None:
        """Choose the labels."""
        self._labels.choose(layer)

    def choose_image(self, layer: Layer | None) -> None:
        """Choose the image that goes with them."""
        self._image.choose(layer)

    def choose_folder(self, folder: Path) -> None:
        """Choose where files go."""
        self._folder.setText(str(folder))

    def start(self) -> None:
        """Write what is ticked."""
        self._start(may_replace=False)

    def shut_down(self) -> None:
        """Finish the file that is being written and let go of the viewer."""
        self._clock.stop()
        self._watch(None)
        self._viewer.layers.events.inserted.disconnect(self._on_layer_inserted)
        self._labels.disconnect_viewer()
        self._image.disconnect_viewer()
        self.repeat.release()
        writing, self._writing = self._writing, None
        if writing is not None:
            for signal in (*_endings(writing), writing.finished):
                signal.disconnect()
            writing.cancel()
            writing.wait(_CLOSING_SECONDS)

    def _create_layout(self) -> None:
        rows, where = FormSection(), FormSection()
        rows.add_row("Labels", self._labels, "The Labels layer to save.")
        rows.add_row("Image", self._image, "What was labelled: for brightness and the figure.")
        where.add_row("Name", self._name, "What the names of the files begin with.")
        where.add_row("Folder", self._create_folder_row(), "Where the files go.")
        content = QWidget()
        inner = QVBoxLayout(content)
        inner.setContentsMargins(8, 6, 8, 6)
        for widget in (rows, self.choice, where):
            inner.addWidget(widget)
            inner.addSpacing(_GAP)
        buttons = QHBoxLayout()
        for button in (self._button, self._stop):
            buttons.addWidget(button, stretch=1)
        inner.addLayout(buttons)
        inner.addWidget(self.status)
        inner.addWidget(create_fold("Repeat this on …", self.repeat))
        inner.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(create_scroll_area(content))

    def _create_folder_row(self) -> QWidget:
        row = QWidget()
        layout = QHBoxLayout(row)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._folder, stretch=1)
        layout.addWidget(self._browse)
        self._browse.setToolTip("Choose a folder.")
        return row

    def _connect(self) -> None:
        self._labels.layer_changed.connect(self._on_labels_changed)
        self._button.clicked.connect(self.start)
        self._stop.clicked.connect(self._on_stop_clicked)
        self._stop.setToolTip("Finish the file that is being written, and leave out the others.")
        self._browse.clicked.connect(self._on_browse_clicked)
        self.status.suggested_action_clicked.connect(self._on_replace_clicked)
        self._clock.timeout.connect(self._on_clock)
        for line in (self._name, self._folder):
            line.textChanged.connect(self._update_enabled)
        self.choice.changed.connect(self._update_enabled)
        self._viewer.layers.events.inserted.connect(self._on_layer_inserted)

    def _first_choice(self) -> Any:
        """Return the active Labels layer, or the newest."""
        active = self._viewer.layers.selection.active
        if isinstance(active, Labels):
            return active
        found = [layer for layer in self._viewer.layers if isinstance(layer, Labels)]
        return found[-1] if found else None

    def _fits(self, layer: Layer) -> bool:
        """Tell whether an image lies under the labels."""
        labels = self._labels.layer
        return (
            isinstance(layer, Image)
            and labels is not None
            and image_region(labels, layer) is not None
        )

    def _on_layer_inserted(self, event: Any) -> None:
        """Turn to a new result."""
        if isinstance(event.value, Labels) and METADATA_KEY in event.value.metadata:
            self.choose_layer(event.value)

    def _on_labels_changed(self, layer: object = None) -> None:
        labels = self._labels.layer
        self._watch(labels)
        self._image.refresh()
        if labels is not None:
            self._name.setText(file_stem(labels.name))
            self._image.choose(labelled_image(self._viewer, labels, self._fits))
            self._offer_folder()
        if not self.is_writing:
            self.status.reset()
        self._on_content_changed()

    def _offer_folder(self) -> None:
        """Offer the folder of the image's file, as long as none was chosen."""
        image = self._image.layer
        path = None if image is None else image.source.path
        if path is not None and self._folder.text() == str(Path.home()):
            self._folder.setText(str(Path(path).absolute().parent))

    def _watch(self, layer: Any) -> None:
        """Follow a layer: its metadata, which send no event, change with its data."""
        if self._watched is not None:
            self._watched.events.set_data.disconnect(self._on_content_changed)
        self._watched = layer
        if layer is not None:
            layer.events.set_data.connect(self._on_content_changed)

    def _on_content_changed(self, event: object = None) -> None:
        labels = self._labels.layer
        if self.repeat.show_layer(labels):
            self.choice.offer("recipe", _why_no_recipe(labels))
            has_prototypes = labels is not None and prototypes_of(labels) is not None
            self.choice.offer("prototypes", "" if has_prototypes else _NOT_OURS)
        self._update_enabled()

    def _update_enabled(self, *changed: object) -> None:
        reason = self._reason()
        self._button.setEnabled(not reason and not self.is_writing)
        self._button.setToolTip(reason or _HELP)
        self._stop.setEnabled(self._clock.isActive())
        if reason and not self.is_writing:
            self.status.reset(reason)
        elif self.status.text in _REASONS:
            self.status.reset()

    def _reason(self) -> str:
        """Return why nothing can be exported; empty if something can."""
        wanted = self.choice.wanted
        folder = self._folder.text().strip()
        if self._labels.layer is None:
            return _NO_LABELS
        if wanted.is_empty:
            return _NOTHING
        if not self._name.text().strip() or self._name.text() != Path(self._name.text()).name:
            return _NO_NAME
        return "" if folder and Path(folder).expanduser().parent.is_dir() else _NO_FOLDER

    def _start(self, *, may_replace: bool) -> None:
        if self.is_writing or self._reason():
            return
        try:
            source = source_of(self._viewer, self._labels.layer, self._image.layer)
        except SafError as error:
            self.status.show_error(str(error))
            return
        folder = Path(self._folder.text().strip()).expanduser()
        name, wanted = self._name.text().strip(), self.choice.wanted
        writing = self._writing = Writing(source, folder, name, wanted, may_replace)
        writing.asked.connect(self._on_asked)
        writing.wrote.connect(self._on_wrote)
        writing.failed.connect(self._on_failed)
        writing.abandoned.connect(self._on_abandoned)
        writing.finished.connect(self._on_finished)
        for ending in (*_endings(writing), writing.finished):
            ending.connect(self._rest)
        self._clock.start()
        self.status.reset("writing …")
        self._update_enabled()
        writing.start()

    def _on_replace_clicked(self) -> None:
        self._start(may_replace=True)

    def _on_stop_clicked(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._rest()
            self.status.set_text("stopping …")

    def _on_browse_clicked(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, "Folder", self._folder.text())
        if folder:
            self._folder.setText(folder)

    def _on_clock(self) -> None:
        assert self._writing is not None
        self.status.set_text(f"writing …  {self._writing.seconds:.1f} s")

    def _rest(self) -> None:
        """Count no more seconds: the writing is over, or was told to end."""
        self._clock.stop()
        self._stop.setEnabled(False)

    def _on_asked(self, paths: list[Path]) -> None:
        are = "is" if len(paths) == 1 else "are"
        words = "Replace it" if len(paths) == 1 else f"Replace these {len(paths)}"
        self.status.show_error(f"{_named(paths)} {are} there already", words)

    def _on_wrote(self, paths: list[Path]) -> None:
        assert self._writing is not None
        words = f"saved {_named(paths)}" if paths else "nothing was saved"
        if self._writing.is_cancelled:
            self.status.set_text(f"stopped: {words}")
        else:
            self.status.show_progress(1.0, f"{words} in {self._writing.seconds:.1f} s")

    def _on_abandoned(self) -> None:
        self.status.set_text("stopped: nothing was saved")

    def _on_failed(self, error: Exception) -> None:
        known = isinstance(error, SafError)
        self.status.show_error(str(error) if known else f"{type(error).__name__}: {error}")

    def _on_finished(self) -> None:
        if self._writing is not None:
            self._writing.wait(_CLOSING_SECONDS)
        self._writing = None
        self._update_enabled()


_NOTHING = "nothing is ticked"
_NO_NAME = "the files need a name, without slashes"
_NO_FOLDER = "there is no such folder"
_NOT_OURS = "These labels come without prototypes: they were not computed here."
_REASONS = (_NO_LABELS, _NOTHING, _NO_NAME, _NO_FOLDER)


def _why_no_recipe(layer: Labels | None) -> str:
    """Return why a layer has no recipe to save; empty if it has one."""
    try:
        if layer is None:
            return _NO_LABELS
        recipe_of(layer)
    except InvalidInput as error:
        return f"No recipe: {error}."
    return ""


def _endings(writing: Writing) -> tuple[Any, ...]:
    """Return the signals of which one tells how it ended."""
    return writing.asked, writing.wrote, writing.failed, writing.abandoned


def _named(paths: list[Path]) -> str:
    names = ", ".join(path.name for path in paths[:_MOST_NAMED])
    left_out = len(paths) - _MOST_NAMED
    return f"{names} and {left_out} more" if left_out > 0 else names
