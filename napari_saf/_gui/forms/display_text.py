"""Display text of parameters, errors, files and durations, with the labels of the forms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from napari_saf.device import resolve_device
from napari_saf.errors import NotFinite, SafError
from napari_saf.features import FEATURES
from napari_saf.methods import METHODS, AbstractMethod
from napari_saf.parameters import Parameter, describe, values_of
from napari_saf.problem import ImageOptions

_COMPUTING = ("device", "dtype")
_MOST_NAMED = 3
_SECONDS = (1, 2, 3, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900, 1800, 3600, 7200)
_FORMS: tuple[type, ...] = (*FEATURES.values(), ImageOptions, *METHODS.values())
_LABELS = {item.name.rpartition(".")[2]: item.label for form in _FORMS for item in describe(form)}
_LABELS |= {name: name.capitalize() for name in ("mask", "image", "labels", "truth", "settings")}
_LABELS["seeds"] = "Strokes"
"""Labels in forms by the parameter names at the start of error messages."""


def named(path: Path) -> str:
    """Return the name of a file and of its folder."""
    return f"{path.name} in {path.absolute().parent.name or path.absolute().parent}"


def choice_entries(parameter: Parameter) -> list[tuple[str, Any]]:
    texts = parameter.choice_labels
    none = [(parameter.none, None)] if parameter.optional else []
    return none + [(texts.get(x, x.replace("-", " ")), x) for x in parameter.choices]


def parameters_by_hand(method: AbstractMethod) -> list[str]:
    """Return the non-default parameters of a method, with the labels of the form.

    Arrays, such as prototypes, device and precision are left out; advanced parameters come last.
    """
    values, words = values_of(method), []
    for item in sorted(describe(type(method)), key=lambda item: item.advanced):
        if item.kind != "array" and item.name not in _COMPUTING and item.name in values:
            text = _text_of(item, values[item.name])
            if text != _text_of(item, item.default):
                is_short = not item.advanced and item.kind != "bool"  # the first word suffices
                words.append(f"{item.label.split()[0] if is_short else item.label} {text}")
    return words


def _text_of(parameter: Parameter, value: Any) -> str:
    if parameter.kind == "choice":
        texts = (text for text, choice in choice_entries(parameter) if choice == value)
        return next(texts, str(value))
    if value is None:
        return parameter.none
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(f"{number:g}" for number in np.atleast_1d(value))


def describe_error(error: Exception) -> str:
    """Return the message of an error, with the labels of the forms."""
    if isinstance(error, NotFinite):
        return str(error).split(";")[0]  # a button offers the rest
    if not isinstance(error, SafError):
        return f"{type(error).__name__}: {error}"
    name, colon, text = str(error).partition(": ")
    label = _LABELS.get(name.rpartition(".")[2], name)
    return f"{label}{colon}{text}"


def device_text(method: AbstractMethod) -> str:
    """Return the device and precision of a run of a method."""
    name = str(getattr(method, "device", "cpu"))
    try:
        device = resolve_device(name).type.upper()
    except SafError:
        device = f"{name}: not available"
    return ", ".join([device, str(getattr(method, "dtype", ""))]).strip(", ")


def list_names(names: Sequence[str]) -> str:
    """Return the first names and the number of further ones."""
    n_more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {n_more} more" if n_more > 0 else "")


def duration_text(seconds: float) -> str:
    rounded = next((number for number in _SECONDS if seconds <= number), 0)
    if not rounded:
        return "hours"
    return f"about {rounded} s" if rounded < 60 else f"about {rounded / 60:.2g} min"
