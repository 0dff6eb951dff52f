"""The Patch dictionary dock: learn atoms, look at them, keep them, apply them."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Layer
from qtpy.QtWidgets import QComboBox, QFileDialog, QPushButton, QSizePolicy

from napari_saf._gui.dictionary.applied import (
    Applied,
    Compared,
    How,
    apply_to_plane,
    compare_on_plane,
    create_difference_layer,
    create_gain_layer,
    create_partition_layer,
    create_reconstruction_layer,
)
from napari_saf._gui.dictionary.apply_section import ApplySection
from napari_saf._gui.dictionary.atoms_section import AtomsSection
from napari_saf._gui.dictionary.edition import Edition, describe_dictionary
from napari_saf._gui.dictionary.folder import FolderSummary, apply_to_folder
from napari_saf._gui.dictionary.partitions import Partition, Partitions
from napari_saf._gui.docks.run_dock import STATUS_WORDS, RunDock
from napari_saf._gui.forms.layer_choice import ImageList
from napari_saf._gui.forms.layout import FormSection, create_fold
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.forms.scale import OddSlider
from napari_saf._gui.layers.live import LiveLayer
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.layers.placement import Plane, channel_axes, pixels_of, plane_of
from napari_saf._gui.layers.reading import ImageJob
from napari_saf._gui.layers.view import center_on, deepest_pixel
from napari_saf._gui.runs.controller import RunJob
from napari_saf._gui.runs.run import Frame
from napari_saf.dictionary import (
    DICTIONARY_SUFFIX,
    LearnedDictionary,
    PatchDictionary,
    PatchDictionaryLearning,
)
from napari_saf.errors import SafError
from napari_saf.problem import ImageOptions

__all__ = ["DictionaryWidget"]

_MOST_KNOWN = 12
_DEFAULT_WINDOW = 3
_FILTER = f"Patch dictionaries (*{DICTIONARY_SUFFIX})"
_NO_IMAGE = "no image: open an image and tick it first"


class DictionaryWidget(RunDock):
    """Learn a dictionary of patches from images; look at its atoms; apply it to other images.

    Parameters
    ----------
    viewer : napari.Viewer

    Attributes
    ----------
    images : ImageList
        What to learn from.
    form : MethodForm
    scale : OddSlider
    atoms : AtomsSection
    applying : ApplySection
    """

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self._known: list[Edition] = []
        self._names: tuple[str, ...] = ()
        self._task_layer: Image | None = None
        self.images = ImageList(viewer)
        self.form = MethodForm(PatchDictionaryLearning, viewer, asks_prototypes=False)
        self.scale = OddSlider(_DEFAULT_WINDOW)
        self.atoms = AtomsSection()
        self.applying = ApplySection(viewer, _is_image)
        self.partitions = Partitions(viewer)
        self._learn = QPushButton("Learn")
        self._learn.setToolTip(
            "Learn atoms from the ticked images; what is learned is shown live "
            f"({self._key_of('run_or_stop')})."
        )
        self._channels = QComboBox()
        self._channels.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._create_layout()
        self._connect()
        self._offer_channels()
        self._update_enabled()

    @property
    def edition(self) -> Edition | None:
        """The dictionary on screen, with the colours of its atoms."""
        return self.atoms.edition

    def start(self) -> None:
        """Learn a dictionary from the ticked images."""
        images = self.images.chosen()
        if not images:
            self._show_error(_NO_IMAGE)
            return
        try:
            self.controller.start(self._request(images))
        except SafError as error:
            self._show_error(str(error))

    def apply(self) -> None:
        """Apply the dictionary to the chosen image."""
        target, edition = self.applying.target.layer, self.edition
        if target is None or edition is None or self.is_busy:
            return
        plane, data, how = self._plane(target), pixels_of(target), self._how()
        self._task_layer = target
        self.begin_task(
            f"applying to {target.name}",
            lambda report, cancelled: apply_to_plane(
                edition.dictionary, plane, data, how, cancelled
            ),
            partial(self._on_applied, plane, edition),
        )

    def compare(self) -> None:
        """Compare the dictionary with another one on the chosen image."""
        target, edition, other = self.applying.target.layer, self.edition, self.applying.other
        if target is None or edition is None or other is None or self.is_busy:
            return
        plane, data, how = self._plane(target), pixels_of(target), self._how()
        self._task_layer = target
        self.begin_task(
            f"comparing on {target.name}",
            lambda report, cancelled: compare_on_plane(
                edition.dictionary, other.dictionary, plane, data, how, cancelled
            ),
            partial(self._on_compared, plane),
        )

    def apply_to_folder(self) -> None:
        """Apply the dictionary to all images of a folder."""
        source, results, edition = (
            self.applying.source.path,
            self.applying.results.path,
            self.edition,
        )
        if source is None or results is None or edition is None:
            return
        how, overwrite = self._how(), self.applying.overwrites
        self.begin_task(
            "looking for images",
            lambda report, cancelled: apply_to_folder(
                edition.dictionary, source, results, how, overwrite, report, cancelled
            ),
            self._on_folder_done,
            self._on_folder_advanced,
        )

    def load(self, path: Path) -> None:
        """Show the dictionary of a file."""
        self.begin_task(
            f"opening {path.name}",
            lambda report, cancelled: PatchDictionary.load(path),
            partial(self._on_loaded, path),
        )

    def save(self, path: Path) -> None:
        """Save the dictionary on screen."""
        edition = self.edition
        if edition is not None:
            self.begin_task(
                f"saving {path.name}",
                lambda report, cancelled: edition.dictionary.save(path),
                lambda _: self.status.show_progress(1.0, f"saved as {path.name}"),
            )

    def _release(self) -> None:
        self._viewer.layers.events.removed.disconnect(self._on_layer_removed)
        self.images.disconnect_viewer()
        self.form.release()
        self.applying.release()
        self.partitions.release()

    def _create_layout(self) -> None:
        section = self._section = FormSection()
        section.add_row("Learn from", self.images, "Tick one or several images.")
        section.add_row(
            "Channel axis", self._channels, "The axis that holds channels; named as its slider is."
        )
        section.add_row(
            "Scale",
            self.scale,
            "Side of the window over which labels are averaged: small keeps detail, large smooths.",
        )
        self._lay_out(
            [
                section,
                self.form.basic,
                create_fold("Advanced", self.form.advanced),
                self.atoms,
                self.applying,
            ],
            [self._learn, self._stop_button],
            [],
        )

    def _connect(self) -> None:
        self._learn.clicked.connect(self.start)
        self.images.changed.connect(self._offer_channels)
        self.atoms.chosen_changed.connect(self._on_chosen)
        self.atoms.edited.connect(self._on_edited)
        self.atoms.load_clicked.connect(self._on_load_clicked)
        self.atoms.save_clicked.connect(self._on_save_clicked)
        self.applying.apply_clicked.connect(self.apply)
        self.applying.compare_clicked.connect(self.compare)
        self.applying.folder_clicked.connect(self.apply_to_folder)
        self.applying.target.layer_changed.connect(self._update_enabled)
        for field in (self.applying.source, self.applying.results):
            field.changed.connect(self._update_enabled)
        self._viewer.layers.events.removed.connect(self._on_layer_removed)

    def _request(self, images: list[Image]) -> RunJob:
        """Return the request to learn; of several images one shows the labels."""
        method = self.form.read()
        shown = self._shown_of(images)
        others = tuple(image for image in images if image != shown)
        job = dataclasses.replace(
            self._job(shown), others=tuple(self._job(image) for image in others)
        )
        self._names = tuple(image.name for image in (*others, shown))
        placement = self._plane(shown).placement
        live = LiveLayer(self._viewer, shown, "dictionary", placement)
        return RunJob(shown, job, method, placement, live=live, others=others)

    def _shown_of(self, images: list[Image]) -> Image:
        """Return the image that is selected, or else the topmost one in sight."""
        active = self._viewer.layers.selection.active
        if active in images:
            return images[images.index(active)]
        return [*images, *(image for image in images if image.visible)][-1]

    def _job(self, image: Image) -> ImageJob:
        plane = self._plane(image)
        options = ImageOptions(window=self.scale.value, channel_axis=plane.channel_axis)
        return ImageJob(data=pixels_of(image), index=plane.index, options=options)

    def _plane(self, image: Image) -> Plane:
        return plane_of(self._viewer, image, self._channels.currentData())

    def _how(self) -> How:
        device = str(self.form.values().get("device", "auto"))
        return How(self.scale.value, self.applying.reconstruction, device)

    def _offer_channels(self) -> None:
        """Ask for the axis of the channels where an image may have one."""
        before = self._channels.currentData()
        axes = max(map(channel_axes, self.images.chosen()), key=len, default=[])
        self._channels.clear()
        self._channels.addItem("none", None)
        for words, axis in axes:
            self._channels.addItem(words, axis - len(axes))
        self._channels.setCurrentIndex(max(0, self._channels.findData(before)))
        self._section.show_row(self._channels, bool(axes))

    def choose_channels(self, axis: int | None) -> None:
        """Choose the axis of the channels, counted from the end."""
        self._channels.setCurrentIndex(self._channels.findData(axis))

    def _on_began(self) -> None:
        super()._on_began()
        self.status.reset("reading the images …")

    def _on_advanced(self, frame: Frame) -> None:
        super()._on_advanced(frame)
        request, live, problem = self.controller.job, self.controller.live, self.controller.problem
        if request is None or live is None or problem is None:
            return
        assert isinstance(request.method, PatchDictionaryLearning)
        side, n_columns = request.method.patch_size, len(frame.shares)
        colors = np.array([live.color(column) for column in range(n_columns)])
        counts = np.round(frame.shares * problem.n_nodes).astype(np.int64)
        self.atoms.show_live(frame.prototypes.reshape(n_columns, side, side, -1), counts, colors)

    def _show_frame(self, frame: Frame) -> None:
        self.status.show_progress(
            frame.fraction,
            f"{100 * frame.fraction:.0f} %   {_count_atoms(frame.n_labels)}   "
            f"{self.controller.seconds:.1f} s",
        )

    def _on_returned(self, result: LearnedDictionary) -> None:
        live, request, dictionary = self.controller.live, self.controller.job, result.dictionary
        if dictionary is None or live is None or request is None:
            self._on_abandoned()
            return
        named = dataclasses.replace(dictionary, images=self._names)
        colors = np.array([live.color(int(column)) for column in result.columns])
        edition = Edition.of(named, colors)
        if live.layer is not None and not live.is_lost:
            self.partitions.add(live.layer, request.image, edition)
        self._take(edition)
        words = f"{STATUS_WORDS[result.status]}: {_count_atoms(named.n_atoms)}"
        lines = [f"{words} in {self.controller.seconds:.1f} s", *result.notes]
        self.status.show_progress(1.0, "\n".join(lines))

    def _on_abandoned(self) -> None:
        super()._on_abandoned()
        self.atoms.show_edition(self.edition)

    def _on_failed(self, error: Exception) -> None:
        super()._on_failed(error)
        self.atoms.show_edition(self.edition)

    def _on_loaded(self, path: Path, dictionary: PatchDictionary) -> None:
        self.scale.set_value(dictionary.window)
        self._take(Edition.of(dictionary))
        self.status.show_progress(1.0, f"{path.name}: {describe_dictionary(dictionary)}")

    def _take(self, edition: Edition) -> None:
        """Show a new dictionary."""
        self.partitions.highlight(())
        self.atoms.begin(edition)
        self._on_edited(edition)

    def _on_edited(self, edition: Edition) -> None:
        if edition not in self._known:
            self._known = [*self._known, edition][-_MOST_KNOWN:]
        self.applying.offer_others([e for e in reversed(self._known) if e is not edition])
        self.run_in_background(
            "map",
            lambda cancelled: edition.dictionary.embedding(),
            partial(self.atoms.map.set_embedding, edition.identities),
        )
        self._update_enabled()

    def _on_chosen(self, identities: frozenset[int]) -> None:
        """Show where atoms are used; one alone is brought into view."""
        self.partitions.highlight(identities)
        if len(identities) != 1:
            return
        (identity,) = identities
        partition = self.partitions.find(identity)
        if partition is None:
            self.status.reset("apply the dictionary to an image to see where its atoms are used")
            return
        self.applying.show_partition(partition.layer)
        label, labels = partition.label_of(identity), np.asarray(partition.layer.data)
        assert label is not None
        self.run_in_background(
            "heart",
            lambda cancelled: deepest_pixel(labels, label, cancelled),
            partial(self._look_at, partition),
        )

    def _look_at(self, partition: Partition, where: tuple[int, ...] | None) -> None:
        """Bring a pixel to the middle of the screen."""
        layer = partition.layer
        if where is None:
            self.status.reset(f"{layer.name}: this atom is not used here")
            return
        if layer in self._viewer.layers:
            center_on(self._viewer, layer, where)

    def _on_applied(self, plane: Plane, edition: Edition, applied: Applied) -> None:
        if plane.layer not in self._viewer.layers:
            self.status.reset("the image is gone")
            return
        words = f"{plane.layer.name}: {applied.psnr:.1f} dB"
        n_unused = int(np.count_nonzero(applied.usage == 0))
        if n_unused:
            words += f", {n_unused} of {len(applied.usage)} atoms not used"
        self.status.show_progress(1.0, words)

        added = [
            self._viewer.add_layer(create(applied, plane))
            for create in (
                create_reconstruction_layer,
                create_difference_layer,
                create_partition_layer,
            )
        ]
        self.partitions.add(added[2], plane.layer, edition)
        self.applying.follow_layers(added)
        self.applying.show_kind("Rebuilt")

    def _on_compared(self, plane: Plane, compared: Compared) -> None:
        self.status.show_progress(
            1.0,
            f"{plane.layer.name}: this dictionary {compared.psnr:.1f} dB, "
            f"the other {compared.other_psnr:.1f} dB",
        )
        if plane.layer in self._viewer.layers:
            self.applying.follow_gain(self._viewer.add_layer(create_gain_layer(compared, plane)))

    def _on_folder_advanced(self, progress: tuple[float, str]) -> None:
        fraction, words = progress
        self._task_text = words
        self.status.show_progress(fraction, words)

    def _on_folder_done(self, summary: FolderSummary) -> None:
        if summary.of("failed"):
            self.status.show_error(summary.words)
        else:
            self.status.show_progress(1.0, summary.words)

    def _on_layer_removed(self, event: Any) -> None:
        self.applying.forget_layer(event.value)
        if self._task_layer is not None and event.value == self._task_layer:
            self._on_stop_clicked()

    def _on_task_finished(self) -> None:
        self._task_layer = None
        super()._on_task_finished()

    def _on_load_clicked(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Open a dictionary", "", _FILTER)
        if path:
            self.load(Path(path))

    def _on_save_clicked(self) -> None:
        edition = self.edition
        names = () if edition is None else edition.dictionary.images
        start = f"{names[0] if names else 'dictionary'}{DICTIONARY_SUFFIX}"
        path, _ = QFileDialog.getSaveFileName(self, "Save the dictionary", start, _FILTER)
        if path:
            self.save(Path(path).with_suffix(DICTIONARY_SUFFIX))

    def _update_enabled(self) -> None:
        super()._update_enabled()
        is_free = not self.is_busy
        self._learn.setEnabled(self._task is None)
        self.atoms.set_enabled(is_free)
        self.applying.show_possible(is_free and self.edition is not None)


def _count_atoms(n_atoms: int) -> str:
    return f"{n_atoms} atom{'s' * (n_atoms != 1)}"


def _is_image(layer: Layer) -> bool:
    return isinstance(layer, Image) and METADATA_KEY not in layer.metadata
