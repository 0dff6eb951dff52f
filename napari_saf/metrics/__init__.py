"""Quality measures of labels: agreement with references, clustering, fairness, tracks."""

from napari_saf.metrics._agreement import (
    RegionAgreement,
    matched_accuracy,
    normalized_mutual_information,
    probabilistic_rand_index,
    region_agreement,
    segmentation_covering,
    variation_of_information,
)
from napari_saf.metrics._clusters import (
    balance,
    class_separability,
    fairness_error,
    group_shares,
    kmeans_objective,
    kmedian_objective,
    mean_entropy,
    ncut_objective,
    pairwise_separability,
)
from napari_saf.metrics._digest import compare_digests, label_digest
from napari_saf.metrics._score import (
    FALSE,
    MISSED,
    OTHER,
    RIGHT,
    ClassScore,
    ObjectScore,
    PixelScore,
    error_image,
    object_error_image,
    score_classes,
    score_objects,
    score_pixels,
)
from napari_saf.metrics._tracks import TrackScore, score_tracks
