"""The Project dock: the images that are worked on, saved with all that was done, one file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import napari
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QFileDialog, QLabel, QMenu

from napari_saf._gui.docks.base import DockBase
from napari_saf._gui.forms.controls import ask_for_path
from napari_saf._gui.forms.layout import create_button, create_row
from napari_saf._gui.layers.masks import large_levels
from napari_saf._gui.project.table import ImageTable
from napari_saf._gui.runs.panel import RUN_KEY, RunPanel
from napari_saf._gui.session.workspace import (
    PROJECT,
    PROJECT_FILTER,
    ask_where_to_save,
    frame_of,
    with_suffix,
)
from napari_saf.errors import SafError, counted
from napari_saf.io import find_images
from napari_saf.methods import stroke_choices
from napari_saf.pipeline import Pipeline
from napari_saf.project import (
    FileReference,
    FoundFile,
    ImageEntry,
    Project,
    ProjectImage,
    ProjectLayer,
    export_all,
    find_files,
    image_tasks,
    is_saved_here_before,
    label_all,
    load_project,
    note_recent,
    recent_projects,
    thumbnail_of,
)

_WIDTH = 380
"""So that the tabs of all docks fit side by side."""
_BUTTONS = {
    "new_project": ("New", "Put all images away and begin an empty project."),
    "open_project": ("Open …", "Open a project: its images, strokes, labels, docks."),
    "save_project": ("Save", "Save all that was done with these images (Ctrl+S in our docks)."),
    "save_as": ("Save as …", "Save the project as another file."),
    "add_images": ("Add …", "Add image files; they are opened when they are gone to."),
    "remove_image": ("Remove", "Take the chosen image out of the project, not from disk."),
    "go_to_previous": ("◂ Previous", "Put this image away and show the one before ({before})."),
    "go_to_next": ("Next ▸", "Put this image away and show the next one ({after})."),
    "label_all": (
        "Label all",
        "Let the strokes on all images teach together, then label every image; what was corrected "
        "by hand is left as it is. Without strokes: by the recipe that labelled an image.",
    ),
    "go_to_uncertain": (
        "Next uncertain",
        "Show the image without strokes whose labels are least certain: strokes there help most. "
        "Then label all anew.",
    ),
    "export_all": ("Export all …", "Write the labels of all images as masks into a folder."),
    "look_in_folder": (
        "Look in folder …",
        "Find all missing images by their content in a folder and those in it.",
    ),
    "find_file": ("Find …", "Say which file the chosen image is."),
    "use_as_it_is": (
        "Use as it is",
        "Put the strokes and labels of the chosen image on it, although its content is another "
        "than when they were made.",
    ),
}
"""Text and help of a button by the method that it calls; keys stand for what is in braces."""
_NEXT_KEY, _PREVIOUS_KEY = "PageDown", "PageUp"


class ProjectWidget(DockBase):
    """The images of a project, one of which is on screen; saved as one file, and on its own."""

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.panel = RunPanel(self, viewer, self.workspace.runs)
        self.status, self.controller = self.panel.status, self.panel.controller
        self.session, self.file = self.workspace.session, self.workspace.file
        self.model = self.session.model
        self.table = ImageTable(self.session)
        self.name = QLabel("" if self.file.path is None else self.file.name, wordWrap=True)
        keys = {"before": _PREVIOUS_KEY, "after": _NEXT_KEY}
        self.buttons = {
            name: create_button(text, help.format(**keys), getattr(self, name))
            for name, (text, help) in _BUTTONS.items()
        }
        self.recent = create_button("Recent", "Projects that were opened or saved last.")
        self.recent.setMenu(QMenu(self.recent))
        self._refreshing = QTimer(self, singleShot=True, interval=0)
        self._lay_out_controls()
        self.bind_keys(
            {
                RUN_KEY: self.panel.run_or_stop,
                _NEXT_KEY: self.go_to_next,
                _PREVIOUS_KEY: self.go_to_previous,
            }
        )
        self.at_end(self.panel.shut_down)
        self.connect_all(
            (self.panel.busy_changed, self._refresh),
            (self.recent.menu().aboutToShow, self._list_recent),
            (self.workspace.autosaved, self._on_autosaved),
            (self._refreshing.timeout, self.refresh),
            (self.session.changed, self._refreshing.start),
            (self.session.noted, self.panel.note),
            (viewer.layers.selection.events.active, self._on_selected),
            (viewer.layers.events.inserted, self._on_selected),
            (viewer.layers.events.removed, self._on_selected),
            (self.table.double_clicked, self.go_to),
            (self.table.selectionModel().selectionChanged, self._refresh),
        )
        self.refresh()

    def _lay_out_controls(self) -> None:
        def row(*names: str) -> Any:
            return create_row(*(self.buttons[name] for name in names))

        self.missing = row("look_in_folder", "find_file", "use_as_it_is")
        files = create_row(*(self.buttons[n] for n in ("new_project", "open_project")), self.recent)
        parts = [
            files,
            row("save_project", "save_as"),
            self.name,
            self.table,
            self.missing,
            row("add_images", "remove_image"),
            row("go_to_previous", "go_to_next", "go_to_uncertain"),
        ]
        work = [self.buttons["label_all"], self.buttons["export_all"], self.panel.stop_button]
        self.lay_out(parts, work, [self.status])
        self.table.setMinimumHeight(self.table.height_of(5))
        self.setMinimumWidth(_WIDTH)

    # The file

    def new_project(self) -> None:
        if self.workspace.may_close():
            self.session.close_all()
            self.file.begin(None)
            self.panel.clear()
            self.name.setText("")

    def open_project(self) -> None:
        ask_for_path(self, "Open project", str(Path.cwd()), PROJECT_FILTER, self.load, opens=True)

    def load(self, path: str | Path, *, is_recovered: bool = False) -> None:
        if not self.workspace.may_close():
            return
        target = Path(path)

        def read(report: object, cancelled: Callable[[], bool]) -> Any:
            project = load_project(target)
            options: dict[str, Any] = {"cancelled": cancelled}
            options["is_trusted"] = is_saved_here_before(target)
            dictionaries = project.find_dictionaries(**options)
            images = project.find_images(digest=self.model.digests, **options)
            stores = [_find_stores(image, project.home, **options) for image in project.images]
            paths = [file.path for file in dictionaries.values() if file.state == "found"]
            return project, images, stores, paths

        self.panel.begin_task(
            f"opening {target.name}", read, partial(self._show, target, is_recovered)
        )

    def _show(
        self,
        path: Path,
        is_recovered: bool,
        loaded: tuple[Project, list[FoundFile], list[list[Path]], list[Path]],
    ) -> None:
        project, images, stores, dictionaries = loaded
        self.panel.clear()
        self.session.close_all()
        self.model.load(project, images, stores)
        if is_recovered:
            saved = project.docks.get(PROJECT, {}).get("path")
            self.file.begin(Path(saved) if isinstance(saved, str) and saved else None)
            self.model.load_copies(path.with_name(f"{path.stem}_images"))
        else:
            self.file.begin(path, project)
            with suppress(SafError):
                note_recent(path, is_saved_here=False)
        self._open_docks(project)
        entries = self.model.entries
        openable = [entry for entry in entries if entry.state == "found"]
        current = None if project.current is None else entries[project.current]
        note = self.go_to(current if current in openable else openable[0]) if openable else ""
        for title, dock in self.workspace.docks.items():
            if title in project.docks and dock is not self:
                dock.show_values(project.docks[title])
        docks = [dock for dock in self.workspace.docks.values() if hasattr(dock, "atoms")]
        for dock, file in zip(docks, dictionaries, strict=False):
            dock.load(file)
        if is_recovered:
            self.file.autosave(self.workspace.state())  # before the one of the crash is removed
            self.workspace.remove_recoverable(path)
        self.name.setText("" if self.file.path is None else self.file.name)
        words = ""
        if is_recovered:
            self._on_autosaved(True)
            layers = sum(len(image.layers) for image in project.images)
            parts = counted(len(entries), "image"), counted(layers, "layer")
            words = f"recovered {' with '.join(parts)}: save the project to keep them"
        lines = [words, note, self._missing_note]
        self.panel.note("\n".join(filter(None, lines)))

    def save_project(self) -> None:
        """Save the project, where it was saved before, else where a person says."""
        if self.file.path is None:
            self.save_as()
        else:
            self.save_to(self.file.path)

    def save_as(self) -> None:
        path = ask_where_to_save(self, self.file.path)
        if path is not None:
            self.save_to(path)

    def save_to(self, path: str | Path) -> None:
        target, state = with_suffix(Path(path)), self.workspace.state()
        self.panel.hint(f"saving {target.name} …")

        def write(cancelled: object) -> Project:
            return self.file.save(state, target)

        self.panel.background.run("save", write, self._on_saved)

    def _on_saved(self, project: Project) -> None:
        self.model.recipes = dict(project.recipes)
        self.name.setText(f"{self.file.name}, saved {datetime.now():%H:%M}")
        self.panel.note(f"saved {counted(len(project.images), 'image')}")

    def _on_autosaved(self, is_unsaved: bool) -> None:
        if is_unsaved:
            self.name.setText(f"{self.file.name}: not saved")

    def _open_docks(self, project: Project) -> None:
        for title in project.docks if hasattr(self._viewer, "window") else ():
            if title not in (PROJECT, *self.workspace.docks):
                with suppress(ValueError, KeyError):  # of another version
                    # Above one another they would make the window higher than the screen.
                    self._viewer.window.add_plugin_dock_widget("napari-saf", title, tabify=True)
        frame = frame_of(self)
        if frame is not None:
            frame.raise_()

    def _list_recent(self) -> None:
        menu = self.recent.menu()
        menu.clear()
        for path in recent_projects():
            menu.addAction(str(path)).triggered.connect(lambda on=False, path=path: self.load(path))
        if menu.isEmpty():
            menu.addAction("none yet").setEnabled(False)

    # The images

    def refresh(self) -> None:
        """Show the images as they are now; pictures of those not on screen come by and by."""
        self.table.refresh()
        waiting = self.table.missing_pictures()
        if waiting and not self.panel.background.is_running("picture"):
            entry = waiting[0]
            make = partial(thumbnail_of, entry.path)
            self.panel.background.run("picture", make, partial(self._show_picture, entry))
        self._refresh()

    def _show_picture(self, entry: ImageEntry, pixels: Any) -> None:
        entry.picture = pixels
        self.refresh()

    def _on_selected(self, event: object = None) -> None:
        self._refreshing.start()

    def _refresh(self, *changed: object) -> None:
        entries, chosen = self.model.entries, self.table.chosen
        is_free, state = not self.panel.is_busy, "found" if chosen is None else chosen.state
        states = {entry.state for entry in entries}
        is_possible = {
            "remove_image": chosen is not None,
            "go_to_previous": len(entries) > 1,
            "go_to_next": len(entries) > 1,
            "label_all": bool(entries),
            "go_to_uncertain": bool(self.session.uncertain()),
            "export_all": bool(entries),
            "open_project": True,
            "new_project": True,
            "look_in_folder": True,
            "find_file": state != "found",
            "use_as_it_is": state == "changed",
        }
        for name in is_possible:
            self.buttons[name].setEnabled(is_free and is_possible[name])
        self.missing.setVisible(bool(states - {"found"}))
        self.buttons["use_as_it_is"].setVisible("changed" in states)

    def add_images(self) -> None:
        paths, _ = QFileDialog.getOpenFileNames(self, "Add images", str(Path.cwd()))
        self.add_files([Path(path) for path in paths])

    def add_files(self, paths: list[Path]) -> None:
        with self.panel.showing_errors():
            self.model.add_files(find_images(paths) if paths else [])
            if self.session.current is None and self.model.entries:
                self.go_to(self.model.entries[0])

    def remove_image(self) -> None:
        if self.table.chosen is not None:
            self.model.remove(self.table.chosen)

    def go_to(self, entry: ImageEntry) -> str:
        """Show an image; return, and show, what could not be shown of it."""
        note = ""
        with self.panel.showing_errors():
            note = self.session.go_to(entry)
            self.panel.note(note)
        self.table.refresh()
        self.table.choose(entry)
        return note

    def go_to_next(self) -> None:
        self._step(1, self.table.entries)

    def go_to_previous(self) -> None:
        self._step(-1, self.table.entries)

    def go_to_uncertain(self) -> None:
        self._step(1, self.session.uncertain())

    def _step(self, n_rows: int, entries: list[ImageEntry]) -> None:
        """Go to the next image that is at hand, around the ends of the list."""
        openable = [entry for entry in entries if entry.state == "found"]
        current = self.session.current
        if openable and not self.panel.is_busy:
            index = openable.index(current) + n_rows if current in openable else 0
            self.go_to(openable[index % len(openable)])

    # Images that are not found

    @property
    def _missing_note(self) -> str:
        """How many images are missing, or have changed; empty where none is."""
        lines = []
        for state in ("missing", "changed"):
            n = sum(entry.state == state for entry in self.model.entries)
            if n:
                lines.append(f"{n} {'image is' if n == 1 else 'images are'} {state}")
        return "\n".join(lines)

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

        self.panel.begin_task("looking for images", look, partial(self._relocate, entries))

    def find_file(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Find image", str(Path.cwd()))
        if path and self.table.chosen is not None:
            self.take_file(self.table.chosen, Path(path))

    def take_file(self, entry: ImageEntry, path: Path) -> None:
        """Take a file for an image that is missing; one of other content is a changed one."""
        with self.panel.showing_errors():
            now = FileReference.of(path, self.model.digests)
            is_same = entry.file is not None and now.digest == entry.file.digest
            self._relocate([entry], [FoundFile(now.path, "found" if is_same else "changed")])

    def use_as_it_is(self) -> None:
        if self.table.chosen is not None:
            self.model.accept(self.table.chosen)
            self._relocate([], [])

    def _relocate(self, entries: list[ImageEntry], files: list[FoundFile]) -> None:
        self.model.relocate(entries, files)
        openable = [entry for entry in self.model.entries if entry.state == "found"]
        if self.session.current is None and openable:
            self.go_to(openable[0])
        self.panel.note(self._missing_note or "all images are found")

    # All images

    def label_all(self) -> None:
        with self.panel.showing_errors():
            self._work_on_all("labelled", partial(label_all, *self._stroke_settings()))

    def _stroke_settings(self) -> Any:
        """Return how strokes label: as an open dock says, else as the Scribbles dock begins."""
        scribbles, default = self.workspace.docks.get("Scribbles"), stroke_choices()["object"]
        return (default.method, default.options) if scribbles is None else scribbles.settings()

    def export_all(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, "Export masks to")
        if folder:
            self.export_to(Path(folder))

    def export_to(self, folder: Path) -> None:
        self._work_on_all("exported", partial(export_all, folder))

    def _work_on_all(self, done: str, work: Callable[..., tuple[int, list[str]]]) -> None:
        """Start `work(tasks, project, report, cancelled)` on all images as they are now."""
        state, entries = self.workspace.state(), list(self.model.entries)
        pixels = self.model.pixels_in_memory()

        def begin(report: object, cancelled: Callable[[], bool]) -> tuple[int, list[str]]:
            project = state.build(None)
            return work(image_tasks(entries, project, pixels), project, report, cancelled)

        shown = partial(self._on_all_done, done)
        self.panel.begin_task("reading the images", begin, shown, self._take_step)

    def _take_step(self, step: tuple[Any, Any]) -> None:
        """Take a text with a fraction, a name with its recipe, or an entry with its new labels."""
        key, value = step
        if isinstance(value, Pipeline):
            self.model.recipes[key] = value
        elif isinstance(value, ProjectLayer):
            with self.panel.showing_errors():
                self.session.replace_layer(key, value)
            self._refreshing.start()
        elif isinstance(value, FileReference):
            self.model.add_results(key, [value])
        else:
            self.panel.show_task((value, key))

    def _on_all_done(self, words: str, outcome: tuple[int, list[str]]) -> None:
        n_done, notes = outcome
        n = len(self.model.entries)
        self.panel.show_outcome("\n".join([f"{n_done} of {n} images {words}", *notes]))
        self.refresh()


def _find_stores(image: ProjectImage, home: Path | None, **options: Any) -> list[Path]:
    """Return the folders of labels of a large image, see `find_files` for the options."""
    files = [file for file in image.results if file.path.suffix == ".zarr"]
    paths = [file.path for file in find_files(files, home, **options)]
    with suppress(SafError):  # a damaged one is none
        return [path for path in paths if path is not None and large_levels(path)]
    return []
