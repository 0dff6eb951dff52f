"""Scores of a label image against a truth: measures, an error image and a figure."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from skimage.measure import label

from napari_saf import io, metrics
from napari_saf.arrays import as_labels, as_path, check_kind
from napari_saf.errors import InvalidInput, counted, format_count
from napari_saf.metrics import ClassScore, ObjectScore, PixelScore, TrackScore
from napari_saf.storage import atomic_write

ScoreKind = Literal["pixels", "objects", "classes", "tracks"]
SCORE_KINDS: tuple[ScoreKind, ...] = get_args(ScoreKind)
ERROR_COLORS = {
    metrics.MISSED: (0.0, 0.45, 0.7, 1.0),
    metrics.FALSE: (0.84, 0.37, 0.0, 1.0),
    metrics.OTHER: (0.9, 0.6, 0.9, 1.0),
    metrics.RIGHT: (0.0, 0.62, 0.45, 1.0),
}
"""Colours of the labels of `Score.errors`."""
_NO_CLASS = "no class"
_LEAST_GAIN = 0.1
"""Gain of accuracy by other numbers above which those of the labels hardly are classes."""
_MOST_REGIONS = 2
"""Regions per label above which labels are hardly numbers of objects."""
_MOST_NUMBERED = 12
"""Maximum number of classes for a confusion matrix with numbers in its cells."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Score:
    """Agreement of a label image with a truth; made by `score`.

    Attributes
    ----------
    kind : str
        Compared items: ``"pixels"``, ``"objects"``, ``"classes"`` or ``"tracks"``.
    parts : tuple
        Scores; for ``"classes"``, that of the objects comes first.
    errors : array of uint8 of the shape of the labels
        1 missed, 2 false, 3 wrong class or track, 4 right, 0 background.
    notes : tuple of str
        Hints that labels are not numbers of objects, or not those of the classes.

    Examples
    --------
    >>> score = saf.score([[1, 1, 0, 2]], [[1, 1, 2, 0]])
    >>> score.errors, score.parts[0].accuracy
    (array([[4, 4, 1, 2]], dtype=uint8), 0.5)
    """

    kind: ScoreKind
    parts: tuple[PixelScore | ObjectScore | ClassScore | TrackScore, ...]
    errors: NDArray[np.uint8]
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> dict[str, NDArray[np.generic]]:
        """Columns ``part``, ``measure`` and ``value``."""
        rows = [row for part in self.parts for row in part.rows()]
        columns = map(np.array, zip(*rows, strict=True))
        return dict(zip(("part", "measure", "value"), columns, strict=True))

    @property
    def error_names(self) -> dict[int, str]:
        """Names of the labels of `errors`."""
        names = {metrics.MISSED: "missed", metrics.FALSE: "false"}
        if self.kind != "objects":
            names[metrics.OTHER] = f"another {'track' if self.kind == 'tracks' else 'class'}"
        return names | {metrics.RIGHT: "right"}


def score(
    labels: ArrayLike,
    truth: ArrayLike,
    kind: ScoreKind = "pixels",
    *,
    ignore: int | None = None,
    classes: Mapping[int, str] | None = None,
    true_classes: Mapping[int, str] | None = None,
    parents: Mapping[int, int] | None = None,
    true_parents: Mapping[int, int] | None = None,
) -> Score:
    """Score a label image against a truth.

    Parameters
    ----------
    labels, truth : array of int of the same shape
        Classes of pixels, or numbers of objects or tracks; 0 for none. Frames of tracks are along
        the first axis.
    kind : str
        ``"pixels"``, see `metrics.score_pixels`; ``"objects"``, see `metrics.score_objects`;
        ``"classes"`` of objects that match at an intersection over union of .5, see
        `metrics.score_classes`; ``"tracks"``, see `metrics.score_tracks`.
    ignore : int, optional
        Class of the truth whose pixels are ignored. For pixels only.
    classes, true_classes : mapping of int to str, optional
        Class of each object by its number. None: labels are classes, and their connected regions
        are the objects. For classes only.
    parents, true_parents : mapping of int to int, optional
        Parent track by daughter track. For tracks only.

    Returns
    -------
    Score

    Raises
    ------
    InvalidInput
        If shapes differ, or labels are invalid for the kind.
    SafError
        If a library for tracks is missing.

    Examples
    --------
    >>> truth = np.kron([[1, 0, 2]], np.ones((4, 4), int))
    >>> [objects] = saf.score(truth > 0, truth, "objects").parts
    >>> objects.n_objects, objects.n_merged
    (1, 1)
    """
    if kind not in SCORE_KINDS:
        raise InvalidInput(f"kind: expected {', '.join(SCORE_KINDS)}, got {kind!r}")
    mask, reference = as_labels(labels, "labels"), as_labels(truth, "truth")
    if kind == "pixels":
        pixels = metrics.score_pixels(mask, reference, ignore=ignore)
        errors = metrics.error_image(mask, reference)
        if ignore is not None:
            errors[reference == ignore] = 0
        return Score(kind, (pixels,), errors, _notes_on_numbers(pixels))
    if kind == "tracks":
        tracks = metrics.score_tracks(mask, reference, parents, true_parents)
        return Score(kind, (tracks,), _track_errors(mask, reference, tracks))
    if kind == "objects":
        objects = metrics.score_objects(mask, reference)
        errors = metrics.object_error_image(mask, reference, objects.matches)
        notes = _note_on_regions("labels", mask), _note_on_regions("truth", reference)
        return Score(kind, (objects,), errors, tuple(filter(None, notes)))
    mask, names = _classified(mask, classes)
    reference, true_names = _classified(reference, true_classes)
    objects = metrics.score_objects(mask, reference)
    pairs = [
        (names.get(number, _NO_CLASS), true_names.get(true, _NO_CLASS))
        for true, number in objects.matches.tolist()
    ]
    is_right = [name == true_name for name, true_name in pairs]
    errors = metrics.object_error_image(mask, reference, objects.matches, is_right)
    matched = (metrics.score_classes(*zip(*pairs, strict=True)),) if pairs else ()
    return Score(kind, (objects, *matched), errors)


