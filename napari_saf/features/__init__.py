"""What images say of their pixels: scaled values, features, groups."""

from napari_saf.features._deep import DeepFeatures
from napari_saf.features._extractor import FeatureExtractor
from napari_saf.features._extractors import FEATURES, extractor_of, perceived
from napari_saf.features._image import (
    Scaling,
    channels_last,
    check_group_source,
    image_groups,
    is_rgb,
    smoothed,
)
from napari_saf.features._multiscale import standardized

FEATURES[DeepFeatures.name] = DeepFeatures
