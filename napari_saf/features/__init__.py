"""Pixel features: intensity scaling, extractors, pretrained networks, groups of pixels."""

from napari_saf.features._deep import DeepFeatures
from napari_saf.features._extractors import (
    FeatureExtractor,
    Intensity,
    Lab,
    Local,
    Multiscale,
    Patterns,
    Position,
    Texture,
    perceived,
)
from napari_saf.features._foreground import (
    Foreground,
    Ground,
    ground_of,
    ground_of_looks,
    looked_at,
    middle_of,
)
from napari_saf.features._image import (
    Pixels,
    Scaling,
    channel_of_groups,
    channel_threshold,
    channels_last,
    check_group_source,
    finite_mask,
    image_groups,
    is_rgb,
    smoothed,
    standardized,
)
from napari_saf.parameters import from_plain

FEATURES: dict[str, type[FeatureExtractor]] = {
    cls.name: cls
    for cls in (
        *(Intensity, Lab, Texture, Local, Foreground, Patterns, Multiscale, Position),
        DeepFeatures,
    )
}
"""Extractors by name."""


def extractor_of(features: object) -> FeatureExtractor | None:
    """Return an extractor by name, by recipe entry, or unchanged; None if unknown."""
    if isinstance(features, FeatureExtractor):
        return features
    if isinstance(features, str):
        return FEATURES[features]() if features in FEATURES else None
    if not isinstance(features, dict) or features.get("kind") not in FEATURES:
        return None
    parameters = {name: value for name, value in features.items() if name != "kind"}
    return from_plain(FEATURES[features["kind"]], parameters, "features")
