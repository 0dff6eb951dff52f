"""The Truth section of the Compare dock: labels beside a truth."""

import csv

import numpy as np
import pytest
from gui_cases import TIMEOUT
from qtpy.QtWidgets import QApplication

import napari_saf as saf
from napari_saf._gui.compare.dock import CompareWidget
from napari_saf._gui.compare.truth import why_no_score

pytestmark = pytest.mark.gui
TRUTH = np.kron([[0, 1, 0, 2], [3, 0, 0, 0]], np.ones((6, 6), np.uint8))
LABELS = np.where(TRUTH == 3, 0, np.roll(TRUTH, 1, axis=1))


@pytest.fixture
def layers(model):
    labels = model.add_labels(LABELS.copy(), name="labels", scale=(2, 3), translate=(5, 7))
    truth = model.add_labels(TRUTH.copy(), name="truth", scale=(2, 3), translate=(5, 7))
    return labels, truth


@pytest.fixture
def section(model, layers, open_on):
    dock = open_on(model, CompareWidget)
    dock.scoring.labels.choose(layers[0])
    dock.scoring.truth.choose(layers[1])
    return dock.scoring


@pytest.fixture
def click_score(section, qtbot):
    def click(kind="pixels"):
        section.kind.choose(kind)
        assert section.button.isEnabled(), section.table.why_not.text()
        section.button.click()
        qtbot.waitUntil(lambda: not section._panel.is_busy, timeout=TIMEOUT)
        return section.table.model.table

    return click


@pytest.mark.parametrize("kind", ["pixels", "objects", "classes"])
def test_scores_are_those_of_the_library(model, layers, section, click_score, kind):
    table = click_score(kind)
    expected = saf.score(LABELS, TRUTH, kind)
    assert all(np.array_equal(table[name], column) for name, column in expected.table.items())
    labels, truth = layers
    shown = model.layers[-1]
    np.testing.assert_array_equal(shown.data, expected.errors)
    assert shown.features["score"].tolist() == [*expected.error_names.values()]
    assert np.array_equal(shown.data_to_world((1, 2)), labels.data_to_world((1, 2)))
    assert shown.visible and not labels.visible and not truth.visible
    if kind == "objects":
        labels.data[::4, ::4] = 1
        click_score(kind)
        assert "labels: 3 labels in" in section.legend.text()
    if kind == "pixels":
        section.unknown.setChecked(True)
        values = click_score(kind)["value"]
        assert np.array_equal(values, saf.score(LABELS, TRUTH, ignore=0).table["value"])
        assert len(model.layers) == 3 and shown not in model.layers


def test_table_and_figure_are_saved(section, click_score, qtbot, tmp_path):
    table = click_score("objects")
    section.table.save_to(str(tmp_path / "a.csv"))
    with (tmp_path / "a.csv").open(encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    assert [float(row["value"]) for row in rows] == pytest.approx(table["value"])
    section.table.copy()
    assert "F1 at 0.5" in QApplication.clipboard().text()
    section.save_to(str(tmp_path / "figure"))
    qtbot.waitUntil((tmp_path / "figure.png").exists, timeout=TIMEOUT)


def test_classes_are_those_of_the_table_of_a_layer(layers, section, click_score):
    names = ["light", "dark", "dark"]
    for layer, classes in zip(layers, (names[::-1], names), strict=True):
        layer.features = {"index": [1, 2, 3], "class": classes}
    table = click_score("classes")
    rows = dict(zip(table["measure"], table["value"], strict=True))
    assert rows["light as dark"] == rows["dark as dark"] == 1 and rows["balanced accuracy"] == 0.5


def test_objects_that_a_tracks_layer_links_are_scored_by_their_tracks(model, section, click_score):
    pytest.importorskip("ctc_metrics")
    true_tracks = np.repeat([np.kron([[0, 1, 0, 2]], np.ones((4, 4), int))], 3, axis=0)
    objects = np.where(true_tracks, true_tracks + 2 * np.arange(3)[:, None, None], 0)
    rows = [(k, t, 1.5, x) for k, x in ((7, 5.5), (9, 13.5)) for t in range(3)]
    section.truth.choose(model.add_labels(true_tracks, name="true", scale=(1, 2, 2)))
    section.labels.choose(model.add_labels(objects, name="single", scale=(1, 2, 2)))
    section.kind.choose("tracks")
    assert click_score("tracks")["value"].tolist() != [1, 1, 0, 0, 0, 0, 0, 0]
    section.tracks.choose(model.add_tracks(np.array(rows), scale=(1, 2, 2), name="links"))
    assert click_score("tracks")["value"].tolist() == [1, 1, 0, 0, 0, 0, 0, 0]


def test_what_does_not_fit_is_refused_in_words(model, layers, section):
    labels, truth = layers
    smaller = model.add_labels(LABELS[:4], name="smaller", scale=(2, 3), translate=(5, 7))
    other = model.add_labels(LABELS.copy(), name="other", scale=(1, 1))
    for layer, words in ((smaller, "shape"), (other, "scale"), (truth, "other than")):
        section.labels.choose(layer)
        assert words in why_no_score(layer, truth) and words in section.table.why_not.text()
        assert not section.button.isEnabled()
    section.labels.choose(labels)
    assert section.button.isEnabled()
    section.kind.choose("tracks")  # rows are no frames
    assert "frames" in section.table.why_not.text() and not section.button.isEnabled()
    section.kind.choose("pixels")
    section.truth.choose(None)
    assert not section.button.isEnabled()
