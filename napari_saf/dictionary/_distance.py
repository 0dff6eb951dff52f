"""Distances between the patches of an image and atoms, least over symmetries and shifts.

The 8 symmetries of the square: k < 4 turns by k quarter turns counter-clockwise; 4 + k mirrors
left and right first, then turns. For a centre j and a patch Q, with per-channel means m and
zero-mean parts P° and Q° of N pixels,

    |T P_j - Q|^2 = N |m_P - m_Q|^2 + |P°|^2 + |Q°|^2 - 2 <P, T^-1 Q°>,

so only the last term needs the transforms: one correlation of the image with 8 filters a patch.
Where the terms nearly cancel, the distance of the best transform is computed anew from its
differences. Eq. (6.8) of Zisler, Zern, Petra and Schnörr, https://doi.org/10.1137/19M1298639.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import check_size
from napari_saf.device import resolve_device
from napari_saf.errors import InvalidInput

N_SYMMETRIES = 8
INVERSE = (0, 3, 2, 1, 4, 5, 6, 7)
"""The symmetry that undoes each symmetry."""
_LEAST_SIZE, _MOST_SIZE = 3, 31
_STRIP_BYTES = 2**24
_ATOMS_AT_ONCE = 64
_INEXACT = 0.02
"""Below this share of |P| |Q| rounding in float32 may reach 1e-4 of the distance."""


def patch_distance(
    image: ArrayLike,
    atoms: ArrayLike,
    *,
    direction: Literal["image_to_atom", "atom_to_image", "symmetric"] = "image_to_atom",
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
    pixels, filters = _check_arguments(image, atoms)
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
    found = []
    if direction != "atom_to_image":
        centres = surroundings[..., rim : side - rim, rim : side - rim]
        found.append(field.at_centres(centres).within(window).distances)
    if direction != "image_to_atom":
        found.append(field.to_image_from(surroundings))
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


def _check_arguments(image: ArrayLike, atoms: ArrayLike) -> tuple[torch.Tensor, torch.Tensor]:
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
    channels_first = np.moveaxis(pixels, -1, 0), np.moveaxis(filters, -1, 1)
    return torch.from_numpy(channels_first[0]), torch.from_numpy(channels_first[1])


def _finite(name: str, values: ArrayLike) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"{name}: expected real numbers, got dtype {array.dtype}")
    wide = array.dtype.itemsize > 4 or array.dtype.kind in "iu"
    array = array.astype(np.float64 if wide else np.float32)
    n_bad = int(np.count_nonzero(~np.isfinite(array)))
    if n_bad:
        raise InvalidInput(f"{name}: {n_bad} of {array.size} values are NaN or infinite")
    return array


def transform(patches: torch.Tensor, symmetry: int) -> torch.Tensor:
    """Return patches (..., p, p) under one symmetry."""
    mirrored = patches.flip(-1) if symmetry >= 4 else patches
    return torch.rot90(mirrored, symmetry % 4, (-2, -1))


def all_transforms(patches: torch.Tensor) -> torch.Tensor:
    """Return patches (n, channels, p, p) under every symmetry: (n, 8, channels, p, p)."""
    return torch.stack([transform(patches, k) for k in range(N_SYMMETRIES)], dim=1)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Distances of every interior patch to some atoms, and where they are attained.

    Attributes
    ----------
    distances : Tensor of shape (n_atoms, height, width)
        Squared distances, float32.
    symmetries : Tensor of uint8 of shape (n_atoms, height, width) or None
        The symmetry T of the best match.
    places : Tensor of int64 of shape (n_atoms, height, width) or None
        Flat index, among interior pixels, of the best centre; None: each pixel itself.
    """

    distances: torch.Tensor
    symmetries: torch.Tensor | None
    places: torch.Tensor | None = None

    def within(self, window: int) -> Matches:
        """Return the best matches over the centres in the window around each pixel."""
        if self.symmetries is None:
            return Matches(_sliding_minimum(self.distances, window), None)
        lowest, places = torch.nn.functional.max_pool2d(
            self.distances.neg()[None], window, 1, window // 2, return_indices=True
        )
        places = places[0]
        flat = self.symmetries.flatten(1).gather(1, places.flatten(1)).view(places.shape)
        return Matches(lowest[0].neg_(), flat, places)


