"""What options on the command line take: numbers, none, arrays from files, windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from napari_saf.errors import FormatError
from napari_saf.features import Scaling
from napari_saf.io import PrototypeSet, load_prototypes, read_array

__all__ = ["ParameterValue", "ValueRange", "WindowSize"]


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
            "array": _read_rows,
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


class ValueRange(click.ParamType):  # type: ignore[type-arg]
    """Two numbers, the lower first: ``0,255``; or one of some words."""

    name = "range"

    def __init__(self, *words: str) -> None:
        self.words = words

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Scaling | str:
        """Return the scaling whose ends they are, or the word."""
        if value in self.words:
            return str(value)
        try:
            low, high = (float(bound) for bound in str(value).split(","))
            return Scaling.given(low, high)
        except ValueError:
            words = "".join(f", or {word}" for word in self.words)
            self.fail(
                f"{value!r} is not two numbers, the lower first, such as 0,255{words}", param, ctx
            )


def _read_rows(path: str) -> NDArray[Any] | PrototypeSet:
    """Read an array, or prototypes with what is known of them."""
    if Path(path).suffix.lower() == ".json":
        return load_prototypes(path)
    return read_array(path)


def _read_list(text: str) -> NDArray[np.float64]:
    return np.array([float(number) for number in text.split(",")])
