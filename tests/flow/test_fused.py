"""The compiled kernels step a flow as torch does."""

import importlib.util
import sys

import numba
import numpy as np
import pytest
import torch

import napari_saf as saf
from napari_saf import flow
from napari_saf.errors import Cancelled
from napari_saf.flow import AssignmentField, GaussianAffinity, SelfAssignmentField, _fused, _kernels
from napari_saf.flow._simplex import SeedConstraint, normalize_
from napari_saf.graph import GraphUnion
from napari_saf.points import distances

N_COLUMNS = 5


@pytest.fixture(scope="module", autouse=True)
def compiled():
    assert _fused.kernels() is not None  # tests/conftest.py waited for them


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
    monkeypatch.setattr(_fused, "_LEAST_ENTRIES", 0)


def make_run(graph, s, seeds=None, *, kernels, cancelled=lambda: False):
    """Return an Adams run of the assignment flow, or of the self-assignment flow for a given s."""
    rng = np.random.default_rng(0)
    features = torch.from_numpy(rng.random((graph.n_nodes, 3)).astype(np.float32))
    points = features[:N_COLUMNS].clone()
    averager = graph.averager(features.device, features.dtype)
    table = distances(features, points)
    if s is None:
        field = AssignmentField(averager, table, points, 0.1, cancelled)
        v = torch.zeros_like(table)
    else:
        operator = GaussianAffinity(landmarks=30).bind(features, rng)
        field = SelfAssignmentField(
            operator, averager, features, N_COLUMNS, s=s, rho=0.1, cancelled=cancelled
        )
        v = normalize_(-table)
    with pytest.MonkeyPatch.context() as patch:
        if not kernels:
            patch.setattr(_fused, "kernels", lambda: None)
        run = saf.AdamsBashforthMoulton().start(field, v, SeedConstraint(seeds))
    assert (run._fused is not None) == kernels
    return run


def grid(shape, window, *, masked=False, weighted=False, contrast=0):
    """Return a grid; of `contrast` with weights by the image, the same for both of a pair."""
    rng = np.random.default_rng(1)
    mask = rng.random(shape) < 0.7 if masked else None
    if contrast:
        options = {"window": window, "stride": contrast, "mask": mask}
        return saf.GridGraph.nonlocal_means(rng.random(shape), patch_size=1, rho=0.3, **options)
    n_nodes = int(np.prod(shape) if mask is None else mask.sum())
    positions = int(np.prod(np.broadcast_to(window, len(shape))))
    weights = rng.random((n_nodes, positions)) + 0.01 if weighted else None
    return saf.GridGraph(shape, window=window, mask=mask, weights=weights)


CASES = {
    "2-D": (grid((70, 90), 3), None),
    "wide, s = 1/2": (grid((70, 90), (21, 5)), 0.5),
    "3-D, self": (grid((9, 20, 30), 5), 0.0),
    "3-D, mask": (grid((9, 20, 30), 3, masked=True), 0.0),
    "3-D, weights": (grid((9, 20, 30), 3, weighted=True), None),
    "weights, mask": (grid((70, 90), 5, masked=True, weighted=True), 1.0),
    "contrast, stride, mask": (grid((70, 90), (13, 9), masked=True, contrast=2), None),
    "3-D, contrast": (grid((9, 20, 30), (3, 5, 3), contrast=1), None),
    "line": (grid((5000,), 9), None),
    "images": (
        GraphUnion([grid((40, 50), 3), grid((30, 20), 3), grid((50, 40), 5, masked=True)]),
        0.0,
    ),
    "volumes": (GraphUnion([grid((9, 10, 30), 3, contrast=1), grid((5, 20, 9), 3)]), 0.5),
}


@pytest.mark.parametrize("case", CASES)
def test_kernels_step_as_torch_does(case):
    graph, s = CASES[case]
    runs = [make_run(graph, s, kernels=kernels) for kernels in (False, True)]
    labels = [run.v.argmax(dim=1) for run in runs]
    for k in range(5):
        readings = []
        for run, own in zip(runs, labels, strict=True):
            run.advance()
            readings.append(run.read(own))
        one, other = readings
        assert runs[1].time == pytest.approx(runs[0].time, rel=1e-2 if k > 2 else 1e-5)
        torch.testing.assert_close(runs[1].v, runs[0].v, rtol=0, atol=1e-4)
        assert float((labels[0] == labels[1]).float().mean()) > 0.999
        assert other.entropy == pytest.approx(one.entropy, rel=1e-4)
        assert other.changed == pytest.approx(one.changed, abs=1e-3)
        assert np.abs(other.sizes - one.sizes).max() <= 3
        torch.testing.assert_close(other.highest, one.highest, rtol=0, atol=1e-3)
        fields = runs[0].field, runs[1].field
        assert fields[1].objective == pytest.approx(fields[0].objective, rel=1e-4)
        for sums in ("masses", "squares"):
            one, other = (getattr(field, sums) for field in fields)
            np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-2)
        if k == 2:
            columns = torch.tensor([0, 2, 3, 4])
            for run, own in zip(runs, labels, strict=True):
                run.keep_columns(columns)
                own.copy_(run.v.argmax(dim=1))


