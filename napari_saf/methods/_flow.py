"""What the flows have in common as methods: their parameters, and how one is run."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod

from napari_saf.flow import (
    STEPPERS,
    AbstractStepper,
    AdamsBashforthMoulton,
    Flow,
    FlowRun,
    StoppingRule,
)
from napari_saf.methods._method import AbstractMethod, Call, Iteration, map_steps
from napari_saf.methods._reporting import Reporter
from napari_saf.parameters import parameter


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AbstractFlow(AbstractMethod):
    """A method that integrates a flow in log coordinates.

    Parameters
    ----------
    rho : float
        > 0; the smaller, the more the features count against the neighbours.
    stepper : AbstractStepper
        Time stepping.
    stop : StoppingRule
        When to stop.
    device, dtype
        As for every method: `AbstractMethod`.
    """

    rho: float = parameter(
        0.1,
        label="Selectivity",
        help="How much likeness counts against the neighbours: a smaller number, more (rho).",
        minimum=1e-3,
        maximum=100,
        step=0.05,
        advanced=True,
    )
    stepper: AbstractStepper = parameter(
        AdamsBashforthMoulton(),
        label="Time stepping",
        help="How the flow is integrated: adaptive (adams, bogacki-shampine) or fixed (euler).",
        variants=STEPPERS,
        advanced=True,
    )
    stop: StoppingRule = parameter(
        StoppingRule(),
        label="Stop",
        help="When the run ends.",
        variants={"flow": StoppingRule},
        advanced=True,
    )

    @abstractmethod
    def _prepare(self, call: Call) -> Flow:
        """Return the flow, ready to start."""

    def _iterate(self, call: Call) -> Iteration:
        return run_flow(self, self._prepare(call), call)

    def _n_fields(self) -> int:
        return 12


def run_flow(method: AbstractMethod, flow: Flow, call: Call) -> Iteration:
    """Integrate a flow of a method; see `AbstractMethod.iterate`."""
    if call.max_iterations is not None:
        stop = dataclasses.replace(flow.stop, max_steps=call.max_iterations)
        flow = dataclasses.replace(flow, stop=stop)
    run = FlowRun(flow, call.seeds, call.cancelled)
    reporter = Reporter(
        method,
        call.problem,
        run.n_columns,
        call.began,
        run.columns_of_nodes,
        run.logarithm,
        n_possible=run.n_possible,
        keeps_numbers=flow.fixed_meaning or call.seeds is not None,
        records=run.records,
    )
    status = yield from map_steps(run.steps(), reporter.snapshot)
    n_evaluations, result = run.n_evaluations, run.finish()
    prototypes = reporter.mean_features()
    if result.prototypes is not None:
        prototypes = result.prototypes + call.offset.numpy()
    return reporter.finish(
        status,
        result.assignment,
        prototypes,
        n_evaluations=n_evaluations,
        notes=flow.notes,
        uncertainty=result.uncertainty,
    )
