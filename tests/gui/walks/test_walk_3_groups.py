"""Keep groups in proportion: two sections of one tissue, the second lit more brightly."""

import numpy as np
import pytest
import tifffile
from gui_cases import table_texts
from qtpy.QtCore import QPoint, Qt
from qtpy.QtWidgets import QSlider, QTableWidget

pytestmark = pytest.mark.gui


def sections() -> tuple[np.ndarray, np.ndarray]:
    """Return a stack of two slices, and the tissue in each."""
    rows, columns = np.indices((48, 64))
    tissue = np.stack([(rows // 12 + columns // 16) % 2] * 2)
    light = np.array([0.2, 0.55])[:, None, None]
    noise = np.random.default_rng(0).normal(0, 0.02, tissue.shape)
    return (255 * (light + 0.25 * tissue + noise)).astype(np.uint8), tissue


@pytest.mark.exhaustive
def test_walk(hands, take_picture, tmp_path):
    image, tissue = sections()
    tifffile.imwrite(tmp_path / "sections.tif", image)
    hands.open_file(tmp_path / "sections.tif")
    dock = hands.open_dock("Segment")
    hands.choose(hands.field(dock, "Method"), "Fair clustering")
    hands.choose(hands.field(dock, "Slices"), "each slice by itself")
    assert hands.field(dock, "Groups").currentText() == "slices (axis -3)"
    hands.type(hands.field(dock, "Labels"), "2")
    hands.press(dock, "Trade-off: what does fairness cost?")
    hands.wait_until(lambda: dock.fairness.trade_off is not None)
    hands.wait_for_end(dock)
    layer = hands.viewer.layers[-1]
    assert agreement(layer, tissue) > 0.95

    slider = hands.part(dock.fairness, QSlider)
    hands.press_key(Qt.Key.Key_Home, slider)
    assert agreement(layer, tissue) < 0.6
    last = len(dock.fairness.trade_off.points) - 1
    click_solution(hands, dock, last)
    assert slider.value() == last and agreement(layer, tissue) > 0.95

    assert hands.part(dock.fairness, QTableWidget).rowCount() == 3
    *rows, wanted = table_texts(dock.fairness.table)
    assert wanted == ["50 %", "50 %"]
    for row in rows:
        shares = [text.removesuffix(" %").split(" → ") for text in row]
        assert sorted(int(before) for before, _ in shares)[1] > 95
        assert all(40 <= int(after) <= 60 for _, after in shares)
    hands.center_on(hands.part(dock.fairness, QTableWidget))
    take_picture(hands, "walk_3_groups")


def agreement(layer, tissue: np.ndarray) -> float:
    """Return the share of pixels that have the label of their tissue."""
    same = float(((layer.data == 2) == tissue).mean())
    return max(same, 1 - same)


def click_solution(hands, dock, number: int) -> None:
    """Click a point in the plot of the trade-off."""
    from matplotlib.backends.backend_qt import FigureCanvasQT

    canvas = hands.part(dock.fairness, FigureCanvasQT)
    (axes,) = canvas.figure.axes
    canvas.draw()
    x, y = axes.transData.transform(axes.lines[0].get_xydata()[number]) / canvas.device_pixel_ratio
    hands.click(canvas, QPoint(round(x), round(canvas.height() - y)))
