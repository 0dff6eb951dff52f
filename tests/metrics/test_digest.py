"""Checksums of labels."""

import numpy as np
import pytest

from napari_saf.metrics import compare_digests, label_digest


@pytest.mark.parametrize("shape", [(5,), (64,), (33, 20), (3, 50, 41), (2, 3, 20, 20)])
def test_a_digest_tells_where_labels_differ(shape):
    labels = np.random.default_rng(0).integers(0, 5, shape)
    digest = label_digest(labels)
    assert len(digest) == 64
    assert label_digest(labels.astype(np.uint8)) == digest == label_digest(labels.T.T.copy())
    assert "64 of 64" in compare_digests(label_digest(labels), digest)
    labels[(0,) * labels.ndim] += 1
    changed = [
        k for k, (a, b) in enumerate(zip(label_digest(labels), digest, strict=True)) if a != b
    ]
    assert len(changed) == 1
    assert f"1 of 64 blocks: {changed[0] + 1}" in compare_digests(label_digest(labels), digest)
    assert label_digest(labels[..., :-1])[-1] != digest[-1]
