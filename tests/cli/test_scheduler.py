"""Images and tiles are done by the worker of a scheduler, processes of their own."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest
import zarr

import napari_saf as saf
from napari_saf.io import read_labels
from napari_saf.tiles import connected

PLAIN = ("--max-labels", "2", "--window", "3", "--weights", "uniform")


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """The address of a scheduler with a worker, both started as on other machines."""
    folder = tmp_path_factory.mktemp("cluster")
    file = folder / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    commands = [("scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", ":0")]
    commands += [("worker", "--nthreads", "1", "--no-nanny", "--no-dashboard")]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "dask", *command, "--scheduler-file", str(file)], **quiet
        )
        for command in commands
    ]
    try:
        until = time.monotonic() + 120
        text = ""
        while '"address": "' not in text and time.monotonic() < until:  # it is there before that
            time.sleep(0.1)
            text = file.read_text() if file.exists() else ""
        address = text.split('"address": "')[1].split('"')[0]
        with connected(address) as client:
            client.wait_for_workers(1, timeout=120)
            assert os.getpid() not in client.run(os.getpid).values()
        yield address
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_worker_of_a_scheduler_does_tiles_and_folders(cli, picture, tmp_path, scheduler):
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
    for number in range(2):
        picture(f"in/{number}.png", seed=number)
    (tmp_path / "in" / "broken.png").write_bytes(b"no picture")
    run = ("segment", tmp_path / "in", *PLAIN)
    assert cli(*run, "-o", "alone").code == 1
    outcome = cli(*run, "-o", "shared", "--scheduler", scheduler)
    assert outcome.code == 1 and "broken.png" in outcome.err
    assert "2 done before" in cli(*run, "-o", "shared", "--scheduler", scheduler).out

    saf.PatchDictionary.learn([pixels], n_atoms=3, patch_size=3).save("words.safetensors")
    run = ("dictionary", "apply", "words.safetensors", tmp_path / "in")
    assert cli(*run, "-o", "applied").code == 1
    assert cli(*run, "-o", "elsewhere", "--scheduler", scheduler).code == 1
    for folder, other in (("alone", "shared"), ("applied", "elsewhere")):
        for name in ("0.labels.tif", "1.labels.tif"):
            expected, found = (read_labels(tmp_path / f / name).array for f in (folder, other))
            np.testing.assert_array_equal(found, expected)
