"""The project of a viewer: its images, one of which is shown at a time, as they are now."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels, Layer
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal

from napari_saf._gui.layers.large import is_large
from napari_saf._gui.layers.metadata import image_id_of, is_given, is_strokes, metadata_of
from napari_saf._gui.layers.placement import pixels_of
from napari_saf._gui.layers.reading import fingerprint
from napari_saf._gui.project.layers import (
    EDITED_KEY,
    Encoded,
    PendingLayer,
    layers_of,
    path_of,
    pending,
    show_layer,
)
from napari_saf.errors import InvalidInput, SafError
from napari_saf.io import Recipe, file_stem, mask_stem, read_image
from napari_saf.project import (
    DigestCache,
    FileReference,
    FoundFile,
    Project,
    ProjectImage,
    ProjectLayer,
    Stage,
)
from napari_saf.storage import atomic_write, make_folder

_logger = logging.getLogger(__name__)
_WORDS = {
    "missing": "is missing: press *Find …*, or look in a folder",
    "changed": "has changed since strokes were painted on it: press *Use as it is* to keep them",
}
TAUGHT = "strokes on all images"
"""Name of the recipe that strokes on several images taught together."""
Docks = dict[str, dict[str, Any]]
Build = Callable[[Path], Project]


@dataclasses.dataclass(slots=True, eq=False)
class Entry:
    """An image of the project, and the layer that shows it, if one does.

    The path is None for an image that is in memory alone; the `layers` are those that are not
    on screen, as they last were, the `memory` data and arguments of a layer that came from no
    file, the `copies` the files that were made of it, by folder and checksum. An image that is
    missing, or has changed, keeps its `file`.
    """

    name: str
    path: Path | None = None
    layer: Any = None
    layers: tuple[ProjectLayer, ...] = ()
    results: tuple[FileReference, ...] = ()
    reader: str = ""
    file: FileReference | None = None
    state: str = "found"
    memory: Any = None
    copies: dict[tuple[Path, int], FileReference] = dataclasses.field(default_factory=dict)


class ProjectSession(QObject):
    """The images of a viewer as a project.

    Images that are opened in napari are part of it, but for large ones that came from no file. Of
    the others one is shown at a time: its layers are put away when another one is gone to, and come
    back with it.
    """

    changed = Signal()

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self.entries: list[Entry] = []
        self.recipes: dict[str, Recipe] = {}
        self.dictionaries: dict[str, FileReference] = {}
        self.digests = DigestCache()
        self._encoded: Encoded = {}
        self._is_own_change = False
        events = viewer.layers.events
        self._events = ((events.inserted, self._on_inserted), (events.removing, self._on_removing))
        for event, slot in self._events:
            event.connect(slot)
        for layer in viewer.layers:
            self._take(layer)

    def release(self) -> None:
        for event, slot in self._events:
            event.disconnect(slot)

    @property
    def current(self) -> Entry | None:
        """The image on screen, of several the one that is active."""
        shown = [entry for entry in self.entries if entry.layer is not None]
        active = self._viewer.layers.selection.active
        own = {str(getattr(active, "unique_id", "")), "" if active is None else image_id_of(active)}
        chosen = (entry for entry in shown if str(entry.layer.unique_id) in own)
        return next(chosen, shown[-1] if shown else None)

    def stage(self, entry: Entry) -> Stage:
        """Return how far the work on an image is."""
        if entry.results:
            return "exported"
        kinds = {layer.kind for layer in entry.layers}
        if entry.layer is not None:
            shown = [one for one in layers_of(self._viewer, entry.layer) if one.data.any()]
            kinds |= {"strokes" if is_strokes(one) else "labels" for one in shown}
        return "labelled" if "labels" in kinds else "taught" if kinds else "untouched"

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
                    self._put_away(other)
            notes = self._open(entry) if entry.layer is None else []
            entry.layer.visible = True
            self._viewer.layers.selection.active = self.strokes(entry) or entry.layer
        self.changed.emit()
        return "\n".join(notes)

    def strokes(self, entry: Entry) -> Any:
        """Return the topmost strokes on an image on screen, or None."""
        own = [] if entry.layer is None else layers_of(self._viewer, entry.layer)
        return next((one for one in reversed(own) if is_strokes(one)), None)

    def close_all(self) -> None:
        """Put all images away and begin an empty project."""
        with self._own_change():
            for entry in self.entries:
                self._put_away(entry)
        self.entries, self.recipes, self.dictionaries = [], {}, {}
        self._encoded.clear()
        self.changed.emit()

    def take_project(self, project: Project, found: Sequence[FoundFile]) -> None:
        """Begin a project that was loaded, with its images where they were found."""
        self.close_all()
        self.recipes, self.dictionaries = dict(project.recipes), dict(project.dictionaries)
        for image, one in zip(project.images, found, strict=True):
            path = one.path or image.file.path
            entry = Entry(path.name, path, None, image.layers, image.results, image.reader)
            entry.file, entry.state = replace(image.file, path=path), one.state
            self.entries.append(entry)
        self.changed.emit()

    def take_found(self, entries: Sequence[Entry], found: Sequence[FoundFile]) -> None:
        """Take images that were missing from where they were found."""
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

    def snapshot(self, docks: Docks, dictionaries: Sequence[Path]) -> Build:
        """Return what makes the project as it is now, in another thread, to be saved at a path.

        Without dictionaries those that the project had stay in it.
        """
        parts = []
        for entry in self.entries:
            layers: Sequence[PendingLayer] = ()
            if entry.layer is not None:
                layers = [pending(one) for one in layers_of(self._viewer, entry.layer)]
            parts.append((entry, entry.layers, layers))
        current = None if self.current is None else self.entries.index(self.current)
        recipes, files = dict(self.recipes), dict(self.dictionaries)

        def build(target: Path) -> Project:
            found, images = _Recipes(recipes), []
            for entry, away, layers in parts:
                found.used |= {layer.recipe for layer in away}
                own = (*away, *(one.encode(self._encoded, found.add) for one in layers))
                file = entry.file or self._reference(entry, target)
                images.append(ProjectImage(file, own, entry.results, entry.reader))
            kept, applied = found.kept()
            own_files = {one.name: FileReference.of(one, self.digests) for one in dictionaries}
            return Project(tuple(images), kept, applied, own_files or files, docks, current)

        return build

    def _reference(self, entry: Entry, target: Path) -> FileReference:
        """Return the file of an image; one that is in memory alone is written beside the project.

        For another folder it is written again: a project is moved with what lies beside it.
        """
        if entry.path is not None:
            try:
                entry.file = FileReference.of(entry.path, self.digests)
            except InvalidInput:  # it is gone: what was painted on it is kept all the same
                return FileReference(entry.path, "gone", 0)
            return entry.file
        folder = target.parent / f"{target.stem}_images"
        place = folder, fingerprint(_pixels(entry), None)  # a person may give a layer other pixels
        known = entry.copies.get(place)
        if known is None or not known.path.exists():
            make_folder(folder)
            stem, number = file_stem(entry.name), 1
            while (folder / (name := f"{stem}{f'_{number}' if number > 1 else ''}.npy")).exists():
                number += 1
            with atomic_write(folder / name) as temporary, temporary.open("wb") as stream:
                np.save(stream, _pixels(entry), allow_pickle=False)
            known = entry.copies[place] = FileReference.of(folder / name, self.digests)
        return known

    def pixels_in_memory(self) -> dict[int, Any]:
        """Return the pixels of images that came from no file, by the number of the image."""
        own = [(k, entry) for k, entry in enumerate(self.entries) if entry.path is None]
        return {k: _pixels(one) for k, one in own}

    def take_built(self, project: Project) -> None:
        """Take over the recipes of a project that was built."""
        self.recipes = dict(project.recipes)

    def _put_away(self, entry: Entry) -> None:
        """Take the layers of an image from the viewer, and keep its labels."""
        image, layers = entry.layer, self._viewer.layers
        if image is None or image not in layers:
            return
        self._keep(entry)
        own, known = layers_of(self._viewer, image), str(image.unique_id)
        gone = [one for one in layers if one in own or image_id_of(one) == known or one == image]
        # A file of several channels is several layers.
        gone += [one for one in layers if entry.path is not None and path_of(one) == entry.path]
        for layer in dict.fromkeys(gone):
            layers.remove(layer)

    def _keep(self, entry: Entry) -> None:
        """Keep the labels over an image that is going, and pixels that are in memory alone."""
        image, found = entry.layer, _Recipes(self.recipes)
        own = [pending(one) for one in layers_of(self._viewer, image)]
        entry.layers += tuple(one.encode(self._encoded, found.add) for one in own)
        self.recipes = found.recipes
        entry.memory = image.as_layer_data_tuple() if path_of(image) is None else None
        entry.layer = None

    def _open(self, entry: Entry) -> list[str]:
        """Open an image and show its layers; return what is wrong with those that do not fit."""
        if entry.memory is not None:
            entry.layer = self._viewer.add_layer(Layer.create(*entry.memory))
        else:
            assert entry.path is not None
            entry.layer = _open_file(self._viewer, entry.path, entry.reader)
        return self._show_layers(entry)

    def _show_layers(self, entry: Entry) -> list[str]:
        """Show the layers of an image, but for those that do not fit, which stay in the project."""
        notes, unfit = list[str](), list[ProjectLayer]()
        for kept in entry.layers:
            try:
                layer = show_layer(self._viewer, entry.layer, kept, self.recipes)
                self._follow(layer)
                checksum = fingerprint(layer.data, None)
                self._encoded[str(layer.unique_id)] = (checksum, kept.pixels)
            except SafError as error:
                notes.append(str(error))
                unfit.append(kept)
        entry.layers = tuple(unfit)
        return notes

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
                self._follow(show_layer(self._viewer, entry.layer, made, self.recipes))
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
        if not self._is_own_change:
            self._take(event.value)

    def _take(self, layer: Any) -> None:
        """Take an image that was opened into the project, and watch what is painted on results."""
        if isinstance(layer, Labels):
            self._follow(layer)
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
            entry.layer = layer
            with self._own_change():
                self._show_layers(entry)
        self.changed.emit()

    def _on_removing(self, event: Any) -> None:
        """Keep what lies over an image that a person removes."""
        layer = self._viewer.layers[event.index]
        entry = next((one for one in self.entries if one.layer == layer), None)
        if entry is None or self._is_own_change:
            return
        if self.stage(entry) == "untouched":
            self.entries.remove(entry)
        else:
            self._keep(entry)
        self.changed.emit()

    def _follow(self, layer: Labels) -> None:
        """Note when a person paints on a result."""
        layer.events.paint.connect(_mark_edited)


def _mark_edited(event: Any) -> None:
    entry = metadata_of(event.source)
    if entry:
        entry[EDITED_KEY] = True


def _pixels(entry: Entry) -> NDArray[Any]:
    """Return the pixels of an image that is in memory alone."""
    held = pixels_of(entry.layer) if entry.memory is None else entry.memory[0]
    return np.asarray(held[0] if isinstance(held, list | tuple) else held)


class _Recipes:
    """The recipes of a project while it is put together: those that are the same are one."""

    def __init__(self, known: dict[str, Recipe]) -> None:
        self.recipes, self.used = dict(known), set[str]()
        self._names = {_text(recipe.raw): name for name, recipe in known.items()}

    def add(self, raw: Any) -> str:
        """Return the name of a recipe; empty for what none can repeat."""
        text = _text(raw)
        if text not in self._names:
            try:
                recipe = Recipe.from_plain(raw)
            except (TypeError, ValueError, ArithmeticError):
                return ""
            stem, number = recipe.method.name, 1
            while (name := f"{stem}{f' {number}' if number > 1 else ''}") in self.recipes:
                number += 1
            self.recipes[name] = recipe
            self._names[text] = name
        name = self._names[text]
        self.used.add(name)
        return name

    def kept(self) -> tuple[dict[str, Recipe], str]:
        """Return the recipes that are in use, and which of them labels other images."""
        wanted = self.used | {TAUGHT}
        kept = {name: one for name, one in self.recipes.items() if name in wanted}
        from_strokes = [name for name, one in kept.items() if one.taught is not None]
        return kept, next(iter([TAUGHT] * (TAUGHT in kept) + from_strokes[::-1] + [*kept]), "")


def _text(raw: Any) -> str:
    try:
        return json.dumps(raw, sort_keys=True)
    except (TypeError, ValueError):
        return ""


def _open_file(viewer: napari.Viewer, path: Path, reader: str) -> Any:
    """Open an image as it was opened before; SafError if it cannot be."""
    for plugin in dict.fromkeys([reader, "napari"] if reader else ["napari"]):
        try:
            opened = viewer.open(str(path), plugin=plugin)
        except Exception as error:  # noqa: BLE001 - whatever a reader raises for a damaged file
            _logger.info("%s: %s cannot open it: %s", path, plugin, error)
            continue
        images = [layer for layer in opened if isinstance(layer, Image)]
        if images:
            return images[0]
        for layer in opened:
            viewer.layers.remove(layer)
    image = read_image(path)
    is_rgb = image.channel_axis is not None and image.stated_channel_axis is None
    known = {"scale": image.scale, "units": image.units}
    options = {key: value for key, value in known.items() if value is not None}
    return viewer.add_image(image.array, name=mask_stem(path), rgb=is_rgb, **options)
