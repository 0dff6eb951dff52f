"""How other images are scaled before they are labelled as the first one was."""

from __future__ import annotations

from qtpy.QtWidgets import QComboBox

__all__ = ["BRIGHTNESS_HELP", "BrightnessChoice"]

BRIGHTNESS_HELP = (
    "Which values count as black and white: the darkest and brightest of each image, for images of "
    "other brightness; or those of the first image, where a value means the same in all."
)


class BrightnessChoice(QComboBox):
    """Each image by itself, or all as the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.addItem("each image by itself", True)
        self.addItem("as in the first image", False)

    @property
    def rescale(self) -> bool:
        """Whether each image is scaled by its own values."""
        return bool(self.currentData())

    def choose(self, rescale: bool) -> None:
        """Choose whether each image is scaled by its own values."""
        self.setCurrentIndex(self.findData(rescale))
