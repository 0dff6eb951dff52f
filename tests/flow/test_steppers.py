"""Schemes on equations with known answers."""

import math
from contextlib import suppress

import numpy as np
import pytest
import torch

import napari_saf as saf
from napari_saf.flow import STEPPERS, AdamsSchedule, Cancelled
from napari_saf.flow._loop import StopWatch


class LinearField:
    """dV/dt = M V by rows, whose solution is V exp(M t)."""

    def __init__(self, matrix, v):
        self.matrix = matrix
        self.assignment = torch.empty_like(v)
        self.scratch = (torch.empty_like(v), torch.empty_like(v))
        self.n_evaluations = 0

    def __call__(self, v, out):
        self.n_evaluations += 1
        torch.softmax(v, dim=1, out=self.assignment)
        return torch.matmul(v, self.matrix, out=out)

    def keep_columns(self, kept):
        self.matrix = self.matrix[kept][:, kept]
        self.assignment = self.assignment[:, kept]
        self.scratch = tuple(x[:, kept].contiguous() for x in self.scratch)


def unchanged(v, rows):
    return v


def linear_problem():
    rng = np.random.default_rng(0)
    matrix = torch.from_numpy(rng.standard_normal((3, 3)) - 2 * np.eye(3))
    v = torch.from_numpy(rng.standard_normal((50, 3)))
    return matrix, v


def exact(matrix, v, time):
    return v @ torch.matrix_exp(matrix * time)


def error_of_euler(step):
    matrix, v = linear_problem()
    run = saf.GeometricEuler(step=step).start(LinearField(matrix, v), v.clone(), unchanged)
    for _ in range(round(1 / step)):
        run.advance()
    assert run.time == pytest.approx(1)
    return float((run.v - exact(matrix, v, 1.0)).abs().max())


def test_euler_is_of_first_order():
    orders = [math.log2(error_of_euler(h) / error_of_euler(h / 2)) for h in (0.02, 0.01)]
    assert orders == pytest.approx([1, 1], abs=0.1)


def run_until(stepper, matrix, v, time):
    field = LinearField(matrix, v)
    run = stepper.start(field, v.clone(), unchanged)
    while run.time < time:
        run.advance()
    return run, field


@pytest.mark.parametrize("scheme", [saf.AdamsBashforthMoulton, saf.BogackiShampine])
def test_error_falls_with_the_tolerance_at_the_order_of_the_scheme(scheme):
    """A step's error is kept at the tolerance, so the global error goes like tol^(2/3)."""
    matrix, v = linear_problem()
    errors = []
    for tolerance in (1e-4, 1e-6):
        run, _ = run_until(scheme(tolerance=tolerance), matrix, v, 1.0)
        errors.append(float((run.v - exact(matrix, v, run.time)).abs().max()))
    assert errors[1] < 1e-4
    assert math.log(errors[0] / errors[1]) / math.log(100) > 0.6


@pytest.mark.parametrize("name", list(STEPPERS))
def test_forgetting_a_column_keeps_the_others_on_their_way(name):
    """With a diagonal field columns do not know of one another."""
    matrix, v = torch.diag(torch.tensor([-0.5, 0.3, -1.0]).double()), linear_problem()[1]
    run = STEPPERS[name]().start(LinearField(matrix, v), v.clone(), unchanged)
    run.advance()
    run.keep_columns(torch.tensor([0, 2]))
    for _ in range(3):
        run.advance()
    expected = exact(matrix, v, run.time)[:, [0, 2]]
    assert run.v.shape == (50, 2)
    assert float((run.v - expected).abs().max()) < 0.05


@pytest.mark.parametrize("name", ["adams", "bogacki-shampine"])
def test_steps_do_not_depend_on_how_many_nodes_are_alike(name):
    """In float32 a norm over so many entries would be too small: steps would be too long."""
    matrix, v = (x.float() for x in linear_problem())
    times = []
    for n_copies in (1, 4_000):
        many = v.repeat(n_copies, 1)
        run = STEPPERS[name]().start(LinearField(matrix, many), many.clone())
        for _ in range(6):
            run.advance()
        times.append(run.time)
    assert times[1] == pytest.approx(times[0], rel=1e-4)


