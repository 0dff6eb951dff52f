"""Several methods, or one with several parameters, on one image, side by side."""

from napari_saf.comparison._comparison import (
    COLUMNS,
    Compared,
    Comparison,
    ComparisonStep,
    Row,
    align,
    compare,
    comparison_table,
    iterate_comparison,
)
from napari_saf.comparison._report import COMPARISON_SUFFIXES, save_comparison
from napari_saf.comparison._variants import (
    OPTION_AXES,
    Variant,
    lay_out,
    open_axes,
    read_values,
    short_names,
    variants_of,
)
