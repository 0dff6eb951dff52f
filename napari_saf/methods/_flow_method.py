"""What the flows have in common as methods."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod

from napari_saf.integrate import STEPPERS, AbstractStepper, AdamsBashforthMoulton, StoppingRule
from napari_saf.methods._flow import Flow, run_flow
from napari_saf.methods._method import AbstractMethod, Call, Iteration
from napari_saf.parameters import parameter

__all__ = ["AbstractFlow"]


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
        """Return the flow, ready to start; a poorer one, soon, once the call is cancelled."""

    def _iterate(self, call: Call) -> Iteration:
        return run_flow(self._prepare(call), call)

    def _n_fields(self) -> int:
        return 12
