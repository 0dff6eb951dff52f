"""Images and tiles are shared out to workers that a scheduler has, processes of their own."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest
import zarr

from napari_saf.batch import connected
from napari_saf.io import read_labels

PLAIN = ("--max-labels", "2", "--window", "3", "--weights", "uniform")


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """The address of a scheduler with two workers, all started as on other machines."""
    folder = tmp_path_factory.mktemp("cluster")
    file = folder / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    commands = [("scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", ":0")]
    commands += [("worker", "--nthreads", "1", "--no-nanny", "--no-dashboard")] * 2
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "dask", *command, "--scheduler-file", str(file)], **quiet
        )
        for command in commands
    ]
    try:
        until = time.monotonic() + 120
        while not file.exists() and time.monotonic() < until:
            time.sleep(0.1)
        address = file.read_text().split('"address": "')[1].split('"')[0]
        with connected(address) as client:
            client.wait_for_workers(2, timeout=120)
            assert len({os.getpid(), *client.run(os.getpid).values()}) == 3
        yield address
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_workers_of_a_scheduler_do_tiles_and_folders(cli, picture, tmp_path, scheduler):
    pixels = np.tile(np.repeat(np.uint8([60, 180]), 30), (70, 2))
    pixels += np.random.default_rng(0).integers(0, 30, pixels.shape, np.uint8)
    zarr.create_array(tmp_path / "a.zarr", data=pixels, chunks=(32, 32))
    run = ("segment", tmp_path / "a.zarr", "--tile", "32", *PLAIN)
    assert "12 tiles" in cli(*run, "-o", "e.ome.zarr").out
    outcome = cli(*run, "-o", "m.ome.zarr", "--scheduler", scheduler)
    assert "12 tiles" in outcome.out and "dashboard: http" in outcome.out, outcome.err
    expected = zarr.open_array(tmp_path / "e.ome.zarr" / "0", mode="r")
    found = zarr.open_array(tmp_path / "m.ome.zarr" / "0", mode="r")
    np.testing.assert_array_equal(found[:], expected[:])

    (tmp_path / "in").mkdir()
    for number in range(4):
        picture(f"in/{number}.png", seed=number)
    (tmp_path / "in" / "broken.png").write_bytes(b"no picture")
    run = ("segment", tmp_path / "in", *PLAIN)
    assert cli(*run, "-o", "alone").code == 1
    outcome = cli(*run, "-o", "shared", "--scheduler", scheduler)
    assert outcome.code == 1 and "broken.png" in outcome.err
    for number in range(4):
        expected, found = (
            read_labels(tmp_path / folder / f"{number}_labels.tif").array
            for folder in ("alone", "shared")
        )
        np.testing.assert_array_equal(found, expected)
    assert "4 done before" in cli(*run, "-o", "shared", "--scheduler", scheduler).out
