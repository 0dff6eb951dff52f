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

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import check_size
from napari_saf.device import resolve_device
from napari_saf.errors import InvalidInput

N_SYMMETRIES = 8
INVERSE = (0, 3, 2, 1, 4, 5, 6, 7)
"""The symmetry that undoes each symmetry."""
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
    centres j in the window around P, eq. (6.8) of https://doi.org/10.1137/19M1298639. Relative
    errors are below 1e-4; distances of less than 1e-7 of the energy of a patch are known to that
    accuracy.
    """
    if direction not in ("image_to_atom", "atom_to_image", "symmetric"):
        raise InvalidInput(
            f"direction: expected image_to_atom, atom_to_image or symmetric, got {direction!r}"
        )
    pixels = _channels_first("image", image, 2, "(height, width)")
    surroundings = _channels_first("atoms", atoms, 3, "(n_atoms, q, q)")
    n_channels, _, side = surroundings.shape[1:]
    if len(pixels) != n_channels:
        raise InvalidInput(
            f"image: expected as many channels as the atoms have ({n_channels}), got {len(pixels)}"
        )
    for name, values in (("image", pixels), ("atoms", surroundings)):
        check_size(name, values, surroundings[0].size)
    size = side if patch_size is None else patch_size
    check_odd("patch_size", size, 3, 31)
    check_odd("window", window, 1, None)
    if size > side or (side - size) % 2:
        raise InvalidInput(f"atoms: expected a side of {size} or an even number more, got {side}")
    check_patch_fits(size, pixels.shape[1:])
    place = resolve_device(device)
    field = PatchField(torch.from_numpy(pixels).to(place), size)
    blocks, rim = torch.from_numpy(surroundings).to(place), (side - size) // 2
    found = []
    if direction != "atom_to_image":
        distances, _ = field.compare(blocks[..., rim : side - rim, rim : side - rim])
        found.append(_sliding_minimum(distances, window))
    if direction != "image_to_atom":
        each = [field.compare(field.patches_of(block))[0].amin(dim=0) for block in blocks]
        found.append(torch.stack(each))
    least = found[0] if len(found) == 1 else torch.minimum(*found)
    return np.asarray(least.permute(1, 2, 0).cpu().numpy())


def check_odd(name: str, value: object, least: int, most: int | None) -> None:
    """Raise InvalidInput for what is not an odd whole number within bounds."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or value % 2 == 0 or value < least or (most is not None and value > most):  # type: ignore[operator]
        bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise InvalidInput(f"{name}: expected an odd number {bounds}, got {value!r}")


def check_patch_fits(patch_size: int, shape: tuple[int, ...], shift_window: int = 1) -> None:
    """Raise InvalidInput if an image of this shape has no patch that can be shifted so far."""
    most = min(shape) - shift_window + 1
    if patch_size > most:
        sides = " x ".join(map(str, shape))
        shifts = f" and shift_window {shift_window}" if shift_window > 1 else ""
        raise InvalidInput(
            f"patch_size: expected at most {most} for the sides of the image, {sides}{shifts}, "
            f"got {patch_size}"
        )


