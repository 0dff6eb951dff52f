"""Values as a person types them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from napari_saf.comparison._variants import OPTION_AXES, parameter_named
from napari_saf.errors import InvalidInput
from napari_saf.features import FEATURES
from napari_saf.input import WEIGHTS
from napari_saf.methods import AbstractMethod
from napari_saf.parameters import Parameter

__all__ = ["read_values"]

_Reader = Callable[[str], object]


def read_values(name: str, text: str, methods: Sequence[type[AbstractMethod]]) -> list[object]:
    """Return the values that a text with commas names.

    Parameters
    ----------
    name : str
        A parameter of one of the methods, or one of `OPTION_AXES`.
    text : str
        Such as ``"0, 0.5, 1"``; windows that differ by axis as ``"1x5x5"``.
    methods : sequence of type
        Those that are compared.

    Raises
    ------
    InvalidInput
        If no method knows the name, or a value is of the wrong kind.
    """
    reader, expected = _reader(name, methods)
    values = []
    for word in text.split(","):
        try:
            values.append(reader(word.strip()))
        except ValueError:
            raise InvalidInput(f"{name}: expected {expected}, got {word.strip()!r}") from None
    return list(dict.fromkeys(values))


def _reader(name: str, methods: Sequence[type[AbstractMethod]]) -> tuple[_Reader, str]:
    if name in OPTION_AXES:
        return _OPTIONS[name]
    items = [item for item in (parameter_named(method, name) for method in methods) if item]
    if not items:
        raise InvalidInput(f"{name}: no chosen method has such a parameter")
    return _parameter_reader(name, items)


def _parameter_reader(name: str, items: list[Parameter]) -> tuple[_Reader, str]:
    kinds = {item.kind for item in items}
    choices = {choice for item in items for choice in item.choices}
    if kinds & {"array", "list"}:
        raise InvalidInput(f"{name}: takes arrays, of which none can be typed here")
    none: dict[str, object] = {"none": None} if any(item.optional for item in items) else {}
    if "choice" in kinds:
        return _one_of(none | {choice: choice for choice in sorted(choices)})
    if "bool" in kinds:
        return _one_of(none | {"true": True, "false": False})
    number: _Reader = float if "float" in kinds else int
    expected = "numbers" if number is float else "whole numbers"
    if not none:
        return number, expected
    return (lambda word: None if word.lower() == "none" else number(word)), f"{expected} or none"


def _one_of(known: dict[str, object]) -> tuple[_Reader, str]:
    def read(word: str) -> object:
        if word.lower() not in known:
            raise ValueError
        return known[word.lower()]

    return read, f"some of {', '.join(known)}"


def _window(word: str) -> object:
    sides = tuple(int(side) for side in word.split("x"))
    return sides if len(sides) > 1 else sides[0]


_OPTIONS: dict[str, tuple[_Reader, str]] = {
    "window": (_window, "odd whole numbers"),
    "features": _one_of({name: name for name in FEATURES}),
    "weights": _one_of({name: name for name in WEIGHTS}),
    "max_side": (lambda word: None if word == "none" else int(word), "whole numbers or none"),
}
