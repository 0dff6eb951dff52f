"""Discs and ellipses that touch, with the object that each pixel belongs to."""

import numpy as np


def ellipsoid(shape, centre, semiaxes, angle, spacing):
    """Whether pixels lie in an ellipse that is turned in the plane; negative inside."""
    grid = np.ogrid[tuple(slice(side) for side in shape)]
    *rest, y, x = [(g - c) * s for g, c, s in zip(grid, centre, spacing, strict=True)]
    along = np.cos(angle) * y + np.sin(angle) * x, np.cos(angle) * x - np.sin(angle) * y
    return sum((u / a) ** 2 for u, a in zip((*rest, *along), semiaxes, strict=True)) - 1


def touching_pair(rng, spacing, most_stretched):
    """Two ellipses, of which one covers up to 30 % of the smaller; radius 6 to 20."""
    spacing = np.array(spacing, float)
    shape = tuple((np.array((96, 110, 110)[-len(spacing) :]) / spacing).astype(int))
    middle = np.array(shape) * spacing / 2
    radii, stretches = rng.uniform(6, 20, 2), rng.uniform(1, most_stretched, 2)
    angles, wanted = rng.uniform(0, np.pi, 2), rng.uniform(0, 0.3)
    way = rng.normal(size=len(spacing))
    way /= np.linalg.norm(way)
    near, far = 0.0, 2.2 * (radii * stretches).max()
    for _ in range(8):
        apart = (near + far) / 2
        levels = []
        for sign, radius, stretch, angle in zip((-1, 1), radii, stretches, angles, strict=True):
            semiaxes = [radius] * (len(spacing) - 1) + [radius * stretch]
            centre = (middle + sign * way * apart / 2) / spacing
            levels.append(ellipsoid(shape, centre, semiaxes, angle, spacing))
        inside = [level <= 0 for level in levels]
        overlap = (inside[0] & inside[1]).sum() / min(one.sum() for one in inside)
        near, far = (apart, far) if overlap > wanted else (near, apart)
    nearest = np.where(levels[0] * radii[0] <= levels[1] * radii[1], 1, 2)
    return np.where(inside[0] | inside[1], nearest, 0)


def share_found(truth, found, least=0.7):
    """Return the share of the objects of the truth that one that was found covers so well."""
    counts = np.zeros((truth.max() + 1, found.max() + 1))
    np.add.at(counts, (truth, found), 1)
    union = counts.sum(axis=1, keepdims=True) + counts.sum(axis=0) - counts
    return (counts[1:, 1:] >= least * union[1:, 1:]).any(axis=1).mean() if found.any() else 0.0
