"""``napari-saf score``."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from napari_saf import io, metrics
from napari_saf.batch import check_outputs
from napari_saf.cli._masks import find_masks
from napari_saf.cli._options import argument, option
from napari_saf.cli._run import WritingCommand
from napari_saf.errors import InvalidInput, SafError
from napari_saf.objects import Objects, load_objects
from napari_saf.storage import atomic_write, make_folder

_ERRORS = {metrics.MISSED: "missed", metrics.FALSE: "false", metrics.OTHER: "other class"}
_ERROR_COLORS = {
    metrics.MISSED: (0.0, 0.45, 0.7, 1.0),
    metrics.FALSE: (0.84, 0.37, 0.0, 1.0),
    metrics.OTHER: (0.9, 0.6, 0.9, 1.0),
}
_TRACKS = "res_track.txt"
_Pair = tuple[NDArray[Any], NDArray[Any]]
_Score = Any
"""A score of `metrics`, or of tracks: it has rows."""


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class Score(WritingCommand):
    """Score masks, objects or tracks against a truth.

    MASK and TRUTH are label images, files of objects (.geojson, .zip, .json: objects and their
    classes), or folders of the Cell Tracking Challenge (tracks; needs py-ctcmetrics). Of two
    folders of masks, files of one name belong together.
    """

    mask: Path = argument("MASK")
    truths: tuple[Path, ...] = argument("TRUTH...")
    out: Path | None = option(
        None, f"The scores as a table ({', '.join(io.TABLE_SUFFIXES)}): image, truth, part, "
        "measure, value.", "--output", metavar="TABLE")
    objects: bool = option(False, "Labels are numbers of objects, not classes of pixels.")
    ignore: int | None = option(
        None, "Class of the truth whose pixels do not count, such as 0 for not labelled.",
        minimum=0, metavar="CLASS")
    errors: Path | None = option(
        None, "A mask of what is wrong: 1 missed, 2 false, 3 another class; of several images or "
        "truths a folder.", metavar="FILE")
    figure: Path | None = option(
        None, "A figure of the confusion matrix, or of F1 over overlap, and of what is wrong; of "
        "several images or truths a folder.", metavar="FILE")
    # fmt: on

    def run(self) -> None:
        pairs = _pairs(self.mask, self.truths)
        outputs = [self.out, *([self.errors, self.figure] if len(pairs) == 1 else [])]
        check_outputs(
            [path for path in outputs if path is not None],
            [path for pair in pairs for path in pair],
            overwrite=self.overwrite,
        )
        rows: list[tuple[str, str, str, str, float]] = []
        for mask, truth in pairs:
            scores, labels = self._score(mask, truth)
            score_rows = [row for score in scores for row in score.rows()]
            rows += [(mask.name, truth.name, *row) for row in score_rows]
            click.echo(f"{mask} beside {truth}")
            for part, measure, value in score_rows:
                click.echo(f"  {part:12} {measure:22} {value:10.4g}")
            if labels is not None:
                self._save_errors(mask, truth, scores, labels, is_one=len(pairs) == 1)
        if self.out is not None:
            make_folder(self.out.parent)
            names = ("image", "truth", "part", "measure", "value")
            columns = map(np.array, zip(*rows, strict=True))
            io.save_table(self.out, dict(zip(names, columns, strict=True)))
            click.echo(self.out)

    def _score(self, mask: Path, truth: Path) -> tuple[list[_Score], _Pair | None]:
        """Return the scores, and the label images that they compare, if these are images."""
        if io.is_plain_folder(mask):
            return [_TrackScore(mask, truth)], None
        if {mask.suffix.lower(), truth.suffix.lower()} & {*io.OUTLINE_SUFFIXES}:
            predicted, true = _read_objects(mask, truth)
            scores: list[_Score] = [metrics.score_objects(predicted.labels, true.labels)]
            matches = scores[0].matches
            if len(matches):
                names = [
                    [file.names.get(kind, f"class {kind}") for kind in file.kinds[numbers].tolist()]
                    for file, numbers in ((predicted, matches[:, 1]), (true, matches[:, 0]))
                ]
                scores.append(metrics.score_classes(*names))
            return scores, (predicted.labels, true.labels)
        labels, reference = io.read_labels(mask).array, io.read_labels(truth).array
        if self.objects:
            return [metrics.score_objects(labels, reference)], (labels, reference)
        score = metrics.score_pixels(labels, reference, ignore=self.ignore)
        return [score], (labels, reference)

    def _save_errors(
        self, mask: Path, truth: Path, scores: Sequence[_Score], labels: _Pair, *, is_one: bool
    ) -> None:
        """Save the mask of what is wrong, and the figure."""
        are_objects = isinstance(scores[0], metrics.ObjectScore)
        errors = (metrics.object_error_image if are_objects else metrics.error_image)(*labels)
        if not are_objects and self.ignore is not None:
            errors[labels[1] == self.ignore] = 0
        stem = f"{io.mask_stem(mask)}.{truth.parent.name or 'truth'}.errors"
        for path, suffix in ((self.errors, ".tif"), (self.figure, ".png")):
            if path is None:
                continue
            target = path if is_one else path / f"{stem}{suffix}"
            if not is_one:
                check_outputs([target], [mask, truth], overwrite=self.overwrite)
            make_folder(target.parent)
            if suffix == ".tif":
                io.save_masks(target, errors, names=_ERRORS, colors=_ERROR_COLORS)
            else:
                _save_figure(target, scores[-1], errors)
            click.echo(target)


def _pairs(mask: Path, truths: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Return which mask is scored against which truth."""
    if not io.is_plain_folder(mask) or (mask / _TRACKS).exists():
        return [(mask, truth) for truth in truths]
    pairs = []
    for folder in truths:
        for path in find_masks([mask]):
            files = sorted(folder.iterdir()) if io.is_plain_folder(folder) else []
            same = [file for file in files if io.image_stem(file) == io.image_stem(path)]
            if len(same) != 1:
                raise InvalidInput(f"{folder}: expected one truth of {path.name}, got {len(same)}")
            pairs.append((path, same[0]))
    return pairs


