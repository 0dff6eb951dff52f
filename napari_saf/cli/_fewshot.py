"""``napari-saf fewshot``."""

from __future__ import annotations

import time
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from napari_saf import io
from napari_saf.batch import check_outputs
from napari_saf.cli import _methods as flags
from napari_saf.errors import InvalidInput
from napari_saf.methods import METHODS, TaskMethod
from napari_saf.storage import make_folder

_METHODS = {name: method for name, method in METHODS.items() if issubclass(method, TaskMethod)}
_OF_IMAGES = ("laplacian", "n_clusters", "new_labels", "seed")
"""Parameters that do nothing in tasks."""
_OPTIONS: list[click.Parameter] = [
    click.Argument(["file"], type=flags.PATH),
    flags.output("TABLE", f"The labels of all queries, a column for each method "
           f"({', '.join(io.TABLE_SUFFIXES)})."),
    click.Option(["--method", "methods"], type=click.Choice(list(_METHODS)), multiple=True,
                 help="A method; may be given several times. [default: all]"),
    click.Option(["--normalize"], metavar="STEP,...", default="",
                 help=f"Steps of {', '.join(io.NORMALIZATIONS)}, which features go through in "
                 "order before the methods prepare each task: square root, unit length, less the "
                 "mean of the base classes."),
    flags.overwrite("the table"),
]  # fmt: skip


@flags.command("fewshot", flags.method_options(_OPTIONS, _METHODS, _OF_IMAGES))
def fewshot(given: Any) -> None:
    """Label the queries of few-shot tasks, all tasks of a file at once.

    FILE is .npz with features, seeds and perhaps rows, labels, base, or .parquet with a row for
    each node; see the page on few-shot tasks. With true labels the accuracy is told: its mean over
    tasks, and the interval that holds it with 95 % confidence.
    """
    file, out = given.file, given.out
    io.check_suffix(out, io.TABLE_SUFFIXES)
    wanted = [_METHODS[name] for name in given.methods or _METHODS]
    chosen = flags.make_methods(wanted, flags.given_parameters(vars(given)))
    check_outputs([out], [file], overwrite=given.overwrite)
    make_folder(out.parent)
    io.check_table(out)
    steps = filter(None, given.normalize.replace(" ", "").split(","))
    tasks = io.load_tasks(file).normalized(*steps)
    is_query = tasks.seeds == 0
    if not is_query.any():
        raise InvalidInput(f"{file}: expected queries, nodes whose seed is 0, got none")
    numbers, nodes = np.nonzero(is_query)
    table = {"task": numbers, "node": nodes}
    table |= {} if tasks.rows is None else {"row": tasks.rows[is_query]}
    table |= {} if tasks.labels is None else {"label": tasks.labels[is_query]}
    for method in chosen:
        assert isinstance(method, TaskMethod)
        began = time.perf_counter()
        found = method.run_tasks(tasks.features, tasks.seeds, rows=tasks.rows)
        seconds = time.perf_counter() - began
        table[method.name] = found[is_query]
        accuracy = "" if tasks.labels is None else f"{_mean(tasks.accuracies(found))}, "
        click.echo(f"{method.name}: {tasks.n_tasks} tasks, {accuracy}{seconds:.1f} s")
    io.save_table(out, table)
    click.echo(out)


def _mean(accuracies: NDArray[np.float64]) -> str:
    """Return the mean, with its interval of 95 % confidence where there are several tasks."""
    text, count = f"accuracy {100 * accuracies.mean():.2f}", len(accuracies)
    if count < 2:
        return f"{text} %"
    return f"{text} ± {100 * 1.96 * accuracies.std(ddof=1) / np.sqrt(count):.2f} %"
