"""The Project dock: a set of images with strokes, labels and recipes, saved in one file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import napari
from qtpy.QtWidgets import QFileDialog, QLabel, QMenu

from napari_saf import project as projects
from napari_saf._gui.docks.base import DockBase
from napari_saf._gui.forms.controls import ask_for_path
from napari_saf._gui.forms.display_text import named
from napari_saf._gui.forms.layout import create_button, create_row, enable
from napari_saf._gui.layers.large import large_levels
from napari_saf._gui.layers.placement import image_folder
from napari_saf._gui.project.images import NEXT_KEY, PREVIOUS_KEY, ImagesSection
from napari_saf._gui.runs.panel import RUN_KEY, RunPanel
from napari_saf._gui.session import workspace as sessions
from napari_saf._gui.session.workspace import PROJECT, PROJECT_FILTER, with_suffix
from napari_saf.errors import SafError, counted
from napari_saf.methods import stroke_choices
from napari_saf.pipeline import Pipeline
from napari_saf.project import FoundFile, Project, ProjectImage, ProjectLayer

_WIDTH = 380
"""Minimal width in pixels at which the tabs of all docks fit in one row."""
_EXPORT_HELP = "Write the labels of all images as masks into a folder."
_NO_LABELS = "no image has labels: press Label all, or run Segment or Scribbles"
_BUTTONS = {
    "new_project": ("New", "Close all images and start an empty project."),
    "open_project": ("Open …", "Open a project: its images, strokes, labels, docks."),
    "save_project": ("Save", "Save images, strokes, labels and docks (Ctrl+S in these docks)."),
    "save_as": ("Save as …", "Save the project as another file."),
    "label_all": (
        "Label all",
        "Learn from the strokes on all images, then label every image; labels corrected by hand "
        "are kept. Without strokes, the recipe of a labelled image is applied.",
    ),
    "export_all": ("Export all …", _EXPORT_HELP),
}
"""Text and tooltip of each button by the name of the method that it calls."""


class ProjectWidget(DockBase):
    """The images of a project, one of them on screen; saved as a file and autosaved."""

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.panel = RunPanel(self, viewer, self.workspace.runs)
        self.status, self.controller = self.panel.status, self.panel.controller
        self.session, self.file = self.workspace.session, self.workspace.file
        self.model = self.session.model
        self.images = ImagesSection(self.session, self.panel)
        self.name = QLabel(wordWrap=True)
        self._show_saved()
        files = [create_button(*_BUTTONS[name], getattr(self, name)) for name in _BUTTONS]
        self.buttons = dict(zip(_BUTTONS, files, strict=True)) | self.images.buttons
        self.recent = create_button("Recent", "Recently opened or saved projects.")
        self.recent.setMenu(QMenu(self.recent))
        new, opening, save, save_as, *work = files
        rows = [create_row(new, opening, self.recent), create_row(save, save_as)]
        parts = [*rows, self.name, self.images]
        self.lay_out(parts, [*work, self.panel.stop_button], [self.status])
        self.setMinimumWidth(_WIDTH)
        go_to_next, go_to_previous = self.images.go_to_next, self.images.go_to_previous
        self.bind_keys(
            {RUN_KEY: self.panel.run_or_stop, NEXT_KEY: go_to_next, PREVIOUS_KEY: go_to_previous}
        )
        self.at_end(self.panel.shut_down)
        self.connect_all(
            (self.panel.busy_changed, self._refresh),
            (self.recent.menu().aboutToShow, self._list_recent),
            (self.workspace.autosaved, self._on_autosaved),
            (self.session.noted, self.panel.note),
            (self.session.painted, self._on_painted),
            (self.images.changed, self._refresh),
            (viewer.layers.selection.events.active, self.images.refresh_soon),
            (viewer.layers.events.inserted, self.images.refresh_soon),
            (viewer.layers.events.removed, self.images.refresh_soon),
        )
        self.images.refresh()

    def _on_painted(self) -> None:
        self.panel.forget_error()  # such as of missing strokes
        self.images.refresh_soon()

    def _refresh(self, *changed: object) -> None:
        is_free, has_images = not self.panel.is_busy, bool(self.model.entries)
        self.images.update_enabled(is_free)
        for name in ("new_project", "open_project"):
            self.buttons[name].setEnabled(is_free)
        self.buttons["label_all"].setEnabled(is_free and has_images)
        has_labels = any(map(self.session.has_labels, self.model.entries))
        enable(self.buttons["export_all"], "" if has_labels else _NO_LABELS, _EXPORT_HELP)
        if not is_free:
            self.buttons["export_all"].setEnabled(False)

    # The file

    def new_project(self) -> None:
        if self.workspace.may_close():
            self.session.close_all()
            self.file.begin(None)
            self.panel.clear()
            self.name.setText("")

    def open_project(self) -> None:
        start = str(image_folder(self._viewer))
        ask_for_path(self, "Open project", start, PROJECT_FILTER, self.load, opens=True)

    def load(self, path: str | Path, *, is_recovered: bool = False) -> None:
        if not self.workspace.may_close():
            return
        target = Path(path)

        def read(report: object, cancelled: Callable[[], bool]) -> Any:
            project = projects.load_project(target)
            is_trusted = projects.is_saved_here_before(target)
            find = partial(projects.find_files, is_trusted=is_trusted, cancelled=cancelled)
            dictionaries = project.find_dictionaries(is_trusted=is_trusted, cancelled=cancelled)
            images = project.find_images(
                digest=self.model.digests, is_trusted=is_trusted, cancelled=cancelled
            )
            stores = [_find_stores(image, project.home, find) for image in project.images]
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
                projects.note_recent(path, is_saved_here=False)
        self._open_docks(project)
        note = self._go_to_current(project)
        docks = self.workspace.docks
        for title, dock in docks.items():
            if title in project.docks and dock is not self:
                dock.show_values(project.docks[title])
        readers = [dock for dock in docks.values() if hasattr(dock, "atoms")]
        for dock, file in zip(readers, dictionaries, strict=False):
            dock.load(file)
        words = ""
        if is_recovered:
            self.file.autosave(self.workspace.state())  # before the recovered autosave is removed
            self.workspace.remove_recoverable(path)
            layers = sum(len(image.layers) for image in project.images)
            parts = counted(len(self.model.entries), "image"), counted(layers, "layer")
            words = f"recovered {' with '.join(parts)}: save the project to keep them"
        self._show_saved()
        self._on_autosaved(is_recovered)
        self.panel.note("\n".join(filter(None, [words, note, self.images.missing_note])))

    def _go_to_current(self, project: Project) -> str:
        """Show the image that was on screen, else the first that exists; see `go_to`."""
        openable = [entry for entry in self.model.entries if entry.state == "found"]
        current = None if project.current is None else self.model.entries[project.current]
        if not openable:
            return ""
        return self.images.go_to(current if current in openable else openable[0])

    def save_project(self) -> None:
        """Save the project to its file, or ask for one."""
        if self.file.path is None:
            self.save_as()
        else:
            self.save_to(self.file.path)

    def save_as(self) -> None:
        path = self.workspace.ask_where_to_save(self)
        if path is not None:
            self.save_to(path)

    def save_to(self, path: str | Path) -> None:
        target, state = with_suffix(Path(path)), self.workspace.state()
        self.panel.hint(f"saving {target.name} …")
        self.panel.background.run(
            "save", lambda cancelled: self.file.save(state, target), self._on_saved
        )

    def _on_saved(self, project: Project) -> None:
        self.model.recipes = dict(project.recipes)
        self._show_saved()
        images = counted(len(project.images), "image")
        assert self.file.path is not None
        self.panel.note(f"saved {images} as {named(self.file.path)}")

    def _show_saved(self) -> None:
        path = self.file.path
        text = "" if path is None else self.file.name
        if path is not None and path.exists():
            text += f", saved {datetime.fromtimestamp(path.stat().st_mtime):%Y-%m-%d %H:%M}"
        self.name.setText(text)

    def _on_autosaved(self, is_unsaved: bool) -> None:
        self.images.refresh_soon()
        if is_unsaved:
            self.name.setText(f"{self.file.name}: not saved")

    def _open_docks(self, project: Project) -> None:
        for title in project.docks if hasattr(self._viewer, "window") else ():
            if title not in (PROJECT, *self.workspace.docks):
                with suppress(ValueError, KeyError):  # a dock of another version
                    # Stacked docks would make the window higher than the screen.
                    self._viewer.window.add_plugin_dock_widget("napari-saf", title, tabify=True)
        frame = sessions.frame_of(self)
        if frame is not None:
            frame.raise_()

    def _list_recent(self) -> None:
        menu = self.recent.menu()
        menu.clear()
        for path in projects.recent_projects():
            menu.addAction(str(path)).triggered.connect(lambda on=False, path=path: self.load(path))
        if menu.isEmpty():
            menu.addAction("none yet").setEnabled(False)

    # All images

    def label_all(self) -> None:
        with self.panel.showing_errors():
            self._work_on_all("labelled", partial(projects.label_all, *self._stroke_settings()))

    def _stroke_settings(self) -> Any:
        """Return the settings of the open Scribbles dock, or its defaults."""
        scribbles, default = self.workspace.docks.get("Scribbles"), stroke_choices()["object"]
        return (default.method, default.options) if scribbles is None else scribbles.settings()

    def export_all(self) -> None:
        start = str(image_folder(self._viewer))
        folder = QFileDialog.getExistingDirectory(self, "Export masks to", start)
        if folder:
            self.export_to(Path(folder))

    def export_to(self, folder: Path) -> None:
        self._work_on_all(f"exported to {folder.name}", partial(projects.export_all, folder))

    def _work_on_all(self, done: str, work: Callable[..., tuple[int, list[str]]]) -> None:
        """Start `work(tasks, project, report, cancelled)` on a snapshot of all images."""
        state, entries = self.workspace.state(), list(self.model.entries)
        pixels = self.model.pixels_in_memory()

        def begin(report: object, cancelled: Callable[[], bool]) -> tuple[int, list[str]]:
            project = state.build(None)
            tasks = projects.image_tasks(entries, project, pixels)
            return work(tasks, project, report, cancelled)

        def show(outcome: tuple[int, list[str]]) -> None:
            n_done, notes = outcome
            text = f"{n_done} of {len(self.model.entries)} images {done}"
            self.panel.show_outcome("\n".join([text, *notes]))
            self.images.refresh()
            self.workspace.autosave_soon()

        self.panel.begin_task("reading the images", begin, show, self._take_step)

    def _take_step(self, step: tuple[Any, Any]) -> None:
        """Handle progress (text, fraction), a recipe with its name, new labels, or an export."""
        key, value = step
        if isinstance(value, Pipeline):
            self.model.recipes[key] = value
        elif isinstance(value, ProjectLayer):
            with self.panel.showing_errors():
                self.session.replace_layer(key, value)
            self.images.refresh_soon()
        elif isinstance(value, tuple):
            self.model.add_results(key, [value[0]], value[1])
        else:
            self.panel.show_task((value, key))


def _find_stores(
    image: ProjectImage, home: Path | None, find: Callable[..., list[FoundFile]]
) -> list[Path]:
    """Return the label folders of a large image; `find` is as in `find_files`."""
    files = find([file for file in image.results if file.path.suffix == ".zarr"], home)
    with suppress(SafError):  # damaged folders are skipped
        return [file.path for file in files if file.path is not None and large_levels(file.path)]
    return []
