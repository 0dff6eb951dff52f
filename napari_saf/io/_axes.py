"""Axes of image files: their letters, the size of a pixel along them and its unit."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from napari_saf.arrays import as_list, own_floats
from napari_saf.errors import InvalidInput

__all__ = ["Axes", "label_axes", "spelled_out", "symbol"]

_ORDER = "tzyx"
"""The axes of a label image in the order that OME asks for."""


@dataclasses.dataclass(frozen=True, slots=True)
class Axes:
    """The axes of a label image.

    Attributes
    ----------
    names : str
        One lower-case letter an axis, among t, z, y and x, in this order.
    scale : tuple of float or None
        Size of a pixel along each axis, > 0.
    units : tuple of str or None
        Its unit along each axis.
    """

    names: str
    scale: tuple[float, ...] | None = None
    units: tuple[str, ...] | None = None

    @property
    def common_unit(self) -> str | None:
        """Symbol of the unit that all axes have; None if they differ.

        ``"px"`` for pixels, and ``""`` for a scale whose unit is not known.
        """
        unknown = "px" if self.scale is None or set(self.scale) == {1.0} else ""
        found = {symbol(unit) for unit in self.units or ("pixel",)}
        if self.scale is None or found == {"pixel"}:
            return unknown
        return found.pop() if len(found) == 1 else None


def label_axes(
    n_axes: int,
    axes: str | None,
    scale: Sequence[float] | None,
    units: Sequence[str] | str | None,
) -> Axes:
    """Check axes, scale and units against the number of axes of a label image.

    Axes that OME does not know, or in another order, are named by their position.

    Raises
    ------
    InvalidInput
        If a length differs from `n_axes`, or a scale is not above 0.
    """
    if not isinstance(axes, str | None):
        raise InvalidInput(f"axes: expected letters, got {axes!r}")
    every_unit = (units,) * n_axes if isinstance(units, str) else units
    sizes = None if scale is None else own_floats(as_list(scale, "scale"), "scale")
    names = None if every_unit is None else as_list(every_unit, "units")
    for name, given in (("axes", axes), ("scale", sizes), ("units", names)):
        if given is not None and len(given) != n_axes:
            raise InvalidInput(f"{name}: expected {n_axes}, one for each axis, got {given!r}")
    if sizes is not None and not (np.isfinite(sizes) & (sizes > 0)).all():
        raise InvalidInput(f"scale: expected sizes above 0, got {tuple(sizes)!r}")
    return Axes(
        _known((axes or "").lower(), n_axes),
        None if sizes is None else tuple(float(size) for size in sizes),
        None if names is None else tuple(str(unit) for unit in names),
    )


def _known(names: str, n_axes: int) -> str:
    """Return the names if OME knows them in this order, else those of the last axes."""
    in_order = "".join(name for name in _ORDER if name in names)
    return names if names and names == in_order else _ORDER[-n_axes:]


_SYMBOLS = {"nanometer": "nm", "micrometer": "µm", "millimeter": "mm", "second": "s"}
"""OME-Zarr spells units out, OME-TIFF takes their symbols."""
_ALIASES = {"um": "micrometer", "micron": "micrometer", "pixels": "pixel"}


def spelled_out(unit: str) -> str:
    """Return the whole word for a unit."""
    spelled = {symbol: name for name, symbol in _SYMBOLS.items()} | _ALIASES
    return spelled.get(unit.replace("μ", "µ"), unit)  # a Greek mu, a micro sign


def symbol(unit: str) -> str:
    """Return the symbol of a unit, or the unit where it has none."""
    name = spelled_out(unit)
    return _SYMBOLS.get(name, name)