def _channels_first(name: str, values: ArrayLike, n_axes: int, shape: str) -> NDArray[Any]:
    """Return finite numbers of at least `n_axes` axes with channels before the last two."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"{name}: expected real numbers, got dtype {array.dtype}")
    is_wide = array.dtype.itemsize > 4 or array.dtype.kind in "iu"
    array = array.astype(np.float64 if is_wide else np.float32)
    n_bad = int(np.count_nonzero(~np.isfinite(array)))
    if n_bad:
        raise InvalidInput(f"{name}: {n_bad} of {array.size} values are NaN or infinite")
    channels = array[..., None] if array.ndim == n_axes else array
    is_square = n_axes == 2 or channels.shape[-3:-2] == channels.shape[-2:-1]
    if channels.ndim != n_axes + 1 or not array.size or not is_square:
        raise InvalidInput(
            f"{name}: expected shape {shape} or {shape[:-1]}, n_channels), got {array.shape}"
        )
    return np.moveaxis(channels, -1, -3)


def all_transforms(patches: torch.Tensor) -> torch.Tensor:
    """Return patches (n, channels, p, p) under every symmetry: (n, 8, channels, p, p)."""
    both = (patches, patches.flip(-1))
    return torch.stack([torch.rot90(one, k, (-2, -1)) for one in both for k in range(4)], dim=1)


class Matches(NamedTuple):
    """Every interior patch matched to some atoms, in tables (n_atoms, height, width).

    Squared distances in float32; the symmetry T, uint8, of the best match; and the flat index,
    among interior pixels, of its centre.
    """

    distances: torch.Tensor
    symmetries: torch.Tensor
    places: torch.Tensor

    def within(self, window: int) -> Matches:
        """Return the best matches over the centres in the window around each pixel."""
        lowest, places = torch.nn.functional.max_pool2d(
            self.distances.neg()[None], window, 1, window // 2, return_indices=True
        )
        symmetries = self.symmetries.flatten(1).gather(1, places[0].flatten(1))
        return Matches(lowest[0].neg_(), symmetries.view(places[0].shape), places[0])


class PatchField:
    """The interior patches of an image (n_channels, height, width), ready to be compared.

    `patch_size` is the odd side p of the patches, not above the sides of the image, and `shape`
    the number of interior pixels along either axis.
    """

    def __init__(self, image: torch.Tensor, patch_size: int) -> None:
        self.patch_size = patch_size
        wide = image if image.device.type == "mps" else image.double()
        self.offset = wide.mean(dim=(1, 2), keepdim=True)
        centred = wide - self.offset
        self.image = centred.float()
        count = patch_size**2
        sums = torch.cat([centred, centred.square().sum(dim=0, keepdim=True)])
        for axis in (1, 2):  # box sums: five times as fast as pooling
            total = torch.cumsum(sums, dim=axis)
            total = torch.cat([torch.zeros_like(total.narrow(axis, 0, 1)), total], dim=axis)
            length = total.shape[axis] - patch_size
            sums = total.narrow(axis, patch_size, length) - total.narrow(axis, 0, length)
        means = sums[:-1] / count
        energy = (sums[-1] - count * means.square().sum(dim=0)).clamp_(min=0)
        self._means, self._energy = means.float(), energy.float()
        self._norm = sums[-1].float().sqrt_()
        self.shape: tuple[int, int] = (energy.shape[0], energy.shape[1])

    def patches(self, places: torch.Tensor) -> torch.Tensor:
        """Return the patches (n, n_channels, p, p) at flat indices, less `offset`."""
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

    def patches_of(self, block: torch.Tensor) -> torch.Tensor:
        """Return all patches (n, n_channels, p, p) in one with surroundings."""
        p = self.patch_size
        views = block.unfold(1, p, 1).unfold(2, p, 1)
        return views.movedim(0, 2).reshape(-1, len(block), p, p)

    def matches(self, atoms: torch.Tensor) -> Matches:
        """Match each interior patch itself to atoms (n_atoms, n_channels, p, p)."""
        distances, symmetries = self.compare(atoms, with_symmetries=True)
        assert symmetries is not None
        places = torch.arange(distances[0].numel(), device=distances.device)
        return Matches(distances, symmetries, places.view(self.shape).expand(distances.shape))

    def compare(
        self, atoms: torch.Tensor, *, with_symmetries: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the least |T P_j - Q|^2 over T, (n_atoms, height, width), and perhaps its T."""
        out = self.image.new_empty(len(atoms), *self.shape)
        best = out.new_empty(out.shape, dtype=torch.uint8) if with_symmetries else None
        for start in range(0, len(atoms), _ATOMS_AT_ONCE):
            some = slice(start, start + _ATOMS_AT_ONCE)
            self._write_distances(atoms[some], out[some], None if best is None else best[some])
        return out, best

    def rough_symmetric(self, block: torch.Tensor, window: int) -> torch.Tensor:
        """Return the smaller distance of both directions, (height, width), to one patch.

        `block` is the patch with its surroundings, (n_channels, q, q), q = p + window - 1. One
        correlation serves both directions; what is small against the patches keeps the rounding
        of the larger terms.
        """
        centred = (block.to(self.offset.dtype) - self.offset).float()
        patches = self.patches_of(centred)
        filters = all_transforms(patches).flatten(0, 1)
        bias = filters.square().sum(dim=(1, 2, 3)) / -2
        middle = len(patches) // 2 * N_SYMMETRIES
        square = self._norm.square()
        there, back = torch.empty_like(square), torch.empty_like(square)
        for rows, strip in self._strips(len(filters)):
            products = torch.conv2d(strip, filters, bias)[0]
            centre = products[middle : middle + N_SYMMETRIES].amax(dim=0)
            torch.sub(square[rows], centre, alpha=2, out=there[rows])
            torch.sub(square[rows], products.amax(dim=0), alpha=2, out=back[rows])
        return torch.minimum(_sliding_minimum(there[None], window)[0], back).clamp_(min=0)

    def _write_distances(
        self, atoms: torch.Tensor, out: torch.Tensor, best: torch.Tensor | None
    ) -> None:
        """Write what `compare` returns; eq. (6.8) as in the notes of this module."""
        centred = (atoms.to(self.offset.dtype) - self.offset).float()
        means = centred.mean(dim=(2, 3))
        zero_mean = centred - means[:, :, None, None]
        # Filter k of an atom is T_k^-1 Q°.
        filters = all_transforms(zero_mean)[:, list(INVERSE)]
        turned = filters + means[:, None, :, None, None]
        energies = zero_mean.square().sum(dim=(1, 2, 3))
        for rows, strip in self._strips(N_SYMMETRIES * len(atoms)):
            products = torch.conv2d(strip, filters.flatten(0, 1))
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
            self._recompute(
                out[:, rows], limit, self._views(self.patch_size)[rows], products, turned
            )

    def _recompute(
        self,
        out: torch.Tensor,
        limit: torch.Tensor,
        views: torch.Tensor,
        products: torch.Tensor,
        turned: torch.Tensor,
    ) -> None:
        """Overwrite distances below a limit, which lost their digits, by sums of squares."""
        atom, row, column = (out < limit).nonzero(as_tuple=True)
        step = max(1, _STRIP_BYTES // (4 * turned[0, 0].numel()))
        for some in (slice(k, k + step) for k in range(0, len(atom), step)):
            a, r, c = atom[some], row[some], column[some]
            symmetry = products[a, :, r, c].argmax(dim=1)
            out[a, r, c] = (views[r, c] - turned[a, symmetry]).square_().sum(dim=(1, 2, 3))

    def _strips(self, n_filters: int) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield rows of patches that are computed together, and the strip of the image."""
        height, width = self.shape
        step = max(8, _STRIP_BYTES // (4 * n_filters * width))
        for start in range(0, height, step):
            rows = slice(start, min(start + step, height))
            yield rows, self.image[None, :, start : rows.stop + self.patch_size - 1]

    def _views(self, side: int) -> torch.Tensor:
        """Return a view (height, width, n_channels, side, side) of all boxes of a side."""
        return self.image.unfold(1, side, 1).unfold(2, side, 1).permute(1, 2, 0, 3, 4)


def _sliding_minimum(values: torch.Tensor, window: int) -> torch.Tensor:
    """Return the minimum over the window around each pixel; fifty times as fast as pooling."""
    for axis in (1, 2):
        length, lowest = values.shape[axis], values.clone()
        for shift in range(1, min(window // 2, length - 1) + 1):
            for to, come in ((0, shift), (shift, 0)):
                target = lowest.narrow(axis, to, length - shift)
                torch.minimum(target, values.narrow(axis, come, length - shift), out=target)
        values = lowest
    return values
