"""Settings of napari's Preferences: they exist there, they are kept, they act."""

from __future__ import annotations

import dataclasses

import pytest
from napari.settings import get_plugin_settings

from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.settings import Settings, current_settings
from napari_saf.errors import ComputeError
from napari_saf.methods import METHODS

pytestmark = pytest.mark.gui


@pytest.fixture
def viewer(model):
    return model


@pytest.fixture
def settings():
    return get_plugin_settings("napari-saf")


def test_the_manifest_and_the_program_have_the_same_defaults(settings):
    assert current_settings() == Settings()
    sections = (settings.computing, settings.screen, settings.strokes)
    kept = [entry for section in sections for entry in section.model_dump().items()]
    assert dict(kept) == dataclasses.asdict(Settings())


def test_they_are_kept_in_a_file_unless_napari_cannot_read_it(settings, monkeypatch, caplog):
    settings.computing.threads = 3
    assert "threads: 3" in settings.config_path.read_text()
    assert current_settings().threads == 3

    def fail(plugin):
        raise KeyError(plugin)

    monkeypatch.setattr("napari_saf._gui.settings.get_plugin_settings", fail)
    assert current_settings() == Settings()
    assert "defaults" in caplog.text


def test_forms_begin_with_the_device(settings, model, qtbot):
    settings.computing.device = "cpu"
    for method in METHODS.values():
        form = MethodForm(model, [method])
        qtbot.addWidget(form.basic)
        qtbot.addWidget(form.advanced)
        assert form.values().get("device", "cpu") == "cpu"


def test_work_is_refused_above_the_memory_limit(settings, dock, qtbot):
    settings.computing.memory = 1e-5
    with qtbot.waitSignal(dock.controller.failed) as failed:
        dock.start()
    assert isinstance(failed.args[0], ComputeError) and "memory" in dock.status.text
    qtbot.waitUntil(lambda: not dock.controller.is_running)
