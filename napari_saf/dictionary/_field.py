"""The patches of one image, and their distances to given patches by correlation.

For a centre j and a patch Q, per channel with means m and zero-mean parts marked by °,

    |T P_j - Q|^2 = N |m_P - m_Q|^2 + |P°|^2 + |Q°|^2 - 2 <P, T^-1 Q°>,

so only the last term needs the transforms: one correlation of the image with 8 filters a
patch. Where the terms nearly cancel, the distance of the best transform is computed anew
from its differences.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch

from napari_saf.dictionary._symmetries import INVERSE, N_SYMMETRIES, all_transforms

__all__ = ["Matches", "PatchField"]

_STRIP_BYTES = 2**24
_ATOMS_AT_ONCE = 64
_DOUBTFUL = 0.02
"""Below this share of |P| |Q| rounding in float32 may reach 1e-4 of the distance."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Distances of every interior patch to some atoms, and where they are attained.

    Attributes
    ----------
    distances : Tensor of shape (n_atoms, height, width)
        Squared distances, float32.
    symmetries : Tensor of shape (n_atoms, height, width) or None
        uint8; the symmetry T of the best match.
    places : Tensor of shape (n_atoms, height, width) or None
        int64; the best centre: a flat index of interior pixels, or of the centres in an
        atom's surroundings.
    """

    distances: torch.Tensor
    symmetries: torch.Tensor | None
    places: torch.Tensor | None

    def within(self, window: int) -> Matches:
        """Return the best matches over the centres in the window around each pixel."""
        if self.symmetries is None:
            return Matches(_sliding_minimum(self.distances, window), None, None)
        distances, places = _sliding_arg_minimum(self.distances, window)
        flat = self.symmetries.flatten(1).gather(1, places.flatten(1)).view(places.shape)
        return Matches(distances, flat, places)


class PatchField:
    """The interior patches of an image, ready to be compared.

    Parameters
    ----------
    image : Tensor of shape (n_channels, height, width)
        On the device of all that follows.
    patch_size : int
        Odd side of the patches, not above the sides of the image.
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
        self.means, self.energy, self.norm = means.float(), energy.float(), sums[-1].float().sqrt_()

    @property
    def shape(self) -> tuple[int, int]:
        """Number of interior pixels along either axis."""
        height, width = self.energy.shape
        return height, width

    def patches(self, places: torch.Tensor) -> torch.Tensor:
        """Return the patches (n, n_channels, p, p) at flat indices of interior pixels.

        The mean of the image, `offset`, is taken off them.
        """
        width = self.shape[1]
        return self._strided()[places // width, places % width]

    def blocks(self, places: torch.Tensor, window: int) -> torch.Tensor:
        """Return patches with their window of centres: (n, n_channels, q, q), q = p + window - 1.

        In the values of the image.
        """
        side, radius = self.patch_size + window - 1, window // 2
        strided = self.image.unfold(1, side, 1).unfold(2, side, 1).permute(1, 2, 0, 3, 4)
        width = self.shape[1]
        found = strided[places // width - radius, places % width - radius]
        return found + self.offset.float()

    def from_image_to(
        self, atoms: torch.Tensor, window: int, *, with_places: bool = False
    ) -> Matches:
        """Return the least distance over symmetries and over the centres in each window.

        `atoms` has shape (n_atoms, n_channels, p, p).
        """
        here = self.at_centres(atoms, with_symmetries=with_places)
        return here.within(window)

    def rough_symmetric(self, block: torch.Tensor, window: int) -> torch.Tensor:
        """Return the smaller distance of both directions, (height, width), to one patch.

        `block` is the patch with its surroundings, (n_channels, q, q), q = p + window - 1. One
        correlation serves both directions; what is small against the patches keeps the rounding
        of the larger terms.
        """
        centred = (block.to(self.offset.dtype) - self.offset).float()
        parts = self._patches_of(centred)
        filters = all_transforms(parts).flatten(0, 1)
        bias = filters.square().sum(dim=(1, 2, 3)) / -2
        middle = len(parts) // 2 * N_SYMMETRIES
        square = self.norm.square()
        there, back = torch.empty_like(square), torch.empty_like(square)
        for rows in self._strips(len(filters)):
            strip = self.image[None, :, rows.start : rows.stop + self.patch_size - 1]
            products = torch.conv2d(strip, filters, bias)[0]
            centre = products[middle : middle + N_SYMMETRIES].amax(dim=0)
            torch.sub(square[rows], centre, alpha=2, out=there[rows])
            torch.sub(square[rows], products.amax(dim=0), alpha=2, out=back[rows])
        return torch.minimum(_sliding_minimum(there[None], window)[0], back).clamp_(min=0)

    def at_centres(self, atoms: torch.Tensor, *, with_symmetries: bool = False) -> Matches:
        """Return the least distance over the symmetries of each interior patch itself."""
        found = [self._at_centres(part, with_symmetries) for part in self._parts(atoms)]
        distances = torch.cat([part[0] for part in found])
        if not with_symmetries:
            return Matches(distances, None, None)
        return Matches(
            distances, torch.cat([part[1] for part in found if part[1] is not None]), None
        )

    def to_image_from(self, atoms: torch.Tensor, *, with_places: bool = False) -> Matches:
        """Return the least distance over symmetries and over the patches in each atom.

        `atoms` has shape (n_atoms, n_channels, q, q) with q >= p: atoms with surroundings.
        """
        found = [self._from_surroundings(atom, with_places) for atom in atoms]
        distances = torch.stack([part.distances for part in found])
        if not with_places:
            return Matches(distances, None, None)
        symmetries = torch.stack([part.symmetries for part in found if part.symmetries is not None])
        places = torch.stack([part.places for part in found if part.places is not None])
        return Matches(distances, symmetries, places)

    @staticmethod
    def _parts(atoms: torch.Tensor) -> list[torch.Tensor]:
        count = _ATOMS_AT_ONCE
        return [atoms[start : start + count] for start in range(0, len(atoms), count)]

    def _patches_of(self, block: torch.Tensor) -> torch.Tensor:
        """Return all patches (n, n_channels, p, p) in one with surroundings."""
        p = self.patch_size
        views = block.unfold(1, p, 1).unfold(2, p, 1)
        return views.movedim(0, 2).reshape(-1, len(block), p, p)

    def _from_surroundings(self, atom: torch.Tensor, with_places: bool) -> Matches:
        distances, symmetries = self._at_centres(self._patches_of(atom), with_places)
        if symmetries is None:
            return Matches(distances.amin(dim=0), None, None)
        least, places = distances.min(dim=0)
        best = symmetries.gather(0, places[None])[0]
        # T P_k - P_i = T (P_k - T^-1 P_i): here the atom is what is transformed.
        return Matches(least, _inverse(best), places)

    def _at_centres(
        self, atoms: torch.Tensor, with_symmetries: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the least |T P_j - Q|^2 over T, of shape (n_atoms, height, width), and its T."""
        height, width = self.shape
        centred = (atoms.to(self.offset.dtype) - self.offset).float()
        means = centred.mean(dim=(2, 3))
        hollow = centred - means[:, :, None, None]
        # Filter k of an atom is T_k^-1 Q.
        filters = all_transforms(hollow)[:, list(INVERSE)]
        energies = hollow.square().sum(dim=(1, 2, 3))
        out = self.image.new_empty(len(atoms), height, width)
        best = out.new_empty(out.shape, dtype=torch.uint8) if with_symmetries else None
        for rows in self._strips(N_SYMMETRIES * len(atoms)):
            products = self._correlate(filters, rows)
            if best is None:
                top = products.amax(dim=1)
            else:
                # Ten times as fast as argmax across the layout.
                top, found = products.max(dim=1)
                best[:, rows] = found.to(torch.uint8)
            torch.mul(top, -2, out=out[:, rows]).add_(self.energy[rows])
            out[:, rows] += energies[:, None, None]
            for mean, own in zip(self.means[:, rows], means.T, strict=True):
                difference = (mean - own[:, None, None]).mul_(self.patch_size)
                out[:, rows].addcmul_(difference, difference)
            self._compute_doubtful(out, rows, products, filters, means, energies)
        return out, best

    def _strips(self, n_filters: int) -> Iterator[slice]:
        """Yield rows that are worked off together."""
        height, width = self.shape
        step = max(8, _STRIP_BYTES // (4 * n_filters * width))
        return (slice(start, min(start + step, height)) for start in range(0, height, step))

    def _correlate(self, filters: torch.Tensor, rows: slice) -> torch.Tensor:
        strip = self.image[None, :, rows.start : rows.stop + self.patch_size - 1]
        products = torch.conv2d(strip, filters.flatten(0, 1))
        return products.view(len(filters), N_SYMMETRIES, *products.shape[2:])

    def _compute_doubtful(
        self,
        out: torch.Tensor,
        rows: slice,
        products: torch.Tensor,
        filters: torch.Tensor,
        means: torch.Tensor,
        energies: torch.Tensor,
    ) -> None:
        """Replace distances that lost their digits by sums of squared differences."""
        limit = _DOUBTFUL * self.norm[rows] * energies.sqrt()[:, None, None]
        atom, row, column = (out[:, rows] < limit).nonzero(as_tuple=True)
        strided = self._strided()[rows]
        width = out.shape[2]
        step = max(1, _STRIP_BYTES // (4 * filters[0, 0].numel()))
        for part in (slice(k, k + step) for k in range(0, len(atom), step)):
            a, r, c = atom[part], row[part], column[part]
            symmetry = products[a, :, r, c].argmax(dim=1)
            wanted = filters[a, symmetry] + means[a][:, :, None, None]
            square = (strided[r, c] - wanted).square_().sum(dim=(1, 2, 3))
            out.view(-1)[(a * out.shape[1] + rows.start + r) * width + c] = square

    def _strided(self) -> torch.Tensor:
        """Return a view (height, width, n_channels, p, p) of all patches."""
        p = self.patch_size
        return self.image.unfold(1, p, 1).unfold(2, p, 1).permute(1, 2, 0, 3, 4)


def _box_sums(values: torch.Tensor, side: int) -> torch.Tensor:
    """Return the sums over all boxes inside (n, height, width)."""
    for axis in (1, 2):
        total = torch.cumsum(values, dim=axis)
        zero = torch.zeros_like(total.narrow(axis, 0, 1))
        total = torch.cat([zero, total], dim=axis)
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


def _sliding_arg_minimum(values: torch.Tensor, window: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the minimum over each window and the flat index where it is."""
    lowest, places = torch.nn.functional.max_pool2d(
        values.neg()[None], window, 1, window // 2, return_indices=True
    )
    return lowest[0].neg_(), places[0]


def _inverse(symmetries: torch.Tensor) -> torch.Tensor:
    table = torch.tensor(INVERSE, dtype=torch.uint8, device=symmetries.device)
    return table[symmetries.long()]
