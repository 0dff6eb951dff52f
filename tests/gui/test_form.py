"""The form that is made from the dataclass of a method."""

from __future__ import annotations

import numpy as np
import pytest
from gui_cases import asked_for, blocks
from napari.components import ViewerModel

import napari_saf as saf
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf.parameters import Parameter, describe, to_plain

pytestmark = pytest.mark.gui

METHODS = sorted(saf.METHODS)


@pytest.fixture
def viewer(model_or_window):
    return model_or_window


@pytest.fixture
def form_of(qtbot):
    def make(*names):
        form = MethodForm(ViewerModel(), [saf.METHODS[one] for one in names])
        qtbot.addWidget(form.basic)
        qtbot.addWidget(form.advanced)
        return form

    return make


@pytest.mark.parametrize("name", METHODS)
def test_a_form_asks_for_every_parameter_and_reads_what_it_shows(form_of, name):
    form = form_of(name)
    assert to_plain(form.read()) == to_plain(saf.METHODS[name]())
    asked = [p for p in describe(saf.METHODS[name]) if p.in_form]
    assert all(form.fields[p.name].value is p.default for p in asked if p.kind == "array")
    values = {p.name: another_value(p) for p in asked if p.kind != "array"}
    form.set_values(values)
    read = form.values()
    assert {k: read[k] for k in read if k in values} == {k: values[k] for k in values if k in read}
    assert set(read) == set(asked_for(form))
    form.read()


def another_value(parameter: Parameter):
    if parameter.kind == "choice":
        return parameter.choices[-1]
    if parameter.kind == "bool":
        return not parameter.default
    if parameter.kind == "list":
        return None
    if parameter.default is None:
        return {"float": 0.5, "int": 3}[parameter.kind]
    step = parameter.step or 1
    above = round(parameter.default + step, 7)
    fits = parameter.maximum is None or above <= parameter.maximum
    return type(parameter.default)(above if fits else parameter.default - step)


def test_a_list_is_numbers_with_commas_and_refused_until_it_is(form_of):
    form = form_of("fair")
    line = form.fields["proportions"].control
    line.setText("a half")
    for _ in range(2):
        with pytest.raises(saf.InvalidInput, match="Proportions"):
            form.read()
    line.setText("0.25, 0.75")
    np.testing.assert_array_equal(form.read().proportions, (0.25, 0.75))


def test_none_has_words_and_a_value_of_its_own(form_of):
    for method, name in (("fair", "fairness_weight"), ("saf", "affinity.landmarks")):
        form = form_of(method)
        (parameter,) = (p for p in describe(saf.METHODS[method]) if p.name == name)
        for value in (None, parameter.minimum, None):
            form.set_values({name: value})
            assert form.values()[name] == value
        assert form.fields[name].control.text() == parameter.none


def test_a_field_shows_where_it_does_something_and_holds_its_bounds(form_of):
    form = form_of("saf", "slk")
    assert "stepper.tolerance" in asked_for(form) and "stepper.step" not in asked_for(form)
    form.set_values({"stepper": "euler"})
    assert "stepper.tolerance" not in asked_for(form) and "stepper.step" in asked_for(form)
    for tried, value in ((0, None), (99_999, 65_535)):
        form.set_values({"max_labels": tried})
        assert form.values()["max_labels"] == value
    form.set_values({"stop.changed": 1e-4})
    assert form.fields["stop.changed"].control.text() == "0.0001"
    changes = []
    form.changed.connect(lambda: changes.append(form.values().get("s")))
    form.set_values({"s": 0.5})
    assert changes == [0.5]
    form.choose("slk")
    assert to_plain(form.read()) == to_plain(saf.METHODS["slk"]())
    assert "s" not in asked_for(form) and "n_clusters" in asked_for(form)


def test_prototypes_of_a_result_label_another_image(viewer, dock, run):
    dock.form.choose("af")
    assert run(dock) is None
    assert dock.status.is_error and "Prototypes: expected" in dock.status.text
    dock.form.choose("saf")
    first = run(dock)
    (source,) = [layer for layer in viewer.layers if "napari_saf" in layer.metadata]
    flipped = viewer.add_image(blocks()[::-1].copy(), name="flipped")
    dock.form.choose("af")
    field = dock.form.prototypes_field
    assert field.count() == 2  # the new result is offered
    field.choose(source)
    np.testing.assert_array_equal(dock.form.values()["prototypes"], first.prototypes)
    dock.input.choose(image=flipped)
    second = run(dock)
    assert field.count() == 3 and field.layer is source
    assert (second.labels == source.data[::-1]).mean() > 0.98
    assert second.recipe["input"]["scaling"] == first.recipe["input"]["scaling"]


def test_prototypes_of_edited_labels_keep_their_numbers(viewer, dock, run):
    """Label 1 was deleted; 2 and 3 were merged, and 2 keeps the prototypes of both."""
    rows = run(dock).prototypes
    (source,) = [layer for layer in viewer.layers if "napari_saf" in layer.metadata]
    table = rows.copy()
    table[[0, 2]] = np.nan
    parts = {2: rows[1:3], 4: np.ones((2, 9)), 5: "none", 1: rows[:1]}
    source.metadata["napari_saf"] |= {"prototypes": table, "parts": parts}
    dock.form.choose("af")
    dock.form.prototypes_field.choose(source)
    values = dock.form.values()
    np.testing.assert_array_equal(values["prototypes"], rows[1:])
    assert values["prototype_labels"].tolist() == [2, 2, *range(4, len(rows) + 1)]
    result = run(dock)
    assert set(np.unique(result.labels)) <= {0, 2, *range(4, len(rows) + 1)}
    assert not dock.status.is_error
    made = viewer.layers[-1]
    np.testing.assert_array_equal(made.metadata["napari_saf"]["parts"][2], rows[1:3])


def test_strokes_beside_prototypes_are_of_their_labels(viewer, dock, run):
    numbers = (2, 5, 9, 12)
    dock.form.set_values({"max_labels": 4})
    rows = run(dock).prototypes
    (source,) = [layer for layer in viewer.layers if "napari_saf" in layer.metadata]
    table = np.full((max(numbers), rows.shape[1]), np.nan, np.float32)
    table[np.array(numbers) - 1] = rows
    source.metadata["napari_saf"] |= {"prototypes": table}
    wanted = np.array([0, *numbers])[source.data]
    strokes = np.zeros_like(wanted)
    for number in numbers[1::2]:
        row, column = np.argwhere(wanted == number)[20]
        strokes[row, column] = number
    dock.form.choose("af")
    dock.form.prototypes_field.choose(source)
    dock.input.choose(strokes=viewer.add_labels(strokes, name="strokes"))
    result = run(dock)
    assert not dock.status.is_error, dock.status.text
    assert (result.labels == wanted).mean() > 0.98
    shown = next(layer for layer in viewer.layers if "[AF]" in layer.name)
    np.testing.assert_array_equal(shown.data, result.labels)
