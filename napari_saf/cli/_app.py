"""``napari-saf app`` and ``napari-saf doctor``: napari with a dock open, and what it needs."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import click

from napari_saf.cli import _methods as flags
from napari_saf.cli import has_screen
from napari_saf.errors import SafError

DOCKS = ("Segment", "Scribbles", "Objects", "Project")
_WITH_QT = 'pip install "napari-saf[app]"'
_PYTORCH = "see https://pytorch.org/get-started/locally/"
_GL_LIBRARIES = "apt install libgl1 libegl1 libxkbcommon-x11-0 libxcb-cursor0"
_GL_TEST = """
from qtpy.QtGui import QGuiApplication, QOffscreenSurface, QOpenGLContext
app = QGuiApplication([])
surface, context = QOffscreenSurface(), QOpenGLContext()
surface.create()
assert context.create() and context.makeCurrent(surface)
form = context.format()
print(f"{form.majorVersion()}.{form.minorVersion()}")
"""
_SECONDS = 60


@flags.command("app", [
    click.Argument(["images"], nargs=-1, type=flags.PATH, metavar="[IMAGE]..."),
    click.Option(["--dock"], type=click.Choice(DOCKS), default=DOCKS[0], show_default=True,
                 help="Which dock is open."),
])  # fmt: skip
def app(given: Any) -> None:
    """Open napari with images and a dock of napari-saf."""
    try:
        from napari_saf._gui.demo import open_images
    except ImportError as error:
        raise SafError(f"napari cannot be opened ({error}): {_WITH_QT}") from error
    open_images([*map(str, given.images)], given.dock)


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """A part of the installation: its state in words, and what mends it where it is wrong."""

    name: str
    state: str
    remedy: str = ""


@flags.command("doctor", [])
def doctor(given: Any) -> int:
    """Check the installation; say what is wrong and what mends it.

    The exit code is 1 if anything is wrong.
    """
    checks = list(run_checks())
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = "!" if check.remedy else " "
        click.echo(f"{mark} {check.name:{width}}  {check.state}")
        if check.remedy:
            click.echo(f"  {'':{width}}  -> {check.remedy}")
    return 1 if any(check.remedy for check in checks) else 0


def run_checks() -> Iterator[Check]:
    yield Check("napari-saf", _version("napari-saf"))
    yield Check("Python", f"{platform.python_version()}, {platform.platform()}")
    for check in (_check_torch, _check_device, _check_kernels, _check_qt, _check_opengl):
        yield from check()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _check_torch() -> Iterator[Check]:
    version = _version("torch")
    yield Check("torch", version)
    wanted = [
        match.group(1)
        for text in (importlib.metadata.requires("torchvision") if _version("torchvision") else ())
        or ()
        if (match := re.match(r"torch\s*==\s*([\d.]+)", text))
    ]
    if wanted and wanted[0] != version.partition("+")[0]:
        state = f"{_version('torchvision')}, made for torch {wanted[0]}"
        yield Check("torchvision", state, f'pip install "torch=={wanted[0]}" torchvision')


def _check_device() -> Iterator[Check]:
    import torch

    from napari_saf.device import resolve_device

    device = resolve_device("auto")
    if device.type == "cuda":
        yield Check("device", torch.cuda.get_device_name(device))
    elif torch.version.cuda is None:
        yield Check("device", f"{device.type}, a build of torch without CUDA")
    else:
        remedy = f"install the CPU build of PyTorch, or the driver of the card: {_PYTORCH}"
        yield Check("device", f"{device.type}, though torch is built for CUDA", remedy)


def _check_kernels() -> Iterator[Check]:
    from napari_saf.flow import kernels, wait_for_kernels

    wait_for_kernels()
    if kernels():
        yield Check("kernels", f"compiled by numba {_version('numba')}")
    else:
        remedy = "pip install --force-reinstall numba llvmlite"
        yield Check("kernels", "not compiled: flows take 2 to 5 times as long", remedy)


def _check_qt() -> Iterator[Check]:
    yield Check("napari", _version("napari"))
    try:
        qtpy: Any = importlib.import_module("qtpy")
    except Exception as error:  # noqa: BLE001 (qtpy has errors of its own)
        yield Check("Qt", f"no binding ({error})", _WITH_QT)
        return
    state = f"{qtpy.API_NAME} {qtpy.PYQT_VERSION or qtpy.PYSIDE_VERSION}, Qt {qtpy.QT_VERSION}"
    is_refused = qtpy.API_NAME == "PyQt5" and not _version("napari").startswith("0.9.")
    yield Check("Qt", state, f"{_WITH_QT}: napari 0.10 refuses PyQt5" if is_refused else "")


def _check_opengl() -> Iterator[Check]:
    """Try OpenGL in another process, which a broken driver may end."""
    if not has_screen():
        yield Check("OpenGL", "no screen: napari stays closed, the command line works")
        return
    command = [sys.executable, "-c", _GL_TEST]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        yield Check("OpenGL", f"no answer within {_SECONDS} s", "install the driver of the card")
        return
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        is_linux = sys.platform.startswith("linux")
        remedy = _GL_LIBRARIES if is_linux else "install the driver of the graphics card"
        yield Check("OpenGL", lines[-1], remedy)
    else:
        yield Check("OpenGL", done.stdout.strip())
