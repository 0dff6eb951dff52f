"""The assignment and self-assignment flows: simplex, affinity, right-hand sides, time stepping."""

from napari_saf.flow._affinity import (
    AffinityOperator,
    GaussianAffinity,
    KernelAffinity,
    LowRank,
    Product,
)
from napari_saf.flow._basis import Basis
from napari_saf.flow._field import (
    AbstractField,
    AssignmentField,
    Cancelled,
    SelfAssignmentField,
    not_cancelled,
    self_assignment_gradient,
)
from napari_saf.flow._loop import Flow, FlowRun, StoppingRule, StopWatch, update_labels
from napari_saf.flow._simplex import (
    FLOOR,
    cross_product,
    entropy,
    normalize_,
    one_hot_,
    row_blocks,
    row_maxima,
    softmax,
)
from napari_saf.flow._start import (
    Centres,
    Start,
    check_seeds_fit,
    class_means,
    count_classes,
    from_assignment,
    k_centres,
    leading_vectors,
    spectral_points,
)
from napari_saf.flow._steppers import (
    STEPPERS,
    AbstractStepper,
    AdamsBashforthMoulton,
    BogackiShampine,
    GeometricEuler,
)

__all__ = [
    "FLOOR",
    "STEPPERS",
    "AbstractField",
    "AbstractStepper",
    "AdamsBashforthMoulton",
    "AffinityOperator",
    "AssignmentField",
    "Basis",
    "BogackiShampine",
    "Cancelled",
    "Centres",
    "Flow",
    "FlowRun",
    "GaussianAffinity",
    "GeometricEuler",
    "KernelAffinity",
    "LowRank",
    "Product",
    "SelfAssignmentField",
    "Start",
    "StopWatch",
    "StoppingRule",
    "check_seeds_fit",
    "class_means",
    "count_classes",
    "cross_product",
    "entropy",
    "from_assignment",
    "k_centres",
    "leading_vectors",
    "normalize_",
    "not_cancelled",
    "one_hot_",
    "row_blocks",
    "row_maxima",
    "self_assignment_gradient",
    "softmax",
    "spectral_points",
    "update_labels",
]
