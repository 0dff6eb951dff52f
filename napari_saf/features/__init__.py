"""What images say of their pixels: scaled values, features, groups."""

from napari_saf.features._deep import DeepFeatures
from napari_saf.features._extractors import (
    FEATURES,
    FeatureExtractor,
    extractor_of,
    perceived,
    standardized,
)
from napari_saf.features._image import (
    Scaling,
    channels_last,
    check_group_source,
    image_groups,
    is_rgb,
    smoothed,
)

FEATURES[DeepFeatures.name] = DeepFeatures
