"""Features: the vector of every pixel."""

from napari_saf.features._image import (
    FEATURES,
    Scaling,
    channels_last,
    is_rgb,
    standardized,
)

__all__ = ["FEATURES", "Scaling", "channels_last", "is_rgb", "standardized"]
