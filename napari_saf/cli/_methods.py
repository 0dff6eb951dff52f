"""``napari-saf methods``."""

from __future__ import annotations

import sys

import click

from napari_saf.cli._options import DEBUG, summary
from napari_saf.methods import METHODS
from napari_saf.parameters import describe

_NAMES = click.Argument(
    ["names"], nargs=-1, type=click.Choice(list(METHODS)), metavar="[METHOD]..."
)


@click.command("methods", params=[_NAMES, DEBUG])
def command(names: tuple[str, ...], debug: bool) -> None:
    """List the methods and their parameters."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120)
    for name in names or METHODS:
        table = Table(
            title=f"{name}: {METHODS[name].title}", title_justify="left", box=box.SIMPLE_HEAD
        )
        table.add_column("parameter", no_wrap=True)
        table.add_column("values")
        table.add_column("meaning")
        for item in describe(METHODS[name]):
            values = [" | ".join(item.choices)] if item.choices else []
            table.add_row(item.name, "; ".join([*values, summary(item)]), item.help)
        console.print(table)
