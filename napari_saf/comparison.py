"""Comparison of methods and parameters on one image, with matched label numbers; see `compare`.

In order: variants, run, matching of labels, table, figure.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from skimage.color import gray2rgb
from skimage.util import img_as_ubyte

from napari_saf import io
from napari_saf.arrays import as_dict, as_labels, as_list, as_path, check_kind
from napari_saf.errors import InvalidInput, SafError, counted
from napari_saf.methods import AbstractMethod, Cancelled, map_steps, not_cancelled, run_to_end
from napari_saf.metrics import matched_accuracy, normalized_mutual_information, region_agreement
from napari_saf.parameters import READERS, build, parameter_named, values_of
from napari_saf.problem import ImageOptions, Problem
from napari_saf.result import STATUS_TEXTS, LabelImage, LabelMap, Segmentation, Snapshot, Status
from napari_saf.storage import atomic_write

OPTION_AXES = ("window", "features", "weights", "max_side")
COMPARISON_SUFFIXES = (*io.FIGURE_SUFFIXES, ".csv")
_METHOD, _MOST_IN_A_ROW = "method", 5
_DPI, _PANEL_WIDTH, _PANEL_HEIGHT, _TEXT_HEIGHT = 160, 2.9, 4.7, 0.5
"""Resolution of a figure, and sizes of its panels in inches."""
_MOST_SWATCHES, _SWATCHES_PER_LINE = 48, 16
_ABSENT = 205.0
"""Grey level of labels without pixels in the displayed planes."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """Method with its parameters, and options of the image.

    Attributes
    ----------
    method : AbstractMethod
        The method with its parameters.
    options : ImageOptions
        Options of `Problem.from_image`.
    coordinates : tuple of (str, str)
        Coordinates in the parameter grid: pairs of axis name and value as text.

    Examples
    --------
    >>> few, many = saf.variants_of([saf.SLK()], {"n_clusters": [2, 8]})
    >>> few.method.n_clusters, many.method.n_clusters
    (2, 8)
    """

    method: AbstractMethod
    options: ImageOptions = dataclasses.field(default_factory=ImageOptions)
    coordinates: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Method and values as text."""
        return ", ".join(_phrase(*pair) for pair in self.coordinates) or self.method.name.upper()


def variants_of(
    methods: Sequence[AbstractMethod],
    axes: Mapping[str, Sequence[Any]] | None = None,
    options: ImageOptions | None = None,
) -> list[Variant]:
    """Combine every method with every combination of values.

    Parameters
    ----------
    methods : sequence of AbstractMethod
        At least one.
    axes : mapping of str to sequence, optional
        Values by name: a parameter of a method, such as ``"s"`` or ``"affinity.sigma2"``, or
        ``"window"``, ``"features"``, ``"weights"``, ``"max_side"``. A method without that
        parameter, or one that ignores the window, is listed once for all values.
    options : ImageOptions, optional
        Options common to all variants.

    Returns
    -------
    list of Variant
        The last axis varies fastest.

    Raises
    ------
    InvalidInput
        If there is no method, no method has a parameter of that name, an axis has no values, or a
        value is of the wrong type or out of bounds.

    Examples
    --------
    >>> variants = saf.variants_of([saf.SelfAssignmentFlow(), saf.SLK()], {"s": [0, 1]})
    >>> [variant.name for variant in variants]  # SLK has no s
    ['SAF, s = 0', 'SAF, s = 1', 'SLK']
    """
    named = as_dict({} if axes is None else axes, "axes")
    grid = {name: as_list(values, name) for name, values in named.items()}
    methods = as_list(methods, "methods")
    if not methods:
        raise InvalidInput("methods: expected at least one")
    for method in methods:
        check_kind(method, AbstractMethod, "methods", "methods such as saf.SelfAssignmentFlow()")
    for name, values in grid.items():
        if not values:
            raise InvalidInput(f"{name}: expected at least one value")
        if name not in OPTION_AXES and not any(parameter_named(type(m), name) for m in methods):
            raise InvalidInput(f"{name}: no chosen method has this parameter")
    variants: dict[tuple[object, ...], Variant] = {}
    combinations = [*itertools.product(*grid.values())]
    for (number, method), values in itertools.product(enumerate(methods), combinations):
        settings = dict(zip(grid, values, strict=True))
        variant = _variant(method, settings, options or ImageOptions())
        variants.setdefault((number, variant.coordinates), variant)
    return list(variants.values())


