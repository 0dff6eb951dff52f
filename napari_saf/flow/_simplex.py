"""Probability simplex in log coordinates, and initial states of flows.

A point W of the assignment manifold, one distribution per row, is stored as V with
W = softmax(V) by rows; V is log W up to a constant per row. Maps of the manifold are then linear:
exp_W(u), eq. (2.31) of Zisler, Zern, Petra and Schnörr (https://doi.org/10.1137/19M1298639), is
softmax(V + u), and the geometric mean with weights A, eq. (2.33), is softmax(A V).

Fields (n_nodes, n_columns) are processed in blocks of rows that fit the processor caches, and
their memory is reused when columns are dropped.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from napari_saf.arrays import Int64s, own_floats
from napari_saf.device import Tensor, torch
from napari_saf.errors import InvalidInput
from napari_saf.points import distances

FLOOR = math.log(1e-10)
"""Lowest log coordinate, relative to the largest of its row."""

_LEAST_EXPONENT = -60.0
"""Logarithm below which float32 exponentials are subnormal and ten times slower."""
_SLOW_WIDTHS = range(12, 64)
"""Numbers of columns for which the row maxima of torch are slow."""
_BLOCK = 2**20
"""Entries per block of rows."""
_ROWS = 2**13
_SUMMED_ROWS = 2**12  # sums of 2**16 in float32 changed 4 % of the labels for s = 1


def row_blocks(field: Tensor) -> Iterator[slice]:
    """Yield the blocks of rows of a field, a single block on a GPU."""
    step = len(field)
    if field.device.type == "cpu":
        step = max(1, _BLOCK // max(1, field.shape[1]))
    for start in range(0, len(field), max(1, step)):
        yield slice(start, min(start + step, len(field)))


def new_field(like: Tensor, n_columns: int) -> Tensor:
    """Return a zero field (n_nodes, n_columns) with device, type and layout of `like`."""
    if is_columns_first(like):
        return new_field(like.new_empty(n_columns), len(like)).T
    if like.device.type != "cpu":
        return like.new_zeros((len(like), n_columns))
    # numpy allocates huge pages: first writes are four times, releases ten times faster
    return torch.from_numpy(np.zeros((len(like), n_columns), like[:0].numpy().dtype))


def is_columns_first(field: Tensor) -> bool:
    """Return whether entries of a column are contiguous, as compiled kernels need."""
    return field.dim() == 2 and field.shape[1] > 1 and field.stride(0) == 1


def columns_first_(field: Tensor) -> Tensor:
    """Convert a field to columns-first memory in place, releasing the old one."""
    if is_columns_first(field):
        return field
    transposed = new_field(field.new_empty(field.shape[1]), len(field))
    for rows in row_blocks(field):
        transposed[:, rows] = field[rows].T.contiguous()  # three times faster
    field.data = transposed.T
    return field


def distance_table(features: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distances (n_nodes, n_points), and the nearest point of each node."""
    table = new_field(features, len(points))
    nearest = torch.empty(len(features), dtype=torch.int64, device=features.device)
    for rows in row_blocks(table):
        table[rows] = distances(features[rows], points)
        torch.argmin(table[rows], dim=1, out=nearest[rows])
    return table, nearest


def cross_product(x: Tensor, y: Tensor) -> Tensor:
    """Return x' y of two fields as float64 on the CPU, summed over blocks."""
    if x.shape[1] > y.shape[1]:
        # twice as fast for 16 and 3 columns
        return cross_product(y, x).T
    total = torch.zeros(x.shape[1], y.shape[1], dtype=torch.float64)
    for rows in _summed_blocks(y):
        total += (x[rows].T @ y[rows]).cpu()
    return total


def gram(field: Tensor) -> Tensor:
    """Return field' field as float64 on the CPU, exact for its small eigenvalues."""
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
    """Return the column sums of a field and of its squares, as float64 on the CPU."""
    sums, squares = torch.zeros(2, field.shape[1], dtype=torch.float64)
    for rows in row_blocks(field):
        sums += field[rows].sum(dim=0).cpu()
        squares += field[rows].square().sum(dim=0).cpu()
    return sums, squares


def with_columns(field: Tensor, n_columns: int) -> Tensor:
    """Return the memory of a field as one with `n_columns`; contents are undefined."""
    strides = (1, len(field)) if is_columns_first(field) else (n_columns, 1)
    return field.as_strided((len(field), n_columns), strides)


def take_columns(field: Tensor, columns: Tensor) -> Tensor:
    """Return the columns with the given indices, in the memory of the field."""
    taken = with_columns(field, len(columns))
    if is_columns_first(field):
        for index, column in enumerate(columns.tolist()):
            taken[:, index].copy_(field[:, column])
        return taken
    for start in range(0, len(field), _ROWS):
        # writes never overtake reads
        rows = slice(start, start + _ROWS)
        taken[rows] = field[rows].index_select(1, columns)
    return taken


def row_maxima(v: Tensor) -> Tensor:
    """Return the row maxima (n_nodes, 1)."""
    if v.device.type != "cpu" or v.shape[1] not in _SLOW_WIDTHS:
        return v.amax(dim=1, keepdim=True)
    while v.shape[1] > 1:  # by halving: four times faster with 30 columns
        half = (v.shape[1] + 1) // 2
        v = torch.maximum(v[:, :half], v[:, -half:])
    return v


