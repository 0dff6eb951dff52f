"""What is said of a long run: how long it goes on, its memory, and at what size it is short."""

import dataclasses
import functools
import itertools

import dask.array as da
import numpy as np
import pytest
from gui_cases import ENDLESS, TIMEOUT, blocks

import napari_saf as saf
from napari_saf import device
from napari_saf._gui.layers.reading import ImageJob, Pixels, ProblemReader
from napari_saf._gui.runs import run as runs
from napari_saf._gui.runs import time_left
from napari_saf._gui.runs.time_left import TimeLeft
from napari_saf._gui.segment import dock as segment_dock
from napari_saf._gui.settings import Settings
from napari_saf.input import PLAIN, ImageOptions
from napari_saf.methods import not_cancelled

pytestmark = pytest.mark.gui


@pytest.fixture
def viewer(model_or_window):
    return model_or_window


def told(seconds, fractions):
    """Return what an estimate says after each of some frames."""
    own, words = TimeLeft(), []
    for at, fraction in zip(seconds, fractions, strict=True):
        own.update(at, fraction)
        words.append((own.seconds_left(at), own.words(at)))
    return words


@pytest.mark.parametrize("length", [5, 40, 600])
def test_of_an_even_run_the_time_left_falls_and_is_near(length):
    seconds = np.linspace(0, length, 101)[:-1]
    found = told(seconds, seconds / length)
    assert all(words == "" for (_, words), at in zip(found, seconds, strict=True) if at < 1)
    known = [(left, length - at) for (left, _), at in zip(found, seconds, strict=True) if left]
    assert len(known) > 50
    for left, true in known:
        assert true / 2 <= left <= 3 * true + max(1, 0.02 * length)
    assert all(later <= now + 1e-6 for (now, _), (later, _) in itertools.pairwise(known))


def test_nothing_is_said_of_a_run_that_stands_still():
    seconds = np.arange(0, 100, 0.5)
    found = told(seconds, np.minimum(seconds / 20, 0.7))
    assert found[20][1].endswith("left")
    assert found[-1] == (None, "")


def test_words_do_not_jump_where_steps_take_unequal_time():
    rng = np.random.default_rng(0)
    seconds = np.cumsum(rng.exponential(0.3, 300))
    found = [left for left, _ in told(seconds, np.arange(300) / 300) if left]
    ratios = [later / now for now, later in itertools.pairwise(found) if now > 10]
    assert max(ratios) < 1.5 and np.mean(np.abs(np.log(ratios)) > 0.2) < 0.03


def test_a_smaller_size_is_offered_for_a_long_run_and_runs_in_its_layer(
    viewer, dock, qtbot, monkeypatch, settle
):
    monkeypatch.setattr(time_left, "LONG", 0.5)
    monkeypatch.setattr(time_left, "SHORT", 0.2)
    viewer.layers["blocks"].data = blocks(200)
    dock.form.set_values(ENDLESS)
    dock.start()
    qtbot.waitUntil(lambda: bool(dock.status.suggested_action), timeout=TIMEOUT)
    offered = dock.status.suggested_action
    side = int(offered.split()[2])
    assert offered == f"Compute at {side} px and run" and 120 <= side <= 160
    qtbot.wait(1200)
    assert dock.status.suggested_action == offered
    monkeypatch.setattr(time_left, "LONG", 60.0)
    dock.form.set_values({"stop.max_steps": 2})
    with qtbot.waitSignal(dock.controller.returned, timeout=TIMEOUT) as ended:
        dock.status.action_button.click()
    settle(dock)
    assert dock.input.choices["max_side"].value == side
    (result,) = ended.args
    assert result.recipe["input"]["max_side"] == side
    assert result.labels.shape == (200, 200) and result.status is saf.Status.MAX_ITERATIONS
    assert len(viewer.layers) == 2 and not dock.status.suggested_action


def test_a_short_run_offers_nothing(dock, run):
    offered = []
    dock.controller.advanced.connect(lambda _: offered.append(dock.status.suggested_action))
    run(dock)
    assert set(offered) <= {""}


@pytest.mark.parametrize(("share", "is_said"), [(1e-9, True), (0.9, False)])
def test_memory_is_said_where_it_is_much(dock, long_run, settle, monkeypatch, share, is_said):
    monkeypatch.setattr(runs, "LARGE_SHARE", share)
    long_run(dock)
    assert ("memory: about" in dock.status.text) == is_said
    dock.stop_button.click()
    settle(dock)


def test_what_is_needed_is_told_before_it_is_taken():
    needs = []
    problem = saf.Problem.from_image(blocks(), max_side=None)
    with device.memory_limit(1e9, lambda need, room: needs.append((need, room))):
        saf.SelfAssignmentFlow().run(problem)
    ((need, room),) = needs
    assert need >= 4 * problem.n_nodes * problem.features.shape[1] and room == 1e9


@pytest.fixture
def quick_trials(monkeypatch):
    """Try runs of 1,000 pixels beforehand, and call long what takes half a second."""
    monkeypatch.setattr(time_left, "MANY", 1000)
    monkeypatch.setattr(time_left, "N_SAMPLED", 2000)
    monkeypatch.setattr(time_left, "LONG", 0.5)
    monkeypatch.setattr(time_left, "SHORT", 0.2)
    monkeypatch.setattr(time_left, "TRIAL_SECONDS", 0.2)


