"""A recipe gives the same labels in the app, in Python and on the command line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import napari_saf as saf
from napari_saf.cli import main
from napari_saf.features import FEATURES
from napari_saf.parameters import Parameter, describe

pytestmark = pytest.mark.gui

SHORT = {"stop.max_steps": 25, "max_iterations": 4, "start_iterations": 3, "n_starts": 2}
LARGEST = {"max_labels": 9, "n_clusters": 5, "affinity.landmarks": 40}
FACTORS = (1.0, 0.25, 0.5, 2.0, 3.0)
PICTURE = (200 * (np.random.default_rng(0).random((11, 14, 3)) * 0.3)).astype(np.uint8)
PICTURE[:, 7:] += np.array([100, 60, 20], np.uint8)
PICTURE[6:] += np.uint8(40)
SEEDS = np.zeros((11, 14), np.uint8)
SEEDS[2, 2:5], SEEDS[8, 9:12] = 1, 2


@pytest.fixture
def viewer(model):
    return model


def values_of(parameter: Parameter) -> st.SearchStrategy:
    """Return values that a form may show for a parameter."""
    if parameter.name in SHORT:
        return st.just(SHORT[parameter.name])
    if parameter.kind == "choice":
        return st.sampled_from([c for c in parameter.choices if c not in ("cuda", "mps")])
    if parameter.kind == "bool":
        return st.booleans()
    if parameter.kind in ("array", "list") or parameter.default is None:
        return st.just(parameter.default)
    high = LARGEST.get(parameter.name, parameter.maximum)
    near = [np.clip(parameter.default * factor, parameter.minimum, high) for factor in FACTORS]
    kind = int if parameter.kind == "int" else float
    return st.sampled_from([kind(round(float(value), 6)) for value in near])


@st.composite
def runs(draw):
    """Draw a method, its parameters, how the image is looked at, whether there are strokes."""
    name = draw(st.sampled_from(sorted(saf.METHODS)))
    values = {p.name: draw(values_of(p)) for p in describe(saf.METHODS[name])}
    look = {
        "features": draw(st.sampled_from([name for name in FEATURES if name != "deep"])),
        "weights": draw(st.sampled_from(["uniform", "nonlocal", "contrast"])),
        "max_side": draw(st.sampled_from([None, None, 8])),
    }
    has_strokes = saf.METHODS[name]().follows_seeds or draw(st.booleans())
    return name, values, look, draw(st.sampled_from([1, 3, 5])), has_strokes


def in_the_app(dock, run_to_end, run):
    """Return what the Segment dock makes of a run, or None if it refuses it."""
    name, values, look, window, has_strokes = run
    viewer = dock.workspace.viewer
    viewer.layers.clear()
    image = viewer.add_image(PICTURE, name="picture", rgb=True)
    strokes = viewer.add_labels(SEEDS.copy(), name="strokes") if has_strokes else None
    dock.form.choose(name)
    dock.form.set_values(values)
    dock.input.choose(image=image)
    dock.input.choose(strokes=strokes)
    dock.input.scale.set_value(window)
    dock.input.choose(**look)
    if run_to_end(dock) is None:
        assert dock.status.is_error
        return None
    return np.asarray(dock.result.data), dock.result.metadata["napari_saf"]["recipe"]


def on_the_command_line(folder, has_strokes):
    np.save(folder / "image.npy", PICTURE)
    np.save(folder / "seeds.npy", SEEDS)
    arguments = [folder / "image.npy", "--recipe", folder / "r.json", "-o", folder / "out.npy"]
    arguments += ["--seeds", folder / "seeds.npy"] * has_strokes
    assert main(["segment", *map(str, arguments), "--overwrite"]) == 0
    return np.load(folder / "out.npy")


def test_a_recipe_gives_the_same_labels_everywhere(dock, run, tmp_path):
    n_replayed = []

    @settings(
        max_examples=3,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(runs())
    def replay(drawn):
        app = in_the_app(dock, run, drawn)
        if app is None:
            return
        labels, recipe = app
        saf.save_recipe(tmp_path / "r.json", recipe)
        loaded, has_strokes = saf.load_recipe(tmp_path / "r.json"), drawn[-1]
        options = loaded.options.arguments()  # with the scaling that was found in the app
        problem = saf.Problem.from_image(PICTURE, seeds=SEEDS if has_strokes else None, **options)
        np.testing.assert_array_equal(loaded.method.run(problem).labels, labels)
        np.testing.assert_array_equal(on_the_command_line(tmp_path, has_strokes), labels)
        n_replayed.append(drawn[0])

    replay()
    assert len(n_replayed) >= 2
