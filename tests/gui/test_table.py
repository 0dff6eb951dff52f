"""The table of what was labelled: what it shows, how it follows, what it gives away."""

import csv
import io
import time

import numpy as np
import pytest
from gui_cases import blocks
from label_cases import QUADRANTS
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QApplication

from napari_saf._gui.docks.tables import MeasuredModel
from napari_saf._gui.export.dock import ExportWidget

pytestmark = pytest.mark.gui


@pytest.fixture
def dock(model, open_on, settle):
    """The dock with its table in sight, on labels of an image."""
    model.add_image(blocks(), name="blocks", scale=(2, 2), units="um")
    layer = model.add_labels(QUADRANTS.copy(), name="mine", scale=(2, 2), units="um")
    layer.metadata["class_names"] = {2: "sea"}
    dock = open_on(model, ExportWidget)
    dock.table_fold.expand()
    measured(dock, settle)
    return dock


def measured(dock, settle):
    """Wait until what changed is measured."""
    end = time.monotonic() + 20
    while dock.measuring.isActive() and time.monotonic() < end:
        settle(dock, 50)
    settle(dock, 50)


def texts(model):
    """Return what the table shows: titles, then rows."""
    columns, role = range(model.columnCount()), Qt.ItemDataRole.DisplayRole
    head = [model.headerData(k, Qt.Orientation.Horizontal) for k in columns]
    return [head] + [
        [model.data(model.index(row, k), role) for k in columns] for row in range(model.rowCount())
    ]


def test_the_table_shows_what_each_label_measures(dock):
    head, *rows = texts(dock.table.model)
    assert head == ["label", "name", "pixels", "share", "area µm²", "mean 0", "mean 1", "mean 2"]
    numbers = [n for n in np.unique(QUADRANTS) if n > 0]
    assert [row[0] for row in rows] == [str(n) for n in numbers]
    for row, n in zip(rows, numbers, strict=True):
        inside = n == QUADRANTS
        assert row[1] == ("sea" if n == 2 else f"label {n}")
        assert int(row[2]) == inside.sum()
        assert float(row[3].removesuffix(" %")) == pytest.approx(
            100 * inside.sum() / (QUADRANTS > 0).sum(), abs=0.05
        )
        assert float(row[4].replace(",", "")) == 4 * inside.sum()
        for k in range(3):
            assert float(row[5 + k]) == pytest.approx(blocks()[inside][:, k].mean(), rel=1e-3)
    assert not dock.table.view.isHidden() and dock.table.why_not.isHidden()


def test_the_table_follows_the_layer_the_image_and_the_rows(dock, model, settle):
    layer, shown = model.layers["mine"], dock.table.model
    layer.data[:, :3] = 9
    layer.refresh()
    measured(dock, settle)
    assert shown.table["label"].tolist()[-1] == 9
    dock.image.choose(None)
    measured(dock, settle)
    assert not [name for name in shown.table if name.startswith("intensity")]
    dock.choice.rows.choose(True)
    measured(dock, settle)
    assert "region" in shown.table and len(shown.table["label"]) >= 5
    dock.labels.choose(model.add_labels(np.zeros_like(QUADRANTS)))
    measured(dock, settle)
    assert "expected at least one pixel" in dock.table.why_not.text()
    assert shown.rowCount() == 0 and not any(button.isEnabled() for button in dock.table.buttons)


def test_a_click_on_a_row_chooses_its_label(dock, model):
    layer, view = model.layers["mine"], dock.table.view
    for row in (2, 0):
        view.selectRow(row)
        assert layer.selected_label == dock.table.model.table["label"][row]
    before = layer.selected_label
    view.clearSelection()
    dock.table.model.sort(2, Qt.SortOrder.DescendingOrder)
    assert layer.selected_label == before


def test_copy_and_save_give_the_table_in_full(dock, model, tmp_path):
    model.layers["mine"].metadata["class_names"] = {2: "=1+1"}
    dock.table.show_table(
        dock.table.model.table | {"name": np.array(["a\tb", "=1+1", "c", "d"])}, {}
    )
    dock.table.buttons[0].click()
    copied = list(csv.reader(io.StringIO(QApplication.clipboard().text()), delimiter="\t"))
    dock.table.save_to(str(tmp_path / "kept"))
    assert dock.status.text == f"saved kept.csv in {tmp_path.name}"
    with open(tmp_path / "kept.csv", encoding="utf-8", newline="") as file:
        saved = list(csv.reader(file))
    assert copied == saved and saved[0] == list(dock.table.model.table)
    assert [row[1] for row in saved[1:]] == ["a\tb", "'=1+1", "c", "d"]
    means = [float(row[saved[0].index("intensity_mean_0")]) for row in saved[1:]]
    np.testing.assert_allclose(means, dock.table.model.table["intensity_mean_0"], rtol=1e-9)
    dock.table.save_to(str(tmp_path / "missing" / "kept.csv"))
    assert dock.status.is_error


def test_rows_are_sorted_by_any_column_and_stay_whole():
    rng, model = np.random.default_rng(0), MeasuredModel()
    table = {"label": rng.permutation(50) + 1, "share": rng.integers(0, 5, 50) / 5}
    table["name"] = np.array([f"n{n}" for n in table["label"]])
    model.show_table(table, {})
    before = set(zip(*(own.tolist() for own in table.values()), strict=True))
    for column, order in ((0, Qt.AscendingOrder), (1, Qt.DescendingOrder), (2, Qt.AscendingOrder)):
        model.sort(column, order)
        values = list(model.table.values())[column]
        sign = 1 if order == Qt.AscendingOrder else -1
        assert (np.diff(sign * np.unique(values, return_inverse=True)[1]) >= 0).all()
        assert set(zip(*(own.tolist() for own in model.table.values()), strict=True)) == before
