"""How good a labelling is: against references and classes, by its scatter, for groups."""

from napari_saf.metrics._agreement import matched_accuracy, normalized_mutual_information
from napari_saf.metrics._entropy import mean_entropy
from napari_saf.metrics._fairness import balance, fairness_error, group_shares
from napari_saf.metrics._objectives import kmeans_objective, kmedian_objective, ncut_objective
from napari_saf.metrics._regions import (
    RegionAgreement,
    probabilistic_rand_index,
    region_agreement,
    segmentation_covering,
    variation_of_information,
)
from napari_saf.metrics._scatter import class_separability, pairwise_separability

__all__ = [
    "RegionAgreement",
    "balance",
    "class_separability",
    "fairness_error",
    "group_shares",
    "kmeans_objective",
    "kmedian_objective",
    "matched_accuracy",
    "mean_entropy",
    "ncut_objective",
    "normalized_mutual_information",
    "pairwise_separability",
    "probabilistic_rand_index",
    "region_agreement",
    "segmentation_covering",
    "variation_of_information",
]
