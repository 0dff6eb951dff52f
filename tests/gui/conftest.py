"""A viewer with the Segment dock, and small images."""

from __future__ import annotations

import functools
import gc
import inspect
import threading
import weakref

import napari.settings
import npe2
import platformdirs
import pytest
from gui_cases import ENDLESS, TIMEOUT, blocks
from napari._qt.widgets.qt_welcome import QtWelcomeWidget
from napari.components import ViewerModel
from napari.utils.events import EventEmitter

from napari_saf._gui.forms import image_input
from napari_saf._gui.segment import regions
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf._gui.session import workspace
from napari_saf.input import PLAIN
from napari_saf.problem import ImageOptions

_FAREWELL_SECONDS = 10
"""Which a thread may take to notice that its window is gone."""
_NOT_OURS = (
    # napari 0.9, under PyQt5
    "ignore:System theme detection requires a Qt6 backend:UserWarning",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if "gui" in item.path.parts:
            for warning in _NOT_OURS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(autouse=True)
def quick_collections():
    """Leave what stands before a test out of collections: each viewer that goes asks for three."""
    gc.freeze()


@pytest.fixture(autouse=True)
def no_tips(monkeypatch):
    """Leave the tips of a window's welcome as they are: it words them anew for each shortcut."""
    monkeypatch.setattr(QtWelcomeWidget, "refresh", lambda self, event=None: None)


@pytest.fixture(scope="session", autouse=True)
def readers():
    """The readers of napari, which a model of a viewer does not look for."""
    npe2.PluginManager.instance().discover()


@pytest.fixture(scope="session", autouse=True)
def signatures():
    """Look at the parameters of a method once, not each time that napari connects it."""
    look, known = EventEmitter._check_signature, weakref.WeakKeyDictionary()

    def look_once(callback):
        if not inspect.ismethod(callback):
            return look(callback)
        if callback.__func__ not in known:
            known[callback.__func__] = look(callback)
        return known[callback.__func__]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EventEmitter, "_check_signature", staticmethod(look_once))
        yield


@pytest.fixture(autouse=True)
def no_thread_left():
    yield
    ours = [thread for thread in threading.enumerate() if "napari-saf" in thread.name]
    for thread in ours:
        thread.join(_FAREWELL_SECONDS)
    assert not [thread.name for thread in ours if thread.is_alive()]


_make_settings = functools.cache(napari.settings.plugin_configuration_generator)
"""Reads the manifests of all plugins, which takes a tenth of a second."""


def _new_settings():
    """Return settings of napari in no file, by which nothing is compiled for some lines."""
    settings = napari.settings.NapariSettings(config_path=None)
    settings.experimental.triangulation_backend = "Pure python"
    settings.experimental.colormap_backend = "Pure python"
    return settings


_shared_settings = functools.cache(_new_settings)
"""Those of tests without a window: to make them takes as long as such a test."""


@pytest.fixture(autouse=True)
def own_settings(request, tmp_path, monkeypatch):
    """Settings of the plugin that are of this test alone, in a file; those of napari in none."""
    monkeypatch.setattr(napari.settings, "plugin_configuration_generator", _make_settings)
    napari.settings._clear_plugin_settings_cache()
    has_window = "make_napari_viewer" in request.fixturenames
    own = _new_settings() if has_window else _shared_settings()
    before = own.model_dump()
    monkeypatch.setattr(napari.settings, "_SETTINGS", own)
    monkeypatch.setattr(napari.settings, "_CFG_PATH", str(tmp_path / "settings.yaml"))
    yield
    napari.settings._clear_plugin_settings_cache()
    if not has_window and own.model_dump() != before:
        _shared_settings.cache_clear()


@pytest.fixture(autouse=True)
def own_data_folder(tmp_path, monkeypatch):
    """Strokes and projects are kept for this test alone."""
    monkeypatch.setattr(platformdirs, "user_data_path", lambda *names, **options: tmp_path / "data")


@pytest.fixture
def viewer(make_napari_viewer):
    return make_napari_viewer()


@pytest.fixture
def model():
    """A viewer without a window: nothing is drawn, and it is there at once."""
    return ViewerModel()


@pytest.fixture
def open_on(qtbot):
    """Open a dock on a viewer without a window."""
    docks = []

    def opened(viewer, kind):
        docks.append(kind(viewer))
        qtbot.addWidget(docks[-1])
        return docks[-1]

    yield opened
    for dock in docks:
        dock.shut_down()


@pytest.fixture
def settle(qtbot):
    """Wait until a dock does nothing more."""

    def wait(dock, milliseconds=0):
        qtbot.wait(milliseconds)
        qtbot.waitUntil(
            lambda: not dock.panel.is_busy and not dock.panel.is_calculating, timeout=TIMEOUT
        )

    return wait


@pytest.fixture
def until_gone(qtbot):
    """Wait until nothing holds some objects: Qt deletes what is removed in the event loop."""

    def wait(references):
        def check():
            gc.collect()
            assert not [name for name, known in references if known() is not None]

        qtbot.waitUntil(check, timeout=TIMEOUT // 10)

    return wait


@pytest.fixture
def keep(qtbot):
    """Let what is not saved be kept, as it is now and then."""

    def wait(dock):
        dock.workspace.autosave()
        qtbot.waitUntil(lambda: not dock.workspace.is_autosaving, timeout=TIMEOUT)

    return wait


@pytest.fixture
def answers(monkeypatch):
    """Answers to the question whether to save, in order, and the names that it was asked of."""
    given, asked = [], []

    def ask(parent, name):
        asked.append(name)
        return given.pop(0)

    monkeypatch.setattr(workspace, "ask_to_save", ask)
    return given, asked


@pytest.fixture
def window(make_napari_viewer):
    """A viewer with a window, for tests that ask for it in files where most need none."""
    return make_napari_viewer()


@pytest.fixture
def model_or_window(request, model):
    return request.getfixturevalue("window") if "window" in request.fixturenames else model


@pytest.fixture
def open_dock(open_on):
    """Open a dock, through the manifest where the viewer has a window."""

    def opened(viewer, kind):
        if not hasattr(viewer, "window"):
            return open_on(viewer, kind)
        name = kind.__name__.removesuffix("Widget")
        return viewer.window.add_plugin_dock_widget("napari-saf", name)[1]

    return opened


@pytest.fixture
def dock(viewer, open_dock):
    """The Segment dock, in a viewer that has an RGB image."""
    viewer.add_image(blocks(), name="blocks")
    return open_dock(viewer, SegmentWidget)


@pytest.fixture
def run(qtbot):
    """Start a dock and wait for the end; return what the run returned, or None."""

    def run_to_end(dock, start=None):
        results = []
        dock.controller.returned.connect(results.append)
        with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
            (start or dock.start)()
        dock.controller.returned.disconnect(results.append)
        return results[0] if results else None

    return run_to_end


@pytest.fixture
def long_run(qtbot):
    """Start a dock on a run that does not end by itself and wait for its first labels."""

    def run_to_first_labels(dock):
        dock.form.set_values(ENDLESS)
        with qtbot.waitSignal(dock.controller.advanced, timeout=TIMEOUT):
            dock.start()
        assert dock.controller.is_running

    return run_to_first_labels


@pytest.fixture(autouse=True)
def plain_options(request, monkeypatch):
    """Label pixels as they are, without regions, but in walks and tests marked `automatic`."""
    if "automatic" not in request.keywords and "walks" not in request.path.parts:
        monkeypatch.setattr(regions, "MOST_PIXELS", 0)
        monkeypatch.setattr(image_input, "DEFAULT_OPTIONS", ImageOptions(window=5, **PLAIN))
