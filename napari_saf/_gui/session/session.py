"""Adapter between a project model and the layers of a viewer, which shows one image at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import napari
from napari.layers import Image, Labels, Layer
from qtpy.QtCore import QObject, Signal

from napari_saf._gui.layers.large import is_large
from napari_saf._gui.layers.metadata import (
    UNCERTAINTY_KEY,
    image_id_of,
    is_given,
    is_strokes,
    metadata_of,
)
from napari_saf._gui.layers.view import selection_kept, visibility_of
from napari_saf._gui.session.layers import (
    assign_image,
    is_work,
    layers_of,
    open_image,
    path_of,
    set_transform,
    show_layer,
    show_store,
    state_of,
    stores_of,
    transform_of,
    watch,
)
from napari_saf.errors import InvalidInput, SafError
from napari_saf.project import (
    DockValues,
    FileReference,
    ImageEntry,
    ProjectLayer,
    ProjectModel,
    ProjectState,
    Stage,
    checksum,
    encoded_pixels,
    layers_digest,
)

_REMOVED = "{}: was removed; its strokes and labels stay in the project until you remove them, too"


class ProjectSession(QObject):
    """The layers of a viewer as a project.

    Images opened in napari are added to the model, except large ones without a file. The layers of
    an image are stored when another one is shown, and restored with it. Signals: `changed` of the
    model, `painted` of a Labels layer, `shown` of an image with its strokes or None, `noted` of a
    note on removed layers.
    """

    changed = Signal()
    painted = Signal()
    shown = Signal(object, object)
    noted = Signal(str)

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self.viewer = viewer
        self.model = ProjectModel(self.changed.emit)
        self._is_changing = False
        events = viewer.layers.events
        events.inserted.connect(self._on_inserted)
        events.removing.connect(self._on_removing)
        for layer in viewer.layers:
            self._watch(layer)
            self._join(layer)

    def release(self) -> None:
        events = self.viewer.layers.events
        events.inserted.disconnect(self._on_inserted)
        events.removing.disconnect(self._on_removing)

    @property
    def current(self) -> ImageEntry | None:
        """The image on screen; of several the active one."""
        on_screen = [entry for entry in self.model.entries if entry.layer is not None]
        active = self.viewer.layers.selection.active
        ids = {str(getattr(active, "unique_id", "")), "" if active is None else image_id_of(active)}
        for entry in on_screen:
            if ids & {str(image.unique_id) for image in self._images(entry)}:
                return entry
        return on_screen[-1] if on_screen else None

    def stage(self, entry: ImageEntry) -> Stage:
        """Return the stage of the work on an image."""
        if entry.results and entry.exported in ("", self._digest(entry)):
            return "exported"
        kinds = self._kinds(entry)
        return "labelled" if "labels" in kinds else "taught" if kinds else "untouched"

    def add_results(self, entry: ImageEntry, written: Sequence[FileReference]) -> None:
        self.model.add_results(entry, written, self._digest(entry))

    def _digest(self, entry: ImageEntry) -> str:
        pixels = [(layer.kind, layer.pixels) for layer in entry.layers]
        for layer in self._labels(entry):
            shown = encoded_pixels(str(layer.unique_id), layer.data, self.model.encodings)
            if shown is not None:
                pixels.append(("strokes" if is_strokes(layer) else "labels", shown))
        return layers_digest(pixels)

    def has_labels(self, entry: ImageEntry) -> bool:
        """Return whether an image has labels to export, which may be empty."""
        is_shown = not all(map(is_strokes, self._labels(entry)))
        return is_shown or any(layer.kind == "labels" for layer in entry.layers)

    def _kinds(self, entry: ImageEntry) -> set[str]:
        shown = [layer for layer in self._labels(entry) if layer.data.any()]
        kinds = {"strokes" if is_strokes(layer) else "labels" for layer in shown}
        return kinds | {layer.kind for layer in entry.layers}

    def uncertainty(self, entry: ImageEntry) -> float | None:
        """Return the share of uncertain pixels of the newest labels, or None if unknown."""
        shares = [metadata_of(layer).get(UNCERTAINTY_KEY) for layer in self._labels(entry)]
        shares += [layer.uncertainty for layer in entry.layers]
        return next((share for share in reversed(shares) if share is not None), None)

    def uncertain(self) -> list[ImageEntry]:
        """Return available images without strokes, those with the most uncertain labels first."""
        entries = [entry for entry in self.model.entries if entry.state == "found"]
        shares = {entry: self.uncertainty(entry) for entry in entries}
        waiting = [
            entry
            for entry, share in shares.items()
            if share is not None and "strokes" not in self._kinds(entry)
        ]
        return sorted(waiting, key=lambda entry: shares[entry] or 0, reverse=True)

    def go_to(self, entry: ImageEntry) -> str:
        """Show an image with its layers and store the others; return a note on layers not shown.

        Raises SafError if the image cannot be opened.
        """
        entry.check_found()
        with self._changing():
            for previous in self.model.entries:
                if previous is not entry:
                    self.put_away(previous)
            notes = self._open(entry) if entry.layer is None else []
            entry.layer.visible = True
            self.viewer.layers.selection.active = self.strokes(entry) or entry.layer
        self.shown.emit(entry.layer, self.strokes(entry))
        self.changed.emit()
        return "\n".join(notes)

    def strokes(self, entry: ImageEntry) -> Any:
        """Return the topmost displayed strokes of an image, or None."""
        return next((layer for layer in reversed(self._labels(entry)) if is_strokes(layer)), None)

    def close_all(self) -> None:
        with self._changing():
            for entry in self.model.entries:
                self.put_away(entry)
        self.model.clear()

    def state(self, docks: DockValues, dictionaries: Sequence[Path]) -> ProjectState:
        """Return the current project state; without dictionaries it keeps those of the model."""
        shown, has_work, ids = [], False, set[str]()
        for entry in self.model.entries:
            layers = self._labels(entry)
            has_work |= bool(entry.layers) or any(map(is_work, layers))
            ids |= {str(layer.unique_id) for layer in layers}
            stores = stores_of(self.viewer, self._images(entry))
            transform = entry.transform if entry.layer is None else transform_of(entry.layer)
            shown.append((list(map(state_of, layers)), stores, transform))
        self.model.forget_encodings(ids)
        current = None if self.current is None else self.model.entries.index(self.current)
        return self.model.state(shown, current, docks, dictionaries, has_work)

    def _images(self, entry: ImageEntry) -> list[Any]:
        """Return the layers of an image, several if its channels are separate layers."""
        if entry.layer is None:
            return []
        layers = () if entry.path is None else self.viewer.layers
        images = [layer for layer in layers if isinstance(layer, Image) and is_given(layer)]
        channels = [image for image in images if image != entry.layer]
        return [entry.layer, *(image for image in channels if path_of(image) == entry.path)]

    def _labels(self, entry: ImageEntry) -> list[Any]:
        """Return the displayed label layers of an image, the lowest first."""
        layers = self.viewer.layers
        images = self._images(entry)
        labels = [layer for image in images for layer in layers_of(self.viewer, image)]
        labels += [layer for layer in entry.removed if layer in layers and layer not in labels]
        return sorted(labels, key=layers.index)

    def put_away(self, entry: ImageEntry) -> None:
        """Remove the layers of an image from the viewer and store its labels in the model."""
        layers, images, labels = self.viewer.layers, self._images(entry), self._labels(entry)
        if not (images or labels):
            return
        is_stored = dict(
            zip(labels, self.model.store(entry, list(map(state_of, labels))), strict=True)
        )
        ids = {str(image.unique_id) for image in images}
        leaving = [
            layer
            for layer in layers
            if is_stored.get(layer, layer in images or image_id_of(layer) in ids)
        ]
        entry.stores += stores_of(self.viewer, images)
        self._leave_screen(entry)
        entry.removed = []
        with layers.batched_update():  # a single garbage collection in napari
            for layer in leaving:
                if layer in layers:  # a dock may have removed it already
                    layers.remove(layer)
        self.model.forget_encodings({str(layer.unique_id) for layer in layers})

    def _leave_screen(self, entry: ImageEntry) -> None:
        """Store the transform of an image whose layer is removed, and its pixels without a file."""
        if entry.layer is not None:
            entry.transform = transform_of(entry.layer)
            if entry.path is None:
                entry.memory = entry.layer.as_layer_data_tuple()
        entry.layer = None

    def _open(self, entry: ImageEntry) -> list[str]:
        """Open an image and show its layers; return notes on layers that do not fit."""
        if entry.memory is not None:
            entry.layer = self.viewer.add_layer(Layer.create(*entry.memory))
        else:
            assert entry.path is not None
            self.model.check_content(entry)
            images = (layer for layer in self.viewer.layers if isinstance(layer, Image))
            shown = next((image for image in images if path_of(image) == entry.path), None)
            entry.layer = shown or open_image(self.viewer, entry.path, entry.reader)
            for image in self._images(entry) if shown is None else ():
                set_transform(image, entry.transform)
        return self._show_stored(entry)

    def _show_stored(self, entry: ImageEntry) -> list[str]:
        """Show the stored layers of an image; layers that do not fit remain stored."""
        notes, unfit = list[str](), list[ProjectLayer]()
        for layer in entry.removed:
            assign_image(layer, entry.layer)
        entry.removed = []
        for stored in entry.layers:
            try:
                layer = show_layer(self.viewer, entry.layer, stored, self.model.recipes)
                key = str(layer.unique_id)
                self.model.encodings[key] = checksum(layer.data), stored.pixels
            except SafError as error:
                notes.append(str(error))
                unfit.append(stored)
        for path in entry.stores:
            try:
                show_store(self.viewer, entry.layer, path)
            except SafError as error:
                notes.append(str(error))
        entry.layers, entry.stores = tuple(unfit), []
        return notes

    def entry_of(self, image: Any) -> ImageEntry | None:
        """Return the entry that an image layer shows, or None."""
        entries = self.model.entries
        return next((entry for entry in entries if image in self._images(entry)), None)

    def replace_layer(self, entry: ImageEntry, made: ProjectLayer) -> None:
        """Replace the labels of the same name by new ones."""
        if entry.layer is None:
            self.model.replace_stored(entry, made)
            return
        with self._changing(), selection_kept(self.viewer):
            visibility_of(self.viewer).hide_results(entry.layer)
            for layer in layers_of(self.viewer, entry.layer):
                if layer.name == made.name and not is_strokes(layer):
                    self.viewer.layers.remove(layer)
                elif not is_strokes(layer):
                    layer.visible = False
            layer = show_layer(self.viewer, entry.layer, made, self.model.recipes)
            layer.visible = entry.layer.visible

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Ignore layers inserted or removed by this session."""
        was_changing, self._is_changing = self._is_changing, True
        try:
            yield
        finally:
            self._is_changing = was_changing

    def _watch(self, layer: Any) -> None:
        watch(layer)
        if isinstance(layer, Labels):
            layer.events.paint.connect(self._on_painted)

    def _on_painted(self, event: Any) -> None:
        self.painted.emit()

    def _on_inserted(self, event: Any) -> None:
        self._watch(event.value)
        if not self._is_changing:
            self._join(event.value)

    def _join(self, layer: Any) -> None:
        """Add an image opened in napari to the model, or match it to an entry of the model."""
        if not isinstance(layer, Image) or not is_given(layer):
            return
        path, entries = path_of(layer), self.model.entries
        if path is None and is_large(layer):
            return  # cannot be stored in a project
        same = (entry for entry in entries if path is not None and entry.path == path)
        entry = next(same, None)
        if entry is None:
            reader = str(layer.source.reader_plugin or "")
            name = layer.name if path is None else path.name
            entries.append(ImageEntry(name, path, reader=reader, layer=layer))
        elif entry.layer is None and entry.state == "found":
            try:
                self.model.check_content(entry)
            except InvalidInput as error:
                self.noted.emit(str(error))
            else:
                entry.layer = layer
                with self._changing():
                    self._show_stored(entry)
        self.changed.emit()

    def _on_removing(self, event: Any) -> None:
        """Keep the labels of an image that the user removes until it is opened again."""
        layer = self.viewer.layers[event.index]
        if self._is_changing:
            return
        for entry in list(self.model.entries):
            images = self._images(entry)
            if layer in images:
                remaining = [image for image in images if image != layer]
                entry.removed = self._labels(entry)
                if remaining:
                    entry.layer = remaining[0]
                else:
                    self._leave_screen(entry)
            elif layer in entry.removed:
                entry.removed.remove(layer)
            else:
                continue
            if entry.layer is None and not entry.layers:
                if any(labels.data.any() for labels in entry.removed):
                    self.noted.emit(_REMOVED.format(entry.name))
                else:
                    self.model.entries.remove(entry)
        self.changed.emit()
