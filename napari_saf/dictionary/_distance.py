"""Distances between image patches and atoms, minimised over symmetries and shifts.

The 8 symmetries of the square: k < 4 rotates by k quarter turns counter-clockwise; 4 + k reflects
left-right first, then rotates. For a centre j and a patch Q, with per-channel means m and
zero-mean parts P° and Q° of N pixels,

    |T P_j - Q|^2 = N |m_P - m_Q|^2 + |P°|^2 + |Q°|^2 - 2 <P, T^-1 Q°>,

so only the last term needs the transforms: one correlation of the image with 8 filters per patch.
Where the terms nearly cancel, the distance of the best transform is recomputed from differences.
Eq. (6.8) of Zisler, Zern, Petra and Schnörr, https://doi.org/10.1137/19M1298639.

The distance under any contrast is the least |T P_j - g Q - m|^2 over gains g >= 0 and offsets m,
one for all channels. With the means over all values removed it is, by the same correlation,

    |P°|^2 - max(0, <P, T^-1 Q°>)^2 / |Q°|^2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import check_size
from napari_saf.device import resolve_device, torch
from napari_saf.errors import InvalidInput

N_SYMMETRIES = 8
INVERSE = [0, 3, 2, 1, 4, 5, 6, 7]
"""Index of the inverse of each symmetry."""
_STRIP_BYTES = 2**24
_ATOMS_AT_ONCE = 64
_INEXACT = 0.02
"""Share of |P| |Q| below which float32 rounding may reach 1e-4 of the distance."""


def patch_distance(
    image: ArrayLike,
    atoms: ArrayLike,
    *,
    direction: Literal["image_to_atom", "atom_to_image", "symmetric"] = "image_to_atom",
    window: int = 3,
    patch_size: int | None = None,
    device: str = "auto",
) -> NDArray[np.float32]:
    """Return squared patch distances that are invariant under symmetries and small shifts.

    Parameters
    ----------
    image : array of shape (height, width) or (height, width, n_channels)
        Finite numbers.
    atoms : array of shape (n_atoms, q, q) or (n_atoms, q, q, n_channels)
        Patches, with surroundings if q exceeds `patch_size`.
    direction : {"image_to_atom", "atom_to_image", "symmetric"}
        Whether patches of the image are shifted to fit the atom, or those of the atom to fit the
        image; or the smaller of both.
    window : int
        Odd; side of the window of shifts in the image. Shifts of an atom are limited by its
        surroundings.
    patch_size : int, optional
        Odd side p of the patches, 3 to 31; by default q.
    device : str
        "auto", "cpu", "cuda" or "mps".

    Returns
    -------
    array of shape (height - p + 1, width - p + 1, n_atoms), float32
        Entry (y, x, k) belongs to the patch whose first pixel is (y, x) and to atom k.

    Raises
    ------
    InvalidInput
        If a size is even or out of range, channels differ, a patch is larger than the image, or
        values are not finite or their squares overflow.

    Notes
    -----
    ``d(P, Q) = min_T min_j |T P_j - Q|^2`` over the 8 symmetries T of the square and the
    centres j in the window around P, eq. (6.8) of https://doi.org/10.1137/19M1298639. Relative
    errors are below 1e-4; distances below 1e-7 of the energy of a patch have an absolute error of
    that size.

    Examples
    --------
    >>> image = np.random.default_rng(0).random((12, 16))
    >>> atom = np.rot90(image[4:9, 3:8])  # a patch of the image, rotated
    >>> distance = saf.patch_distance(image, atom[None], window=1)
    >>> distance.shape, bool(np.isclose(distance[4, 3, 0], 0, atol=1e-5))
    ((8, 12, 1), True)
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
    target = resolve_device(device)
    field = PatchField(torch.from_numpy(pixels).to(target), size)
    blocks, tables = torch.from_numpy(surroundings).to(target), []
    if direction != "atom_to_image":
        matches = field.match(centres_of(blocks, size), with_symmetries=False)
        tables.append(_sliding_minimum(matches.distances, window))
    if direction != "image_to_atom":
        every = (field.match(patch, with_symmetries=False) for patch in windows_of(blocks, size))
        tables.append(torch.stack([matches.distances.amin(dim=0) for matches in every]))
    least = tables[0] if len(tables) == 1 else torch.minimum(*tables)
    return np.asarray(least.permute(1, 2, 0).cpu().numpy())


