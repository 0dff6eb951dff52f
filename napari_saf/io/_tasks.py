"""Few-shot tasks as tables: from files, normalised, and how many labels are right."""

from __future__ import annotations

import dataclasses
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import as_labels, own_floats
from napari_saf.errors import FormatError, InvalidInput, SafError
from napari_saf.methods import check_tasks
from napari_saf.storage import check_room, format_errors

NORMALIZATIONS = ("power", "unit", "center")
_LEAST_LENGTH = 1e-30
_ENTRIES = ("features", "seeds", "rows", "labels", "base")
_COLUMNS = ("task", "seed", "label")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class FewShotTasks:
    """Few-shot tasks of one size, as `LaplacianShot.run_tasks` takes them.

    Parameters
    ----------
    features : array of shape (n_tasks, n_nodes, n_features), or (n_rows, n_features)
        Finite numbers; with `rows`, a table of which tasks take their nodes.
    seeds : array of int of shape (n_tasks, n_nodes)
        Labels 1, 2, ... of the support set, the same in every task; 0 for queries.
    rows : array of int of shape (n_tasks, n_nodes), optional
        Row of the table, from 0, of each node.
    labels : array of int of shape (n_tasks, n_nodes), optional
        True labels, for `accuracies`; those of the support set do not count.
    base : array of shape (n_base, n_features), optional
        Features of the base classes, or their mean, for `normalized`.

    Raises
    ------
    InvalidInput
        If shapes disagree, features are not finite, or a task lacks seeds of a class.

    Examples
    --------
    >>> features = np.tile(np.eye(4), (2, 3, 1))  # two tasks of twelve nodes, four classes
    >>> seeds = np.tile([1, 2, 3, 4] + 8 * [0], (2, 1))  # one of each class is known
    >>> tasks = saf.FewShotTasks(features, seeds, labels=np.tile([1, 2, 3, 4], (2, 3)))
    >>> found = saf.LaplacianShot().run_tasks(tasks.features, tasks.seeds)
    >>> tasks.accuracies(found).tolist()
    [1.0, 1.0]
    """

    features: NDArray[np.floating]
    seeds: NDArray[np.integer]
    rows: NDArray[np.integer] | None = None
    labels: NDArray[np.integer] | None = None
    base: NDArray[np.floating] | None = None

    def __post_init__(self) -> None:
        points, seeds, rows = check_tasks(self.features, self.seeds, self.rows)
        checked: dict[str, Any] = {"features": points, "seeds": seeds, "rows": rows}
        if self.labels is not None:
            checked["labels"] = as_labels(self.labels, "labels")
            if checked["labels"].shape != seeds.shape:
                raise InvalidInput(
                    f"labels: expected shape {seeds.shape}, got {checked['labels'].shape}"
                )
        if self.base is not None:
            checked["base"] = base = own_floats(self.base, "base")
            n_features = points.shape[-1]
            if base.ndim != 2 or base.shape[1] != n_features or not np.isfinite(base).all():
                raise InvalidInput(
                    f"base: expected finite numbers of shape (n_base, {n_features}), "
                    f"got shape {base.shape}"
                )
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return len(self.seeds)

    def normalized(self, *steps: str) -> FewShotTasks:
        """Return tasks whose features, and those of the base classes, went through some steps.

        Parameters
        ----------
        steps : {"power", "unit", "center"}
            In order: "power" takes the square root of features, which are not negative; "unit"
            brings rows to unit length; "center" takes the mean of the base classes from them.

        Raises
        ------
        InvalidInput
            If a step is unknown, features are negative, or there are no base classes to center by.

        Notes
        -----
        Methods center and scale each task by itself besides, as `preprocessing` says. Centering
        by the base classes and unit length are those of Wang et al., https://arxiv.org/abs/1911.04623,
        the power transform that of Hu, Gripon and Pateux, https://arxiv.org/abs/2006.03806.
        """
        features, base = self.features, self.base
        for step in steps:
            if step not in NORMALIZATIONS:
                raise InvalidInput(f"normalize: expected {', '.join(NORMALIZATIONS)}, got {step!r}")
            if step == "center" and base is None:
                raise InvalidInput(
                    "normalize: expected features of base classes ('base') to center by; without "
                    "them methods center each task by itself"
                )
            mean = None if base is None or step != "center" else base.mean(axis=0)
            features = _normalized(features, step, mean)
            base = None if base is None else _normalized(base, step, mean)
        return dataclasses.replace(self, features=features, base=base)

    def accuracies(self, found: ArrayLike) -> NDArray[np.float64]:
        """Return the share of the queries of each task (n_tasks,) whose label is the true one.

        Parameters
        ----------
        found : array of int of shape (n_tasks, n_nodes)
            Labels, such as `LaplacianShot.run_tasks` returns.

        Raises
        ------
        InvalidInput
            If there are no true labels, or the shape is another.
        """
        given = as_labels(found, "found")
        if self.labels is None or given.shape != self.seeds.shape:
            raise InvalidInput(
                "found: expected true labels, and labels of shape "
                f"{self.seeds.shape}, got shape {given.shape}"
            )
        is_query = self.seeds == 0
        right = (is_query & (given == self.labels)).sum(axis=1)
        return np.asarray(right / is_query.sum(axis=1).clip(1))


