import csv
import json
from dataclasses import dataclass

import imageio.v3 as iio
import numpy as np
import pytest

from napari_saf.cli import main


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    def is_error(self, *words):
        """One line that names the program, no traceback."""
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("napari-saf: error: ")
        for word in words:
            assert word in lines[0]
        assert self.code == 1
        return True


@pytest.fixture
def cli(capsys, monkeypatch, tmp_path):
    """Run the command line in an empty folder: words of a first line, and further arguments."""
    monkeypatch.chdir(tmp_path)

    def run(line="", *arguments):
        code = main([*str(line).split(), *map(str, arguments)])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def picture(tmp_path):
    """Make a small image with two noisy halves."""

    def make(name="a.png", shape=(12, 16), seed=0):
        array = np.full(shape, 60.0)
        array[..., shape[-1] // 2 :] = 180
        array += np.random.default_rng(seed).normal(0, 8, shape)
        pixels = np.clip(array, 0, 255).astype(np.uint8)
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if path.suffix == ".npy":
            np.save(path, pixels)
        else:
            iio.imwrite(path, pixels)
        return path

    return make


@pytest.fixture
def read_recipe(tmp_path):
    def read(name):
        return json.loads((tmp_path / name).read_text())

    return read


@pytest.fixture
def rows(tmp_path):
    """Return what reads a table, a dictionary for each row."""

    def read(name):
        with (tmp_path / name).open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    return read
