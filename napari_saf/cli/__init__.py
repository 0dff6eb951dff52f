"""The command line ``napari-saf``: its commands, and how they show progress and errors."""

from __future__ import annotations

import importlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from napari_saf.errors import SafError

if TYPE_CHECKING:
    from napari_saf.batch import Outcome
    from napari_saf.result import Snapshot
    from napari_saf.tiles import TileCount

T = TypeVar("T")

_COMMANDS = {
    "segment": ("segment", "Label one image, several, or a folder of them."),
    "run": ("run", "Label images by a project, a recipe, prototypes or a patch dictionary."),
    "export": ("masks", "Save a label image for other programs: masks, table, figure, prototypes."),
    "objects": ("objects", "Split touching objects in label images, and measure every object."),
    "score": ("score", "Score masks, objects or tracks against a truth."),
    "info": ("about", "Show the content of image files: images, axes, pixel sizes, missing data."),
    "sharpen": ("masks", "Move the borders of label images onto the edges of the images."),
    "compare": ("compare", "Label one image in several ways, and show the results side by side."),
    "fair-sweep": ("compare", "Show the cost of fairness: one clustering per weight."),
    "dictionary": ("dictionary", "Learn, show and apply patch dictionaries."),
    "methods": ("about", "List the methods and their parameters."),
    "demo": ("about", "Label a sample image and show the result."),
    "app": ("about", "Open the app with images and a dock."),
    "doctor": ("about", "Check the installation, and suggest remedies."),
}
"""Module and summary of each command."""


class _LazyGroup(click.Group):
    """Commands that are imported when they are called: torch takes seconds."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        from napari_saf.cli._options import make_command

        module = importlib.import_module(f"napari_saf.cli._{_COMMANDS[cmd_name][0]}")
        return make_command(getattr(module, cmd_name.title().replace("-", "")))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="napari-saf", prog_name="napari-saf")
def _group() -> None:
    """Label images without labels.

    Exit codes: 0 success, 1 invalid image, file or value, or failed computation, 2 invalid command
    line, 130 interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with the given arguments; return the exit code.

    0, 1 (bad input, failed computation), 2 (usage) or 130 (interrupted).
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    for stream in (sys.stdout, sys.stderr):
        # File names and characters such as ρ that the terminal encoding does not support.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _group.main(words, prog_name="napari-saf", standalone_mode=False, obj=debug)
    except click.exceptions.Abort:
        click.echo("napari-saf: interrupted", err=True)
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (SafError, MemoryError, OSError) as error:
        return report(error, debug=debug)
    return code if isinstance(code, int) else 0


def has_screen() -> bool:
    """Return whether the environment indicates a display."""
    names = ("DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in names)


def report(error: BaseException, *, debug: bool, source: str = "") -> int:
    """Print an error on one line of the standard error stream and return its exit code."""
    if debug:
        traceback.print_exception(error)
    text = " ".join(str(error).split()) or "not enough memory"
    prefix = f"{source}: " if source and not text.startswith(source) else ""
    click.echo(f"napari-saf: error: {prefix}{text}", err=True)
    return 1


def note(text: str) -> None:
    """Print a note on the standard error stream."""
    click.echo(f"napari-saf: note: {text}", err=True)


def run_with_progress(steps: Generator[Snapshot, None, T], title: str) -> T:
    from napari_saf.methods import run_to_end

    with progress_bar(title) as show:
        return run_to_end(steps, show)


@contextmanager
def progress_bar(
    title: str, has_remaining: bool = False
) -> Iterator[Callable[[Snapshot | TileCount], None] | None]:
    """Yield a callback that shows a snapshot or tile count in a bar; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    time = TimeRemainingColumn() if has_remaining else TimeElapsedColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), time)
    console = Console(stderr=True)
    with Progress(*columns, TextColumn("{task.fields[state]}"), console=console) as progress:
        task = progress.add_task(title, total=1, state="")

        def show(snapshot: Snapshot | TileCount) -> None:
            progress.update(task, completed=snapshot.fraction, state=snapshot.state)

        yield show
        progress.update(task, completed=1)


def print_failure(outcome: Outcome[Any]) -> None:
    if click.get_current_context().obj:  # --debug
        click.echo(outcome.trace, err=True)
    report(SafError(outcome.error), debug=False, source=outcome.job.path)
