"""Small images and settings for the tests of the app."""

from __future__ import annotations

import csv

import numpy as np
from qtpy.QtCore import Qt

from napari_saf._gui.session import workspace
from napari_saf._gui.session.workspace import RecoveryLine

TIMEOUT = 60_000

ENDLESS = {
    "stepper": "euler",
    "stepper.step": 1e-4,
    "stop.entropy": 0.0,
    "stop.changed": 0.0,
    "stop.max_steps": 1_000_000,
}


def blocks(side: int = 32) -> np.ndarray:
    """Return an RGB image of four noisy squares."""
    rng = np.random.default_rng(0)
    half = side // 2
    image = np.zeros((side, side, 3))
    image[:half, :half] = (0.9, 0.1, 0.1)
    image[:half, half:] = (0.1, 0.8, 0.1)
    image[half:, :half] = (0.1, 0.1, 0.9)
    image[half:, half:] = (0.9, 0.9, 0.2)
    return (255 * np.clip(image + rng.normal(0, 0.05, image.shape), 0, 1)).astype(np.uint8)


def stack(n_slices: int = 5, side: int = 16) -> np.ndarray:
    """Return a stack with a bright ball."""
    grid = (
        np.indices((n_slices, side, side))
        - np.array([n_slices // 2, side // 2, side // 2])[:, None, None, None]
    )
    noise = np.random.default_rng(1).normal(0, 0.05, grid.shape[1:])
    return (np.where((grid**2).sum(axis=0) < 20, 0.8, 0.2) + noise).astype(np.float32)


def read_table(path):
    """Return the rows of a CSV file."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def rename(table, number, name):
    """Name a label in a table, as a person who writes there."""
    row = [row.number for row in table.rows].index(number)
    table.model().setData(table.model().index(row, 1), name, Qt.ItemDataRole.EditRole)


def lock(table, number, locked=True):
    """Tick the lock of a label in a table, or take the tick away."""
    row, model = [row.number for row in table.rows].index(number), table.model()
    state = Qt.CheckState.Checked if locked else Qt.CheckState.Unchecked
    value = getattr(state, "value", state)
    column = model.columnCount() - 1
    model.setData(model.index(row, column), value, Qt.ItemDataRole.CheckStateRole)


def table_texts(table):
    """Return what a table shows, row by row."""
    rows, columns = range(table.rowCount()), range(table.columnCount())
    cells = [[table.item(row, column) for column in columns] for row in rows]
    return [["" if cell is None else cell.text() for cell in row] for row in cells]


def layer_of(viewer, name):
    """Return the first result whose name begins so; settings may follow in brackets."""
    names = (layer.name for layer in viewer.layers)
    return viewer.layers[next(own for own in names if own.startswith(name) and own[-1] == "]")]


def tooltips(swatches):
    """Return the tooltips of the squares that are shown."""
    return [square.toolTip() for square in swatches.squares if not square.isHidden()]


def values_at_cursor(plot):
    """Return the value at the cursor of curves, by the name of the curve."""
    return {row.name.text(): row.value.text() for row in plot.rows if not row.isHidden()}


def share_texts(table):
    """Return the share of each label as a table shows it."""
    return {row.number: row.text("share") or "" for row in table.rows}


def asked_for(form):
    """Return the names of the parameters that a form asks for."""
    sections = (form.basic, form.advanced)
    return [name for name, field in form.fields.items() if any(s.is_shown(field) for s in sections)]


def apply_to(scribbles, layer):
    """Label another image by what was taught."""
    scribbles.applying.image.choose(layer)
    scribbles.applying.button.click()


def choose_files(section, source, results=None):
    """Let a section *Apply to image* take files: its last choice."""
    section.image.setCurrentIndex(section.image.count() - 1)
    section.source.set_path(source)
    if results is not None:
        section.results.set_path(results)


def recover(dock):
    """Press Recover in a dock."""
    dock.findChild(RecoveryLine).recover.click()


def discard(dock, monkeypatch, answer=True):
    """Press Discard in a dock, and answer the question whether to."""
    monkeypatch.setattr(workspace, "ask_to_discard", lambda parent: answer)
    dock.findChild(RecoveryLine).discard.click()