def _variant(method: AbstractMethod, values: Mapping[str, Any], options: ImageOptions) -> Variant:
    """Return a variant with those of the values that the method uses."""
    changes = {name: value for name, value in values.items() if name in OPTION_AXES}
    items = {name: parameter_named(type(method), name) for name in values if name not in changes}
    parameters = {name: item for name, item in items.items() if item is not None}
    settings = values_of(method) | {item.name: values[name] for name, item in parameters.items()}
    built = build(type(method), settings)
    for name, item in parameters.items():
        if item.depends_on and settings.get(item.depends_on[0]) not in item.depends_on[1]:
            choice, needed = item.depends_on
            raise InvalidInput(f"{name}: applies only with {choice} {' or '.join(needed)}")
    if not built.uses_window:
        changes.pop("window", None)
    point = [(name, _text(values[name])) for name in values if name in {*parameters, *changes}]
    options = dataclasses.replace(options, **changes)
    return Variant(built, options, ((_METHOD, method.name.upper()), *point))


def read_values(name: str, text: str, methods: Sequence[type[AbstractMethod]]) -> list[object]:
    """Parse values of a parameter, such as ``"0, 0.5, 1"`` of s or ``"3, 1x5x5"`` of window."""
    classes = [ImageOptions] if name in OPTION_AXES else methods
    items = [item for item in (parameter_named(cls, name) for cls in classes) if item]
    if not items:
        raise InvalidInput(f"{name}: no chosen method has this parameter")
    kinds = {item.kind for item in items}
    if kinds & {"array", "list"}:
        raise InvalidInput(f"{name}: takes arrays, which cannot be entered as text")
    words: dict[str, object] = {"none": None} if any(item.optional for item in items) else {}
    if kinds & {"choice", "bool"}:
        words |= {choice: choice for item in items for choice in sorted(item.choices)}
        words |= {"true": True, "false": False} if "bool" in kinds else {}
        expected, read = f"one of {', '.join(words)}", words.__getitem__
    else:
        expected, read = READERS["float" if "float" in kinds else items[0].kind]
        expected += " or none" if words else ""
    values = []
    for word in map(str.strip, text.split(",")):
        try:
            values.append(words[word.lower()] if word.lower() in words else read(word))
        except (KeyError, ValueError):
            raise InvalidInput(f"{name}: expected {expected}, got {word!r}") from None
    return list(dict.fromkeys(values))


def open_axes(variants: Sequence[Variant]) -> list[str]:
    """Return the axes along which variants differ, in order."""
    coordinates = [dict(variant.coordinates) for variant in variants]
    names = dict.fromkeys(itertools.chain(*coordinates))
    return [name for name in names if len({point.get(name) for point in coordinates}) > 1]


def short_names(variants: Sequence[Variant]) -> list[str]:
    """Return names of variants from the axes along which they differ."""
    axes = open_axes(variants)
    points = [[pair for pair in variant.coordinates if pair[0] in axes] for variant in variants]
    names = [", ".join(itertools.starmap(_phrase, point)) for point in points]
    return [short or variant.name for short, variant in zip(names, variants, strict=True)]


class Layout(NamedTuple):
    """Grid size, and (row, column) of each variant; in a table the last axis runs along rows."""

    n_rows: int
    n_columns: int
    cells: tuple[tuple[int, int], ...]
    is_table: bool = False