EXTREMES = {
    "a column": ((15, 1), 9),
    "a long window": ((9, 4), (7, 1)),
    "deep": ((7, 3, 3), (7, 1, 3)),
    "some voxels": ((1, 3, 4), 3),
}


@pytest.fixture(scope="module")
def interpreted():
    """The kernels as Python runs them, which checks that indices lie within arrays."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba.config, "DISABLE_JIT", True)
        spec = importlib.util.spec_from_file_location("interpreted", _kernels.__file__)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "kind, n_columns", [("plain", 3), ("masked", 2), ("weighted", 5), ("contrast", 3)]
)
@pytest.mark.parametrize("case", EXTREMES)
def test_kernels_stay_within_their_arrays(case, kind, n_columns, monkeypatch, interpreted):
    monkeypatch.setitem(globals(), "N_COLUMNS", n_columns)
    shape, window = EXTREMES[case]
    graph = grid(shape, window, **({} if kind == "plain" else {kind: True}))
    monkeypatch.setattr(_fused, "_CACHED_FLOATS", 64)  # more than one box
    for s in (None, 0.0, 1.0):
        runs = [make_run(graph, s, kernels=kernels) for kernels in (False, True)]
        runs[1]._fused._module = interpreted
        for run in runs:
            with np.errstate(all="ignore"):
                run.advance()
            run.read(run.v.argmax(dim=1))
        torch.testing.assert_close(runs[1].v, runs[0].v, rtol=0, atol=1e-3)


def test_seeds_stay_where_they_are():
    graph = grid((70, 90), 3)
    seeds = torch.full((graph.n_nodes,), -1)
    seeds[::50] = torch.arange(126) % 2
    runs = [make_run(graph, None, seeds, kernels=kernels) for kernels in (False, True)]
    for _ in range(4):
        for run in runs:
            run.advance()
    torch.testing.assert_close(runs[1].v, runs[0].v, rtol=0, atol=1e-4)
    seeded = seeds >= 0
    assert torch.equal(runs[1].v[seeded].argmax(dim=1), seeds[seeded])


@pytest.mark.parametrize("s", [None, 0.0])
def test_the_number_of_threads_changes_nothing(s):
    graph, found = grid((150, 90), 3), []
    for n_threads in (1, 4):
        run = make_run(graph, s, kernels=True)
        run._fused._n_threads = n_threads
        for _ in range(4):
            run.advance()
        found.append(run.v)
    assert torch.equal(*found)


def test_a_step_that_is_cancelled_leaves_the_state_as_it_was():
    asked = []

    def stop():
        asked.append(True)
        return len(asked) > limit

    limit = 10**6
    run = make_run(grid((150, 90), 3), None, kernels=True, cancelled=stop)
    run._fused._n_threads = 1
    run.advance()
    before, limit = run.v.clone(), len(asked) + 2  # within the step, between two tiles
    with pytest.raises(Cancelled):
        run.advance()
    assert torch.equal(run.v, before)


@pytest.fixture
def compilers(monkeypatch, tmp_path):
    """Nothing is compiled yet, and a process that compiles leaves the marker after a while."""
    marker = tmp_path / "marker"
    command = f"import pathlib, time; time.sleep(0.3); pathlib.Path({str(marker)!r}).touch()"
    monkeypatch.setattr(_kernels, "marker", lambda: marker)
    monkeypatch.setattr(_fused, "_COMMAND", command)
    monkeypatch.setattr(_fused, "_compilers", [])
    return _fused._compilers


def test_kernels_are_compiled_in_the_background(compilers):
    assert _fused.kernels() is None
    assert _fused.kernels() is None
    _fused.wait_for_kernels()
    assert _fused.kernels() is _kernels
    assert [process.returncode for process in compilers] == [0]


def test_torch_computes_where_kernels_cannot_be_compiled(compilers, monkeypatch):
    monkeypatch.setattr(_fused, "_COMMAND", "raise SystemExit(1)")
    _fused.wait_for_kernels()
    assert _fused.kernels() is None
    assert len(compilers) == 1


def test_torch_computes_without_numba(monkeypatch):
    monkeypatch.delattr(flow, "_kernels")
    monkeypatch.setitem(sys.modules, "napari_saf.flow._kernels", None)
    assert _fused.kernels() is None


def test_a_switch_leaves_all_to_torch(monkeypatch):
    assert _fused.kernels() is not None
    monkeypatch.setenv(_fused.SWITCH, "0")
    assert _fused.kernels() is None
