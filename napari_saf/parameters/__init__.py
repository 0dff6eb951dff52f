"""Parameters of a method: one description for library, form, command line and recipe.

A method is a frozen dataclass. Each of its fields is made by `parameter`, which keeps the
label, the help, the bounds and the level of the field beside its default. A field may hold
another such dataclass (the affinity, the stopping rule) or one of several (the stepper);
`describe` flattens all of it into a list of scalar `Parameter` with dotted names.
"""

from napari_saf.parameters._checks import check_bounds
from napari_saf.parameters._description import Parameter, describe, parameter
from napari_saf.parameters._values import build, from_plain, to_plain, values_of

__all__ = [
    "Parameter",
    "build",
    "check_bounds",
    "describe",
    "from_plain",
    "parameter",
    "to_plain",
    "values_of",
]
