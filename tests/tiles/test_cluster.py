"""Tiles on workers of dask: threads, and processes of which one dies."""

import operator
import types
from collections import deque
from functools import partial

import dask
import numpy as np
import pytest
from deaths import die_always, die_once
from test_label_large import picture, recipe, write_zarr

import napari_saf as saf
from napari_saf.tiles import _cluster, _engine, local_client, run_tasks
from napari_saf.tiles._cluster import check_versions


def test_threads_give_the_same_labels(tmp_path, threads):
    pixels = picture((100, 130))
    expected = saf.label_large(pixels, recipe(), tmp_path / "e.ome.zarr", tile=64)
    found = saf.label_large(pixels, recipe(), tmp_path / "m.ome.zarr", tile=64, client=threads)
    np.testing.assert_array_equal(found.labels[:], expected.labels[:])
    assert found.sizes == expected.sizes


def test_other_work_of_dask_in_this_process_stays_here(threads):
    distributed = pytest.importorskip("distributed")
    with _cluster.connected(threads.scheduler.address), pytest.raises(ValueError, match="client"):
        distributed.default_client()


double = partial(operator.mul, 2)


def test_tasks_may_be_added_while_others_are_done(threads):
    """More than workers take at a time, each once, whoever does them."""
    for client in (None, threads):
        items, found = deque(range(1, 12)), {}
        for item, outcome in run_tasks(client, double, items):
            found[item] = outcome()
            if item < 100 and item % 4 == 0:
                items.appendleft(100 + item)
        assert found == {n: 2 * n for n in (*range(1, 12), 104, 108)}


@pytest.mark.parametrize("n_deaths", [1, 2])
def test_processes_of_which_one_dies_at_the_start_are_started_again(monkeypatch, n_deaths):
    distributed = pytest.importorskip("distributed")
    start, deaths = distributed.LocalCluster, []

    def dies(**settings):
        if len(deaths) < n_deaths:
            deaths.append(1)
            raise RuntimeError("Nanny failed to start.")
        # Threads have no signals.
        with dask.config.set({"distributed.worker.preload": []}):
            return start(**settings | {"processes": False})

    monkeypatch.setattr(distributed, "LocalCluster", dies)
    if n_deaths == 1:
        with local_client(1) as client:
            assert client.submit(double, 2).result() == 4
    else:
        with pytest.raises(saf.ComputeError, match="died while it started"), local_client(1):
            pass


@pytest.mark.slow
def test_a_process_that_dies_is_replaced_and_its_task_done_again(tmp_path, monkeypatch):
    source = write_zarr(tmp_path / "a.zarr", picture((100, 130)))
    expected = saf.label_large(source, recipe(), tmp_path / "e.ome.zarr", tile=64)
    with local_client(1) as client:
        found = saf.label_large(source, recipe(), tmp_path / "m.ome.zarr", tile=64, client=client)
        np.testing.assert_array_equal(found.labels[:], expected.labels[:])
        monkeypatch.setattr(_engine, "_MOST_SENT", 1000)
        with pytest.raises(saf.SafError, match="not sent to other processes"):
            saf.label_large(picture((40, 40)), recipe(), tmp_path / "n.ome.zarr", client=client)
        marker = str(tmp_path / "marker")
        assert [outcome() for _, outcome in run_tasks(client, die_once, deque([marker]))] == [
            "done"
        ]
        for _, outcome in run_tasks(client, die_always, deque([0])):
            with pytest.raises(saf.ComputeError, match="the process died"):
                outcome()


@pytest.mark.parametrize(
    ("version", "words"), [("0.0.1", "has 0.0.1"), (ImportError("none"), "lacks napari-saf")]
)
def test_workers_with_another_version_are_refused(version, words):
    client = types.SimpleNamespace(run=lambda *arguments, **options: {"tcp://a:1": version})
    with pytest.raises(saf.SafError, match=f"tcp://a:1: the worker {words}, expected"):
        check_versions(client)
