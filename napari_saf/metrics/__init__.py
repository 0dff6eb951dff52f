"""How good a labelling is: regions against human references, scatter, entropy."""

from napari_saf.metrics._entropy import mean_entropy
from napari_saf.metrics._regions import (
    probabilistic_rand_index,
    segmentation_covering,
    variation_of_information,
)
from napari_saf.metrics._scatter import class_separability

__all__ = [
    "class_separability",
    "mean_entropy",
    "probabilistic_rand_index",
    "segmentation_covering",
    "variation_of_information",
]
