"""Time integration of flows in log coordinates."""

from napari_saf.integrate._adaptive import AdamsBashforthMoulton, BogackiShampine
from napari_saf.integrate._field import VectorField
from napari_saf.integrate._stepper import AbstractStepper, GeometricEuler, Run
from napari_saf.integrate._stopping import StoppingRule, StopWatch

STEPPERS: dict[str, type[AbstractStepper]] = {
    "adams": AdamsBashforthMoulton,
    "bogacki-shampine": BogackiShampine,
    "euler": GeometricEuler,
}
"""Names of the schemes in forms, on the command line and in recipes."""

__all__ = [
    "STEPPERS",
    "AbstractStepper",
    "AdamsBashforthMoulton",
    "BogackiShampine",
    "GeometricEuler",
    "Run",
    "StopWatch",
    "StoppingRule",
    "VectorField",
]