class _TrackScore:
    """Measures of the Cell Tracking Challenge."""

    def __init__(self, mask: Path, truth: Path) -> None:
        try:
            library: Any = importlib.import_module("ctc_metrics")
        except ImportError as error:
            raise SafError("tracks need py-ctcmetrics: pip install py-ctcmetrics") from error
        self._values = library.evaluate_sequence(str(mask), str(truth), ["Valid", "TRA", "DET"])

    def rows(self) -> list[tuple[str, str, float]]:
        return [("tracks", name, float(value)) for name, value in self._values.items()
                if name in ("TRA", "DET", "Valid")]  # fmt: skip


def _read_objects(mask: Path, truth: Path) -> tuple[Objects, Objects]:
    """Return objects of files of outlines, or of numbers in a mask, in one shape."""
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


def _save_figure(path: Path, score: _Score, errors: NDArray[np.uint8]) -> None:
    from matplotlib.figure import Figure  # takes half a second to load

    suffix = io.check_suffix(path, io.FIGURE_SUFFIXES)
    figure = Figure((10, 4.6), layout="constrained")
    axes, error_axes = figure.subplots(1, 2)
    if isinstance(score, metrics.ObjectScore):
        for name, values in (("AP", score.precision), ("F1", score.f1)):
            axes.plot([*values], [*values.values()], marker="o", label=name)
        axes.set(xlabel="intersection over union", ylim=(0, 1.02))
        axes.legend()
    else:
        counts = score.confusion / np.maximum(score.confusion.sum(axis=1, keepdims=True), 1)
        axes.imshow(counts, vmin=0, vmax=1, cmap="Blues")
        names = [str(name) for name in score.classes]
        ticks = range(len(names))
        axes.set_xticks(ticks, names, rotation=90 if max(map(len, names)) > 3 else 0)
        axes.set_yticks(ticks, names)
        axes.set(xlabel="mask", ylabel="truth", title="share of the true class")
        for row, column in np.ndindex(counts.shape) if len(names) <= 12 else ():
            axes.text(column, row, f"{counts[row, column]:.2f}", ha="center", va="center",
                      color="w" if counts[row, column] > 0.5 else "k", fontsize=8)  # fmt: skip
    plane = errors[tuple(side // 2 for side in errors.shape[:-2])]
    table = np.array([(1, 1, 1, 1), *_ERROR_COLORS.values()])
    error_axes.imshow(table[plane], interpolation="nearest")
    error_axes.set(xticks=[], yticks=[], title="blue: missed, orange: false, pink: another class")
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=150, format=suffix.removeprefix("."))
