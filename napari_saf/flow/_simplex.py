"""The probability simplex in log coordinates, and where flows on it start.

A point W of the assignment manifold, one distribution a row, is stored as V with
W = softmax(V) by rows; V is log W up to a constant a row. Then every map of the manifold is
an addition: exp_W(u), eq. (2.31) of Zisler, Zern, Petra and Schnörr
(https://doi.org/10.1137/19M1298639), is softmax(V + u), and the geometric mean with weights A,
eq. (2.33), is softmax(A V).

Fields (n_nodes, n_columns) are large: they are gone through block by block of rows, each of which
stays in the caches of a processor, and their memory is used again where columns are dropped.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import own_floats
from napari_saf.device import Tensor, torch
from napari_saf.errors import InvalidInput
from napari_saf.points import distances

FLOOR = math.log(1e-10)
"""Lowest log coordinate, relative to the largest of its row."""

_LEAST_EXPONENT = -60.0
"""Below this exponentials in float32 become denormal, and a processor ten times slower."""
_SLOW_WIDTHS = range(12, 64)
"""Numbers of columns for which torch finds the maxima of rows one by one."""
_BLOCK = 2**20
"""Entries of a block of rows."""
_ROWS = 2**13
_SUMMED_ROWS = 2**12


def row_blocks(field: Tensor) -> Iterator[slice]:
    """Yield the blocks of rows to go through a field by, all in one on a graphics card."""
    step = len(field)
    if field.device.type == "cpu":
        step = max(1, _BLOCK // max(1, field.shape[1]))
    for start in range(0, len(field), max(1, step)):
        yield slice(start, min(start + step, len(field)))


def new_field(like: Tensor, n_columns: int) -> Tensor:
    """Return a field of zeros (n_nodes, n_columns), of the device and type of another tensor.

    In main memory numpy allocates it, which asks Linux for huge pages: these are first touched four
    times, and released ten times as fast.
    """
    if is_columns_first(like):
        return new_field(like.new_empty(n_columns), len(like)).T
    if like.device.type != "cpu":
        return like.new_zeros((len(like), n_columns))
    return torch.from_numpy(np.zeros((len(like), n_columns), like[:0].numpy().dtype))


def is_columns_first(field: Tensor) -> bool:
    """Return whether the entries of a column follow one another, as compiled kernels want it."""
    return field.dim() == 2 and field.shape[1] > 1 and field.stride(0) == 1


def columns_first_(field: Tensor) -> Tensor:
    """Give a field such memory in place, so that nobody holds what it had."""
    if is_columns_first(field):
        return field
    whole = new_field(field.new_empty(field.shape[1]), len(field))
    for rows in row_blocks(field):
        whole[:, rows] = field[rows].T.contiguous()  # in a third of the time
    field.data = whole.T
    return field


def distance_table(features: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distances (n_nodes, n_points), and the number of the nearest point of a node."""
    table = new_field(features, len(points))
    nearest = torch.empty(len(features), dtype=torch.int64, device=features.device)
    for rows in row_blocks(table):
        table[rows] = distances(features[rows], points)
        torch.argmin(table[rows], dim=1, out=nearest[rows])
    return table, nearest


def cross_product(left: Tensor, right: Tensor) -> Tensor:
    """Return left' right of two fields as float64 in main memory, summed up block by block.

    Of 4096 rows: sums of 65,536 in float32 changed the labels of 4 % of the nodes where s = 1.
    """
    if left.shape[1] > right.shape[1]:
        # Twice as fast this way round with 16 and 3 columns.
        return cross_product(right, left).T
    total = torch.zeros(left.shape[1], right.shape[1], dtype=torch.float64)
    for rows in _summed_blocks(right):
        total += (left[rows].T @ right[rows]).cpu()
    return total


def gram(field: Tensor) -> Tensor:
    """Return the products of a field's columns, field' field, as float64 in main memory.

    The products are float64 too, where a device has it. Columns of a start are nearly the same, and
    for s > 0 the small eigenvalues, which float32 loses, count most.
    """
    exact = torch.float32 if field.device.type == "mps" else torch.float64
    total = torch.zeros(field.shape[1], field.shape[1], dtype=torch.float64)
    for rows in _summed_blocks(field):
        block = field[rows].to(exact)
        total += (block.T @ block).cpu()
    return total


def _summed_blocks(field: Tensor) -> Iterator[slice]:
    n_rows = _SUMMED_ROWS if field.device.type == "cpu" else max(1, len(field))
    for start in range(0, len(field), n_rows):
        yield slice(start, start + n_rows)


