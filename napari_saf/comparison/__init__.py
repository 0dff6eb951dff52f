"""Several methods, or one with several parameters, on one image, side by side."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from napari_saf.comparison._comparison import (
    Compared,
    Comparison,
    ComparisonStep,
    Failure,
    align,
    compare,
    iterate_comparison,
)
from napari_saf.comparison._table import COLUMNS, Column, Row, comparison_table, save_table
from napari_saf.comparison._variants import (
    OPTION_AXES,
    Layout,
    Variant,
    lay_out,
    open_axes,
    parameter_named,
    read_values,
    short_names,
    variants_of,
)

if TYPE_CHECKING:
    from napari_saf.comparison._report import COMPARISON_SUFFIXES as COMPARISON_SUFFIXES
    from napari_saf.comparison._report import save_comparison as save_comparison

__all__ = [
    "COLUMNS",
    "COMPARISON_SUFFIXES",
    "OPTION_AXES",
    "Column",
    "Compared",
    "Comparison",
    "ComparisonStep",
    "Failure",
    "Layout",
    "Row",
    "Variant",
    "align",
    "compare",
    "comparison_table",
    "iterate_comparison",
    "lay_out",
    "open_axes",
    "parameter_named",
    "read_values",
    "save_comparison",
    "save_table",
    "short_names",
    "variants_of",
]


def __getattr__(name: str) -> object:
    # matplotlib takes half a second to load.
    if name in ("COMPARISON_SUFFIXES", "save_comparison"):
        return getattr(importlib.import_module("napari_saf.comparison._report"), name)
    raise AttributeError(f"module 'napari_saf.comparison' has no attribute {name!r}")
