"""How good a labelling is: regions against human references, scatter, entropy."""

from napari_saf.metrics._entropy import mean_entropy
from napari_saf.metrics._regions import (
    RegionAgreement,
    probabilistic_rand_index,
    region_agreement,
    segmentation_covering,
    variation_of_information,
)
from napari_saf.metrics._scatter import class_separability

__all__ = [
    "RegionAgreement",
    "class_separability",
    "mean_entropy",
    "probabilistic_rand_index",
    "region_agreement",
    "segmentation_covering",
    "variation_of_information",
]
