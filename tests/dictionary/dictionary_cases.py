"""Slow references, written from the definitions."""

import numpy as np


def turned(patch, symmetry):
    """Symmetry k < 4: k quarter turns counter-clockwise; 4 + k: mirrored first."""
    mirrored = patch[:, ::-1] if symmetry >= 4 else patch
    return np.rot90(mirrored, symmetry % 4, (0, 1))


def patches_at(image, size):
    height, width = image.shape[0] - size + 1, image.shape[1] - size + 1
    return {(y, x): image[y : y + size, x : x + size] for y in range(height) for x in range(width)}


def best(candidates, target):
    """Least squared distance of any candidate under any symmetry."""
    return min(
        np.square(turned(patch, symmetry) - target).sum()
        for patch in candidates
        for symmetry in range(8)
    )


def slow_distance(image, atoms, size, window, direction):
    """d(P, Q) = min over symmetries and window of |T P_j - Q|^2, interior patches only."""
    patches, radius = patches_at(image, size), window // 2
    rim = (atoms.shape[1] - size) // 2
    height, width = image.shape[0] - size + 1, image.shape[1] - size + 1
    out = np.empty((height, width, len(atoms)))
    for (y, x), own in patches.items():
        near = [p for (v, u), p in patches.items() if max(abs(v - y), abs(u - x)) <= radius]
        for k, atom in enumerate(atoms):
            centre = atom[rim : rim + size, rim : rim + size]
            found = []
            if direction != "atom_to_image":
                found.append(best(near, centre))
            if direction != "image_to_atom":
                found.append(best(patches_at(atom, size).values(), own))
            out[y, x, k] = min(found)
    return out


def fitted(patch, atom):
    """The patch g atom + m nearest to `patch`, g >= 0."""
    zero_mean = atom - atom.mean()
    gain = (patch * zero_mean).sum() / np.square(zero_mean).sum()
    return patch.mean() + max(gain, 0) * zero_mean