def lay_out(variants: Sequence[Variant]) -> Layout:
    """Arrange variants in a table if they are a full product of axes, else row by row."""
    count, axes = len(variants), open_axes(variants)
    coordinates = [dict(variant.coordinates) for variant in variants]
    if len(axes) > 1 and all(axes[-1] in point for point in coordinates):
        rows = [tuple(map(point.get, axes[:-1])) for point in coordinates]
        columns = [point[axes[-1]] for point in coordinates]
        row_names, column_names = [*dict.fromkeys(rows)], [*dict.fromkeys(columns)]
        if len(row_names) * len(column_names) == count:
            cells = zip(map(row_names.index, rows), map(column_names.index, columns), strict=True)
            return Layout(len(row_names), len(column_names), tuple(cells), is_table=True)
    width = max(1, count if count <= _MOST_IN_A_ROW else math.ceil(count**0.5))
    return Layout(-(-count // width), width, tuple(divmod(k, width) for k in range(count)))


def _phrase(axis: str, value: str) -> str:
    sign = "" if axis in OPTION_AXES else " ="
    return value if axis == _METHOD else f"{_text(axis)}{sign} {value}"


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return " x ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:g}"
    text = "none" if value is None else str(value)
    return text.rpartition(".")[2].replace("_", " ")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Compared(Segmentation):
    """Segmentation by a variant, without the assignment matrix, to save memory.

    Within a `Comparison`, label numbers match across results, and `prototypes` and `sizes` have an
    entry per number.
    """

    labels: LabelImage
    variant: Variant

    @functools.cached_property
    def sizes(self) -> NDArray[np.int64]:
        return np.bincount(self.labels.ravel(), minlength=len(self.prototypes) + 1)[1:]

    @property
    def present(self) -> NDArray[np.int64]:
        """Labels with at least one pixel, ascending."""
        return np.flatnonzero(self.sizes) + 1


class Failure(NamedTuple):
    """Variant that failed, and its error."""

    variant: Variant
    error: SafError


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Results of variants on one image, with matched label numbers.

    Attributes
    ----------
    results : tuple of Compared
        Segmentations with their `variant`, in the order of the variants.
    failures : tuple of Failure
        Variants that failed, with their errors.
    is_complete : bool
        Whether all variants were run; False if the comparison was cancelled.
    n_numbers : int
        Largest label number in any result.

    Examples
    --------
    >>> image = np.kron([[0.0, 0.5, 1.0]], np.ones((16, 16)))
    >>> variants = saf.variants_of([saf.SLK()], {"n_clusters": [2, 3]})
    >>> comparison = saf.compare(image, variants)
    >>> len(comparison.results), comparison.n_numbers, comparison.dead(0).size
    (2, 3, 1)
    """

    results: tuple[Compared, ...]
    failures: tuple[Failure, ...] = ()
    is_complete: bool = True
    n_numbers: int = 0

    def dead(self, number: int) -> NDArray[np.int64]:
        """Return the labels of other results that are absent from result `number`."""
        present = [result.present for result in self.results]
        return np.setdiff1d(np.concatenate(present), present[number])


class ComparisonStep(NamedTuple):
    """Snapshot of a run with the overall fraction, and finished results, not yet aligned."""

    variant: Variant
    snapshot: Snapshot
    results: tuple[Compared, ...]


def compare(
    image: ArrayLike,
    variants: Sequence[Variant],
    *,
    mask: ArrayLike | Literal["finite"] | None = None,
    seeds: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Comparison:
    """Run variants on one image.

    Parameters
    ----------
    image : array
        As in `Problem.from_image`.
    variants : sequence of Variant
        See `variants_of`.
    mask, seeds, groups : array, optional
        As in `Problem.from_image`; `groups` in the options of a variant take precedence.

    Raises
    ------
    SafError
        If all variants fail; otherwise those that do are listed in `failures`.

    Examples
    --------
    >>> image = np.kron([[0.0, 0.5, 1.0]], np.ones((16, 16)))
    >>> variants = saf.variants_of([saf.SLK()], {"n_clusters": [2, 3]})
    >>> [result.n_labels for result in saf.compare(image, variants).results]
    [2, 3]
    """

    def read(options: ImageOptions) -> Problem:
        kwargs = options.arguments()
        if options.groups is None:
            kwargs["groups"] = groups
        return Problem.from_image(image, mask=mask, seeds=seeds, **kwargs)

    variants = as_list(variants, "variants")
    for variant in variants:
        check_kind(variant, Variant, "variants", "Variant, as returned by saf.variants_of")
    return run_to_end(iterate_comparison(variants, read))


def iterate_comparison(
    variants: Sequence[Variant],
    read: Callable[[ImageOptions], Problem],
    *,
    cancelled: Callable[[], bool] = not_cancelled,
) -> Generator[ComparisonStep, None, Comparison]:
    """Run variants one after another; `read` makes a problem for each distinct set of options.

    Finished results are kept if cancelled. Raise Cancelled, or the first SafError, without results.
    """
    if not variants:
        raise InvalidInput("variants: expected at least one")
    results: dict[int, Compared] = {}
    failures: dict[int, Failure] = {}
    options: ImageOptions | None = None
    problem: Problem | None = None

    def as_step(variant: Variant, snapshot: Snapshot) -> ComparisonStep:
        fraction = (len(results) + len(failures) + snapshot.fraction) / len(variants)
        snapshot = dataclasses.replace(snapshot, fraction=fraction)
        return ComparisonStep(variant, snapshot, tuple(results.values()))

    # Variants are grouped by options, and only the last problem is held: features and weights of
    # large images take much memory.
    first = {variant.options: k for k, variant in reversed([*enumerate(variants)])}
    for number in sorted(range(len(variants)), key=lambda k: first[variants[k].options]):
        if cancelled():
            break
        variant = variants[number]
        try:
            if problem is None or variant.options != options:
                problem = None
                problem, options = read(variant.options), variant.options
            steps = variant.method.iterate(problem, cancelled=cancelled)
            result = yield from map_steps(steps, functools.partial(as_step, variant))
        except Cancelled:
            break
        except SafError as error:
            failures[number] = Failure(variant, error)
            continue
        if result.status is Status.CANCELLED:
            break
        fields = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        empty = np.empty((0, result.assignment.shape[1]), np.float32)
        fields |= {"assignment": empty, "exemplars": None, "uncertainty": None, "parts": {}}
        results[number] = Compared(**fields, variant=variant)
    is_complete = len(results) + len(failures) == len(variants)
    if not results:
        raise next(iter(failures.values())).error if is_complete else Cancelled()
    ordered = _with_common_numbers([results[number] for number in sorted(results)])
    failed = (failures[number] for number in sorted(failures))
    return Comparison(tuple(ordered), tuple(failed), is_complete, len(ordered[0].prototypes))


def _with_common_numbers(results: Sequence[Compared]) -> list[Compared]:
    """Renumber labels by `align`; prototypes get a row per number."""
    methods = (result.variant.method for result in results)
    is_fixed = [method.follows_seeds or method.labels_are_given for method in methods]
    numbers = align([result.labels for result in results], is_fixed)
    n_numbers = max(int(row.max(initial=0)) for row in numbers)
    renumbered = []
    for result, row in zip(results, numbers, strict=True):
        old = result.label_map.numbers
        prototypes = np.full((n_numbers, result.prototypes.shape[1]), np.nan, np.float32)
        used = np.flatnonzero(row[: len(result.prototypes)])
        prototypes[row[used] - 1] = result.prototypes[used]
        labels = LabelMap(row).paint(result.labels)
        table = np.pad(row, (1, max(0, int(old.max(initial=0)) - len(row))))  # 0: without pixels
        renumbered.append(
            dataclasses.replace(
                result, labels=labels, prototypes=prototypes, label_map=LabelMap(table[old])
            )
        )
    return renumbered


def align(
    images: Sequence[NDArray[Any]], is_fixed: Sequence[bool] | None = None
) -> list[NDArray[np.int64]]:
    """Match labels across label images of one shape; return their common numbers.

    Entry l - 1 of array k is the number of label l of image k, 0 if absent; numbers are distinct
    within an image. The image with the most labels, in a tie the one with the largest overlap with
    all, keeps its numbers, and so do fixed ones. Each further image is matched to all previous ones
    by the linear assignment that maximises the overlap in pixels; labels without overlap get new
    numbers.
    """
    from scipy.optimize import linear_sum_assignment  # takes a quarter of a second to load

    flat = [np.asarray(image).ravel().astype(np.int64) for image in images]
    fixed = [False] * len(flat) if is_fixed is None else list(is_fixed)
    present = [io.count_labels(image)[0] for image in flat]
    pairs = zip(present, flat, strict=True)
    ranks = [LabelMap(labels).unpaint(image).astype(np.int64) for labels, image in pairs]

    def overlaps(first: int, second: int) -> NDArray[np.int64]:
        height, width = len(present[first]) + 1, len(present[second]) + 1
        counts = np.bincount(ranks[first] * width + ranks[second], minlength=height * width)
        return np.asarray(counts.reshape(height, width)[1:, 1:])

    agreement = np.zeros(len(flat))
    for pair in itertools.combinations(range(len(flat)), 2):
        table = overlaps(*pair)
        agreement[[*pair]] += table[linear_sum_assignment(table, maximize=True)].sum()
    order = sorted(range(len(flat)), key=lambda k: (not fixed[k], -len(present[k]), -agreement[k]))
    numbers = [np.zeros(int(labels.max(initial=0)), np.int64) for labels in present]
    aligned: list[int] = []
    for k in order:
        matched = present[k]
        if aligned and not fixed[k]:
            targets = [numbers[image][present[image] - 1] for image in aligned]
            used = np.unique(np.concatenate(targets))
            score = np.zeros((len(present[k]), len(used)), np.int64)
            for image, target in zip(aligned, targets, strict=True):
                score[:, np.searchsorted(used, target)] += overlaps(k, image)
            rows, columns = linear_sum_assignment(score, maximize=True)
            is_match = score[rows, columns] > 0
            matched = np.zeros(len(present[k]), np.int64)
            matched[rows[is_match]] = used[columns[is_match]]
            is_new = matched == 0
            matched[is_new] = used.max(initial=0) + 1 + np.arange(is_new.sum())
        numbers[k][present[k] - 1] = matched
        aligned.append(k)
    return numbers


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Measures of one result; those of agreement are NaN without a truth."""

    name: str
    n_labels: int
    covering: float = math.nan
    information: float = math.nan
    rand_index: float = math.nan
    mutual_information: float = math.nan
    accuracy: float = math.nan
    objective: float
    n_evaluations: int
    seconds: float
    status: str


class Column(NamedTuple):
    """Column of the table: a field of `Row`, its format, and `max` or `min` for the best value."""

    field: str
    heading: str
    help: str
    form: str = ""
    best: Callable[[Sequence[float]], float] | None = None

    def text(self, row: Row) -> str:
        value = getattr(row, self.field)
        is_missing = isinstance(value, float) and not math.isfinite(value)
        return "" if is_missing else f"{value:{self.form}}"

    def best_of(self, rows: Sequence[Row]) -> float | None:
        values = [float(getattr(row, self.field)) for row in rows] if self.best else []
        values = [value for value in values if math.isfinite(value)]
        return self.best(values) if self.best and len(values) > 1 else None


COLUMNS = (
    Column("name", "Name", "Method and parameter values."),
    Column("n_labels", "Labels", "Number of labels with at least one pixel.", "d"),
    Column("covering", "Covering", "Mean overlap of regions of the truth with their best matching "
           "labels, weighted by size: 1 is perfect.", ".3f", max),
    Column("information", "VI", "Variation of information between labels and truth, in bits: 0 is "
           "perfect.", ".3f", min),
    Column("rand_index", "Rand", "Rand index, the share of pixel pairs on which labels and truth "
           "agree: 1 is perfect.", ".3f", max),
    Column("mutual_information", "NMI", "Normalised mutual information: 0 is independent of the "
           "truth, 1 is perfect.", ".3f", max),
    Column("accuracy", "Accuracy", "Share of correct pixels under the best matching of labels to "
           "regions.", ".3f", max),
    Column("objective", "Objective", "Final value of the objective; comparable within one method "
           "only.", ".5g"),
    Column("n_evaluations", "Evaluations", "Number of evaluations of the right-hand side, or of "
           "inner updates.", "d"),
    Column("seconds", "Time", "Duration in seconds, without reading the image.", ".2f"),
    Column("status", "Ended", "Why the run ended."),
)  # fmt: skip


def comparison_table(comparison: Comparison, truth: ArrayLike | None = None) -> list[Row]:
    """Return a row of measures for each result.

    Parameters
    ----------
    comparison : Comparison
        See `compare`.
    truth : array of int, optional
        Reference regions 1, 2, ... in the shape of the image; pixels that are 0 are ignored.

    Raises
    ------
    InvalidInput
        If the truth has another shape, is 0 everywhere, or is not of integers.

    Examples
    --------
    >>> image = np.kron([[0.0, 1.0]], np.ones((16, 16)))
    >>> comparison = saf.compare(image, [saf.Variant(saf.SLK(n_clusters=2))])
    >>> [row] = saf.comparison_table(comparison, truth=1 + (image > 0.5))
    >>> row.n_labels, row.accuracy
    (2, 1.0)
    """
    check_kind(comparison, Comparison, "comparison", "Comparison, as returned by saf.compare")
    regions = None if truth is None else as_labels(truth, "truth")
    rows = []
    for result in comparison.results:
        measures: dict[str, float] = {}
        if regions is not None:
            shape, inside = result.labels.shape, regions != 0
            if regions.shape != shape:
                raise InvalidInput(f"truth: expected the shape {shape}, got {regions.shape}")
            pair = regions[inside], result.labels[inside]
            measures = dataclasses.asdict(region_agreement(result.labels, regions))
            measures["mutual_information"] = normalized_mutual_information(*pair)
            measures["accuracy"] = matched_accuracy(*pair)
        row = Row(
            name=result.variant.name,
            n_labels=len(result.present),
            objective=float([math.nan, *result.history.objective][-1]),
            n_evaluations=result.n_evaluations,
            seconds=result.seconds,
            status=STATUS_TEXTS[result.status],
            **measures,
        )
        rows.append(row)
    return rows


class Panel(NamedTuple):
    """Image (height, width, 3), text above, and label swatches below, crossed out if `is_dead`."""

    title: str
    note: str
    pixels: NDArray[np.uint8]
    colors: NDArray[np.uint8] = np.empty((0, 3), np.uint8)
    is_dead: NDArray[np.bool_] = np.empty(0, bool)


def save_comparison(
    path: str | os.PathLike[str],
    comparison: Comparison,
    image: ArrayLike,
    *,
    truth: ArrayLike | None = None,
    paint: Literal["mean", "palette"] = "mean",
    colors: Mapping[int, Sequence[float]] | None = None,
    channel_axis: int | None = None,
    title: str = "",
    names: Sequence[str] | None = None,
) -> Path:
    """Save a comparison as a figure or as a table, by the suffix.

    Parameters
    ----------
    path : path
        Ends in ``.png``, ``.svg`` or ``.pdf`` (label images side by side, each with swatches of all
        labels below, absent ones crossed out) or ``.csv`` (the table).
    comparison : Comparison
        See `compare`.
    image : array
        The labelled image.
    truth : array of int, optional
        Reference regions in the shape of the image; adds measures of agreement to the table.
    paint : {"mean", "palette"}
        Paint labels in the mean colour of their pixels, or in distinct colours common to all.
    colors : mapping of int to sequence of float, optional
        The palette: red, green, blue in [0, 1] by label.
    channel_axis : int, optional
        Axis of the channels of the image. None: a last axis beyond those of the labels.
    title : str
        Text above the image.
    names : sequence of str, optional
        Name of each result. None: from their variants.

    Raises
    ------
    InvalidInput
        If the suffix is unknown, the comparison is empty, or image or truth have another shape.
    SafError
        If the file cannot be written.

    Examples
    --------
    >>> image = np.kron([[0.0, 1.0]], np.ones((16, 16)))
    >>> comparison = saf.compare(image, [saf.Variant(saf.SLK(n_clusters=2))])
    >>> saf.save_comparison("comparison.csv", comparison, image).name
    'comparison.csv'
    """
    target = as_path(path)
    suffix = io.check_suffix(target, COMPARISON_SUFFIXES)
    check_kind(comparison, Comparison, "comparison", "Comparison, as returned by saf.compare")
    if not comparison.results:
        raise InvalidInput("comparison: expected at least one result")
    rows = comparison_table(comparison, truth)
    if suffix == ".csv":
        if names is not None:
            rows = [dataclasses.replace(row, name=x) for row, x in zip(rows, names, strict=True)]
        import pandas  # takes half a second to load

        table = pandas.DataFrame(map(dataclasses.asdict, rows))
        io.write_csv(target, table.replace([np.inf, -np.inf], np.nan))
        return target
    labels = comparison.results[0].labels
    middle = tuple(side // 2 for side in labels.shape[:-2])
    plane = io.displayed_plane(np.asarray(image), labels, channel_axis, middle)
    pixels = img_as_ubyte(plane if plane.ndim == 3 else gray2rgb(plane))
    inputs = [Panel(title or "image", "", pixels)]
    if truth is not None:
        regions = np.asarray(truth)
        label_map = io.map_labels(regions)
        note = counted(label_map.n_columns, "region")
        inputs.append(Panel("truth", note, io.color_labels(io.thinned(regions[middle]), label_map)))
    results = result_panels(comparison, rows, pixels, paint, colors, names)
    _draw(target, inputs, results, lay_out([result.variant for result in comparison.results]))
    return target


def result_panels(
    comparison: Comparison,
    rows: Sequence[Row],
    pixels: NDArray[np.uint8],
    paint: str = "mean",
    colors: Mapping[int, Sequence[float]] | None = None,
    names: Sequence[str] | None = None,
) -> list[Panel]:
    """Return a panel per result; stacks show their middle plane, as in `pixels`."""
    if paint not in ("mean", "palette"):
        raise InvalidInput(f"paint: expected mean or palette, got {paint!r}")
    results, numbers = comparison.results, np.arange(1, comparison.n_numbers + 1)
    middle = tuple(side // 2 for side in results[0].labels.shape[:-2])
    planes = [io.thinned(result.labels[middle]) for result in results]
    if paint == "palette":
        label_map = io.map_labels(np.append(0, numbers), colors=colors)
        tables = [io.color_table(label_map)[1:]] * len(planes)
    else:
        import pandas

        values = pandas.DataFrame(pixels.reshape(-1, 3))
        means = [values.groupby(plane.ravel()).mean().reindex(numbers) for plane in planes]
        # Labels absent from a plane take their mean colour over the other planes.
        overall = pandas.concat(means).groupby(level=0).mean().fillna(_ABSENT)
        tables = [mean.fillna(overall).to_numpy().astype(np.uint8) for mean in means]
    panels = []
    names = short_names([result.variant for result in results]) if names is None else names
    for k, (row, table) in enumerate(zip(rows, tables, strict=True)):
        note = counted(row.n_labels, "label")
        if not math.isnan(row.covering):
            note += f", covering {row.covering:.2f}"
        painted = np.vstack([np.zeros((1, 3), np.uint8), table])[planes[k]]
        is_dead = np.isin(numbers, comparison.dead(k))[:_MOST_SWATCHES]
        panels.append(Panel(names[k], note, painted, table[:_MOST_SWATCHES], is_dead))
    return panels


def _draw(path: Path, inputs: Sequence[Panel], results: Sequence[Panel], layout: Layout) -> None:
    """Save a figure: inputs in the left columns, then the results; dead labels crossed out."""
    from matplotlib.figure import Figure  # takes half a second to load

    n_rows, n_left = layout.n_rows, math.ceil(len(inputs) / layout.n_rows)
    cells = [(k % n_rows, k // n_rows) for k in range(len(inputs))]
    cells += [(row, n_left + column) for row, column in layout.cells]
    aspect = results[0].pixels.shape[0] / results[0].pixels.shape[1]
    width = min(_PANEL_WIDTH, _PANEL_HEIGHT / aspect)
    swatches_height = math.ceil(len(results[0].colors) / _SWATCHES_PER_LINE) / _SWATCHES_PER_LINE
    height = width * (aspect + swatches_height) + _TEXT_HEIGHT
    n_columns = n_left + layout.n_columns
    figure = Figure((n_columns * width, n_rows * height), layout="constrained")
    grid = figure.subplots(n_rows, n_columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for panel, cell in zip([*inputs, *results], cells, strict=True):
        axes = grid[cell]
        axes.imshow(panel.pixels, interpolation="none")
        text = "\n".join(filter(None, [io.printable(panel.title), panel.note]))
        axes.set_title(text, loc="left", fontsize=8, parse_math=False)
        if not len(panel.colors):
            continue
        y, x = np.divmod(np.arange(len(panel.colors)), _SWATCHES_PER_LINE)
        high = swatches_height / aspect
        swatches = axes.inset_axes((0, -high - 0.02, 1, high))
        swatches.set(xlim=(0, _SWATCHES_PER_LINE), ylim=(y[-1] + 1, 0))
        swatches.set_axis_off()
        colors = panel.colors / 255
        swatches.bar(x, 0.88, 0.88, y, color=colors, edgecolor="0.4", linewidth=0.5, align="edge")
        x, y = x[panel.is_dead] + 0.44, y[panel.is_dead] + 0.44
        for color, linewidth in (("white", 1.8), ("black", 0.8)):
            swatches.scatter(x, y, 40, color, marker="x", linewidths=linewidth)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=_DPI, format=path.suffix[1:].lower())
