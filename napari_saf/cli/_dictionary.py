"""``napari-saf dictionary``: learn, show and apply patch dictionaries."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any, ClassVar

import click
from matplotlib.figure import Figure

from napari_saf import io
from napari_saf.batch import DictionaryTask, check_outputs
from napari_saf.cli import note, run_with_progress
from napari_saf.cli._options import (
    AbstractCommand,
    GivenMethods,
    argument,
    method_options,
    option,
    output,
)
from napari_saf.cli._run import GivenImages, LabelCommand, WritingCommand, image_options
from napari_saf.dictionary import (
    DICTIONARY_SUFFIX,
    RECONSTRUCTIONS,
    LearnedDictionary,
    PatchDictionary,
    PatchDictionaryLearning,
)
from napari_saf.errors import counted
from napari_saf.features import FEATURES
from napari_saf.input import PLAIN
from napari_saf.problem import Problem
from napari_saf.result import STATUS_TEXTS
from napari_saf.storage import atomic_write, make_folder
from napari_saf.strategies import Strategy, refusal
from napari_saf.tiles import DictionaryJob

_WINDOW = "Side of the averaging window in pixels, the scale (N)."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learn(WritingCommand):
    """Learn a dictionary from one or several images, or a folder of them."""

    images: tuple[Path, ...] = argument("IMAGE...")
    out: Path = output("DICTIONARY", f"Dictionary to write ({DICTIONARY_SUFFIX}).")
    window: int = option(3, _WINDOW, metavar="ODD")
    features: str = option("intensity", "Pixel features of the atoms.", choices=list(FEATURES))
    image: GivenImages = image_options("channel_axis")
    parameters: GivenMethods = method_options({"dictionary": PatchDictionaryLearning})

    def run(self) -> None:
        io.check_suffix(self.out, [DICTIONARY_SUFFIX])
        check_outputs([self.out], overwrite=self.overwrite)
        method = self.parameters.make(PatchDictionaryLearning)
        paths = io.find_images(self.images)
        files = [io.read_image(path) for path in paths]
        axis = self.image.values.get("channel_axis", files[0].stated_channel_axis)
        arrays = [file.array for file in files]
        options = PLAIN | {"window": self.window, "channel_axis": axis, "features": self.features}
        problem = Problem.from_images(arrays, **options)
        title = paths[0].name if len(paths) == 1 else f"{len(paths)} images"
        began = time.perf_counter()
        result = run_with_progress(method.iterate(problem), title)
        assert isinstance(result, LearnedDictionary)
        learned = dataclasses.replace(result.dictionary, images=tuple(path.name for path in paths))
        make_folder(self.out.parent)
        learned.save(self.out)
        seconds, status = time.perf_counter() - began, STATUS_TEXTS[result.status]
        click.echo(f"{self.out}: {_summary(learned)}, {status}, {seconds:.1f} s")
        for text in result.notes:
            note(text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Show(WritingCommand):
    """Describe a dictionary, and draw its atoms."""

    path: Path = argument("DICTIONARY")
    out: Path | None = option(
        None, "Figure of the atoms to write.", "--output", metavar="SHEET.png"
    )

    def run(self) -> None:
        loaded = PatchDictionary.load(self.path)
        click.echo(f"{self.path}: {_summary(loaded)}")
        click.echo(f"learned from {', '.join(loaded.images) or 'unknown images'}")
        click.echo(f"with napari-saf {loaded.software}, s = {loaded.s:g}, window {loaded.window}")
        if self.out is not None:
            check_outputs([self.out], overwrite=self.overwrite)
            make_folder(self.out.parent)
            _save_atoms(self.out, loaded, self.path.name)
            click.echo(self.out)


def _save_atoms(path: Path, dictionary: PatchDictionary, title: str) -> None:
    columns = min(10, dictionary.n_atoms)
    rows = -(-dictionary.n_atoms // columns)
    figure = Figure(figsize=(0.9 * columns + 0.3, 1.1 * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels:
        panel.set_axis_off()
    shares = 100 * dictionary.usage / max(int(dictionary.usage.sum()), 1)
    for k, atom in enumerate(dictionary.colours(dictionary.atoms).clip(0, 1)):
        picture = atom if atom.shape[-1] == 3 else atom.mean(axis=-1)
        panels[k].imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        panels[k].set_title(f"{k + 1}: {shares[k]:.1f} %", fontsize=7)
    text = io.printable(f"{title}: {_summary(dictionary)}")
    figure.suptitle(text, fontsize=8, parse_math=False)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class Apply(LabelCommand):
    """Label images with a dictionary, and reconstruct them from its atoms.

    Images completed by an earlier run are skipped.
    """

    path: Path = argument("DICTIONARY")
    images: tuple[Path, ...] = argument("IMAGE...")
    out: Path = output(
        "FOLDER", "Folder for masks, reconstructions and the table (.csv); or OUT.ome.zarr for the "
        "labels only of one image of any size, in tiles.")
    window: int = option(3, _WINDOW, metavar="ODD")
    reconstruction: str = option(
        "blended", "Reconstruction from the atoms at the matched centres; also from the nearest "
        "atom of each pixel; or from the atom around each pixel that fits best with its own "
        "contrast and brightness.", choices=RECONSTRUCTIONS)
    image: GivenImages = image_options("channel_axis")
    device: str = option("auto", "Where to compute: auto, cpu, cuda or mps.")
    # fmt: on

    def run(self) -> int:
        loaded, paths = PatchDictionary.load(self.path), io.find_images(self.images)
        shared: dict[str, Any] = {
            "window": self.window, "channel_axis": self.image.values.get("channel_axis"),
        }  # fmt: skip
        if self.out.name.endswith(".ome.zarr") and len(paths) == 1:
            for name, flag in _OF_FOLDER.items():
                if getattr(self, name) != next(
                    field.default for field in dataclasses.fields(self) if field.name == name
                ):
                    text = refusal(
                        Strategy.TILES_ON_DISK, "reconstruction", option=flag, out=self.out
                    )
                    raise click.UsageError(str(text))
            source = io.url_of(paths[0]) or paths[0]
            job = DictionaryJob.of(source, loaded, tile=self.tile or None, **shared)
            self.run_in_tiles(job, self.out)
            return 0
        if self.tile or self.dry_run:
            raise click.UsageError(str(refusal(Strategy.FOLDER, "dictionary in tiles")))
        task = DictionaryTask(
            dictionary=loaded,
            folder=self.out,
            reconstruction=self.reconstruction,  # type: ignore[arg-type]
            mask_format=self.suffix,
            device=self.device,
            overwrite=self.overwrite,
            **shared,
        )
        return self.run_jobs(task, task.plan(paths))


_OF_FOLDER = {"reconstruction": "reconstruction", "suffix": "format", "device": "device"}
"""Options of folder output: field and flag."""


class Dictionary(AbstractCommand):
    """Learn, show and apply patch dictionaries."""

    subcommands: ClassVar = (Learn, Show, Apply)


def _summary(dictionary: PatchDictionary) -> str:
    size, channels = dictionary.patch_size, dictionary.n_channels
    content = f", {channels} channels" if channels > 1 else ""
    content += f", of {dictionary.features}" if dictionary.features != "intensity" else ""
    return f"{counted(dictionary.n_atoms, 'atom')} of {size} × {size}{content}"
