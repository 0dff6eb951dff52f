"""Automatic settings for strokes: single objects, or classes of many similar objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import find_objects
from scipy.ndimage import label as label_regions

from napari_saf.arrays import Bools, Floats, as_labels
from napari_saf.features import DeepFeatures, Scaling, channels_last, finite_mask, ground_of
from napari_saf.flow import not_cancelled
from napari_saf.graph import GridGraph
from napari_saf.methods._assignment import AssignmentFlow
from napari_saf.methods._method import run_to_end
from napari_saf.methods._stroke_costs import left_out_shares, trust_in_features
from napari_saf.problem import ImageOptions, Problem
from napari_saf.result import Status

_LEAST_SIZE = 0.1
"""Least size of a counted region, relative to the median region with a stroke."""
_FEWEST_REGIONS = 4
"""Least number of regions without a stroke in a class of many objects. With `_LEAST_SIZE` chosen
on photographs with strokes and on nuclei; five-fold cross-validation agrees within 3 %."""
_LEAST_OF_STROKE, _SHORTEST_STROKE = 0.2, 9
"""Least size of a region relative to the median stroke length squared or cubed, and least length in
pixels, above the window, of strokes that indicate sizes. Chosen on merging nuclei; no choice on
photographs with strokes changes for 0.2 to 0.3."""
_LEAST_GAINS = {"texture": 0.1, "patterns": 0.3, "deep": 0.1}
"""Least gain in leave-one-out accuracy over simpler features. Results on nuclei are the same with
0.05 to 0.15 for texture; with 0.1 for patterns three images are worse."""
_LEAST_OF_OBJECTS = {"deep": 0.3}
"""Least gain if strokes mark single objects."""
_LEAST_TOLD = 0.6
"""Leave-one-out accuracy for many objects below which deep features are chosen: better on all
mosaics of facades but one, whose strokes on one texture differ."""
_AROUND = 8.0
"""Width in pixels over which deep features are averaged, as in `Patterns`."""
_LEAST_TRUST = 0.8
"""Trust in features above which dots mark many objects: nine in ten left-out dots are classified
correctly. For clicks that correct one object the share is 0.4 to 0.9, mostly 0.6."""
_LEAST_OF_MANY = 0.95
"""Leave-one-out accuracy from which strokes after those for an object may mark many things where no
background is uniform. For strokes that correct an object it is at most 0.93, on half of the
photographs; for nuclei it is 1."""
_MOST_REDUCED = 5
"""Most pixels per node along an axis of a large image: nuclei of 12 pixels are lost at 8, not at 5.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class StrokeChoice:
    """Settings chosen for strokes by `choose_for_strokes`.

    Attributes
    ----------
    options : ImageOptions
        Features and working size.
    parameters : mapping of str to value
        Chosen fields of the `method`; the others have their defaults.
    summary : str
        Short description of the choice.
    corrects : bool
        Whether each stroke corrects the previous labels, which are then the `initial` of a run.

    Examples
    --------
    >>> image = np.kron([[0.1, 0.9], [0.9, 0.1]], np.ones((32, 32)))
    >>> strokes = np.zeros(image.shape, int)
    >>> strokes[8, 4:20], strokes[8, 40:56] = 1, 2
    >>> choice = saf.choose_for_strokes(image, strokes)
    >>> problem = saf.Problem.from_image(image, seeds=strokes, **choice.options.arguments())
    >>> choice.method.run(problem).labels.shape
    (64, 64)
    """

    options: ImageOptions
    parameters: Mapping[str, object]
    summary: str
    corrects: bool = False

    @property
    def method(self) -> AssignmentFlow:
        """Method with the chosen parameters."""
        return AssignmentFlow(**self.parameters)  # type: ignore[arg-type]


