"""From layers to problems: what is kept between runs, and what is read anew."""

import dataclasses

import numpy as np
import pytest
from gui_cases import blocks

from napari_saf import AssignmentFlow, GridGraph, Problem
from napari_saf._gui.layers.reading import ImageJob, Pixels, ProblemReader
from napari_saf._gui.runs.run import RecordedStart, RunJob, StoppedStart, WarmStart
from napari_saf.features import Scaling
from napari_saf.problem import ImageOptions
from napari_saf.recording import Recording
from napari_saf.result import LabelMap


def never():
    return False


@pytest.fixture
def job():
    seeds = np.zeros((32, 32), dtype=np.uint8)
    seeds[3, 3], seeds[20, 20] = 1, 2
    everything = (slice(None), slice(None))
    return ImageJob(
        Pixels(blocks(), everything),
        options=ImageOptions(features="multiscale", weights="contrast", window=5),
        seeds=Pixels(seeds, everything),
    )


@pytest.fixture
def reader():
    return ProblemReader()


def test_new_strokes_need_no_new_features_until_all_is_forgotten(reader, job):
    first = reader.read(job, never)
    job.seeds.data[10, 10] = 2
    second, fresh = reader.read(job, never), ProblemReader().read(job, never)
    assert second.graph is first.graph and second.features is first.features
    np.testing.assert_array_equal(second.seeds, fresh.seeds)
    np.testing.assert_array_equal(second.features, fresh.features)
    reader.forget()
    assert reader.read(job, never).graph is not first.graph


def test_another_job_and_what_changes_in_place_are_read_anew(reader, job):
    everything = job.pixels.index
    mask = Pixels(np.ones((32, 32), dtype=np.uint8), everything)
    job = dataclasses.replace(job, mask=mask)
    before = reader.read(job, never).graph
    for change in (
        lambda: job.pixels.data.__setitem__(slice(None), job.pixels.data[::-1].copy()),
        lambda: job.mask.data.__setitem__((9, 9), 0),
        lambda: {"options": ImageOptions(window=3)},
        lambda: {"pixels": Pixels(blocks()[:, ::-1], everything)},
        lambda: {"finite_only": True},
    ):
        now = reader.read(dataclasses.replace(job, **(change() or {})), never).graph
        assert now is not before
        before = reader.read(job, never).graph


def test_features_of_another_layer_are_standardized(reader, job):
    deep = np.random.default_rng(0).normal(5, 40, (4, 32, 32))
    job = dataclasses.replace(job, features=Pixels(deep), features_axis=0)
    features = reader.read(job, never).features
    assert features.shape == (1024, 4)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(features.var(axis=0).sum(), 1 / 12, rtol=1e-4)


def test_a_warm_start_prefers_what_was_and_leaves_room_for_change():
    rng = np.random.default_rng(0)
    columns, painted = rng.integers(0, 3, 50), np.zeros(50, int)
    warm = WarmStart(columns, np.array([1, 4, 9]), painted)
    more = np.arange(50) % 10 // 9  # strokes of the first class
    problem, classes = Problem(np.zeros((50, 1)), GridGraph((5, 10)), seeds=more), [1, 4, 7, 9]
    start = warm.initial(problem, LabelMap(classes), AssignmentFlow())
    np.testing.assert_allclose(start.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(start[:, [0, 1, 3]].argmax(axis=1), columns)
    assert start.min() > 1e-3
    assert (start[:, 2] <= start.min(axis=1) + 1e-6).all()
    fewer = Problem(np.zeros((49, 1)), GridGraph((7, 7)), seeds=more[:49])
    assert warm.initial(fewer, LabelMap(classes), AssignmentFlow()) is None


def test_strokes_taken_back_lead_back_to_the_labels_before_them():
    strokes = np.cumsum(np.eye(3, 9, dtype=int), axis=0)  # each has a pixel more
    start = None
    for k, painted in enumerate(strokes):
        start = WarmStart(np.full(9, k), np.array([1]), painted, start)
    assert start.of_fewer(strokes[2]).columns[0] == 1
    assert start.of_fewer(strokes[1]).columns[0] == 0
    assert start.of_fewer(strokes[0]) is None
    assert start.of_fewer(2 * strokes[2]) is None


def test_a_run_of_other_features_does_not_go_on_from_where_it_stopped(job):
    scaled = dataclasses.replace(job.options, scaling=Scaling(0.0, 1.0))
    image_job = dataclasses.replace(job, options=scaled)
    for start in (StoppedStart(None), RecordedStart(None)):
        run_job = RunJob(
            None, image_job, AssignmentFlow(), None, start=start, recording=Recording()
        )
        anew = run_job.rescaled()
        assert anew.image_job.options.scaling is None
        assert anew.start is None and anew.recording is None
