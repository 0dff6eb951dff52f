"""The values of docks as plain ones, for a project to keep."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from napari.layers import Layer
from pydantic_core import to_jsonable_python

from napari_saf.errors import SafError

_MOST_SCALE = 1000


def dock_values(dock: Any) -> dict[str, Any]:
    """Return what a dock says, as values for JSON; layers that are chosen are left out."""
    values: dict[str, Any] = {}
    form, chosen = getattr(dock, "form", None), getattr(dock, "input", None)
    if form is not None:
        values["method"] = form.method.name
        with suppress(SafError):  # a value that is wrong
            known = form.values().items()
            values["parameters"] = {n: to_jsonable_python(x) for n, x in known if _is_plain(x)}
    if chosen is not None:
        values["scale"] = chosen.scale.value
        boxes = {name: box.value for name, box in chosen.choices.items()}
        values["choices"] = {name: x for name, x in boxes.items() if _is_plain(x)}
    return values


def show_dock_values(dock: Any, values: dict[str, Any]) -> None:
    """Show values that `dock_values` returned, as far as the dock still has them."""
    form, chosen = getattr(dock, "form", None), getattr(dock, "input", None)
    scale, choices = values.get("scale"), values.get("choices")
    if chosen is not None:
        if scale is None or (type(scale) is int and 0 < scale < _MOST_SCALE):
            chosen.scale.set_value(scale)
        own = choices if isinstance(choices, dict) else {}
        known = {name: x for name, x in own.items() if name in chosen.choices and _is_plain(x)}
        chosen.choose(**known)
    parameters = values.get("parameters")
    if form is not None and isinstance(values.get("method"), str):
        form.choose(values["method"])
        if isinstance(parameters, dict):
            for name, value in parameters.items():
                with suppress(TypeError, ValueError, ArithmeticError):  # of another version
                    form.set_values({name: value})


def _is_plain(value: object) -> bool:
    return not isinstance(value, Layer) and isinstance(value, str | int | float | bool | None)
