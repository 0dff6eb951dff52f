"""The Export dock: choose labels, what to save of them and where; repeat their recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import napari
from napari.layers import Image, Labels, Layer
from qtpy.QtWidgets import QFileDialog, QHBoxLayout, QLineEdit, QPushButton, QToolButton, QWidget

from napari_saf._gui.docks.run_dock import (
    RESCALE,
    RunDock,
    count_labels,
    describe_error,
    rescale_action,
    suggested_action_for,
)
from napari_saf._gui.export.choice import ExportChoice
from napari_saf._gui.export.repeat import RepeatSection
from napari_saf._gui.export.source import Written, source_of, write_files
from napari_saf._gui.forms.choices import LayerChoice
from napari_saf._gui.forms.layout import FormSection, create_fold
from napari_saf._gui.layers.metadata import METADATA_KEY, prototypes_of, recipe_of
from napari_saf._gui.layers.placement import image_region, labelled_image
from napari_saf.errors import InvalidInput
from napari_saf.io import file_stem
from napari_saf.result import STATUS_TEXTS, Segmentation

_MOST_NAMED = 3
_HELP = "Write the ticked files. Before one is replaced, you are asked."
_STOP_HELP = (
    "Finish the file that is being written, and leave out the others; end a run with the labels "
    "that there are."
)
_NO_LABELS = "no labels: run Segment, or open a Labels layer"
_NOTHING = "nothing is ticked"
_NO_NAME = "the files need a name, without slashes"
_NO_FOLDER = "there is no such folder"
_REASONS = (_NO_LABELS, _NOTHING, _NO_NAME, _NO_FOLDER)
_NOT_OURS = "These labels come without prototypes: they were not computed here."


class ExportWidget(RunDock):
    """Save labels for other programs, and repeat what made them.

    Attributes
    ----------
    button : QPushButton
        Writes what is ticked.
    """

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self._watched: Any = None
        self._finite_only = False
        self.choice, self.repeat = ExportChoice(), RepeatSection(viewer, self.status)
        self._labels = LayerChoice(viewer, lambda layer: isinstance(layer, Labels))
        self._image = LayerChoice(viewer, self._fits, none="none")
        self._name, self._folder = QLineEdit(), QLineEdit(str(Path.home()))
        self._browse, self.button = QToolButton(), QPushButton("Export")
        self._create_layout()
        self._connect()
        self.choose_layer(self._first_choice())
        self._on_labels_changed()

    @property
    def layer(self) -> Any:
        """The Labels layer that is chosen, or None."""
        return self._labels.layer

    @property
    def name(self) -> str:
        """What the names of the files begin with."""
        return str(self._name.text()).strip()

    def choose_layer(self, layer: Layer | None) -> None:
        """Choose the labels."""
        self._labels.choose(layer)

    def choose_image(self, layer: Layer | None) -> None:
        """Choose the image that goes with them."""
        self._image.choose(layer)

    def choose_name(self, name: str) -> None:
        """Choose what the names of the files begin with."""
        self._name.setText(name)

    def choose_folder(self, folder: Path) -> None:
        """Choose where files go."""
        self._folder.setText(str(folder))

    def start(self) -> None:
        """Write what is ticked."""
        self._write(may_replace=False)

    def run_or_stop(self) -> bool:
        """Stop the task that is running; the shortcut writes no files."""
        return self.is_busy and super().run_or_stop()

    def start_repeat(self) -> None:
        """Label another image by the recipe."""
        self._finite_only = False
        self._repeat()

    def _release(self) -> None:
        self._watch(None)
        self._viewer.layers.events.inserted.disconnect(self._on_layer_inserted)
        self._labels.disconnect_viewer()
        self._image.disconnect_viewer()
        self.repeat.release()

    def _create_layout(self) -> None:
        rows, where, folder = FormSection(), FormSection(), QWidget()
        layout = QHBoxLayout(folder)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._folder, stretch=1)
        layout.addWidget(self._browse)
        self._browse.setText("…")
        self._browse.setToolTip("Choose a folder.")
        self._stop_button.setToolTip(_STOP_HELP)
        rows.add_row("Labels", self._labels, "The Labels layer to save.")
        rows.add_row("Image", self._image, "What was labelled: for brightness and the figure.")
        where.add_row("Name", self._name, "What the names of the files begin with.")
        where.add_row("Folder", folder, "Where the files go.")
        fold = create_fold("Repeat this on …", self.repeat)
        self._lay_out([rows, self.choice, where, fold], [self.button, self._stop_button], [])

    def _connect(self) -> None:
        self._labels.layer_changed.connect(self._on_labels_changed)
        self.button.clicked.connect(self.start)
        self.repeat.button.clicked.connect(self.start_repeat)
        self._browse.clicked.connect(self._on_browse_clicked)
        self.status.suggested_action_clicked.connect(self._on_suggested_action_clicked)
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
        labels = self.layer
        is_image = isinstance(layer, Image) and labels is not None
        return is_image and image_region(labels, layer) is not None

    def _on_layer_inserted(self, event: Any) -> None:
        """Turn to a new result."""
        if isinstance(event.value, Labels) and METADATA_KEY in event.value.metadata:
            self.choose_layer(event.value)

    def _on_labels_changed(self, layer: object = None) -> None:
        labels = self.layer
        self._watch(labels)
        self._image.refresh()
        if labels is not None:
            self._name.setText(file_stem(labels.name))
            self._image.choose(labelled_image(self._viewer, labels, self._fits))
            image = self._image.layer
            path = None if image is None else image.source.path
            if path is not None and self._folder.text() == str(Path.home()):
                self._folder.setText(str(Path(path).absolute().parent))
        if not self.is_busy:
            self.status.reset()
        self._on_content_changed()

    def _watch(self, layer: Any) -> None:
        """Follow a layer: its metadata, which send no event, change with its data."""
        if self._watched is not None:
            self._watched.events.set_data.disconnect(self._on_content_changed)
        self._watched = layer
        if layer is not None:
            layer.events.set_data.connect(self._on_content_changed)

    def _on_content_changed(self, event: object = None) -> None:
        labels = self.layer
        if self.repeat.show_layer(labels):
            self.choice.offer("recipe", _why_no_recipe(labels))
            has_prototypes = labels is not None and prototypes_of(labels) is not None
            self.choice.offer("prototypes", "" if has_prototypes else _NOT_OURS)
        self._update_enabled()

    def _update_enabled(self, *changed: object) -> None:
        super()._update_enabled()
        reason = self._reason()
        self.button.setEnabled(not reason and not self.is_busy)
        self.button.setToolTip(reason or _HELP)
        self.repeat.set_enabled(self._task is None)
        if reason and not self.is_busy:
            self.status.reset(reason)
        elif self.status.text in _REASONS:
            self.status.reset()

    def _reason(self) -> str:
        """Return why nothing can be exported; empty if something can."""
        folder = self._folder.text().strip()
        if self.layer is None:
            return _NO_LABELS
        if self.choice.wanted.is_empty:
            return _NOTHING
        if not self.name or self._name.text() != Path(self._name.text()).name:
            return _NO_NAME
        return "" if folder and Path(folder).expanduser().parent.is_dir() else _NO_FOLDER

    def _write(self, *, may_replace: bool) -> None:
        if self.is_busy or self._reason():
            return
        with self._showing_errors():
            source = source_of(self._viewer, self.layer, self._image.layer)
            path = Path(self._folder.text().strip()).expanduser() / self.name
            wanted = self.choice.wanted
            self.begin_task(
                "writing",
                lambda report, cancelled: write_files(source, path, wanted, may_replace, cancelled),
                self._on_written,
            )

    def _on_written(self, written: Written) -> None:
        if written.in_the_way:
            count = len(written.in_the_way)
            are, text = ("are", f"Replace these {count}") if count > 1 else ("is", "Replace it")
            self.status.show_error(f"{_named(written.in_the_way)} {are} there already", text)
            return
        assert self._task is not None
        text = f"saved {_named(written.paths)}" if written.paths else "nothing was saved"
        if self._task.is_cancelled:
            self.status.reset(f"stopped: {text}")
        else:
            self.status.show_progress(1.0, f"{text} in {self._task.seconds:.1f} s")

    def _on_task_abandoned(self) -> None:
        super()._on_task_abandoned()
        self.status.reset("stopped: nothing was saved")

    def _on_suggested_action_clicked(self) -> None:
        """Replace the files, or repeat without the pixels or the scaling that were in the way."""
        if self.status.suggested_action.startswith("Replace"):
            self._write(may_replace=True)
            return
        if self.status.suggested_action == RESCALE:
            self.repeat.brightness.choose(True)
        else:
            self._finite_only = True
        self._repeat()

    def _repeat(self) -> None:
        with self._showing_errors():
            job = self.repeat.job()
            if self._task is None:
                self.controller.start(job.masked() if self._finite_only else job)

    def _on_began(self) -> None:
        super()._on_began()
        self.status.reset("reading the image …")

    def _on_returned(self, result: Segmentation) -> None:
        text = f"{STATUS_TEXTS[result.status]}: {count_labels(result.n_labels)}"
        text = f"{text} in {self.controller.seconds:.1f} s"
        text = self.controller.outcome_text(text, result)
        self.status.show_progress(1.0, text, rescale_action(self.controller))

    def _on_failed(self, error: Exception) -> None:
        self.status.show_error(describe_error(error), suggested_action_for(error))

    def _on_browse_clicked(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, "Folder", self._folder.text())
        if folder:
            self._folder.setText(folder)


def _why_no_recipe(layer: Labels | None) -> str:
    """Return why a layer has no recipe to save; empty if it has one."""
    if layer is None:
        return _NO_LABELS
    try:
        recipe_of(layer)
    except InvalidInput as error:
        return f"No recipe: {error}."
    return ""


def _named(paths: list[Path]) -> str:
    names = ", ".join(path.name for path in paths[:_MOST_NAMED])
    left_out = len(paths) - _MOST_NAMED
    return f"{names} and {left_out} more" if left_out > 0 else names
