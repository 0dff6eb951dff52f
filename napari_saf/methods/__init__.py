"""Labelling methods: frozen dataclasses of their parameters, and their registry `METHODS`."""

from napari_saf.flow import Cancelled, not_cancelled
from napari_saf.methods._assignment import AssignmentFlow, method_with_prototypes
from napari_saf.methods._bavardage import Bavardage
from napari_saf.methods._fair import (
    SWEPT,
    FairClustering,
    SweepMethod,
    TradeOff,
    TradeOffPoint,
    count_points,
)
from napari_saf.methods._few_shot import LaplacianShot, TaskMethod
from napari_saf.methods._flow import (
    AbstractFlow,
    SelfAssignmentFlow,
    method_for_warm_start,
    run_flow,
)
from napari_saf.methods._full_resolution import then_full_resolution
from napari_saf.methods._learned import (
    ReducedImage,
    RegionFlow,
    can_be_learned,
    fitted_to,
    full_options,
    learn_all_borders,
    learn_labels,
    region_problem,
    scheduled,
)
from napari_saf.methods._method import (
    AbstractMethod,
    Call,
    Caution,
    Iteration,
    map_steps,
    run_to_end,
)
from napari_saf.methods._slk import SLK
from napari_saf.methods._stroke_choice import (
    StrokeChoice,
    choose_by,
    choose_for_strokes,
    stroke_choices,
)

AbstractMethod._then = staticmethod(then_full_resolution)

METHODS: dict[str, type[AbstractMethod]] = {
    method.name: method
    for method in (
        SelfAssignmentFlow,
        AssignmentFlow,
        SLK,
        FairClustering,
        LaplacianShot,
        Bavardage,
    )
}
"""Methods by their name in recipes and on the command line."""
