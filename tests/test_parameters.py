import json

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.parameters import build, describe, from_plain, to_plain
from napari_saf.problem import ImageOptions

ALL = list(saf.METHODS.values())


@pytest.mark.parametrize("method", [*ALL, ImageOptions])
def test_every_field_is_described_once_with_a_default_within_its_bounds(method):
    items = describe(method)
    names = [item.name for item in items]
    assert len(names) == len(set(names))
    for item in items:
        assert item.label
        assert item.help.isascii()  # a console may hold no other letters
        is_word = item.default in item.choices
        if item.kind in ("int", "float") and item.default is not None and not is_word:
            assert (item.minimum or 0) <= item.default
            assert item.maximum is None or item.default <= item.maximum
        if item.kind == "choice":
            assert item.default in (*item.choices, *[None] * item.optional)
        if item.depends_on is not None:
            assert item.depends_on[0] in names


@pytest.mark.parametrize("method", [*ALL, ImageOptions])
def test_building_from_the_described_defaults_gives_the_default_method(method):
    values = {item.name: item.default for item in describe(method)}
    assert to_plain(build(method, values)) == to_plain(method())


def test_dotted_names_reach_nested_fields():
    method = build(
        saf.METHODS["saf"],
        {"affinity.sigma2": 0.5, "stepper": "euler", "stepper.step": 0.2, "stop.max_steps": 7},
    )
    assert method.affinity.sigma2 == 0.5
    assert method.stepper == saf.GeometricEuler(step=0.2)
    assert method.stop.max_steps == 7


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"labels": 3}, "unknown parameter 'labels'"),
        ({"s": 1.5}, "s: expected at least 0 and at most 1, got 1.5"),
        ({"s": "fine"}, "s: expected a number"),
        ({"max_labels": 2.5}, "whole number"),
        ({"stepper": "rk4"}, "expected one of adams"),
        ({"device": "tpu"}, "device: expected one of auto"),
    ],
)
def test_bad_values_are_refused(values, said):
    with pytest.raises(saf.InvalidInput, match=said):
        build(saf.METHODS["saf"], values)


@pytest.mark.parametrize("method", ALL)
def test_values_outside_of_the_bounds_are_refused(method):
    for item in describe(method):
        for bound, sign in ((item.minimum, -1), (item.maximum, 1)):
            if bound is not None and item.depends_on is None:
                outside = bound + sign * (1 + abs(bound))
                name = item.name.rpartition(".")[2]
                with pytest.raises(saf.InvalidInput, match=f"{name}: expected"):
                    build(method, {item.name: outside})


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ([], "expected an object"),
        ({"colour": 1}, "unknown entry 'colour'"),
        ({"stepper": 3}, "expected a kind among"),
        ({"affinity": {"kind": "gaussian", "width": 2}}, "unknown entry 'width'"),
    ],
)
def test_bad_plain_values_are_refused(plain, said):
    with pytest.raises(saf.InvalidInput, match=said):
        from_plain(saf.METHODS["saf"], plain)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"features": "colour"},
            "features: expected auto, intensity, .* an array, got 'colour'",
        ),
        ({"window": (3, 2.5)}, "window: expected odd whole numbers"),
        ({"weights": "gaussian"}, "weights: expected one of auto, uniform, nonlocal, contrast"),
        ({"channel_axis": True}, "channel_axis: expected a whole number, got True"),
        ({"max_side": 0}, "max_side: expected at least 1, got 0"),
        ({"scaling": (1, 0)}, "scaling: expected two increasing values"),
        ({"groups": "rows"}, "groups: expected 'image'"),
        ({"rescale": 1}, "rescale: expected true or false, got 1"),
    ],
)
def test_options_of_an_image_are_checked_like_those_of_a_method(options, said):
    with pytest.raises(saf.InvalidInput, match=said):
        ImageOptions(**options)
    with pytest.raises(saf.InvalidInput, match=r"input\."):
        ImageOptions.from_plain(json.loads(json.dumps(options)))


def test_options_take_whole_numbers_however_they_are_written():
    given = ImageOptions(window=[3.0, np.int64(5)], channel_axis=-1.0, max_side=np.uint8(9))
    assert given == ImageOptions(window=(3, 5), channel_axis=-1, max_side=9)
    assert ImageOptions.from_plain(json.loads(json.dumps(given.to_plain()))) == given
    assert "array" not in {c for item in describe(ImageOptions) for c in item.choices}