def test_a_long_run_is_foreseen_and_a_smaller_size_runs_with_one_click(
    viewer, dock, qtbot, settle, quick_trials
):
    viewer.layers["blocks"].data = blocks(200)
    dock.form.set_values(ENDLESS)
    qtbot.waitUntil(lambda: bool(dock.status.suggested_action), timeout=TIMEOUT)
    assert not dock.is_busy and len(viewer.layers) == 1
    assert "a run takes" in dock.status.text and "MiB of memory" in dock.status.text
    side = int(dock.status.suggested_action.split()[2])
    dock.input.choose(max_side=120)  # where it is not long, nothing is said
    dock.form.set_values({"stop.max_steps": 2})
    qtbot.waitUntil(lambda: not dock.status.suggested_action, timeout=TIMEOUT)
    dock.input.choose(max_side=None)
    dock.form.set_values({"stop.max_steps": 10_000})
    qtbot.waitUntil(lambda: bool(dock.status.suggested_action), timeout=TIMEOUT)
    dock.form.set_values({"stop.max_steps": 2})
    with qtbot.waitSignal(dock.controller.returned, timeout=TIMEOUT) as ended:
        dock.status.action_button.click()
    settle(dock)
    assert side == 120 == ended.args[0].recipe["input"]["max_side"]


def test_small_images_are_not_tried(dock, qtbot, monkeypatch):
    asked, tried = [], []

    def ask(job):
        asked.append(job)
        return time_left.may_take_long(job)

    monkeypatch.setattr(segment_dock, "may_take_long", ask)
    monkeypatch.setattr(segment_dock, "forecast", lambda *call: tried.append(call))
    dock.form.set_values({"max_labels": 3})
    dock.input.scale.set_value(7)
    qtbot.waitUntil(lambda: bool(asked), timeout=TIMEOUT)
    assert not tried and not dock.is_calculating


def test_a_run_ends_its_trial(dock, run, quick_trials, qtbot, settle):
    settle(dock)
    dock.input.image.data = blocks(200)
    dock.form.set_values({"stop.max_steps": 3})
    qtbot.waitUntil(lambda: dock.is_calculating, timeout=TIMEOUT)
    run(dock)
    assert not dock.status.suggested_action and dock.status.text.startswith("step limit")


@functools.cache
def jobs():
    """Return jobs of all kinds, by name, on about 9,000 pixels."""
    rng = np.random.default_rng(0)
    plane, volume = rng.random((90, 100)), rng.random((8, 33, 34))
    every = (slice(None),) * 3
    options = ImageOptions(window=5, **PLAIN)
    cut = np.zeros((90, 100), np.uint8)
    cut[:, 34:] = 1
    seeds = np.zeros((90, 100), np.uint8)
    seeds[:10], seeds[-10:] = 1, 2
    flat, wide = every[:2], da.from_array(rng.random((900, 900)), chunks=90)
    channels = dataclasses.replace(options, channel_axis=0)
    return {
        "plane": ImageJob(Pixels(plane, flat), options),
        "colours": ImageJob(Pixels(rng.random((90, 100, 3)), flat), options),
        "lazy": ImageJob(Pixels(da.from_array(plane, chunks=45), flat), options),
        "part": ImageJob(Pixels(wide, (slice(90, 270, 2), slice(0, 100))), options),
        "channels": ImageJob(Pixels(rng.random((6, 90, 100)), every), channels),
        "volume": ImageJob(Pixels(volume, every), dataclasses.replace(options, window=(1, 5, 5))),
        "slice": ImageJob(Pixels(rng.random((3, 90, 100)), (1, *flat)), options),
        "mask": ImageJob(Pixels(plane, flat), options, mask=Pixels(cut, flat)),
        "strokes": ImageJob(Pixels(plane, flat), options, seeds=Pixels(seeds, flat)),
        "groups": ImageJob(Pixels(plane, flat), options, groups=Pixels(cut + 1, flat)),
        "features": ImageJob(
            Pixels(plane, flat), options, features=Pixels(rng.random((90, 100, 4)), every)
        ),
        "reduced": ImageJob(Pixels(plane, flat), dataclasses.replace(options, max_side=70)),
    }


@pytest.mark.parametrize("kind", jobs())
def test_memory_is_foreseen_on_a_sample(kind, quick_trials):
    job, needs = jobs()[kind], []
    method = saf.METHODS["fair" if kind == "groups" else "saf"]()
    found = time_left.forecast(job, method, not_cancelled)
    problem, _ = runs.RunStart().begin(ProblemReader().read(job, not_cancelled), method)
    with device.memory_limit(None, lambda need, room: needs.append(need)):
        method.run(problem, max_iterations=1)
    assert found is not None and 0.5 < found.n_bytes / sum(needs) < 2


def test_where_a_trial_fails_nothing_is_said(quick_trials):
    job = jobs()["plane"]
    job = dataclasses.replace(job, pixels=Pixels(np.full((90, 100), np.nan), job.pixels.index))
    assert time_left.forecast(job, saf.SelfAssignmentFlow(), not_cancelled) is None


def test_a_run_that_lacks_memory_counts_as_long(quick_trials, monkeypatch):
    pixels = Pixels(np.random.default_rng(0).random((280, 290)), jobs()["plane"].pixels.index)
    job = dataclasses.replace(jobs()["plane"], pixels=pixels)
    method = saf.SelfAssignmentFlow(max_labels=2)
    monkeypatch.setattr(time_left, "LONG", 1000.0)
    assert time_left.forecast(job, method, not_cancelled).side is None
    own = Settings(memory=1.5e-3)
    monkeypatch.setattr(time_left, "current_settings", lambda: own)
    found = time_left.forecast(job, method, not_cancelled)
    assert found.n_bytes > own.memory_limit and found.side < 200
