"""What the flows have in common as methods."""

from __future__ import annotations

import dataclasses
import time
from abc import abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import ArrayLike

from napari_saf.device import DeviceName, FloatName, check_memory, float_type, resolve_device
from napari_saf.integrate import STEPPERS, AbstractStepper, AdamsBashforthMoulton, StoppingRule
from napari_saf.methods._flow import Flow, run_flow
from napari_saf.methods._method import AbstractMethod, Cancelled, Iteration, never
from napari_saf.parameters import check_bounds, parameter
from napari_saf.problem import Problem

__all__ = ["AbstractFlowMethod"]

_N_FIELDS = 12
"""Fields of (n_nodes, n_columns) that a run holds at most."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AbstractFlowMethod(AbstractMethod):
    """A method that integrates a flow in log coordinates.

    Parameters
    ----------
    rho : float
        > 0; the smaller, the more the features count against the neighbours.
    stepper : AbstractStepper
        Time stepping.
    stop : StoppingRule
        When to stop.
    device : {"auto", "cpu", "cuda", "mps"}
        Where to compute.
    dtype : {"float32", "float64"}
        Precision of the fields.
    """

    rho: float = parameter(
        0.1,
        label="Selectivity",
        help="How much likeness counts against the neighbours: smaller makes it count more (ρ).",
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
    device: DeviceName = parameter(
        "auto",
        label="Device",
        help="Where to compute; auto takes the graphics card if there is one.",
        advanced=True,
    )
    dtype: FloatName = parameter(
        "float32",
        label="Precision",
        help="float64 takes twice the memory and time.",
        advanced=True,
    )

    def __post_init__(self) -> None:
        check_bounds(self)

    def iterate(
        self,
        problem: Problem,
        initial: ArrayLike | None = None,
        *,
        max_iterations: int | None = None,
        cancelled: Callable[[], bool] = never,
    ) -> Iteration:
        """Label the nodes of a problem; see `AbstractMethod.iterate`."""
        began = time.perf_counter()
        device = resolve_device(self.device)
        dtype = float_type(self.dtype, device)
        self._check_memory(problem, initial, device, dtype.itemsize)
        features = torch.from_numpy(np.ascontiguousarray(problem.features)).to(dtype).to(device)
        flow = self._prepare(problem, features, initial, cancelled)

        def tick() -> None:
            if cancelled():
                raise Cancelled

        return (yield from run_flow(flow, began, max_iterations, tick))

    @abstractmethod
    def _prepare(
        self,
        problem: Problem,
        features: torch.Tensor,
        initial: ArrayLike | None,
        cancelled: Callable[[], bool],
    ) -> Flow:
        """Return the flow, ready to start; a poorer one, soon, once `cancelled`."""

    @abstractmethod
    def _n_columns(self, problem: Problem) -> int:
        """Return the number of columns that the flow will start with."""

    def _n_extra_columns(self, problem: Problem) -> int:
        """Return how many numbers a node takes beside fields and features."""
        return 0

    def _check_memory(
        self, problem: Problem, initial: ArrayLike | None, device: torch.device, itemsize: int
    ) -> None:
        n_columns = self._n_columns(problem) if initial is None else np.shape(initial)[-1]
        per_node = _N_FIELDS * n_columns + self._n_extra_columns(problem)
        per_node += 4 * problem.features.shape[1]
        need = itemsize * problem.n_nodes * per_node
        n_axes = sum(side > 1 for side in getattr(problem.graph, "shape", (2, 2)))
        check_memory(
            need,
            device,
            "use fewer labels, a mask, or a smaller image: at half the side lengths it needs "
            f"about {need / 2**n_axes / 2**30:.1f} GiB",
        )
