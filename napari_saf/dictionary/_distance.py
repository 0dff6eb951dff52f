"""Distances between the patches of an image and atoms, whatever way round they are."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import check_size
from napari_saf.device import resolve_device
from napari_saf.dictionary._field import PatchField
from napari_saf.errors import InvalidInput

__all__ = ["Direction", "check_odd", "check_patch_fits", "patch_distance"]

Direction = Literal["image_to_atom", "atom_to_image", "symmetric"]
_LEAST_SIZE, _MOST_SIZE = 3, 31


def patch_distance(
    image: ArrayLike,
    atoms: ArrayLike,
    *,
    direction: Direction = "image_to_atom",
    window: int = 3,
    patch_size: int | None = None,
    device: str = "auto",
) -> NDArray[np.float32]:
    """Return squared distances of patches that turning, mirroring and small shifts leave alike.

    Parameters
    ----------
    image : array of shape (height, width) or (height, width, n_channels)
        Finite numbers.
    atoms : array of shape (n_atoms, q, q) or (n_atoms, q, q, n_channels)
        Patches; or patches with their surroundings, where q is more than `patch_size`.
    direction : {"image_to_atom", "atom_to_image", "symmetric"}
        Whether the image's patches are moved to fit the atom, or the atom's to fit the
        image's patches; or the smaller of both.
    window : int
        Odd; side of the window of centres whose patches the image may offer. An atom offers
        the patches that its surroundings hold.
    patch_size : int, optional
        Odd side p of the patches, 3 to 31; by default q.
    device : str
        Where to compute: "auto", "cpu", "cuda" or "mps".

    Returns
    -------
    array of shape (height - p + 1, width - p + 1, n_atoms), float32
        Entry (y, x, k) belongs to the patch whose first pixel is (y, x) and to atom k.

    Raises
    ------
    InvalidInput
        If a size is even or out of range, channels differ, a patch is larger than the image,
        or numbers are not finite or too large for their squares.

    Notes
    -----
    ``d(P, Q) = min_T min_j |T P_j - Q|^2`` over the 8 symmetries T of the square and the
    centres j in the window around P; eq. (6.8) of Zisler, Zern, Petra and Schnörr,
    https://doi.org/10.1137/19M1298639. Relative errors are below 1e-4; distances of less than
    1e-7 of the energy of a patch are known to that accuracy.
    """
    if direction not in ("image_to_atom", "atom_to_image", "symmetric"):
        raise InvalidInput(
            f"direction: expected image_to_atom, atom_to_image or symmetric, got {direction!r}"
        )
    pixels, filters = _check(image, atoms)
    side = filters.shape[-1]
    size = side if patch_size is None else patch_size
    check_odd("patch_size", size, _LEAST_SIZE, _MOST_SIZE)
    check_odd("window", window, 1, None)
    if size > side or (side - size) % 2:
        raise InvalidInput(f"atoms: expected a side of {size} or an even number more, got {side}")
    check_patch_fits(size, pixels.shape[1:])
    place = resolve_device(device)
    field = PatchField(pixels.to(place), size)
    surroundings = filters.to(place)
    rim = (side - size) // 2
    centres = surroundings[..., rim : side - rim, rim : side - rim]
    found = []
    if direction != "atom_to_image":
        found.append(field.from_image_to(centres, window).distances)
    if direction != "image_to_atom":
        found.append(field.to_image_from(surroundings).distances)
    least = found[0] if len(found) == 1 else torch.minimum(*found)
    return np.asarray(least.permute(1, 2, 0).cpu().numpy())


def check_odd(name: str, value: object, least: int, most: int | None) -> None:
    """Refuse what is not an odd whole number within bounds.

    Raises
    ------
    InvalidInput
        Naming the argument, what was expected and what came.
    """
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value % 2 == 0 or value < least or (most is not None and value > most):  # type: ignore[operator]
        bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise InvalidInput(f"{name}: expected an odd number {bounds}, got {value!r}")


def check_patch_fits(patch_size: int, shape: tuple[int, ...], shift_window: int = 1) -> None:
    """Raise InvalidInput if an image of this shape has no patch that can be shifted so far."""
    most = min(shape) - shift_window + 1
    if patch_size > most:
        sides = " x ".join(str(side) for side in shape)
        shifts = f" and shift_window {shift_window}" if shift_window > 1 else ""
        raise InvalidInput(
            f"patch_size: expected at most {most} for the sides of the image, {sides}{shifts}, "
            f"got {patch_size}"
        )


def _check(image: ArrayLike, atoms: ArrayLike) -> tuple[torch.Tensor, torch.Tensor]:
    """Return image (n_channels, height, width) and atoms (n_atoms, n_channels, q, q)."""
    pixels, filters = _finite("image", image), _finite("atoms", atoms)
    if filters.ndim not in (3, 4) or filters.shape[1] != filters.shape[2] or not filters.size:
        raise InvalidInput(
            f"atoms: expected shape (n_atoms, q, q) or (n_atoms, q, q, n_channels), "
            f"got {filters.shape}"
        )
    if pixels.ndim not in (2, 3) or not pixels.size:
        raise InvalidInput(
            f"image: expected shape (height, width) or (height, width, n_channels), "
            f"got {pixels.shape}"
        )
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    filters = filters[..., None] if filters.ndim == 3 else filters
    if pixels.shape[-1] != filters.shape[-1]:
        raise InvalidInput(
            f"image: expected as many channels as the atoms have ({filters.shape[-1]}), "
            f"got {pixels.shape[-1]}"
        )
    check_size("image", pixels, filters[0].size)
    check_size("atoms", filters, filters[0].size)
    return torch.from_numpy(np.moveaxis(pixels, -1, 0)), torch.from_numpy(
        np.moveaxis(filters, -1, 1)
    )


def _finite(name: str, values: ArrayLike) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"{name}: expected real numbers, got dtype {array.dtype}")
    array = array.astype(
        np.float64 if array.dtype.itemsize > 4 or array.dtype.kind in "iu" else np.float32
    )
    n_bad = int(np.count_nonzero(~np.isfinite(array)))
    if n_bad:
        raise InvalidInput(f"{name}: {n_bad} of {array.size} values are NaN or infinite")
    return array
