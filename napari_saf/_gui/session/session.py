"""The project of a viewer: its images, one of which is shown at a time, as they are now."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Layer
from qtpy.QtCore import QObject, Signal

from napari_saf._gui.layers.large import is_large
from napari_saf._gui.layers.metadata import (
    UNCERTAINTY_KEY,
    image_id_of,
    is_given,
    is_strokes,
    metadata_of,
)
from napari_saf._gui.layers.reading import fingerprint
from napari_saf._gui.session.layers import (
    GONE,
    Docks,
    Encoded,
    Entry,
    PendingImage,
    SharedRecipes,
    Snapshot,
    adopt,
    is_work,
    layers_of,
    open_image,
    path_of,
    pending,
    reference_to,
    set_transform,
    show_layer,
    show_store,
    stores_of,
    transform_of,
    watch_edits,
    write_pixels,
)
from napari_saf.errors import InvalidInput, SafError
from napari_saf.pipeline import Pipeline
from napari_saf.project import (
    DigestCache,
    FileReference,
    FoundFile,
    Project,
    ProjectLayer,
    Stage,
)

_logger = logging.getLogger(__name__)
_LEFT = "{}: was removed; what lies over it stays in the project until you remove that, too"
_WORDS = {
    "missing": "is missing: press *Find …*, or look in a folder",
    "changed": "has changed since strokes were painted on it: press *Use as it is* to keep them",
}


class ProjectSession(QObject):
    """The images of a viewer as a project.

    Images that are opened in napari are part of it, but for large ones that came from no file. One
    is shown at a time: its layers are put away when another one is gone to, and come back with it.
    What is to be known of layers that were removed is `noted`. An image that was gone to is `shown`
    with its strokes, which may be None.
    """

    changed = Signal()
    shown = Signal(object, object)
    noted = Signal(str)

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self.entries: list[Entry] = []
        self.recipes: dict[str, Pipeline] = {}
        self.dictionaries: dict[str, FileReference] = {}
        self.digests = DigestCache()
        self._encoded: Encoded = {}
        self._is_own_change = False
        events = viewer.layers.events
        events.inserted.connect(self._on_inserted)
        events.removing.connect(self._on_removing)
        for layer in viewer.layers:
            watch_edits(layer)
            self._take(layer)

    def release(self) -> None:
        events = self._viewer.layers.events
        events.inserted.disconnect(self._on_inserted)
        events.removing.disconnect(self._on_removing)

    @property
    def current(self) -> Entry | None:
        """The image on screen, of several the one that is active."""
        shown = [entry for entry in self.entries if entry.layer is not None]
        active = self._viewer.layers.selection.active
        own = {str(getattr(active, "unique_id", "")), "" if active is None else image_id_of(active)}
        for entry in shown:
            if own & {str(image.unique_id) for image in self._images(entry)}:
                return entry
        return shown[-1] if shown else None

    @property
    def has_work(self) -> bool:
        """Whether there is something to lose: strokes, results, what was painted by hand."""
        return any(one.layers or any(map(is_work, self._shown(one))) for one in self.entries)

    def stage(self, entry: Entry) -> Stage:
        """Return how far the work on an image is."""
        if entry.results:
            return "exported"
        kinds = self._kinds(entry)
        return "labelled" if "labels" in kinds else "taught" if kinds else "untouched"

    def _kinds(self, entry: Entry) -> set[str]:
        shown = [one for one in self._shown(entry) if one.data.any()]
        of_shown = {"strokes" if is_strokes(one) else "labels" for one in shown}
        return of_shown | {layer.kind for layer in entry.layers}

    def uncertainty(self, entry: Entry) -> float | None:
        """Return the share of uncertain pixels of the labels that were made last, if known."""
        found = [metadata_of(one).get(UNCERTAINTY_KEY) for one in self._shown(entry)]
        found += [layer.uncertainty for layer in entry.layers]
        return next((one for one in reversed(found) if one is not None), None)

    def uncertain(self) -> list[Entry]:
        """Return the images at hand without strokes, those whose labels are least certain first."""
        known = {one: self.uncertainty(one) for one in self.entries if one.state == "found"}
        waiting = [one for one, share in known.items() if share is not None]
        waiting = [one for one in waiting if "strokes" not in self._kinds(one)]
        return sorted(waiting, key=lambda one: known[one] or 0, reverse=True)

    def add_files(self, paths: Sequence[Path]) -> None:
        """Add images that are not there yet; they are opened when they are gone to."""
        known = {entry.path for entry in self.entries}
        new = [path for path in map(Path.absolute, paths) if path not in known]
        self.entries += [Entry(path.name, path) for path in new]
        self.changed.emit()

    def remove(self, entry: Entry) -> None:
        """Take an image out of the project; its layers stay as they are."""
        self.entries.remove(entry)
        self.changed.emit()

    def go_to(self, entry: Entry) -> str:
        """Show an image with its layers, and put the others away; return what could not be shown.

        SafError if the image cannot be opened.
        """
        if entry.state != "found":
            raise InvalidInput(f"{entry.name} {_WORDS[entry.state]}")
        with self._own_change():
            for other in self.entries:
                if other is not entry:
                    self.put_away(other)
            notes = self._open(entry) if entry.layer is None else []
            entry.layer.visible = True
            self._viewer.layers.selection.active = self.strokes(entry) or entry.layer
        self.shown.emit(entry.layer, self.strokes(entry))
        self.changed.emit()
        return "\n".join(notes)

    def strokes(self, entry: Entry) -> Any:
        """Return the topmost strokes on an image on screen, or None."""
        return next((one for one in reversed(self._shown(entry)) if is_strokes(one)), None)

    def close_all(self) -> None:
        with self._own_change():
            for entry in self.entries:
                self.put_away(entry)
        self.entries, self.recipes, self.dictionaries = [], {}, {}
        self.changed.emit()

    def take_project(
        self, project: Project, found: Sequence[FoundFile], stores: Sequence[list[Path]]
    ) -> None:
        """Begin a project that was loaded, with images and labels of large ones where they are."""
        self.close_all()
        self.recipes, self.dictionaries = dict(project.recipes), dict(project.dictionaries)
        for image, one, own in zip(project.images, found, stores, strict=True):
            path = one.path or image.file.path
            entry = Entry(path.name, path, None, image.layers, stores=own)
            entry.results, entry.reader = image.results, image.reader
            names = ("scale", "translate", "units", "axis_labels", "affine")
            entry.transform = {name: getattr(image, name) for name in names}
            entry.file, entry.state = replace(image.file, path=path), one.state
            self.entries.append(entry)
        self.changed.emit()

    def take_found(self, entries: Sequence[Entry], found: Sequence[FoundFile]) -> None:
        for entry, one in zip(entries, found, strict=True):
            if one.path is not None:
                assert entry.file is not None
                entry.path, entry.state, entry.name = one.path, one.state, one.path.name
                entry.file = replace(entry.file, path=one.path)
        self.changed.emit()

    def take_copies(self, folder: Path) -> None:
        """Take images in a folder that will not stay into memory."""
        for entry in self.entries:
            if entry.path is not None and entry.path.parent == folder and entry.state == "found":
                try:
                    pixels = np.load(entry.path, allow_pickle=False)
                except (OSError, ValueError) as error:
                    _logger.warning("%s cannot be read: %s", entry.path, error)
                    continue
                entry.memory = (pixels, {"name": entry.path.stem}, "image")
                entry.name, entry.path, entry.file = entry.path.stem, None, None

    def accept(self, entry: Entry) -> None:
        """Take an image as it is now, with the strokes that were painted on what it was."""
        if entry.state == "changed":
            entry.file, entry.state = None, "found"
            self.changed.emit()

    def snapshot(self, docks: Docks, dictionaries: Sequence[Path]) -> Snapshot:
        """Return the project as it is now; without dictionaries those that it had stay in it."""
        images = []
        for one in self.entries:
            layers = [pending(layer) for layer in self._shown(one)]
            own = (partial(self._reference, one), one.path is None, one.layers, layers)
            stores = [*one.stores, *stores_of(self._viewer, self._images(one))]
            place = one.transform if one.layer is None else transform_of(one.layer)
            images.append(PendingImage(*own, one.results, stores, one.reader, place))
        current = None if self.current is None else self.entries.index(self.current)
        self._forget_pixels()
        known = (dict(self.recipes), docks, dictionaries, dict(self.dictionaries))
        return Snapshot(images, current, *known, self.digests, self._encoded, self.has_work)

    def _reference(self, entry: Entry, target: Path | None) -> FileReference:
        """Return the file of an image; one that is in memory alone is written beside the project.

        For another folder it is written again: a project is moved with what lies beside it.
        """
        if entry.file is not None:
            return entry.file
        if entry.path is not None:
            found = reference_to(entry.path, self.digests)
            entry.file = None if found.digest == GONE else found
            return found
        checksum = fingerprint(entry.pixels(), None)  # a person may give a layer other pixels
        if target is None:
            return FileReference(Path(entry.name), f"memory:{checksum}", 0)
        folder = target.parent / f"{target.stem}_images"
        place = folder, checksum
        known = entry.copies.get(place)
        if known is None or not known.path.exists():
            written = write_pixels(folder, entry.name, entry.pixels())
            known = entry.copies[place] = FileReference.of(written, self.digests)
        return known

    def pixels_in_memory(self) -> dict[int, Any]:
        """Return the pixels of images that came from no file, by the number of the image."""
        return {k: one.pixels() for k, one in enumerate(self.entries) if one.path is None}

    def _images(self, entry: Entry) -> list[Any]:
        """Return the layers that show an image: a file of several channels may be several."""
        if entry.layer is None:
            return []
        others = (one for one in self._viewer.layers if isinstance(one, Image) and is_given(one))
        same = [one for one in others if entry.path is not None and path_of(one) == entry.path]
        return [entry.layer, *(one for one in same if one != entry.layer)]

    def _shown(self, entry: Entry) -> list[Any]:
        """Return the label layers of an image that are on screen, the lowest first."""
        layers = self._viewer.layers
        found = [one for image in self._images(entry) for one in layers_of(self._viewer, image)]
        found += [one for one in entry.left if one in layers and one not in found]
        return sorted(found, key=layers.index)

    def put_away(self, entry: Entry) -> None:
        """Take the layers of an image from the viewer, and keep its labels."""
        layers, images, own = self._viewer.layers, self._images(entry), self._shown(entry)
        if not (images or own):
            return
        found = SharedRecipes(self.recipes)
        kept = {one: pending(one).encode(self._encoded, found.add) for one in own}
        entry.layers += tuple(one for one in kept.values() if one is not None)
        self.recipes = found.recipes
        ids = {str(image.unique_id) for image in images}
        gone = [one for one in layers if one in own or one in images or image_id_of(one) in ids]
        self._let_go(entry)
        entry.left = []
        entry.stores += stores_of(self._viewer, images)
        with layers.batched_update():  # napari collects garbage once
            for layer in gone:
                # Else a dock has removed it with another one, or no project holds it.
                if layer in layers and kept.get(layer, layer) is not None:
                    layers.remove(layer)
        self._forget_pixels()

    def _forget_pixels(self) -> None:
        ids = {str(layer.unique_id) for layer in self._viewer.layers}
        known = list(self._encoded.items())  # a thread may encode others meanwhile
        self._encoded = {own: one for own, one in known if own in ids}

    def _let_go(self, entry: Entry) -> None:
        """Keep what of an image is in memory alone: its layer is going."""
        if entry.layer is not None:
            entry.transform = transform_of(entry.layer)
            if entry.path is None:
                entry.memory = entry.layer.as_layer_data_tuple()
        entry.layer = None

    def _open(self, entry: Entry) -> list[str]:
        """Open an image and show its layers; return what is wrong with those that do not fit."""
        if entry.memory is not None:
            entry.layer = self._viewer.add_layer(Layer.create(*entry.memory))
        else:
            assert entry.path is not None
            self._check(entry)
            open_now = (one for one in self._viewer.layers if isinstance(one, Image))
            shown = next((one for one in open_now if path_of(one) == entry.path), None)
            entry.layer = shown or open_image(self._viewer, entry.path, entry.reader)
            for image in self._images(entry) if shown is None else ():
                set_transform(image, entry.transform)
        return self._show_layers(entry)

    def _check(self, entry: Entry) -> None:
        """Raise InvalidInput if a file that was seen before has another content now."""
        file, path = entry.file, entry.path
        if file is not None and path is not None and self.digests(path) != file.digest:
            entry.state = "changed"
            raise InvalidInput(f"{entry.name} {_WORDS[entry.state]}")

    def _show_layers(self, entry: Entry) -> list[str]:
        """Show the layers of an image, but for those that do not fit, which stay in the project."""
        notes, unfit = list[str](), list[ProjectLayer]()
        for layer in entry.left:
            adopt(layer, entry.layer)
        entry.left = []
        for kept in entry.layers:
            try:
                layer = show_layer(self._viewer, entry.layer, kept, self.recipes)
                checksum = fingerprint(layer.data, None)
                self._encoded[str(layer.unique_id)] = (checksum, kept.pixels)
            except SafError as error:
                notes.append(str(error))
                unfit.append(kept)
        for path in entry.stores:
            try:
                show_store(self._viewer, entry.layer, path)
            except SafError as error:
                notes.append(str(error))
        entry.layers, entry.stores = tuple(unfit), []
        return notes

    def entry_of(self, image: Any) -> Entry | None:
        """Return the entry that an image layer shows, or None."""
        return next((one for one in self.entries if image in self._images(one)), None)

    def take_results(self, entry: Entry, written: Sequence[FileReference]) -> None:
        files = {one.path: one for one in (*entry.results, *written)}
        entry.results = tuple(files.values())
        self.changed.emit()

    def replace_layer(self, entry: Entry, made: ProjectLayer) -> None:
        """Take labels that were made of an image in the place of those of the same name."""
        if entry.layer is not None:
            active = self._viewer.layers.selection.active
            with self._own_change():
                for layer in layers_of(self._viewer, entry.layer):
                    if layer.name == made.name and not is_strokes(layer):
                        self._viewer.layers.remove(layer)
                    elif not is_strokes(layer):
                        layer.visible = False
                show_layer(self._viewer, entry.layer, made, self.recipes)
                if active in self._viewer.layers:
                    self._viewer.layers.selection.active = active
        else:
            kept = [one for one in entry.layers if (one.kind, one.name) != (made.kind, made.name)]
            kept = [replace(one, is_visible=one.kind == "strokes") for one in kept]
            entry.layers = (*kept, made)

    @contextmanager
    def _own_change(self) -> Iterator[None]:
        """Take no notice of layers that come and go."""
        before, self._is_own_change = self._is_own_change, True
        try:
            yield
        finally:
            self._is_own_change = before

    def _on_inserted(self, event: Any) -> None:
        watch_edits(event.value)
        if not self._is_own_change:
            self._take(event.value)

    def _take(self, layer: Any) -> None:
        if not isinstance(layer, Image) or not is_given(layer):
            return
        path = path_of(layer)
        if path is None and is_large(layer):
            return  # nobody could keep it
        entry = next((one for one in self.entries if path is not None and one.path == path), None)
        if entry is None:
            reader = str(layer.source.reader_plugin or "")
            self.entries.append(Entry(layer.name, path, layer, reader=reader))
        elif entry.layer is None and entry.state == "found":
            try:
                self._check(entry)
            except InvalidInput as error:
                self.noted.emit(str(error))
            else:
                entry.layer = layer
                with self._own_change():
                    self._show_layers(entry)
        self.changed.emit()

    def _on_removing(self, event: Any) -> None:
        """Keep what lies over an image that a person removes, until it comes back."""
        layer = self._viewer.layers[event.index]
        if self._is_own_change:
            return
        for entry in list(self.entries):
            images = self._images(entry)
            if layer in images:
                rest = [one for one in images if one != layer]
                entry.left = self._shown(entry)
                if rest:
                    entry.layer = rest[0]
                else:
                    self._let_go(entry)
            elif layer in entry.left:
                entry.left.remove(layer)
            else:
                continue
            if entry.layer is None and not entry.layers:
                if any(one.data.any() for one in entry.left):
                    self.noted.emit(_LEFT.format(entry.name))
                else:
                    self.entries.remove(entry)
        self.changed.emit()
