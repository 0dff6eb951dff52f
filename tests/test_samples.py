import re
from pathlib import Path

import numpy as np
import pytest

from napari_saf import samples
from napari_saf.errors import FormatError, InvalidInput
from napari_saf.samples import SAMPLES, read_sample, sample_path


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_images(name):
    image = read_sample(name)
    assert image.array.dtype == np.uint8
    assert image.array.min() < image.array.max()
    assert image.channel_axis in (None, image.array.ndim - 1)


@pytest.mark.parametrize("name", SAMPLES)
def test_origin_and_licence_are_told(name):
    readme = sample_path(name).with_name("README.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| `{SAMPLES[name].file}` .*$", readme, re.MULTILINE)
    licence = row.split("|")[-2]
    assert SAMPLES[name].licence.removesuffix("-1.0") in licence


def test_unknown_sample_lists_the_known():
    with pytest.raises(InvalidInput, match="coins"):
        read_sample("cat")


def test_missing_file_is_named(monkeypatch):
    monkeypatch.setattr(samples, "__file__", str(Path("elsewhere") / "napari_saf" / "samples.py"))
    with pytest.raises(FormatError, match=r"coins\.png: the sample image is missing"):
        read_sample("coins")
