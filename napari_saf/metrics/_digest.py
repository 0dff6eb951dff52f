"""Checksums of labels, to verify that a recipe reproduces them."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from napari_saf.arrays import as_labels, as_list
from napari_saf.errors import InvalidInput

_N_HALVINGS = 6
"""Number of times that an axis of the image is halved, for 64 blocks."""


def label_digest(labels: ArrayLike) -> tuple[str, ...]:
    """Return the checksums of labels in 64 fixed blocks, for recipes.

    Parameters
    ----------
    labels : array of int
        Label image of any dimension.

    Returns
    -------
    tuple of 64 str
        16 hexadecimal digits per block, in the order of their position, computed from the image
        shape and the labels independently of their dtype.

    Notes
    -----
    The longest axis (the first of equally long ones) is halved, six times in succession. Checksums
    are BLAKE2b (RFC 7693).

    Examples
    --------
    >>> labels = np.kron([[1, 2], [3, 4]], np.ones((8, 8), int))
    >>> digest = saf.metrics.label_digest(labels)
    >>> labels[0, 0] = 2
    >>> saf.metrics.compare_digests(saf.metrics.label_digest(labels), digest)
    'labels differ from those of the recipe in 1 of 64 blocks: 1'
    """
    array = as_labels(labels, "labels")
    if not array.ndim:
        raise InvalidInput("labels: expected a label image, got a number")
    counts = [1] * array.ndim
    for _ in range(_N_HALVINGS):
        longest = int(np.argmax([side / n for side, n in zip(array.shape, counts, strict=True)]))
        counts[longest] *= 2
    cuts = [
        [side * k // n for k in range(n + 1)] for side, n in zip(array.shape, counts, strict=True)
    ]
    digests = []
    for index in itertools.product(*map(range, counts)):
        block = array[tuple(slice(cut[k], cut[k + 1]) for cut, k in zip(cuts, index, strict=True))]
        checksum = hashlib.blake2b(repr(array.shape).encode(), digest_size=8)
        checksum.update(block.astype("<u8").tobytes())
        digests.append(checksum.hexdigest())
    return tuple(digests)


def compare_digests(digest: Sequence[str], recorded: Sequence[str]) -> str:
    """Return a message on whether labels match those of a recipe, by their `label_digest`.

    Examples
    --------
    >>> digest = saf.metrics.label_digest(np.ones((16, 16), int))
    >>> saf.metrics.compare_digests(digest, digest)
    'labels match those of the recipe (64 of 64 blocks)'
    """
    n_blocks = 2**_N_HALVINGS
    both = as_list(digest, "digest"), as_list(recorded, "digest")
    for checksums in both:
        if len(checksums) != n_blocks or not all(isinstance(item, str) for item in checksums):
            raise InvalidInput(f"digest: expected {n_blocks} checksums, got {checksums!r:.60}")
    changed = [str(k) for k, pair in enumerate(zip(*both, strict=True), 1) if len({*pair}) > 1]
    if not changed:
        return f"labels match those of the recipe ({n_blocks} of {n_blocks} blocks)"
    text = f"labels differ from those of the recipe in {len(changed)} of {n_blocks} blocks"
    return f"{text}: {', '.join(changed)}"