def column_sums(field: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums of a field's columns and of their squares, as `cross_product` does."""
    sums, squares = torch.zeros(2, field.shape[1], dtype=torch.float64)
    for rows in row_blocks(field):
        sums += field[rows].sum(dim=0).cpu()
        squares += field[rows].square().sum(dim=0).cpu()
    return sums, squares


def with_columns(field: Tensor, n_columns: int) -> Tensor:
    """Return a field's memory as one of other columns, as many as it had when new; undefined."""
    strides = (1, len(field)) if is_columns_first(field) else (n_columns, 1)
    return field.as_strided((len(field), n_columns), strides)


def take_columns(field: Tensor, columns: Tensor) -> Tensor:
    """Return the columns of the given indices, in the memory of the field, which is overwritten."""
    taken = with_columns(field, len(columns))
    if is_columns_first(field):
        for place, column in enumerate(columns.tolist()):
            taken[:, place].copy_(field[:, column])
        return taken
    for start in range(0, len(field), _ROWS):
        # What is written lies before all that is still to be read.
        rows = slice(start, start + _ROWS)
        taken[rows] = field[rows].index_select(1, columns)
    return taken


def row_maxima(v: Tensor) -> Tensor:
    """Return the largest entry of each row, as a column.

    By halves where torch's own is slow: on a CPU with 30 columns it takes four times as long.
    """
    if v.device.type != "cpu" or v.shape[1] not in _SLOW_WIDTHS:
        return v.amax(dim=1, keepdim=True)
    while v.shape[1] > 1:
        half = (v.shape[1] + 1) // 2
        v = torch.maximum(v[:, :half], v[:, -half:])
    return v


def normalize_(v: Tensor) -> Tensor:
    """Renormalise rows of `v` in place: a maximum of 0, and nothing below `FLOOR`."""
    for rows in row_blocks(v):
        v[rows].sub_(row_maxima(v[rows])).clamp_(min=FLOOR)
    return v


class SeedConstraint:
    """Rows normalised, and those of seeds vertices of the simplex; -1 is the column of no seed."""

    def __init__(self, columns: Tensor | None = None) -> None:
        self.columns = columns

    def __call__(self, v: Tensor, rows: slice = slice(None)) -> Tensor:
        normalize_(v)
        if self.columns is not None:
            columns = self.columns[rows]
            seeded = (columns >= 0).nonzero()[:, 0]
            one_hot_(v, seeded, columns[seeded])
        return v


def one_hot_(v: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Set rows of `v` to vertices of the simplex, in place."""
    v[rows] = FLOOR
    v[rows, columns] = 0
    return v


def softmax(v: Tensor, out: Tensor, scale: Tensor | None = None) -> Tensor:
    """Write the softmax of each row of `v` into `out`, for row maxima within about 40 of 0.

    `scale`, of shape (n_nodes,), receives 1 / sum exp v of each row. On the CPU torch's own
    softmax over a short last axis takes several times as long.
    """
    if v.device.type != "cpu" and scale is None:
        return torch.softmax(v, dim=1, out=out)
    ones = out.new_ones(out.shape[1])
    for rows in row_blocks(v):
        block = torch.exp(v[rows], out=out[rows])
        total = torch.mv(block, ones, out=None if scale is None else scale[rows])
        block.mul_(total.reciprocal_()[:, None])
    return out


def shifted_softmax(v: Tensor, out: Tensor) -> Tensor:
    """Write the softmax of each row of `v` into `out`, whatever the size of its entries."""
    if v.device.type != "cpu":
        return torch.softmax(v, dim=1, out=out)
    for rows in row_blocks(v):
        block = torch.sub(v[rows], row_maxima(v[rows]), out=out[rows])
        softmax(block.clamp_(min=_LEAST_EXPONENT), block)
    return out


def entropy(assignment: Tensor, v: Tensor, highest: Tensor) -> float:
    """Return the mean over the rows of -sum w log w, in nats, w = softmax(v).

    Rows of `v` have a maximum of 0, where w is `highest` (n_nodes,). A row's entropy is
    log Z - sum w v with Z = sum exp v = 1 / w_highest: two sums of terms that are not negative,
    without a logarithm of a small number.
    """
    total = 0.0
    for rows in row_blocks(v):
        total -= float(highest[rows].log().sum())
        total -= float(torch.dot(assignment[rows].view(-1), v[rows].view(-1)))
    return total / len(v)


def update_labels(labels: Tensor, v: Tensor) -> float:
    """Update the preferred columns in place; return the share of the nodes that moved.

    Rows of `v` have a maximum of exactly 0, so only rows whose old label lost it are searched.
    """
    moved = (v.gather(1, labels[:, None])[:, 0] < 0).nonzero()[:, 0]
    labels[moved] = v[moved].argmax(dim=1)
    return len(moved) / len(labels)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Start:
    """The start of a flow: first its labels, then all of it.

    `labels` (n_nodes,) says which column a node prefers, or what to show of one that prefers none.
    `logarithm` makes the log coordinates (n_nodes, n_columns), rows with a maximum of 0, whose
    memory the caller may have.
    """

    labels: Tensor
    n_columns: int
    logarithm: Callable[[], Tensor]

    @classmethod
    def at(cls, logarithm: Tensor) -> Start:
        """Return the start at normalised log coordinates, whose memory it takes."""
        return cls(logarithm.argmax(dim=1), logarithm.shape[1], lambda: logarithm)


def k_centres(
    features: Tensor, n_centres: int, rng: np.random.Generator, given: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return points chosen greedily, each the node farthest from all before, and the nearest.

    Of each node the number of the first point (n_centres, n_features) that is nearest. There are
    fewer centres where there are fewer distinct features. `rng` draws the first where no points
    (n_given, n_features) are `given` that are centres already.

    Gonzalez, https://doi.org/10.1016/0304-3975(85)90224-5: within a factor 2 of the smallest
    radius that covers all nodes.
    """
    if given is None:
        first = int(rng.integers(len(features)))
        given = features[first : first + 1]
    points = list(given)
    nearest = torch.zeros(len(features), dtype=torch.int64, device=features.device)
    distance = torch.full_like(features[:, 0], np.inf)
    blocks, number = list(row_blocks(distance[:, None])), 0
    while number < len(points):
        radii = []
        for rows in blocks:
            from_point = distances(features[rows], points[number][None])[:, 0]
            nearest[rows].masked_fill_(from_point < distance[rows], number)
            torch.minimum(distance[rows], from_point, out=distance[rows])
            radii.append(distance[rows].amax())
        number += 1
        radius = torch.stack(radii)
        if number == len(points) < n_centres and float(radius.max()) > 0:
            rows = blocks[int(radius.argmax())]
            points.append(features[rows.start + int(distance[rows].argmax())])
    return torch.stack(points), nearest


def class_means(features: Tensor, seeds: Tensor) -> Tensor:
    """Return the mean feature (n_classes, n_features) of the seeds of each class."""
    n_classes = count_classes(seeds)
    total = torch.zeros(n_classes + 1, features.shape[1], dtype=features.dtype)
    total = total.to(features.device).index_add_(0, seeds, features)
    return total[1:] / torch.bincount(seeds)[1:, None]


def count_classes(seeds: Tensor | NDArray[np.int64]) -> int:
    """Return the number of classes 1, 2, ... of seeds (n_nodes,), or raise if one is skipped."""
    found = torch.unique(torch.as_tensor(seeds[seeds > 0]))
    numbers = torch.arange(1, len(found) + 1, device=found.device)
    skipped = (found != numbers).nonzero()[:, 0]
    if len(skipped):
        missing, last = int(skipped[0]) + 1, int(found[-1])
        raise InvalidInput(f"seeds: expected classes 1 to {last}, class {missing} has none")
    return len(found)


def check_seeds_fit(seeds: Tensor | None, n_columns: int) -> None:
    """Raise InvalidInput if there are seeds of a class that has no column."""
    if seeds is not None and int(seeds.max()) > n_columns:
        raise InvalidInput(f"seeds: expected classes up to {n_columns}, got {int(seeds.max())}")


def from_assignment(initial: ArrayLike, features: Tensor) -> Tensor:
    """Return log coordinates, like the features, of an assignment that a user gave."""
    array, n_nodes = own_floats(initial, "initial"), len(features)
    if array.ndim != 2 or len(array) != n_nodes or array.shape[1] < 1:
        raise InvalidInput(f"initial: expected shape ({n_nodes}, n_labels), got {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise InvalidInput("initial: expected finite numbers that are not negative")
    if np.abs(array.sum(axis=1) - 1).max() > 1e-3:
        raise InvalidInput("initial: expected rows that sum to 1")
    assignment = torch.from_numpy(array).to(features.dtype).to(features.device)
    return normalize_(assignment.clamp(min=math.exp(2 * FLOOR)).log_())