def _notes_on_numbers(score: PixelScore) -> tuple[str, ...]:
    """Return a note if the numbers of the labels look arbitrary: others agree far better."""
    from scipy.optimize import linear_sum_assignment  # takes a quarter of a second to load

    confusion = score.confusion
    matched = confusion[linear_sum_assignment(confusion, maximize=True)].sum() / confusion.sum()
    if matched - score.accuracy < _LEAST_GAIN:
        return ()
    form = f"with matched numbers the accuracy would be {matched:.3f}"
    return (f"labels are compared by number: {form}",)


def _note_on_regions(name: str, labels: NDArray[np.integer]) -> str:
    """Return a note if labels look like kinds of objects, in several regions each; else empty."""
    n_labels, n_regions = len(np.unique(labels[labels != 0])), int(label(labels).max(initial=0))
    if n_regions <= _MOST_REGIONS * n_labels:
        return ""
    form = f"{counted(n_labels, 'label')} in {format_count(n_regions)} regions"
    return f"{name}: {form}, each label counted as one object; split them into objects first"


def _classified(
    labels: NDArray[np.integer], classes: Mapping[int, str] | None
) -> tuple[NDArray[np.integer], Mapping[int, str]]:
    """Return objects and their classes; without `classes`, connected regions of each label."""
    if classes is not None:
        return labels, classes
    objects = label(labels)
    numbers, first = np.unique(objects, return_index=True)
    pairs = zip(numbers.tolist(), labels.ravel()[first].tolist(), strict=True)
    return objects, {number: f"class {value}" for number, value in pairs if number}


def _track_errors(
    mask: NDArray[np.integer], truth: NDArray[np.integer], tracks: TrackScore
) -> NDArray[np.uint8]:
    """Return the error image of tracks; a match to another track than before is an error."""
    errors, last = np.zeros(mask.shape, np.uint8), dict[int, int]()
    for k, matches in enumerate(tracks.matches):
        partners = dict(matches.tolist())
        is_right = [last.get(true, number) == number for true, number in partners.items()]
        errors[k] = metrics.object_error_image(mask[k], truth[k], matches, is_right)
        last |= partners
    return errors


def save_score_figure(path: str | os.PathLike[str], score: Score) -> Path:
    """Save a figure of the scores, and of the middle plane of the error image.

    Parameters
    ----------
    path : path
        Ends in ``.png``, ``.svg`` or ``.pdf``.
    score : Score
        Pixels and classes are shown by their confusion matrix, objects by average precision and F1
        over intersection over union, tracks by their numbers of errors.

    Raises
    ------
    InvalidInput
        If the suffix is unknown.
    SafError
        If the file cannot be written.

    Examples
    --------
    >>> saf.save_score_figure("score.png", saf.score([[1, 1, 2]], [[1, 2, 2]])).name
    'score.png'
    """
    from matplotlib.figure import Figure  # takes half a second to load

    target = as_path(path)
    suffix = io.check_suffix(target, io.FIGURE_SUFFIXES)
    check_kind(score, Score, "score", "Score, as returned by saf.score")
    figure = Figure((10, 4.6), layout="constrained")
    axes, error_axes = figure.subplots(1, 2)
    part = score.parts[-1]
    if isinstance(part, ObjectScore):
        for name, values in (("AP", part.precision), ("F1", part.f1)):
            axes.plot([*values], [*values.values()], marker="o", label=name)
        axes.set(xlabel="intersection over union", ylim=(0, 1.02))
        axes.legend()
    elif isinstance(part, TrackScore):
        bars = axes.barh([*part.errors], [*part.errors.values()])
        axes.bar_label(bars, padding=3)
        axes.invert_yaxis()
        axes.set(title=f"TRA {part.tra:.3f}, DET {part.det:.3f}", xlabel="errors")
    else:
        counts = part.confusion / np.maximum(part.confusion.sum(axis=1, keepdims=True), 1)
        axes.imshow(counts, vmin=0, vmax=1, cmap="Blues")
        names = [str(name) for name in part.classes]
        ticks = range(len(names))
        axes.set_xticks(ticks, names, rotation=90 if max(map(len, names)) > 3 else 0)
        axes.set_yticks(ticks, names)
        axes.set(xlabel="mask", ylabel="truth", title="share of the true class")
        for row, column in np.ndindex(counts.shape) if len(names) <= _MOST_NUMBERED else ():
            color = "w" if counts[row, column] > 0.5 else "k"
            text = f"{counts[row, column]:.2f}"
            axes.text(column, row, text, ha="center", va="center", color=color, fontsize=8)
    plane = np.atleast_2d(score.errors[tuple(side // 2 for side in score.errors.shape[:-2])])
    table = np.array([(1, 1, 1, 1), *ERROR_COLORS.values()])
    error_axes.imshow(table[plane], interpolation="nearest")
    error_axes.set(xticks=[], yticks=[])
    for number, name in score.error_names.items():
        error_axes.plot([], [], "s", color=ERROR_COLORS[number], label=name)
    error_axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=4, frameon=False)
    with atomic_write(target) as temporary:
        figure.savefig(temporary, dpi=150, format=suffix.removeprefix("."))
    return target
