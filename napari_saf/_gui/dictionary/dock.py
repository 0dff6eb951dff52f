"""The Patch dictionary dock: learn, inspect, save and apply dictionaries of patches."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import napari
from napari.layers import Image

from napari_saf._gui.dictionary.atoms import AtomsSection
from napari_saf._gui.dictionary.layers import ColoredDictionary, ResultsSection
from napari_saf._gui.docks.apply import BUSY, ApplyDialog, ApplyRequest, start_applying
from napari_saf._gui.docks.base import DockBase
from napari_saf._gui.forms.choices import Choice, ImageList
from napari_saf._gui.forms.controls import ask_for_path
from napari_saf._gui.forms.display_text import named
from napari_saf._gui.forms.fields import OddSlider
from napari_saf._gui.forms.layout import FormSection, create_fold
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.layers import placement
from napari_saf._gui.layers.live import LiveLayer
from napari_saf._gui.layers.metadata import is_given
from napari_saf._gui.layers.reading import ImageJob
from napari_saf._gui.layers.view import LabelFinder, Place
from napari_saf._gui.runs.panel import RUN_KEY, RUN_KEY_TEXT, RunPanel
from napari_saf._gui.runs.run import Frame, RunJob
from napari_saf.dictionary import (
    DICTIONARY_SUFFIX,
    LearnedDictionary,
    PatchDictionary,
    PatchDictionaryLearning,
    why_no_atoms,
)
from napari_saf.features import FEATURES
from napari_saf.input import PLAIN
from napari_saf.problem import ImageOptions

_MOST_RECENT = 12
_NO_IMAGE = "no image: open an image and tick it first"
_DEFAULT_WINDOW = 3
_APPLY_HELP = "Label other images with the atoms, and rebuild it from them."
_LEARN_HELP = f"Learn atoms from the ticked images, shown as they change ({RUN_KEY_TEXT})."
_CHANNELS_HELP = "The axis of the channels, named as its slider."
_FEATURES_HELP = "The features of which atoms are patches, shown as colours."
_SCALE_HELP = (
    "Side of the window over which labels are averaged: small keeps detail, large smooths."
)
_FILTER = f"Patch dictionaries (*{DICTIONARY_SUFFIX})"


class DictionaryWidget(DockBase):
    """Learns a dictionary of patches from images, shows its atoms, applies it to other images."""

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        run, begin_text = ("Learn", _LEARN_HELP), "reading the images …"
        self.panel = RunPanel(
            self, viewer, self.workspace.runs, run, begin_text=begin_text, unit="atom"
        )
        self.status, self.controller = self.panel.status, self.panel.controller
        self.learn = self.panel.run_button
        self._recent: list[ColoredDictionary] = []
        self._finder = LabelFinder(viewer, self)
        self._add_controls()
        self.bind_keys({RUN_KEY: self.panel.run_or_stop})
        self.at_end(self.panel.shut_down, self.results.release)
        atoms = self.atoms
        self.connect_all(
            (self.panel.run_clicked, self.start),
            (self.panel.busy_changed, self._refresh),
            (self.controller.advanced, self._on_advanced),
            (self.controller.returned, self._on_returned),
            (self.controller.abandoned, self._show_current),
            (self.controller.failed, self._show_current),
            (self.applying.apply_asked, self._apply),
            (self.images.changed, self._offer_channels),
            (self.images.changed, self._refresh),
            (self.images.changed, self.panel.forget),
            (atoms.view.selection_changed, self._on_chosen),
            (atoms.edited, self._on_edited),
            (atoms.edited, self.panel.forget),
            (self._finder.returned, partial(atoms.view.select, ())),
            (atoms.load.clicked, self._on_load_clicked),
            (atoms.save.clicked, self._on_save_clicked),
            (self.results.compare.clicked, self.compare),
            (self.applying.changed, self._refresh),
            (self.applying.image.layer_changed, self.panel.forget),
            (viewer.layers.events.removed, self.results.forget_removed),
        )
        self._offer_channels()
        self._refresh()

    def _add_controls(self) -> None:
        viewer, panel = self._viewer, self.panel
        self.images, self.channels = ImageList(viewer), Choice()
        self.form = MethodForm(viewer, [PatchDictionaryLearning], asks_prototypes=False)
        self.kept_parts = (self.form,)
        extractors = [cls for cls in FEATURES.values() if not why_no_atoms(cls)]
        self.features = Choice([(cls.title, cls.name) for cls in extractors])
        self.scale = OddSlider(_DEFAULT_WINDOW)
        self.atoms, self.results = AtomsSection(), ResultsSection(viewer, panel)
        self.applying = ApplyDialog(
            self, viewer, panel, _APPLY_HELP, is_given, has_brightness=False
        )
        section = self._section = FormSection()
        section.add_row("Learn from", self.images, "Tick one or several images.")
        section.add_row("Channel axis", self.channels, _CHANNELS_HELP)
        section.add_row("Features", self.features, _FEATURES_HELP)
        section.add_row("Scale", self.scale, _SCALE_HELP)
        fold = create_fold("Advanced", self.form.advanced)
        widgets = [section, self.form.basic, fold, self.atoms, self.applying.row, self.results]
        self.lay_out(widgets, [self.learn, panel.stop_button], [self.status])

    @property
    def current(self) -> ColoredDictionary | None:
        return self.atoms.current

    def start(self) -> None:
        images = self.images.chosen()
        if not images:
            self.panel.show_error(_NO_IMAGE)
            return
        with self.panel.showing_errors():
            self.controller.start(self._create_job(images))

    def _create_job(self, images: list[Image]) -> RunJob:
        """Return the learning run; it shows the labels of one image.

        This is the selected image, or else the topmost visible one.
        """
        method, active = self.form.read(), self._viewer.layers.selection.active
        shown = [*images, *(image for image in images if image.visible)][-1]
        if active in images:
            shown = images[images.index(active)]
        hidden = tuple(image for image in images if image != shown)
        job = dataclasses.replace(
            self._image_job(shown), extra_jobs=tuple(map(self._image_job, hidden))
        )
        placement = self._region(shown).placement
        live = LiveLayer(self._viewer, shown, "dictionary", placement)
        return RunJob(shown, job, method, placement, live=live, extra_images=hidden)

    def _image_job(self, image: Image) -> ImageJob:
        region = self._region(image)
        window, axis = self.scale.value, region.channel_axis_read
        assert window is not None
        plain = PLAIN | {"features": self.features.value}
        return ImageJob(region.pixels, ImageOptions(window=window, channel_axis=axis, **plain))

    def _region(self, image: Image) -> placement.ImageRegion:
        """Return the displayed slice with all channels.

        The channel axis is negative, counted from the end, as napari aligns layers by their last
        axes.
        """
        axis = self.channels.value
        may_have_channels = axis is not None and image.ndim > 2 and not image.rgb
        region = placement.ImageRegion(image, image.ndim + axis if may_have_channels else None, {})
        fixed = placement.slice_on_screen(self._viewer, image, region.axes)
        return dataclasses.replace(region, fixed=fixed)

    def _offer_channels(self) -> None:
        chosen = self.channels.value
        images = self.images.chosen()
        axes_of = partial(placement.channel_axes, self._viewer)
        axes = max(map(axes_of, images), key=len, default=[])
        self.channels.offer([("none", None), *((text, axis - len(axes)) for text, axis in axes)])
        self.channels.choose(chosen)
        self._section.show_row(self.channels, bool(axes))

    def _on_advanced(self, frame: Frame) -> None:
        run = self.controller.run
        if run is None or run.problem is None:
            return
        shown = ColoredDictionary.in_progress(run, frame)
        if shown is not None:
            self.atoms.show_live(shown)

    def _on_returned(self, result: LearnedDictionary) -> None:
        run = self.controller.run
        assert run is not None
        new, live = ColoredDictionary.learned(run, result), run.live
        if live.layer is not None and not live.is_lost:
            self.results.atom_labels.add(live.layer, run.job.image, new)
        self._show_new(new)

    def _show_current(self, error: Exception | None = None) -> None:
        """Restore the current dictionary after a run without a result."""
        self.atoms.show_dictionary(self.current)

    def load(self, path: str | Path) -> None:
        path = Path(path)

        def show(dictionary: PatchDictionary) -> None:
            new, self.dictionary_file = ColoredDictionary.of(dictionary), path
            self.scale.set_value(dictionary.window)
            self.features.choose(dictionary.features)
            self._show_new(new)
            self.panel.show_outcome(f"{path.name}: {new.description}")

        self.panel.begin_task(
            f"opening {path.name}", lambda report, stop: PatchDictionary.load(path), show
        )

    def save(self, path: str | Path) -> None:
        path, current = Path(path).with_suffix(DICTIONARY_SUFFIX), self.current
        if current is None:
            return

        def show(saved: object) -> None:
            if self.current is current:
                self.dictionary_file = path
            self.panel.show_outcome(f"saved {named(path)}")

        self.panel.begin_task(
            f"saving {path.name}", lambda report, stop: current.dictionary.save(path), show
        )

    def _on_load_clicked(self) -> None:
        start = str(placement.image_folder(self._viewer))
        ask_for_path(self, "Open a dictionary", start, _FILTER, self.load, opens=True)

    def _on_save_clicked(self) -> None:
        assert self.current is not None  # else the button is disabled
        start = str(placement.image_folder(self._viewer) / self.current.file_name)
        ask_for_path(self, "Save the dictionary", start, _FILTER, self.save)

    def _show_new(self, new: ColoredDictionary) -> None:
        self.results.atom_labels.highlight(())
        self.atoms.begin(new)
        self._on_edited(new)

    def _on_edited(self, edited: ColoredDictionary) -> None:
        if edited not in self._recent:
            self._recent = [*self._recent, edited][-_MOST_RECENT:]
        earlier = [shown for shown in reversed(self._recent) if shown is not edited]
        self.results.offer_others(earlier)
        self.panel.background.run(
            "map",
            lambda stop: edited.dictionary.embedding(),
            partial(self.atoms.view.set_embedding, edited.atom_ids),
        )
        self._refresh()

    def _on_chosen(self, atom_ids: frozenset[int]) -> None:
        """Highlight where atoms are used; bring a single one into view."""
        self.results.atom_labels.highlight(atom_ids)
        if len(atom_ids) != 1:
            return
        used = self.results.atom_labels.find(*atom_ids)
        if used is None:
            self.panel.note("apply the dictionary to an image to see where its atoms are used")
            return
        layer, label = used
        self.results.show_labels(layer)

        def go(center: Place | None) -> None:
            if center is None:
                self.panel.note(f"{layer.name}: this atom is not used here")
            self._finder.go(layer, center)

        self.panel.background.run("centre", self._finder.searcher(layer, label), go)

    def _options(self) -> dict[str, Any]:
        return {
            "window": self.scale.value,
            "reconstruction": self.results.reconstruction.value,
            "device": str(self.form.values().get("device", "auto")),
        }

    def _apply(self, request: ApplyRequest) -> None:
        if request.is_of_files and self.current is not None:
            dictionary, options = self.current.dictionary, self._options()
            with self.panel.showing_errors():
                start_applying(self.panel, self._viewer, request, dictionary, dictionary=options)
        else:
            self._apply_to(request.image)

    def compare(self) -> None:
        self._apply_to(self.applying.layer, self.results.other.value)

    def _apply_to(self, target: Image | None, second: ColoredDictionary | None = None) -> None:
        """Apply the current dictionary to an image, compared with a second one if given."""
        if target is not None and self.current is not None and not self.panel.is_busy:
            shown = [self.current] if second is None else [self.current, second]
            self.results.apply(self._region(target), shown, self._options())

    def _refresh(self, *changed: object) -> None:
        self.panel.set_reason(
            "" if self.images.chosen() else _NO_IMAGE, is_free=self.panel.task is None
        )
        self.atoms.set_enabled(not self.panel.is_busy)
        none = "learn or load a dictionary first" if self.current is None else ""
        why_not = BUSY if self.panel.is_busy else none
        self.applying.update_enabled(why_not)
        may_compare = not why_not and self.applying.layer is not None
        self.results.compare.setEnabled(may_compare and self.results.other.value is not None)
