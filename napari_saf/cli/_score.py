"""``napari-saf score``: score masks, objects or tracks against a truth."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from napari_saf import io, scoring
from napari_saf.batch import check_outputs
from napari_saf.cli._masks import find_masks
from napari_saf.cli._options import argument, option
from napari_saf.cli._run import WritingCommand
from napari_saf.errors import FormatError, InvalidInput
from napari_saf.objects import Objects, load_objects
from napari_saf.storage import make_folder

_RESULT_TRACKS, _TRUE_TRACKS = "res_track.txt", "man_track.txt"


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class Score(WritingCommand):
    """Score masks, objects or tracks against a truth.

    MASK and TRUTH are label images, files of objects (.geojson, .zip, .json: objects and their
    classes), or folders of the Cell Tracking Challenge (tracks; needs py-ctcmetrics). Files of two
    folders of masks are paired by name.
    """

    mask: Path = argument("MASK")
    truths: tuple[Path, ...] = argument("TRUTH...")
    out: Path | None = option(
        None, f"Table of the scores ({', '.join(io.TABLE_SUFFIXES)}): image, truth, part, measure, "
        "value.", "--output", metavar="TABLE")
    objects: bool = option(False, "Labels are numbers of objects, not classes of pixels.")
    ignore: int | None = option(
        None, "Class of the truth whose pixels are ignored, such as 0 for unlabelled.",
        minimum=0, metavar="CLASS")
    errors: Path | None = option(
        None, "Error image: 1 missed, 2 false, 3 wrong class or track, 4 right. For several images "
        "or truths, a folder.", metavar="FILE")
    figure: Path | None = option(
        None, "Figure of the confusion matrix, of F1 over overlap, or of the errors of tracks, and "
        "of the error image. For several images or truths, a folder.", metavar="FILE")
    # fmt: on

    def run(self) -> None:
        pairs = _pairs(self.mask, self.truths)
        is_one = len(pairs) == 1
        outputs = [self.out, *([self.errors, self.figure] if is_one else [])]
        inputs = [path for pair in pairs for path in pair]
        check_outputs([x for x in outputs if x is not None], inputs, overwrite=self.overwrite)
        tables: list[dict[str, NDArray[Any]]] = []
        for mask, truth in pairs:
            score = self._score(mask, truth)
            n_rows = len(score.table["value"])
            names = {"image": np.full(n_rows, mask.name), "truth": np.full(n_rows, truth.name)}
            tables.append(names | score.table)
            click.echo(f"{mask} against {truth}")
            for part, measure, value in zip(*score.table.values(), strict=True):
                click.echo(f"  {part:12} {measure:22} {value:10.4g}")
            for note in score.notes:
                click.echo(f"  {note}", err=True)
            stem = f"{io.mask_stem(mask)}.{truth.parent.name or 'truth'}.errors"
            for path, suffix in ((self.errors, ".tif"), (self.figure, ".png")):
                if path is None:
                    continue
                target = path if is_one else path / f"{stem}{suffix}"
                if not is_one:
                    check_outputs([target], [mask, truth], overwrite=self.overwrite)
                make_folder(target.parent)
                if suffix == ".tif":
                    colors = scoring.ERROR_COLORS
                    io.save_masks(target, score.errors, names=score.error_names, colors=colors)
                else:
                    scoring.save_score_figure(target, score)
                click.echo(target)
        if self.out is not None:
            make_folder(self.out.parent)
            columns = {name: np.concatenate([t[name] for t in tables]) for name in tables[0]}
            io.save_table(self.out, columns)
            click.echo(self.out)

    def _score(self, mask: Path, truth: Path) -> scoring.Score:
        if io.is_plain_folder(mask):
            (labels, parents), (true_labels, true_parents) = map(_read_tracks, (mask, truth))
            return scoring.score(
                labels, true_labels, "tracks", parents=parents, true_parents=true_parents
            )
        if {mask.suffix.lower(), truth.suffix.lower()} & {*io.OUTLINE_SUFFIXES}:
            objects, true = _read_objects(mask, truth)
            names, true_names = _names_of(objects), _names_of(true)
            return scoring.score(
                objects.labels, true.labels, "classes", classes=names, true_classes=true_names
            )
        labels, reference = io.read_labels(mask).array, io.read_labels(truth).array
        kind: scoring.ScoreKind = "objects" if self.objects else "pixels"
        return scoring.score(labels, reference, kind, ignore=self.ignore)


def _pairs(mask: Path, truths: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Return the pairs of mask and truth to score."""
    if not io.is_plain_folder(mask) or (mask / _RESULT_TRACKS).exists():
        return [(mask, truth) for truth in truths]
    pairs = []
    for folder in truths:
        for path in find_masks([mask]):
            files = sorted(folder.iterdir()) if io.is_plain_folder(folder) else []
            same = [file for file in files if io.image_stem(file) == io.image_stem(path)]
            if len(same) != 1:
                raise InvalidInput(f"{folder}: expected one truth for {path.name}, got {len(same)}")
            pairs.append((path, same[0]))
    return pairs


def _read_tracks(folder: Path) -> tuple[NDArray[Any], dict[int, int]]:
    """Return frames of track numbers, and parents, of a Cell Tracking Challenge folder."""
    listings = folder / _RESULT_TRACKS, folder / _TRUE_TRACKS, folder / "TRA" / _TRUE_TRACKS
    listing = next((path for path in listings if path.exists()), None)
    if listing is None:
        raise InvalidInput(f"{folder}: expected {_RESULT_TRACKS}, or TRA/{_TRUE_TRACKS}")
    try:
        rows = np.array(listing.read_text().split(), np.int64).reshape(-1, 4).tolist()
    except ValueError as error:
        raise FormatError(f"{listing}: expected four whole numbers on each line") from error
    frames = [io.read_labels(path).array for path in sorted(listing.parent.glob("*.tif"))]
    if len({frame.shape for frame in frames}) != 1:
        raise InvalidInput(f"{listing.parent}: expected masks of one shape")
    return np.stack(frames), {number: parent for number, _, _, parent in rows if parent}


def _read_objects(mask: Path, truth: Path) -> tuple[Objects, Objects]:
    """Return the objects of outline files or label images, in a common shape."""
    read: dict[Path, Objects] = {}
    shape: tuple[int, ...] | None = None
    for path in sorted((mask, truth), key=lambda file: file.suffix.lower() in io.OUTLINE_SUFFIXES):
        if path.suffix.lower() in io.OUTLINE_SUFFIXES:
            read[path] = load_objects(path, shape)
        else:
            numbers = io.read_labels(path).array
            kinds = (np.bincount(numbers.ravel()) > 0).astype(np.int64)
            kinds[0] = 0
            read[path] = Objects(numbers, kinds)
        shape = read[path].labels.shape
    return read[mask], read[truth]


def _names_of(objects: Objects) -> dict[int, str]:
    kinds = enumerate(objects.kinds.tolist())
    return {number: objects.names.get(kind, f"class {kind}") for number, kind in kinds if kind}