def load_tasks(path: str | os.PathLike[str]) -> FewShotTasks:
    """Load few-shot tasks from a file; nothing in it is executed.

    Parameters
    ----------
    path : path
        ``.npz`` with the arrays of `FewShotTasks` by name. Or ``.parquet``, which needs pyarrow,
        with a row for each node: ``task``, ``seed`` (0: a query), ``label`` if it is known, and
        the features, a column of lists ``features`` or all other columns.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it.
    SafError
        If pyarrow is missing.

    Examples
    --------
    >>> features, seeds = np.tile(np.eye(4), (2, 3, 1)), np.tile([1, 2, 3, 4] + 8 * [0], (2, 1))
    >>> np.savez("tasks.npz", features=features, seeds=seeds)
    >>> tasks = saf.load_tasks("tasks.npz")
    >>> tasks.n_tasks, saf.Bavardage().run_tasks(tasks.features, tasks.seeds).shape
    (2, (2, 12))
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in (".npz", ".parquet"):
        raise FormatError(f"{file}: expected a .npz or .parquet file")
    with format_errors(file, "few-shot tasks"):
        entries = _read_npz(file) if suffix == ".npz" else _read_parquet(file)
        return FewShotTasks(**entries)


def _read_npz(file: Path) -> dict[str, NDArray[Any]]:
    with zipfile.ZipFile(file) as archive:
        sizes = {one.filename.removesuffix(".npy"): one.file_size for one in archive.infolist()}
        if {"features", "seeds"} - set(sizes) or set(sizes) - set(_ENTRIES):
            raise InvalidInput(
                "expected features, seeds and perhaps rows, labels, base, "
                f"got {', '.join(sorted(sizes))}"
            )
        check_room(sum(sizes.values()), file.stat().st_size)
        found = {}
        for name in sizes:
            with archive.open(f"{name}.npy") as member:
                found[name] = np.lib.format.read_array(member, allow_pickle=False)
    return found


def _read_parquet(file: Path) -> dict[str, NDArray[Any]]:
    try:
        from pyarrow import parquet, types
    except ImportError as error:
        raise SafError(".parquet needs pyarrow: pip install 'napari-saf[parquet]'") from error
    with parquet.ParquetFile(file) as source:
        stored = source.metadata
        groups = [stored.row_group(k) for k in range(stored.num_row_groups)]
        check_room(2 * sum(group.total_byte_size for group in groups), file.stat().st_size)
        table = source.read()
    names = table.column_names
    if {"task", "seed"} - set(names):
        raise InvalidInput(f"expected columns task and seed, got {', '.join(names)}")
    wide = [name for name in names if name not in _COLUMNS]
    if wide == ["features"] and not types.is_primitive(table.schema.field("features").type):
        lists = table["features"].combine_chunks()
        lengths = lists.value_lengths()
        if lists.null_count or len(lengths.unique()) > 1:
            raise InvalidInput("features: expected lists of one length")
        features = lists.flatten().to_numpy(zero_copy_only=False).reshape(len(lists), -1)
    elif not wide:
        raise InvalidInput(f"expected columns of features, got {', '.join(names)}")
    else:
        features = np.stack([table[name].to_numpy() for name in wide], axis=1)
    tasks = as_labels(table["task"].to_numpy(), "task")
    order = np.argsort(tasks, kind="stable")
    sizes = np.unique(tasks, return_counts=True)[1]
    if len(set(sizes.tolist())) > 1:
        raise InvalidInput(f"expected tasks of one size, got {sizes.min()} to {sizes.max()} rows")
    shape = (len(sizes), int(sizes[0]) if len(sizes) else 0)
    own = {"seeds": "seed", "labels": "label"}
    found = {
        name: table[column].to_numpy()[order].reshape(shape)
        for name, column in own.items()
        if column in names
    }
    return {"features": features[order].reshape(*shape, -1), **found}


def _normalized(
    rows: NDArray[np.floating], step: str, mean: NDArray[np.floating] | None
) -> NDArray[np.floating]:
    if step == "power":
        if rows.min(initial=0) < 0:
            raise InvalidInput("normalize: expected features >= 0 for 'power', some are negative")
        return np.asarray(np.sqrt(rows))
    if step == "unit":
        lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
        return np.asarray(rows / np.maximum(lengths, _LEAST_LENGTH))
    assert mean is not None
    return np.asarray(rows - mean)
