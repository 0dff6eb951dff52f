"""Which methods go on where a person edited labels by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from napari_saf.methods._assignment import AssignmentFlow
from napari_saf.methods._flow import AbstractFlow
from napari_saf.methods._method import AbstractMethod
from napari_saf.methods._self_assignment import SelfAssignmentFlow

__all__ = ["method_with_prototypes", "restarting"]


def restarting(method: AbstractMethod) -> AbstractMethod:
    """Return the method that goes on from edited labels: this one, if it can.

    Otherwise the self-assignment flow, which takes labels whatever their shape in feature
    space.
    """
    if method.goes_on_from_any_labels:
        return method
    return SelfAssignmentFlow(device=getattr(method, "device", "auto"))


def method_with_prototypes(
    prototypes: NDArray[np.floating],
    like: AbstractMethod | None = None,
    labels: NDArray[np.integer] | None = None,
) -> AbstractMethod:
    """Return the method that labels by prototypes (n_prototypes, n_features).

    Each is a column, or one of the label (n_prototypes,) that is given for it. With the
    parameters that another method has, too, such as the device.
    """
    names = [field.name for field in dataclasses.fields(AbstractFlow)]
    values = {name: getattr(like, name) for name in names if hasattr(like, name)}
    return AssignmentFlow(prototypes=prototypes, prototype_labels=labels, **values)