def stroke_choices(
    n_channels: int = 3, n_axes: int = 2, longest: int = 0, deep: DeepFeatures | None = None
) -> dict[str, StrokeChoice]:
    """Return the choices by name; their reduction is limited by the `longest` side."""
    colour = "lab" if n_channels == 3 else "intensity"
    # A volume of twice the side has eight times the nodes, and windows of 7 have 343.
    side = max(480 if n_axes < 3 else 128, -(-longest // _MOST_REDUCED))
    window = 7 if n_axes < 3 else 3
    many = ImageOptions(features="local", window=window, weights="contrast", max_side=side)
    alike: dict[str, object] = {"connected": False, "paths": 0.0, "rounds": 0, "nearby": 0.0}
    small = 240 if n_axes < 3 else 64
    few = ImageOptions(features=colour, window=13, weights="contrast", max_side=small)
    one_piece: dict[str, object] = {"connected": True, "paths": 1.0, "rounds": 4, "nearby": 0.0}
    learning = alike | {"rounds": 1, "nearby": 16.0}

    def by(features: str | DeepFeatures) -> ImageOptions:
        return dataclasses.replace(many, features=features)

    soft, hard = (one_piece | {"edge_power": power} for power in (1.0, 3.0))
    choices = {
        "object": StrokeChoice(few, soft, "objects in one piece", corrects=True),
        "clicks": StrokeChoice(few, hard, "objects from clicks", corrects=True),
        "many": StrokeChoice(many, learning, "all that looks like a stroke"),
        "ground": StrokeChoice(by("foreground"), learning, "things on a ground"),
        "texture": StrokeChoice(by("multiscale"), alike, "all of the same texture"),
        "patterns": StrokeChoice(by("patterns"), alike, "all of the same fine texture"),
    }
    if deep is not None and n_axes < 3:
        averaged = dataclasses.replace(deep, around=deep.around or _AROUND)
        choices["deep"] = StrokeChoice(by(averaged), alike, "all that is alike to a network")
    return choices


def choose_for_strokes(
    image: ArrayLike,
    strokes: ArrayLike,
    *,
    channel_axis: int | None = None,
    mask: ArrayLike | Literal["finite"] | None = None,
    scaling: Scaling | tuple[float, float] | None = None,
    deep: DeepFeatures | None = None,
    previous: StrokeChoice | None = None,
) -> StrokeChoice:
    """Choose settings from strokes: for connected objects, or for classes of many similar objects.

    Parameters
    ----------
    image : array
        As for `Problem.from_image`.
    strokes : array of int, image-shaped
        Two or more classes 1, 2, ...; 0 for unpainted pixels.
    channel_axis, mask, scaling
        As for `Problem.from_image`.
    deep : DeepFeatures, optional
        Network features of planes that may also be chosen.
    previous : StrokeChoice, optional
        Choice for a subset of these strokes, with the same classes. Strokes that marked an object
        then still do, unless the image has a uniform background or left-out strokes are classified
        almost without error by the others; for dots, unless both is so.

    Returns
    -------
    StrokeChoice
        ``choice.method`` labels the problem
        ``Problem.from_image(image, seeds=strokes, **choice.options.arguments())``.

    Raises
    ------
    InvalidInput
        As in `Problem.from_image`, and if fewer than two classes are painted.

    Notes
    -----
    The image is labelled as for many things, at the size for objects, and each class falls into
    connected regions; those are left out that are small beside the ones with strokes (a tenth of
    their median size). A stroke is a connected component of the painted pixels of a class. Leave
    one out: in one piece, its region keeps the class only if another stroke touches it. Strokes
    stand for many things if in some class

    - a stroke is lost in that way, and there is a region without strokes; or
    - there are four regions without strokes; where things merge into one region, those count that
      have a fifth of the square of the median length of the strokes, if that is 9 pixels or more.

    Otherwise they mark objects, outlined by strong edges if the strokes are dots, shorter than 9
    pixels. So do dots of inconsistent features, such as clicks that correct one object, unless the
    image has a uniform background or nine in ten left-out dots are classified correctly. Features
    of many objects on a uniform background, which is detected from the image alone, are the
    contrast to it. Otherwise, if each class has two strokes or more, features are chosen by their
    leave-one-out accuracy: the share of the pixels of a left-out stroke that are nearer to other
    strokes of their class (the ten nearest pixels in feature space) than to those of other classes.
    Edges and texture replace colour for a gain of 0.1, patterns of fine texture for 0.3; `deep`
    features for a gain of 0.1 over the choice without them, or if its accuracy is below 0.6; if
    strokes mark objects, for a gain of 0.3. Without `deep` the choice takes less time than the run.
    It does not depend on the order in which strokes were painted.

    Examples
    --------
    >>> image = np.kron(np.indices((8, 8)).sum(axis=0) % 2, np.ones((8, 8)))  # a chessboard
    >>> image[:8] = 0
    >>> strokes = np.zeros((64, 64), dtype=int)
    >>> strokes[12, 2:6], strokes[3, 2:60] = 1, 2
    >>> saf.choose_for_strokes(image, strokes).summary
    'all that looks like a stroke'
    """
    array, strokes = channels_last(image, channel_axis)[0], as_labels(strokes, "strokes")
    shape = array.shape[:-1]

    def fitted(options: ImageOptions) -> ImageOptions:
        """Return options for this image, with the window clipped to it."""
        side: Any = options.window
        sides = tuple(min(side, n - 1 + n % 2) if n > 1 else 1 for n in shape)
        window = side if set(sides) == {side} else sides
        changes: Any = {"channel_axis": channel_axis, "scaling": scaling, "window": window}
        return dataclasses.replace(options, **changes)

    def read(options: ImageOptions) -> Problem:
        arguments = fitted(options).arguments()
        return Problem.from_image(image, mask=mask, seeds=strokes, **arguments)

    n_axes = sum(n > 1 for n in shape)

    def has_ground() -> bool:
        inside = finite_mask(image, array, mask, channel_axis)
        return n_axes == 2 and ground_of([array], [inside]) is not None

    choices = stroke_choices(array.shape[-1], n_axes, max(shape), deep)
    summaries = {choice.summary: name for name, choice in choices.items()}
    last = "" if previous is None else summaries.get(previous.summary, "")
    choice = choices[choose_by(read, choices, has_ground, previous=last)]
    return dataclasses.replace(choice, options=fitted(choice.options))


def choose_by(
    read: Callable[[ImageOptions], Problem],
    choices: Mapping[str, StrokeChoice],
    has_ground: Callable[[], bool],
    cancelled: Callable[[], bool] = not_cancelled,
    previous: str = "",
) -> str:
    """Return the name of the choice for the strokes on one image; "" if cancelled.

    `read` returns the problem with seeds for options; deep features are read at the full working
    size, to be cached for the run. `has_ground` is called only for many objects or dots. Strokes
    after a `previous` choice for an object still mark one, unless there is a uniform background or
    features tell them apart; for dots, unless both is so. Errors are those of methods.
    """
    by_object = choices["object"].options
    options = dataclasses.replace(
        choices["many"].options,
        features=by_object.features,
        max_side=by_object.max_side,
        full_resolution=False,
    )
    problem = read(options)
    grid = problem.graph
    assert isinstance(grid, GridGraph) and problem.seeds is not None
    classes, seeds = np.unique(np.append(0, problem.seeds), return_inverse=True)
    strokes = grid.spread(seeds[1:])
    boxes = find_objects(label_regions(strokes, np.ones((3,) * strokes.ndim))[0])
    lengths = [max(side.stop - side.start for side in box) for box in boxes]
    of_objects = "clicks" if np.median(lengths) < _SHORTEST_STROKE else "object"
    was_object = previous in ("object", "clicks")
    if of_objects == "clicks" and len(classes) > 2:
        if (was_object or trust_in_features(problem) < _LEAST_TRUST) and not has_ground():
            return of_objects
    numbered = problem.with_seeds(seeds[1:])
    method = dataclasses.replace(choices["many"].method, rounds=0)
    result = run_to_end(method.iterate(numbered, cancelled=cancelled))
    if result.status is Status.CANCELLED:
        return ""
    labels = grid.spread(result.assignment.argmax(axis=1) + 1)
    is_of_many = (_is_of_many(labels == k, strokes == k) for k in range(1, len(classes)))
    base = "many" if any(is_of_many) else of_objects
    is_correction = base == "many" and was_object and not _tell_apart(problem)
    if is_correction and (of_objects == "clicks" or not has_ground()):
        base = of_objects
    if base == "many" and has_ground():
        return "ground"
    gains = _LEAST_GAINS if base == "many" else _LEAST_OF_OBJECTS
    gains = {name: least for name, least in gains.items() if name in choices}
    by_colour = left_out_accuracy(problem) if gains else None
    if by_colour is None or 1 - by_colour < min(gains.values()):
        return base
    best, most = base, by_colour
    for name, least in gains.items():
        if cancelled():
            return ""
        accuracy = left_out_accuracy(read(_as_tried(choices[name].options, options)))
        assert accuracy is not None
        is_needed = name == "deep" and base == "many" and most < _LEAST_TOLD
        if accuracy - most >= least or is_needed:
            best, most = name, accuracy
    return best


def _as_tried(chosen: ImageOptions, tried: ImageOptions) -> ImageOptions:
    """Return options with the chosen features, at the full working size if deep."""
    is_deep = isinstance(chosen.features, DeepFeatures)
    return chosen if is_deep else dataclasses.replace(tried, features=chosen.features)


def left_out_accuracy(problem: Problem) -> float | None:
    """Return the leave-one-out accuracy over strokes; None if a class has a single stroke."""
    shares = left_out_shares(problem)
    return float(np.mean(np.concatenate(shares))) if all(shares) else None


def _tell_apart(problem: Problem) -> bool:
    """Return whether features classify left-out strokes, at least one, almost without error."""
    shares = np.concatenate(left_out_shares(problem))
    return len(shares) > 0 and float(shares.mean()) >= _LEAST_OF_MANY


def _is_of_many(pixels: Bools, painted: Bools) -> bool:
    """Return whether strokes mark more than the class regions that they touch."""
    sizes, is_lost, in_strokes = regions_without_stroke(pixels, painted)
    return (
        int((sizes >= _LEAST_SIZE).sum()) >= (1 if is_lost else _FEWEST_REGIONS)
        or int((in_strokes >= _LEAST_OF_STROKE).sum()) >= _FEWEST_REGIONS
    )


def regions_without_stroke(pixels: Bools, painted: Bools) -> tuple[Floats, bool, Floats]:
    """Return sizes of class regions without a stroke, and whether a stroke is isolated.

    Sizes are relative to the median region with a stroke and, last, to the median stroke length
    squared or cubed, 0 for short strokes.
    """
    regions, count = label_regions(pixels)
    strokes, n_strokes = label_regions(painted, np.ones((3,) * painted.ndim))
    sizes = np.bincount(regions.ravel(), minlength=count + 1)[1:]
    touched = [np.setdiff1d(regions[strokes == k], 0) for k in range(1, n_strokes + 1)]
    if not sum(map(len, touched)):
        return np.empty(0), False, np.empty(0)
    # number of strokes per region
    visits = np.bincount(np.concatenate(touched), minlength=count + 1)
    without, typical = sizes[visits[1:] == 0], np.median(sizes[visits[1:] > 0])
    boxes = [[side.stop - side.start for side in box] for box in find_objects(strokes)]
    length = np.median(np.max(boxes, axis=1))
    in_strokes = without / length**painted.ndim * (length >= _SHORTEST_STROKE)
    is_lost = n_strokes > 1 and any(len(ids) and (visits[ids] == 1).all() for ids in touched)
    return without / typical, is_lost, in_strokes