def check_odd(name: str, value: object, least: int, most: int | None) -> None:
    """Raise InvalidInput unless `value` is an odd integer within bounds."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or value % 2 == 0 or value < least or (most is not None and value > most):  # type: ignore[operator]
        bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise InvalidInput(f"{name}: expected an odd number {bounds}, got {value!r}")


def check_patch_fits(patch_size: int, shape: tuple[int, ...], shift_window: int = 1) -> None:
    """Raise InvalidInput unless the image holds a patch with its window of shifts."""
    most = min(shape) - shift_window + 1
    if patch_size > most:
        sides = " x ".join(map(str, shape))
        shifts = f" and shift_window {shift_window}" if shift_window > 1 else ""
        raise InvalidInput(
            f"patch_size: expected at most {most} for the sides of the image, {sides}{shifts}, "
            f"got {patch_size}"
        )


def _channels_first(name: str, values: ArrayLike, n_axes: int, shape: str) -> NDArray[Any]:
    """Return a finite array of `n_axes` axes and one of channels, before the last two."""
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
    return torch.stack([torch.rot90(patch, k, (-2, -1)) for patch in both for k in range(4)], dim=1)


def centres_of(blocks: torch.Tensor, patch_size: int) -> torch.Tensor:
    """Return the central patches (n, channels, p, p) of blocks (n, channels, q, q)."""
    rim = (blocks.shape[-1] - patch_size) // 2
    return blocks[..., rim : rim + patch_size, rim : rim + patch_size]


def windows_of(blocks: torch.Tensor, patch_size: int) -> torch.Tensor:
    """Return all patches (n, (q - p + 1)^2, channels, p, p) in blocks (n, channels, q, q)."""
    windows = blocks.unfold(2, patch_size, 1).unfold(3, patch_size, 1)
    return windows.permute(0, 2, 3, 1, 4, 5).flatten(1, 2)


def shapes(patches: torch.Tensor) -> torch.Tensor:
    """Normalise patches (..., channels, p, p) to zero mean and unit length; flat ones are 0."""
    zero_mean = patches - patches.mean(dim=(-3, -2, -1), keepdim=True)
    lengths = zero_mean.square().sum(dim=(-3, -2, -1), keepdim=True).sqrt()
    return zero_mean.div_(lengths.clamp_(min=1e-12))


class Matches(NamedTuple):
    """Squared distance, symmetry T and flat index of the centre, each (n_atoms, height, width)."""

    distances: torch.Tensor
    symmetries: torch.Tensor
    indices: torch.Tensor

    def within(self, window: int) -> Matches:
        """Return the best matches over centres in the window around each pixel."""
        lowest, indices = torch.nn.functional.max_pool2d(
            self.distances.neg()[None], window, 1, window // 2, return_indices=True
        )
        symmetries = self.symmetries.flatten(1).gather(1, indices[0].flatten(1))
        return Matches(lowest[0].neg_(), symmetries.view(indices[0].shape), indices[0])

    def of(self, labels: torch.Tensor, nodes: torch.Tensor) -> Matches:
        """Return the match of each of `nodes` (n,) to the atom of its label (n,)."""
        distances, *tables = (table.flatten(1)[labels, nodes] for table in self)
        return Matches(distances.clamp(min=0), *tables)


class PatchField:
    """Interior patches of side p, a grid of `shape`, of an image (n_channels, height, width)."""

    def __init__(self, image: torch.Tensor, patch_size: int) -> None:
        self.patch_size = patch_size
        wide = image if image.device.type == "mps" else image.double()
        self._offset = wide.mean(dim=(1, 2), keepdim=True)
        centred = wide - self._offset
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
        # Contrast fits use one offset for all channels.
        self._between = (self._offset - self._offset.mean()).float()
        spread = means + self._between
        spread = (spread - spread.mean(dim=0)).square_().sum(dim=0)
        self._means, self._energy = means.float(), energy.float()
        self._contrast = (energy + count * spread).float()
        self._norm = sums[-1].float().sqrt_()
        self.shape: tuple[int, int] = (energy.shape[0], energy.shape[1])

    def blocks(self, indices: torch.Tensor, window: int = 1) -> torch.Tensor:
        """Return unscaled blocks (n, n_channels, q, q) at flat indices, q = p + window - 1."""
        width, radius = self.shape[1], window // 2
        views = self._views(self.patch_size + window - 1)
        return views[indices // width - radius, indices % width - radius] + self._offset.float()

    def match(
        self, atoms: torch.Tensor, *, with_symmetries: bool = True, any_contrast: bool = False
    ) -> Matches:
        """Match each interior patch, unshifted, to atoms (n_atoms, n_channels, p, p)."""
        distances = self.image.new_empty(len(atoms), *self.shape)
        shape = distances.shape if with_symmetries else (len(atoms), 0)
        symmetries = distances.new_empty(shape, dtype=torch.uint8)
        write = self._write_fits if any_contrast else self._write_distances
        for start in range(0, len(atoms), _ATOMS_AT_ONCE):
            part = slice(start, start + _ATOMS_AT_ONCE)
            write(atoms[part], distances[part], symmetries[part])
        indices = torch.arange(distances[0].numel(), device=distances.device)
        return Matches(distances, symmetries, indices.view(self.shape).expand(distances.shape))

    def _write_distances(
        self, atoms: torch.Tensor, distances: torch.Tensor, symmetries: torch.Tensor
    ) -> None:
        """Write the best matches to atoms, eq. (6.8) as in the module docstring."""
        centred = (atoms.to(self._offset.dtype) - self._offset).float()
        means = centred.mean(dim=(2, 3))
        zero_mean = centred - means[:, :, None, None]
        # Filter k of an atom is T_k^-1 Q°.
        filters = all_transforms(zero_mean)[:, INVERSE]
        turned = filters + means[:, None, :, None, None]
        energies = zero_mean.square().sum(dim=(1, 2, 3))[:, None, None]
        for rows, products, top in self._products(filters, symmetries):
            out = distances[:, rows]
            torch.mul(top, -2, out=out).add_(self._energy[rows]).add_(energies)
            for mean, atom_means in zip(self._means[:, rows], means.T, strict=True):
                difference = (mean - atom_means[:, None, None]).mul_(self.patch_size)
                out.addcmul_(difference, difference)
            # Small distances suffer from cancellation: recompute them as sums of squares.
            is_inexact = out < _INEXACT * self._norm[rows] * energies.sqrt()
            for (atom, row, column), patches in self._patches_at(is_inexact, rows):
                symmetry = products[atom, :, row, column].argmax(dim=1)
                patches -= turned[atom, symmetry]
                out[atom, row, column] = patches.square_().sum(dim=(1, 2, 3))

    def _write_fits(
        self, atoms: torch.Tensor, distances: torch.Tensor, symmetries: torch.Tensor
    ) -> None:
        filters = all_transforms(shapes(atoms.to(self._offset.dtype)).float())[:, INVERSE]
        bias = (filters * self._between).sum(dim=(2, 3, 4)).flatten()
        for rows, products, top in self._products(filters, symmetries, bias):
            out, gains = distances[:, rows], top.clamp(min=0)
            torch.sub(self._contrast[rows], gains.square(), out=out).clamp_(min=0)
            is_inexact = out < _INEXACT * self._norm[rows] * gains
            for (atom, row, column), patches in self._patches_at(is_inexact, rows):
                symmetry = products[atom, :, row, column].argmax(dim=1)
                patches += self._between
                patches -= patches.mean(dim=(1, 2, 3), keepdim=True)
                patches -= gains[atom, row, column, None, None, None] * filters[atom, symmetry]
                out[atom, row, column] = patches.square_().sum(dim=(1, 2, 3))

    def _products(
        self, filters: torch.Tensor, symmetries: torch.Tensor, bias: torch.Tensor | None = None
    ) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
        """Yield rows, correlations (n, 8, n_rows, width) and maxima; write the best symmetries."""
        for rows, strip in self._strips(filters.shape[0] * N_SYMMETRIES):
            products = torch.conv2d(strip, filters.flatten(0, 1), bias)[0]
            products = products.view(-1, N_SYMMETRIES, *products.shape[1:])
            if symmetries.numel():
                # Ten times as fast as argmax over this strided axis.
                top, symmetries[:, rows] = products.max(dim=1)
            else:
                top = products.amax(dim=1)
            yield rows, products, top

    def _patches_at(
        self, chosen: torch.Tensor, rows: slice
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield indices of True entries of a mask (n_atoms, n_rows, width), and their patches."""
        views = self._views(self.patch_size)[rows]
        step = max(1, _STRIP_BYTES // (4 * views[0, 0].numel()))
        for part in torch.split(chosen.nonzero(), step):
            yield part.T, views[part[:, 1], part[:, 2]].contiguous()

    def rough_symmetric(self, block: torch.Tensor, window: int) -> torch.Tensor:
        """Return approximate symmetric distances (height, width) to a block.

        One correlation serves both directions; small distances have the rounding error of larger
        terms.
        """
        centred = (block.to(self._offset.dtype) - self._offset).float()
        patches = windows_of(centred[None], self.patch_size)[0]
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

    def _strips(self, n_filters: int) -> Iterator[tuple[slice, torch.Tensor]]:
        height, width = self.shape
        step = max(8, _STRIP_BYTES // (4 * n_filters * width))
        for start in range(0, height, step):
            rows = slice(start, min(start + step, height))
            yield rows, self.image[None, :, start : rows.stop + self.patch_size - 1]

    def _views(self, side: int) -> torch.Tensor:
        return self.image.unfold(1, side, 1).unfold(2, side, 1).permute(1, 2, 0, 3, 4)


def _sliding_minimum(values: torch.Tensor, window: int) -> torch.Tensor:
    """Return the minimum in a sliding window; fifty times as fast as pooling."""
    for axis in (1, 2):
        length, lowest = values.shape[axis], values.clone()
        for shift in range(1, min(window // 2, length - 1) + 1):
            for to, come in ((0, shift), (shift, 0)):
                target = lowest.narrow(axis, to, length - shift)
                torch.minimum(target, values.narrow(axis, come, length - shift), out=target)
        values = lowest
    return values
