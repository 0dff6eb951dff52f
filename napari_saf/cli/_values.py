"""What options on the command line take: numbers, none, arrays from files, windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from napari_saf.errors import FormatError
from napari_saf.io import read_image

__all__ = ["ParameterValue", "WindowSize", "read_array"]


class ParameterValue(click.ParamType):  # type: ignore[type-arg]
    """A choice, a number, some numbers, ``none``, or the path of an array, by the kinds."""

    name = "value"

    def __init__(self, kinds: Sequence[str], optional: bool, choices: Sequence[str] = ()) -> None:
        self.kinds = [kind for kind in ("int", "float", "list", "array") if kind in kinds]
        self.optional = optional
        self.choices = tuple(choices)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the words for the help."""
        words = {"int": "INT", "float": "FLOAT", "list": "FLOAT,...", "array": "FILE"}
        kinds = [words[kind] for kind in self.kinds]
        return "|".join([*self.choices, *kinds, *["none"] * self.optional])

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Return the value as the first kind that takes it."""
        if not isinstance(value, str) or (self.optional and value.lower() == "none"):
            return None
        if value in self.choices:
            return value
        readers: dict[str, Callable[[str], object]] = {
            "int": int,
            "float": float,
            "list": _read_list,
            "array": read_array,
        }
        for kind in self.kinds:
            try:
                return readers[kind](value)
            except FormatError:
                raise
            except ValueError:
                continue
        return self.fail(f"{value!r} is not {self._expected()}", param, ctx)

    def _expected(self) -> str:
        words = {
            "int": "a whole number",
            "float": "a number",
            "list": "numbers with commas between",
            "array": "a file",
        }
        kinds = [words[kind] for kind in self.kinds]
        return " or ".join([*self.choices, *kinds, *["none"] * self.optional])


class WindowSize(click.ParamType):  # type: ignore[type-arg]
    """One odd number, or one for each axis: ``5`` or ``3,5,5``."""

    name = "window"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | tuple[int, ...]:
        """Return the sides."""
        try:
            sides = tuple(int(side) for side in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a number such as 5, or numbers such as 3,5,5", param, ctx)
        return sides if len(sides) > 1 else sides[0]


def _read_list(text: str) -> NDArray[np.float64]:
    return np.array([float(number) for number in text.split(",")])


def read_array(path: str) -> NDArray[Any]:
    """Read an array of numbers from ``.npy`` or ``.csv`` (comma separated, no header).

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in (".npy", ".csv"):
        raise FormatError(f"{file}: expected a .npy or .csv file")
    return read_image(file).array if suffix == ".npy" else _read_csv(file)


def _read_csv(file: Path) -> NDArray[np.float64]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        rows = [[float(cell) for cell in line.split(",")] for line in lines if line.strip()]
        array = np.array(rows, dtype=float)
    except OSError as error:
        raise FormatError(f"{file}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise FormatError(f"{file}: not a table of numbers: {error}") from error
    if array.size == 0:
        raise FormatError(f"{file}: expected numbers, the file is empty")
    return array