class PatchField:
    """The interior patches of an image, ready to be compared.

    Parameters
    ----------
    image : Tensor of shape (n_channels, height, width)
        On the device of all that follows.
    patch_size : int
        Odd side p of the patches, not above the sides of the image.
    """

    def __init__(self, image: torch.Tensor, patch_size: int) -> None:
        self.patch_size = patch_size
        wide = image if image.device.type == "mps" else image.double()
        self.offset = wide.mean(dim=(1, 2), keepdim=True)
        centred = wide - self.offset
        self.image = centred.float()
        count = patch_size**2
        sums = _box_sums(
            torch.cat([centred, centred.square().sum(dim=0, keepdim=True)]), patch_size
        )
        means = sums[:-1] / count
        energy = (sums[-1] - count * means.square().sum(dim=0)).clamp_(min=0)
        self._means, self._energy = means.float(), energy.float()
        self._norm = sums[-1].float().sqrt_()

    @property
    def shape(self) -> tuple[int, int]:
        """Number of interior pixels along either axis."""
        height, width = self._energy.shape
        return height, width

    def patches(self, places: torch.Tensor) -> torch.Tensor:
        """Return the patches (n, n_channels, p, p) at flat indices of interior pixels.

        The mean of the image, `offset`, is taken off them.
        """
        width = self.shape[1]
        return self._views(self.patch_size)[places // width, places % width]

    def blocks(self, places: torch.Tensor, window: int) -> torch.Tensor:
        """Return patches with their window of centres: (n, n_channels, q, q), q = p + window - 1.

        In the values of the image.
        """
        side, radius = self.patch_size + window - 1, window // 2
        width = self.shape[1]
        found = self._views(side)[places // width - radius, places % width - radius]
        return found + self.offset.float()

    def at_centres(self, atoms: torch.Tensor, *, with_symmetries: bool = False) -> Matches:
        """Return the least distance over the symmetries of each interior patch itself.

        `atoms` has shape (n_atoms, n_channels, p, p).
        """
        found = [
            self._at_centres(some, with_symmetries) for some in torch.split(atoms, _ATOMS_AT_ONCE)
        ]
        distances = torch.cat([one[0] for one in found])
        symmetries = [one[1] for one in found if one[1] is not None]
        return Matches(distances, torch.cat(symmetries) if symmetries else None)

    def to_image_from(self, atoms: torch.Tensor) -> torch.Tensor:
        """Return the least distances (n_atoms, height, width) over the patches in each atom.

        `atoms` has shape (n_atoms, n_channels, q, q) with q >= p: atoms with surroundings.
        """
        each = [self._at_centres(self._patches_of(atom), False)[0].amin(dim=0) for atom in atoms]
        return torch.stack(each)

    def rough_symmetric(self, block: torch.Tensor, window: int) -> torch.Tensor:
        """Return the smaller distance of both directions, (height, width), to one patch.

        `block` is the patch with its surroundings, (n_channels, q, q), q = p + window - 1. One
        correlation serves both directions; what is small against the patches keeps the rounding
        of the larger terms.
        """
        centred = (block.to(self.offset.dtype) - self.offset).float()
        patches = self._patches_of(centred)
        filters = all_transforms(patches).flatten(0, 1)
        bias = filters.square().sum(dim=(1, 2, 3)) / -2
        middle = len(patches) // 2 * N_SYMMETRIES
        square = self._norm.square()
        there, back = torch.empty_like(square), torch.empty_like(square)
        for rows in self._strips(len(filters)):
            products = torch.conv2d(self._strip(rows), filters, bias)[0]
            centre = products[middle : middle + N_SYMMETRIES].amax(dim=0)
            torch.sub(square[rows], centre, alpha=2, out=there[rows])
            torch.sub(square[rows], products.amax(dim=0), alpha=2, out=back[rows])
        return torch.minimum(_sliding_minimum(there[None], window)[0], back).clamp_(min=0)

    def _at_centres(
        self, atoms: torch.Tensor, with_symmetries: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the least |T P_j - Q|^2 over T, of shape (n_atoms, height, width), and its T."""
        height, width = self.shape
        centred = (atoms.to(self.offset.dtype) - self.offset).float()
        means = centred.mean(dim=(2, 3))
        zero_mean = centred - means[:, :, None, None]
        # Filter k of an atom is T_k^-1 Q°.
        filters = all_transforms(zero_mean)[:, list(INVERSE)]
        turned = filters + means[:, None, :, None, None]
        energies = zero_mean.square().sum(dim=(1, 2, 3))
        out = self.image.new_empty(len(atoms), height, width)
        best = out.new_empty(out.shape, dtype=torch.uint8) if with_symmetries else None
        for rows in self._strips(N_SYMMETRIES * len(atoms)):
            products = torch.conv2d(self._strip(rows), filters.flatten(0, 1))
            products = products.view(len(filters), N_SYMMETRIES, *products.shape[2:])
            if best is None:
                top = products.amax(dim=1)
            else:
                # Ten times as fast as argmax across the layout.
                top, found = products.max(dim=1)
                best[:, rows] = found.to(torch.uint8)
            torch.mul(top, -2, out=out[:, rows]).add_(self._energy[rows])
            out[:, rows] += energies[:, None, None]
            for mean, own in zip(self._means[:, rows], means.T, strict=True):
                difference = (mean - own[:, None, None]).mul_(self.patch_size)
                out[:, rows].addcmul_(difference, difference)
            limit = _INEXACT * self._norm[rows] * energies.sqrt()[:, None, None]
            self._recompute(out, rows, products, turned, limit)
        return out, best

    def _recompute(
        self,
        out: torch.Tensor,
        rows: slice,
        products: torch.Tensor,
        turned: torch.Tensor,
        limit: torch.Tensor,
    ) -> None:
        """Overwrite distances that lost their digits by sums of squared differences."""
        atom, row, column = (out[:, rows] < limit).nonzero(as_tuple=True)
        views = self._views(self.patch_size)[rows]
        step = max(1, _STRIP_BYTES // (4 * turned[0, 0].numel()))
        for some in (slice(k, k + step) for k in range(0, len(atom), step)):
            a, r, c = atom[some], row[some], column[some]
            symmetry = products[a, :, r, c].argmax(dim=1)
            square = (views[r, c] - turned[a, symmetry]).square_().sum(dim=(1, 2, 3))
            out[:, rows][a, r, c] = square

    def _patches_of(self, block: torch.Tensor) -> torch.Tensor:
        """Return all patches (n, n_channels, p, p) in one with surroundings."""
        p = self.patch_size
        views = block.unfold(1, p, 1).unfold(2, p, 1)
        return views.movedim(0, 2).reshape(-1, len(block), p, p)

    def _strips(self, n_filters: int) -> Iterator[slice]:
        """Yield rows that are computed together."""
        height, width = self.shape
        step = max(8, _STRIP_BYTES // (4 * n_filters * width))
        return (slice(start, min(start + step, height)) for start in range(0, height, step))

    def _strip(self, rows: slice) -> torch.Tensor:
        """Return the part of the image (1, n_channels, ..., width) that holds rows of patches."""
        return self.image[None, :, rows.start : rows.stop + self.patch_size - 1]

    def _views(self, side: int) -> torch.Tensor:
        """Return a view (height, width, n_channels, side, side) of all boxes of a side."""
        return self.image.unfold(1, side, 1).unfold(2, side, 1).permute(1, 2, 0, 3, 4)


def _box_sums(values: torch.Tensor, side: int) -> torch.Tensor:
    """Return the sums over all boxes inside (n, height, width)."""
    for axis in (1, 2):
        total = torch.cumsum(values, dim=axis)
        total = torch.cat([torch.zeros_like(total.narrow(axis, 0, 1)), total], dim=axis)
        length = total.shape[axis] - side
        values = total.narrow(axis, side, length) - total.narrow(axis, 0, length)
    return values


def _sliding_minimum(values: torch.Tensor, window: int) -> torch.Tensor:
    """Return the minimum over the window around each pixel, as far as it is inside."""
    radius = window // 2
    if radius == 0:
        return values
    for axis in (1, 2):
        length, lowest = values.shape[axis], values.clone()
        for shift in range(1, min(radius, length - 1) + 1):
            for to, come in ((0, shift), (shift, 0)):
                part = lowest.narrow(axis, to, length - shift)
                torch.minimum(part, values.narrow(axis, come, length - shift), out=part)
        values = lowest
    return values
