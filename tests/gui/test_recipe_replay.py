"""A recipe gives the same labels in the app, in Python and on the command line.

``NAPARI_SAF_EXAMPLES=50`` tries more recipes than the few of the suite.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from gui_cases import TIMEOUT
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from napari.layers import Labels

import napari_saf as saf
from napari_saf.cli import main
from napari_saf.features import FEATURES
from napari_saf.parameters import Parameter, describe

pytestmark = pytest.mark.gui

N_EXAMPLES = int(os.environ.get("NAPARI_SAF_EXAMPLES", "4"))
SHORT = {"stop.max_steps": 25, "max_iterations": 4, "start_iterations": 3, "n_starts": 2}
LARGEST = {"max_labels": 9, "n_clusters": 5, "affinity.landmarks": 40}
FACTORS = (0.25, 0.5, 2.0, 3.0)


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
    low = -np.inf if parameter.minimum is None else parameter.minimum
    high = np.inf if parameter.maximum is None else parameter.maximum
    high = LARGEST.get(parameter.name, high)
    near = [np.clip(parameter.default * factor, low, high) for factor in (1.0, *FACTORS)]
    kind = int if parameter.kind == "int" else float
    return st.sampled_from([kind(round(float(value), 6)) for value in near])


@st.composite
def runs(draw):
    """Draw a method, its parameters, and how the image is looked at."""
    name = draw(st.sampled_from(sorted(saf.METHODS)))
    values = {p.name: draw(values_of(p)) for p in describe(saf.METHODS[name])}
    look = {
        "features": draw(st.sampled_from([name for name in FEATURES if name != "deep"])),
        "window": draw(st.sampled_from([1, 3, 5])),
        "weights": draw(st.sampled_from(["uniform", "nonlocal", "contrast"])),
        "max_side": draw(st.sampled_from([None, None, 8])),
    }
    needs_strokes = saf.METHODS[name]().follows_seeds
    return name, values, look, needs_strokes or draw(st.booleans()), draw(st.integers(0, 9))


def picture(number: int) -> np.ndarray:
    rng = np.random.default_rng(number)
    image = rng.random((11, 14, 3)) * 0.3
    image[:, 7:] += (0.5, 0.3, 0.1)
    image[6:] += 0.2
    return (200 * image).astype(np.uint8)


def in_the_app(dock, qtbot, run):
    """Return what the Segment dock makes of a run, or None if it refuses it."""
    name, values, look, has_strokes, number = run
    viewer = dock.workspace.viewer
    viewer.layers.clear()
    image = viewer.add_image(picture(number), name="picture", rgb=True)
    seeds = np.zeros((11, 14), np.uint8)
    seeds[2, 2:5], seeds[8, 9:12] = 1, 2
    strokes = viewer.add_labels(seeds, name="strokes") if has_strokes else None
    dock.form.choose(name)
    dock.form.set_values(values)
    dock.input.choose(image=image)
    dock.input.choose(strokes=strokes)
    dock.input.choose(features=look["features"])
    dock.input.choose(max_side=look["max_side"])
    dock.input.scale.set_value(look["window"])
    dock.input.choose(weights=look["weights"])
    found = []
    dock.controller.returned.connect(found.append)
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.start()
    dock.controller.returned.disconnect(found.append)
    if not found:
        assert dock.status.is_error
        return None
    (layer,) = [
        layer
        for layer in viewer.layers
        if isinstance(layer, Labels) and layer.metadata.get("napari_saf")
    ]
    return np.asarray(layer.data), layer.metadata["napari_saf"]["recipe"], seeds


def in_python(recipe, number, seeds):
    options = recipe.options.arguments()  # with the scaling that was found in the app
    problem = saf.Problem.from_image(picture(number), seeds=seeds, **options)
    return recipe.method.run(problem).labels


def on_the_command_line(folder, number, seeds):
    np.save(folder / "image.npy", picture(number))
    arguments = [folder / "image.npy", "--recipe", folder / "r.json", "-o", folder / "out.npy"]
    if seeds is not None:
        np.save(folder / "seeds.npy", seeds)
        arguments += ["--seeds", folder / "seeds.npy"]
    assert main(["segment", *map(str, arguments), "--overwrite"]) == 0
    return np.load(folder / "out.npy")


def test_a_recipe_gives_the_same_labels_everywhere(dock, qtbot, tmp_path, capsys):
    n_replayed = []

    @settings(
        max_examples=N_EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(runs())
    def replay(run):
        app = in_the_app(dock, qtbot, run)
        event(run[0] if app is not None else "refused")
        if app is None:
            return
        labels, recipe, seeds = app
        seeds, number = seeds if run[3] else None, run[4]
        saf.save_recipe(tmp_path / "r.json", recipe)
        again = in_python(saf.load_recipe(tmp_path / "r.json"), number, seeds)
        np.testing.assert_array_equal(again, labels)
        np.testing.assert_array_equal(on_the_command_line(tmp_path, number, seeds), labels)
        n_replayed.append(run[0])

    replay()
    assert len(n_replayed) >= N_EXAMPLES / 2
    if N_EXAMPLES > 20:
        with capsys.disabled():
            print({name: n_replayed.count(name) for name in sorted(set(n_replayed))})
