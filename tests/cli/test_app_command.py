import importlib.metadata
import subprocess
import sys
import types

import pytest
import torch

from napari_saf.cli import _about
from napari_saf.cli._about import Check


@pytest.fixture
def quick(monkeypatch):
    """No process that tries OpenGL, and a screen."""
    monkeypatch.setenv("DISPLAY", ":0")
    done = types.SimpleNamespace(returncode=0, stdout="4.5\n", stderr="")
    monkeypatch.setattr(_about.subprocess, "run", lambda *a, **k: done)
    return done


def test_a_sound_installation_ends_with_0(cli, quick):
    outcome = cli("doctor")
    assert outcome.code == 0, outcome.out
    for word in ("napari-saf", "Python", torch.__version__, "device", "kernels", "Qt", "4.5"):
        assert word in outcome.out
    assert "!" not in outcome.out


def test_what_is_wrong_is_said_with_what_mends_it(cli, quick, monkeypatch):
    quick.returncode, quick.stderr = 1, "Traceback\nAssertionError: no context"
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(_about, "_check_kernels", lambda: iter([Check("kernels", "none", "mend")]))

    def replace(function, answer):
        real = getattr(importlib.metadata, function)
        fake = {"torchvision": answer}
        monkeypatch.setattr(importlib.metadata, function, lambda n: fake.get(n) or real(n))

    replace("requires", ["torch==1.0.0"])
    replace("version", "0.1")
    outcome = cli("doctor")
    assert outcome.code == 1
    for words in ('"torch==1.0.0"', "CPU build", "no context", "-> mend"):
        assert words in outcome.out
    assert outcome.out.count("\n! ") == 4


@pytest.mark.parametrize(
    ("name", "version", "remedy"),
    [("napari", "0.8.0", ">=0.9.1"), ("zarr", "", ">=3.1.5")],
)
def test_a_version_that_is_too_old_or_missing_is_said(
    cli, quick, monkeypatch, name, version, remedy
):
    real = _about._version
    monkeypatch.setattr(_about, "_version", lambda n: version if n == name else real(n))
    (check,) = _about._check_versions("pyqt6")
    assert check.name == name and (version or "missing") in check.state
    assert check.remedy.startswith(f'pip install "{name}') and remedy in check.remedy


@pytest.mark.gui
def test_weights_that_cannot_be_loaded_are_said(monkeypatch, tmp_path):
    from napari_saf._gui import settings

    assert not list(_about._check_weights())
    named = settings.Settings(weights=str(tmp_path / "none.safetensors"))
    monkeypatch.setattr(settings, "current_settings", lambda: named)
    (check,) = _about._check_weights()
    assert "none.safetensors" in check.state and "preferences" in check.remedy


def test_a_driver_that_does_not_answer_is_said(quick, monkeypatch):
    def hang(*arguments, **options):
        raise subprocess.TimeoutExpired("python", 60)

    monkeypatch.setattr(_about.subprocess, "run", hang)
    (check,) = _about._check_opengl()
    assert "no answer" in check.state and check.remedy


def test_the_app_opens_images_with_a_dock(cli, monkeypatch, picture):
    opened = []
    gui = types.SimpleNamespace(open_images=lambda *arguments: opened.append(arguments))
    monkeypatch.setitem(sys.modules, "napari_saf._gui.demo", gui)
    path = picture()
    assert cli("app", path, "--dock", "Scribbles").code == 0
    assert opened == [([str(path)], "Scribbles")]
    monkeypatch.setitem(sys.modules, "napari_saf._gui.demo", None)
    assert cli("app").is_error("cannot be opened", "napari-saf[app]")
