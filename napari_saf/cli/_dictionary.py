"""``napari-saf dictionary``."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import click
from matplotlib.figure import Figure

from napari_saf import io
from napari_saf.batch import DictionaryTask, check_outputs
from napari_saf.cli import _methods as flags
from napari_saf.cli import run_with_progress
from napari_saf.cli._large import JOBS, SCHEDULER, TILES, label_in_tiles
from napari_saf.cli._run import run_jobs
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

_DICTIONARY = click.Argument(["path"], type=flags.PATH, metavar="DICTIONARY")
_WINDOW = click.Option(["--window"], type=int, default=3, show_default=True, metavar="ODD",
                       help="Side of the averaging window in pixels, the scale (N).")  # fmt: skip
_CHANNELS = flags.image_options("channel_axis")[0]
_LEARN = [
    flags.IMAGES,
    flags.output("DICTIONARY", f"Where the dictionary goes ({DICTIONARY_SUFFIX})."),
    _WINDOW,
    click.Option(["--features"], type=click.Choice(list(FEATURES)), default="intensity",
                 show_default=True, help="Of what atoms are patches."),
    _CHANNELS,
    flags.overwrite("a dictionary that is there"),
]  # fmt: skip
_SHOW = [
    _DICTIONARY,
    flags.output("SHEET.png", "Where a picture of the atoms goes.", required=False),
    flags.overwrite("a picture that is there"),
]
_OF_FOLDER = {"reconstruction": "blended", "mask_format": ".tif", "device": "auto"}
"""Options of folder output, with their defaults."""
_APPLY = [
    _DICTIONARY,
    flags.IMAGES,
    flags.output("FOLDER", "Where masks, reconstructions and the table (.csv) go; or OUT.ome.zarr "
                 "for the labels alone of one image of any size, in tiles."),
    _WINDOW,
    click.Option(["--reconstruction"], type=click.Choice(RECONSTRUCTIONS),
                 default=_OF_FOLDER["reconstruction"],
                 show_default=True, help="How images are rebuilt: atoms at the matched "
                 "centres; beside them the nearest atom of each pixel; or the atom around each "
                 "pixel that fits best with a contrast and brightness of its own."),
    _CHANNELS,
    click.Option(["--format", "mask_format"], type=click.Choice(list(io.MASK_SUFFIXES)),
                 default=".tif", show_default=True, help="Format of the masks."),
    click.Option(["--device"], default="auto", show_default=True,
                 help="Where to compute: auto, cpu, cuda or mps."),
    flags.overwrite("everything that is there"),
    JOBS,
    *TILES,
    SCHEDULER,
]  # fmt: skip


@click.group("dictionary")
def dictionary() -> None:
    """Learn, show and apply patch dictionaries."""


@flags.command(
    "learn", flags.method_options(_LEARN, {"dictionary": PatchDictionaryLearning}), dictionary
)
def _learn(args: Any) -> None:
    """Learn a dictionary from one or several images, or a folder of them."""
    out = args.out
    io.check_suffix(out, [DICTIONARY_SUFFIX])
    check_outputs([out], overwrite=args.overwrite)
    method = flags.make_method(PatchDictionaryLearning, flags.given_parameters(vars(args)))
    paths = io.find_images(args.images)
    files = [io.read_image(path) for path in paths]
    axis = files[0].stated_channel_axis if args.channel_axis is None else args.channel_axis
    arrays = [file.array for file in files]
    options = PLAIN | {"window": args.window, "channel_axis": axis, "features": args.features}
    problem = Problem.from_images(arrays, **options)
    title = paths[0].name if len(paths) == 1 else f"{len(paths)} images"
    began = time.perf_counter()
    result = run_with_progress(method.iterate(problem), title)
    assert isinstance(result, LearnedDictionary)
    learned = dataclasses.replace(result.dictionary, images=tuple(path.name for path in paths))
    make_folder(out.parent)
    learned.save(out)
    seconds, status = time.perf_counter() - began, STATUS_TEXTS[result.status]
    click.echo(f"{out}: {_summary(learned)}, {status}, {seconds:.1f} s")
    for note in result.notes:
        click.echo(f"napari-saf: note: {note}", err=True)


@flags.command("show", _SHOW, dictionary)
def _show(args: Any) -> None:
    """Say what a dictionary is, and draw its atoms."""
    path, out = args.path, args.out
    loaded = PatchDictionary.load(path)
    click.echo(f"{path}: {_summary(loaded)}")
    click.echo(f"learned from {', '.join(loaded.images) or 'unknown images'}")
    click.echo(f"with napari-saf {loaded.software}, s = {loaded.s:g}, window {loaded.window}")
    if out is not None:
        check_outputs([out], overwrite=args.overwrite)
        make_folder(out.parent)
        _save_atoms(out, loaded, path.name)
        click.echo(out)


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


@flags.command("apply", _APPLY, dictionary)
def _apply(args: Any) -> int:
    """Label images with a dictionary and rebuild them from its atoms.

    What an earlier run has done is not done again.
    """
    loaded, out = PatchDictionary.load(args.path), args.out
    paths = io.find_images(args.images)
    shared = {"window": args.window, "channel_axis": args.channel_axis}
    of_folder = {name: getattr(args, name) for name in _OF_FOLDER}
    if out.name.endswith(".ome.zarr") and len(paths) == 1:
        for name, default in _OF_FOLDER.items():
            if of_folder[name] != default:
                flag = name.removeprefix("mask_")
                text = refusal(Strategy.TILES_ON_DISK, "reconstruction", option=flag, out=out)
                raise click.UsageError(str(text))
        source = io.url_of(paths[0]) or paths[0]
        job = DictionaryJob.of(source, loaded, tile=args.tile or None, **shared)
        return label_in_tiles(job, args)
    if args.tile or args.dry_run:
        raise click.UsageError(str(refusal(Strategy.FOLDER, "dictionary in tiles")))
    options: dict[str, Any] = {**shared, **of_folder, "overwrite": args.overwrite}
    task = DictionaryTask(dictionary=loaded, folder=out, **options)
    return run_jobs(task, task.plan(paths), args)


def _summary(dictionary: PatchDictionary) -> str:
    size, channels = dictionary.patch_size, dictionary.n_channels
    content = f", {channels} channels" if channels > 1 else ""
    content += f", of {dictionary.features}" if dictionary.features != "intensity" else ""
    return f"{counted(dictionary.n_atoms, 'atom')} of {size} × {size}{content}"
