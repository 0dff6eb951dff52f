"""What labels and groups are called makes no difference, however large the numbers."""

import numpy as np
import pytest

import napari_saf as saf


@pytest.mark.parametrize("large", [70_000, 2**40, 2**63 - 1])
def test_names_of_labels_and_groups(large):
    rng = np.random.default_rng(0)
    labels, groups = rng.integers(0, 3, (2, 40))
    features = rng.random((40, 2))
    other_labels, other_groups = (np.where(x == 2, large, x) for x in (labels, groups))
    for measure in (saf.metrics.balance, saf.metrics.fairness_error):
        assert measure(other_labels, other_groups) == measure(labels, groups)
    assert saf.metrics.class_separability(features, other_labels) == pytest.approx(
        saf.metrics.class_separability(features, labels)
    )
    covering = saf.metrics.segmentation_covering
    assert covering(other_labels, groups) == covering(labels, groups)
