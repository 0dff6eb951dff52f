"""Recordings: within their memory, evenly spread, good to go on from."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import napari_saf as saf
from napari_saf import recording
from napari_saf.errors import SafError
from napari_saf.input import PLAIN
from napari_saf.recording import PackedArray, Recording, SampledSeries


@dataclasses.dataclass(frozen=True)
class Weight:
    """A sample that takes so many bytes."""

    step: int
    n_bytes: int

    @property
    def time(self):
        return float(self.step)


def blocks(side=24, channels=3):
    rng = np.random.default_rng(0)
    image = np.zeros((side, side, channels))
    image[: side // 2, :, 0] = 0.8
    image[:, side // 2 :, 1] = 0.6
    return (image + rng.normal(0, 0.05, image.shape)).clip(0, 1)


@pytest.fixture(scope="module")
def problem():
    return saf.Problem.from_image(blocks(), window=3, **PLAIN)


def recorded(method, problem, **limits):
    recording = Recording(**{"share": 1e9, **limits})
    steps = method.iterate(problem)
    while True:
        try:
            recording.watch(next(steps))
        except StopIteration as stop:
            recording.finish(stop.value)
            return recording, stop.value


@settings(max_examples=75, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 50)), min_size=1, max_size=120))
def test_memory_holds_and_the_ends_stay_whatever_comes(samples):
    memory, step, series = 200, 0, SampledSeries(200, 1.0)
    for skipped, n_bytes in samples:
        step += skipped
        series.offer(step, 1e9, lambda at=step, size=n_bytes: Weight(at, size))
        steps = [sample.step for sample in series.samples]
        assert sum(sample.n_bytes for sample in series.samples) <= memory
        assert steps == sorted(set(steps))
        assert steps[0] == samples[0][0]
        gaps = np.diff(steps)
        assert (gaps[:-1] >= series.stride).all()
        assert (gaps < 2 * series.stride + 4).all()
        assert step - steps[-1] < series.stride


def test_of_what_is_too_large_only_the_newest_is_kept():
    series = SampledSeries(100, 1.0)
    for step, size in enumerate((60, 70, 90)):
        series.add(Weight(step, size))
    assert [sample.step for sample in series.samples] == [2]
    series.add(Weight(3, 101))
    assert series.samples == ()


@pytest.mark.parametrize("memory", [2**24, 9_000])
def test_a_recording_keeps_its_bound_and_both_ends(problem, memory):
    recording, result = recorded(saf.SelfAssignmentFlow(max_labels=6), problem, memory=memory)
    assert recording.n_bytes <= memory
    history = recording.history()
    np.testing.assert_array_equal(history.entropy, result.history.entropy)
    for samples in (recording.labels, recording.states):
        times = [sample.time for sample in samples]
        assert times == sorted(times)
        if len(times) > 1:
            assert times[0] == 0 and times[-1] == history.time[-1]
    last = recording.labels[-1].labels()[0]
    table = np.concatenate([[0], result.columns + 1])
    np.testing.assert_array_equal(last, table[result.labels])


def test_samples_are_what_the_run_was_then(problem):
    method, seen = saf.SelfAssignmentFlow(max_labels=6, s=0.5), {}
    recording = Recording(share=1e9)
    for snapshot in method.iterate(problem):
        recording.watch(snapshot)
        seen[snapshot.record.time] = (snapshot.labels, snapshot.assignment)
    for sample in recording.labels[1:]:
        np.testing.assert_array_equal(sample.labels()[0], seen[sample.time][0])
    for sample in recording.states[1:]:
        labels, assignment = seen[sample.time]
        found = sample.assignment()
        np.testing.assert_allclose(found, assignment, atol=1e-3)
        np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
        np.testing.assert_array_equal(found.max(axis=0) > 0, assignment.max(axis=0) > 1e-9)
        assert np.mean(sample.columns() + 1 == labels.ravel()) > 0.999
        entropies = sample.entropies()
        assert entropies.min() >= 0 and entropies.max() <= 1


def test_the_last_snapshot_has_no_assignment_once_the_run_has_ended(problem):
    for snapshot in saf.SLK(n_clusters=4).iterate(problem):
        last = snapshot
    with pytest.raises(SafError, match="has ended"):
        _ = last.assignment


@pytest.mark.parametrize(
    "method",
    [
        saf.SelfAssignmentFlow(max_labels=8, s=0.5, epsilon=1.0),
        saf.AssignmentFlow(prototypes=np.random.default_rng(1).random((5, 3))),
    ],
    ids=["saf, s = 0.5", "af"],
)
def test_what_goes_on_from_a_sample_ends_as_the_recorded_run(method, problem):
    recording, result = recorded(method, problem)
    own = result.assignment.argmax(axis=1)
    states = recording.states
    for sample in states[:: max(1, len(states) // 4)]:
        later = method.run(problem, sample.assignment())
        assert np.mean(later.assignment.argmax(axis=1) == own) >= 0.99
        assert later.assignment.shape == result.assignment.shape


def test_a_column_that_died_stays_out(problem):
    start = np.zeros((problem.n_nodes, 4))
    start[:, [0, 2]] = np.random.default_rng(0).dirichlet((1, 1), problem.n_nodes)
    for method in (saf.SelfAssignmentFlow(s=1.0), saf.SelfAssignmentFlow()):
        result = method.run(problem, start)
        assert set(result.columns) <= {0, 2}
        assert not result.assignment[:, [1, 3]].any()
        np.testing.assert_allclose(result.assignment.sum(axis=1), 1, atol=1e-5)


def test_a_recording_goes_on_where_another_was(problem):
    method = saf.SelfAssignmentFlow(max_labels=6)
    recording, _ = recorded(method, problem)
    sample = recording.states[len(recording.states) // 2]
    before = recording.history()
    later = recording.until(sample)
    for snapshot in method.iterate(problem, sample.assignment()):
        later.watch(snapshot)
    history = later.history()
    assert (np.diff(history.time) > 0).all()
    assert (np.diff(history.n_evaluations) >= 0).all()
    np.testing.assert_array_equal(
        history.entropy[: sample.step + 1], before.entropy[: sample.step + 1]
    )
    assert len(history) > sample.step + 2
    few = later.history(5)
    assert len(few) == 5 and few.time[-1] == history.time[-1]


def test_every_method_can_be_recorded():
    image = blocks(12)
    seeds = np.zeros(image.shape[:2], int)
    seeds[:2], seeds[-2:] = 1, 2
    for name, kind in saf.METHODS.items():
        groups = "channel:1" if name == "fair" else None
        problem = saf.Problem.from_image(image, window=3, seeds=seeds, groups=groups, **PLAIN)
        recording, _ = recorded(kind(), problem)
        sample = recording.states[-1]
        start = sample.assignment()
        np.testing.assert_allclose(start.sum(axis=1), 1, atol=1e-5)
        kind().run(problem, start, max_iterations=2)


@pytest.mark.parametrize("kind", [np.uint8, np.float16])
def test_a_packed_array_comes_back(kind, monkeypatch):
    monkeypatch.setattr(recording, "_BLOCK_BYTES", 16)  # several blocks
    array = np.random.default_rng(0).integers(0, 9, (7, 5)).astype(kind)[::2]
    again = PackedArray.of(array).unpack()
    np.testing.assert_array_equal(again, array)
    assert again.dtype == array.dtype