def normalize_(v: Tensor) -> Tensor:
    """Normalise rows of `v` in place: a maximum of 0, and a minimum of `FLOOR`."""
    for rows in row_blocks(v):
        v[rows].sub_(row_maxima(v[rows])).clamp_(min=FLOOR)
    return v


class SeedConstraint:
    """Row normalisation with one-hot rows at seeds; column -1 means no seed."""

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

    `scale` (n_nodes,) receives 1 / sum exp v. torch.softmax is much slower for few columns.
    """
    if v.device.type != "cpu" and scale is None:
        return torch.softmax(v, dim=1, out=out)
    summing = out.new_ones(out.shape[1])
    for rows in row_blocks(v):
        block = torch.exp(v[rows], out=out[rows])
        total = torch.mv(block, summing, out=None if scale is None else scale[rows])
        block.mul_(total.reciprocal_()[:, None])
    return out


def shifted_softmax(v: Tensor, out: Tensor) -> Tensor:
    """Write the softmax of each row of `v` into `out`, for any row maxima."""
    if v.device.type != "cpu":
        return torch.softmax(v, dim=1, out=out)
    for rows in row_blocks(v):
        block = torch.sub(v[rows], row_maxima(v[rows]), out=out[rows])
        softmax(block.clamp_(min=_LEAST_EXPONENT), block)
    return out


def entropy(assignment: Tensor, v: Tensor, highest: Tensor) -> float:
    """Return the mean row entropy, -sum w log w in nats, w = softmax(v).

    Computed as log Z - sum w v with Z = sum exp v = 1 / `highest` (n_nodes,), for row maxima of 0.
    """
    total = 0.0
    for rows in row_blocks(v):
        total -= float(highest[rows].log().sum())
        total -= float(torch.dot(assignment[rows].view(-1), v[rows].view(-1)))
    return total / len(v)


def update_labels(labels: Tensor, v: Tensor) -> float:
    """Update the preferred columns in place; return the share of nodes that changed."""
    moved = (v.gather(1, labels[:, None])[:, 0] < 0).nonzero()[:, 0]
    labels[moved] = v[moved].argmax(dim=1)
    return len(moved) / len(labels)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Start:
    """Initial state of a flow: labels, and log coordinates computed on demand.

    `labels` (n_nodes,) are preferred columns, or those displayed for undecided nodes.
    """

    labels: Tensor
    n_columns: int
    logarithm: Callable[[], Tensor]

    @classmethod
    def at(cls, logarithm: Tensor) -> Start:
        """Return the start at normalised log coordinates, without a copy."""
        return cls(logarithm.argmax(dim=1), logarithm.shape[1], lambda: logarithm)


def k_centres(
    features: Tensor, n_centres: int, rng: np.random.Generator, initial: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return greedy k-centres (n_centres, n_features), and the nearest centre of each node.

    From `initial` centres, or a random one, within a factor of 2 of the smallest covering radius:
    Gonzalez, https://doi.org/10.1016/0304-3975(85)90224-5.
    """
    if initial is None:
        first = int(rng.integers(len(features)))
        initial = features[first : first + 1]
    points = list(initial)
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
    """Return the mean feature of the seeds of each class (n_classes, n_features)."""
    n_classes = count_classes(seeds)
    total = torch.zeros(n_classes + 1, features.shape[1], dtype=features.dtype)
    total = total.to(features.device).index_add_(0, seeds, features)
    return total[1:] / torch.bincount(seeds)[1:, None]


def count_classes(seeds: Tensor | Int64s) -> int:
    """Return the number of classes 1, 2, ... of seeds (n_nodes,); InvalidInput if one is empty."""
    classes = torch.unique(torch.as_tensor(seeds[seeds > 0]))
    numbers = torch.arange(1, len(classes) + 1, device=classes.device)
    skipped = (classes != numbers).nonzero()[:, 0]
    if len(skipped):
        missing, last = int(skipped[0]) + 1, int(classes[-1])
        raise InvalidInput(f"seeds: expected classes 1 to {last}, class {missing} has none")
    return len(classes)


def check_seeds_fit(seeds: Tensor | None, n_columns: int) -> None:
    """Raise InvalidInput if a seed class has no column."""
    if seeds is not None and int(seeds.max()) > n_columns:
        raise InvalidInput(f"seeds: expected classes up to {n_columns}, got {int(seeds.max())}")


def from_assignment(initial: ArrayLike, features: Tensor) -> Tensor:
    """Return log coordinates of a validated assignment, with the type of the features."""
    array, n_nodes = own_floats(initial, "initial"), len(features)
    if array.ndim != 2 or len(array) != n_nodes or array.shape[1] < 1:
        raise InvalidInput(f"initial: expected shape ({n_nodes}, n_labels), got {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise InvalidInput("initial: expected finite numbers that are not negative")
    if np.abs(array.sum(axis=1) - 1).max() > 1e-3:
        raise InvalidInput("initial: expected rows that sum to 1")
    assignment = torch.from_numpy(array).to(features.dtype).to(features.device)
    return normalize_(assignment.clamp(min=math.exp(2 * FLOOR)).log_())
