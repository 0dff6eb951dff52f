"""Assignment and self-assignment flows: simplex, affinity, right-hand sides, time stepping."""

from napari_saf.errors import Cancelled
from napari_saf.flow._affinity import (
    AffinityOperator,
    Basis,
    GaussianAffinity,
    KernelAffinity,
    spectral_points,
)
from napari_saf.flow._field import AssignmentField, SelfAssignmentField, not_cancelled
from napari_saf.flow._fused import kernels, saves_memory, wait_for_kernels
from napari_saf.flow._loop import Flow, FlowRun, StoppingRule
from napari_saf.flow._simplex import (
    FLOOR,
    Start,
    check_seeds_fit,
    class_means,
    count_classes,
    distance_table,
    entropy,
    from_assignment,
    k_centres,
    new_field,
    normalize_,
    one_hot_,
    row_blocks,
    row_maxima,
    softmax,
    update_labels,
)
from napari_saf.flow._steppers import (
    STEPPERS,
    AbstractStepper,
    AdamsBashforthMoulton,
    AdamsSchedule,
    BogackiShampine,
    GeometricEuler,
)