@pytest.mark.parametrize("name", list(STEPPERS))
def test_a_step_that_is_cancelled_leaves_the_state_as_it_was(name):
    class CancelledField(LinearField):
        n_allowed = 10**6

        def __call__(self, v, out):
            if self.n_evaluations >= self.n_allowed:
                raise Cancelled
            return super().__call__(v, out)

    matrix, v = linear_problem()
    field = CancelledField(matrix, v)
    run = STEPPERS[name]().start(field, v.clone())
    run.advance()
    before, time = run.v.clone(), run.time
    n_cancelled = 0
    while run.time == time:
        field.n_allowed = field.n_evaluations + n_cancelled
        with suppress(Cancelled):
            run.advance()
            break
        torch.testing.assert_close(run.v, before, rtol=0, atol=0)
        assert run.time == time
        n_cancelled += 1
    assert run.time > time
    assert n_cancelled >= (3 if name == "bogacki-shampine" else 1)


def test_stop_watch_tells_the_reasons():
    labels = torch.zeros(1000, dtype=torch.int64)
    rule = saf.StoppingRule(entropy=0.1, changed=1e-3, max_steps=5)
    assert StopWatch(rule, labels, 2.0).status(1.0, labels, 0.05) is saf.Status.CONVERGED

    watch = StopWatch(rule, labels, 2.0)
    assert watch.status(1.0, labels, 0.9) is None
    assert watch.status(1.5, labels, 0.9) is None
    assert watch.status(2.1, labels, 0.9) is saf.Status.STALLED

    watch = StopWatch(rule, labels, 2.0)
    moved = labels.clone()
    for step in range(1, 5):
        moved[10 * step : 10 * step + 5] = 1
        assert watch.status(float(step), moved, 0.9) is None
    assert watch.status(5.0, moved, 0.8) is saf.Status.MAX_ITERATIONS


def test_standing_still_at_the_barycentre_is_no_end():
    labels = torch.zeros(1000, dtype=torch.int64)
    watch = StopWatch(saf.StoppingRule(), labels, 2.0)
    assert all(watch.status(float(t), labels, 1.999) is None for t in range(1, 20))
    assert watch.status(60.0, labels, 1.999) is saf.Status.STALLED


def test_borders_that_wander_for_ever_are_an_end():
    labels = torch.zeros(1000, dtype=torch.int64)
    for entropy, expected in ((0.1, saf.Status.STALLED), (1.0, None)):
        watch = StopWatch(saf.StoppingRule(), labels, 2.0)
        for k in range(1, 150):
            labels[5 * k : 5 * k + 5] += 1
            assert watch.status(2.0 * k, labels, entropy) is None
        labels[:5] += 1
        assert watch.status(301.0, labels, entropy) is expected


@pytest.mark.parametrize("period", [2, 3, 7])
def test_labels_that_change_to_and_fro_stand_still(period):
    rounds = [torch.zeros(1000, dtype=torch.int64) for _ in range(period)]
    for k, labels in enumerate(rounds):
        labels[:5] = k
    watch = StopWatch(saf.StoppingRule(), rounds[0], 2.0)
    found = [watch.status(2.0 * k, rounds[k % period], 0.5) for k in range(1, 40)]
    assert saf.Status.STALLED in found[period:]
    assert saf.Status.STALLED not in found[: period - 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: saf.GeometricEuler(step=0),
        lambda: saf.AdamsBashforthMoulton(tolerance=-1),
        lambda: saf.BogackiShampine(tolerance=math.nan),
        lambda: saf.StoppingRule(entropy=2),
        lambda: saf.StoppingRule(max_steps=1.5),
    ],
)
def test_bad_parameters_are_refused(make):
    with pytest.raises(saf.InvalidInput, match="expected"):
        make()


def test_steps_of_another_run_lead_where_it_led():
    matrix, v = linear_problem()
    adaptive = saf.AdamsBashforthMoulton().start(LinearField(matrix, v), v.clone(), unchanged)
    times = [0.0]
    for _ in range(20):
        adaptive.advance()
        times.append(adaptive.time)
    given = AdamsSchedule(tuple(np.diff(times).tolist()))
    # Of some nodes alone: nothing that the others hold counts.
    scheduled = given.start(LinearField(matrix, v[:5]), v[:5].clone(), unchanged)
    for _ in range(20):
        scheduled.advance()
    torch.testing.assert_close(scheduled.v, adaptive.v[:5])
    assert scheduled.time == pytest.approx(adaptive.time)
