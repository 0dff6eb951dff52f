"""Controls for what no parameter describes: a folder, the scaling of other images."""

from __future__ import annotations

from pathlib import Path

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QComboBox, QFileDialog, QHBoxLayout, QLineEdit, QPushButton, QWidget

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


PROTOTYPE_FILTER = "Prototypes (*.json)"

_BUTTON_WIDTH = 30


def json_path(path: str) -> Path:
    """Return a path that ends in .json, be it added."""
    target = Path(path)
    return target if target.suffix.lower() == ".json" else target.with_name(f"{target.name}.json")


class FolderField(QWidget):
    """The path of a folder.

    Parameters
    ----------
    purpose : str
        What the folder is for.
    """

    changed = Signal()

    def __init__(self, purpose: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._purpose = purpose
        self._line = QLineEdit()
        self._line.setPlaceholderText("choose a folder")
        button = QPushButton("…")
        button.setFixedWidth(_BUTTON_WIDTH)
        button.setToolTip(purpose)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._line, stretch=1)
        layout.addWidget(button)
        button.clicked.connect(self._on_clicked)
        self._line.textChanged.connect(self.changed)

    @property
    def path(self) -> Path | None:
        text = self._line.text().strip()
        return Path(text).expanduser() if text else None

    def set_path(self, path: Path) -> None:
        """Show a path."""
        self._line.setText(str(path))

    def _on_clicked(self) -> None:
        found = QFileDialog.getExistingDirectory(self, self._purpose, self._line.text())
        if found:
            self._line.setText(found)
