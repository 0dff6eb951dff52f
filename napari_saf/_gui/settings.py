"""The plugin's settings in napari's Preferences, under Plugin Preferences > napari-saf."""

from __future__ import annotations

import dataclasses
import logging

from napari.settings import get_plugin_settings

from napari_saf.features import DeepFeatures

_logger = logging.getLogger(__name__)
_PLUGIN = "napari-saf"


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings of all runs; the manifest holds their descriptions, bounds and defaults."""

    device: str = "auto"
    memory: float = 0.0
    threads: int = 0
    frames: float = 10.0
    keeps_strokes: bool = True
    weights: str = ""
    architecture: str = "vgg16"

    @property
    def memory_limit(self) -> float | None:
        """Memory limit of a run in bytes, or None."""
        return self.memory * 2**30 or None

    @property
    def deep(self) -> DeepFeatures | None:
        """Network features that may be selected from the strokes, or None."""
        weights = self.weights.strip()
        return DeepFeatures(self.architecture.strip(), weights) if weights else None


def current_settings() -> Settings:
    """Return the current settings, or the defaults where napari stores none."""
    try:
        stored = get_plugin_settings(_PLUGIN)
        sections = (stored.computing, stored.screen, stored.strokes)
        return Settings(**{k: v for part in sections for k, v in part.model_dump().items()})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        _logger.warning("settings cannot be read, the defaults hold: %s", error)
        return Settings()
