"""``napari-saf methods``, ``info``, ``demo``, ``app`` and ``doctor``."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from packaging.requirements import Requirement

from napari_saf import io
from napari_saf.cli import has_screen, report, run_with_progress
from napari_saf.cli._options import AbstractCommand, argument, option, output, summary
from napari_saf.errors import SafError, one_line
from napari_saf.features import extractor_of
from napari_saf.methods import METHODS, SelfAssignmentFlow
from napari_saf.parameters import describe
from napari_saf.problem import Problem
from napari_saf.result import STATUS_TEXTS
from napari_saf.samples import SAMPLES, read_sample
from napari_saf.storage import make_folder

DOCKS = ("Segment", "Scribbles", "Objects", "Project")
_WITH_QT = 'pip install "napari-saf[app]"'
_PYTORCH = "see https://pytorch.org/get-started/locally/"
_WEIGHTS = "choose another file in the preferences, napari-saf, Network weights, or none"
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Methods(AbstractCommand):
    """List the methods and their parameters."""

    names: tuple[str, ...] = argument("[METHOD]...", required=False, choices=list(METHODS))

    def run(self) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table

        console = Console(width=None if sys.stdout.isatty() else 120)
        for name in self.names or METHODS:
            caution, text = METHODS[name].caution, f"\n{METHODS[name].summary}"
            if caution is not None:
                text = f" ({caution.heading}){text}\n{caution.reason}"
            title = f"{name}: {METHODS[name].title}{text}"
            table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
            table.add_column("parameter", no_wrap=True)
            table.add_column("values")
            table.add_column("meaning")
            for item in describe(METHODS[name]):
                values = [" | ".join(item.choices)] if item.choices else []
                table.add_row(item.name, "; ".join([*values, summary(item)]), item.help)
            console.print(table)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Info(AbstractCommand):
    """Show the content of image files, one line per image.

    A file with several images (TIFF with several series, plates, converted files) is treated as a
    folder: label one image by the displayed name, or all of them.
    """

    images: tuple[Path, ...] = argument("IMAGE...")

    def run(self) -> int:
        code = 0
        for path in io.find_images(self.images):
            try:
                click.echo(f"{path}: {_described(io.ImageSource.open(path))}")
            except SafError as error:
                code = report(error, debug=bool(click.get_current_context().obj), source=str(path))
        return code


def _described(image: io.ImageSource) -> str:
    sides = " x ".join(map(str, image.shape))
    words = [f"{sides} ({image.axes})" if image.axes else sides, str(image.dtype)]
    if image.n_channels > 1:
        words.append(f"{image.n_channels} channels")
    sizes = [f"{n} {size:.6g} {unit}" for n, (size, unit) in image.sizes.items() if n in image.axes]
    words += [f"pixels {', '.join(sizes)}"] if sizes else []
    origin = [f"{name} {first:.6g}" for name, first in image.origin.items()]
    words += [f"begins at {', '.join(origin)}"] if origin else []
    words += [f"{image.n_levels} levels"] if image.n_levels > 1 else []
    words += [f"no data: {image.no_data:g}"] if image.no_data is not None else []
    return "; ".join([*words, *image.notes])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demo(AbstractCommand):
    """Label a sample image with the defaults and show the result."""

    out: Path = output("FOLDER", "Output folder of mask, figure and recipe.", "demo")
    sample: str = option("astronaut", "Which sample image.", choices=list(SAMPLES))
    headless: bool = option(False, "Open no window, even with a display.")

    def run(self) -> None:
        image, title = read_sample(self.sample), SAMPLES[self.sample].title
        make_folder(self.out)
        click.echo(f"{title}: {' × '.join(map(str, image.array.shape))}")
        steps = SelfAssignmentFlow().iterate(Problem.from_image(image.array))
        result = run_with_progress(steps, self.sample)
        status = STATUS_TEXTS[result.status]
        click.echo(f"{result.n_labels} labels, {status}, {result.seconds:.1f} s")
        ends = (f"{io.LABELS_MARK}.tif", ".figure.png", ".recipe.json")
        mask, figure, recipe = (self.out / f"{self.sample}{end}" for end in ends)
        labels: Any = result.labels
        scale, units, axes = image.scale, image.units, image.label_axes
        io.save_masks(mask, labels, scale=scale, units=units, axes=axes)
        extractor = extractor_of(result.recipe["input"]["features"])
        colours = None if extractor is None else extractor.colours(result.prototypes)
        colors = {} if colours is None else dict(enumerate(colours, start=1))
        io.save_figure(
            figure,
            labels,
            image.array,
            title=title,
            colors=colors,
            scale=scale,
            units=units,
            axes=axes,
        )
        io.save_recipe(recipe, result.recipe)
        click.echo(f"mask    {mask}\nfigure  {figure}\nrecipe  {recipe}")
        if self.headless or not has_screen():
            click.echo("no screen: napari stays closed")
            return
        try:
            from napari_saf._gui.demo import show
        except ImportError as error:
            click.echo(f"napari cannot be opened ({error}); {_WITH_QT}", err=True)
            return
        show(image, result, self.sample)


@dataclasses.dataclass(frozen=True, kw_only=True)
class App(AbstractCommand):
    """Open napari with images and a dock of napari-saf."""

    images: tuple[Path, ...] = argument("[IMAGE]...", required=False)
    dock: str = option(DOCKS[0], "Dock to open.", choices=DOCKS)

    def run(self) -> None:
        try:
            from napari_saf._gui.demo import open_images
        except ImportError as error:
            raise SafError(f"napari cannot be opened ({error}): {_WITH_QT}") from error
        open_images([*map(str, self.images)], self.dock)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doctor(AbstractCommand):
    """Check the installation, and suggest remedies.

    The exit code is 1 if a check fails.
    """

    def run(self) -> int:
        checks = list(run_checks())
        width = max(len(check.name) for check in checks)
        for check in checks:
            mark = "!" if check.remedy else " "
            click.echo(f"{mark} {check.name:{width}}  {check.state}")
            if check.remedy:
                click.echo(f"  {'':{width}}  -> {check.remedy}")
        return 1 if any(check.remedy for check in checks) else 0


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """Check of a part of the installation: its state as text, and a remedy if it failed."""

    name: str
    state: str
    remedy: str = ""


def run_checks() -> Iterator[Check]:
    yield Check("napari-saf", _version("napari-saf"))
    yield Check("Python", f"{platform.python_version()}, {platform.platform()}")
    checks = _check_torch, _check_device, _check_kernels, _check_qt, _check_opengl, _check_weights
    for check in checks:
        yield from check()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _check_torch() -> Iterator[Check]:
    version = _version("torch")
    yield Check("torch", version)
    requirements = importlib.metadata.requires("torchvision") if _version("torchvision") else None
    pins = [re.match(r"torch\s*==\s*([\d.]+)", text) for text in requirements or ()]
    pinned = next((pin[1] for pin in pins if pin), None)
    if pinned not in (None, version.partition("+")[0]):
        state = f"{_version('torchvision')}, made for torch {pinned}"
        yield Check("torchvision", state, f'pip install "torch=={pinned}" torchvision')


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
    except Exception as error:  # noqa: BLE001 (qtpy raises its own errors)
        yield Check("Qt", f"no binding ({error})", _WITH_QT)
        return
    state = f"{qtpy.API_NAME} {qtpy.PYQT_VERSION or qtpy.PYSIDE_VERSION}, Qt {qtpy.QT_VERSION}"
    extra = qtpy.API_NAME.lower()
    is_known = extra in importlib.metadata.metadata("napari-saf").get_all("Provides-Extra", [])
    yield Check("Qt", state, "" if is_known else f"{_WITH_QT}: napari refuses {qtpy.API_NAME}")
    yield from _check_versions(extra)


def _check_versions(extra: str) -> Iterator[Check]:
    """Compare installed versions with the requirements and those of the binding's extra."""
    for text in importlib.metadata.requires("napari-saf") or ():
        needed = Requirement(text)
        if needed.marker is not None and not needed.marker.evaluate({"extra": extra}):
            continue
        version = _version(needed.name)
        if not version and needed.marker is not None:  # conda names the Qt packages differently
            continue
        if not needed.specifier.contains(version or "0", prereleases=True):
            state = f"{version or 'missing'}, needed: {needed.specifier}"
            yield Check(needed.name, state, f'pip install "{needed.name}{needed.specifier}"')


def _check_weights() -> Iterator[Check]:
    """Load the network that is named in the preferences, if any."""
    try:
        from napari_saf._gui.settings import current_settings
    except Exception:  # noqa: BLE001 (missing Qt is reported by another check)
        return
    deep = current_settings().deep
    if deep is None:
        return
    try:
        deep.network()
    except SafError as error:
        yield Check("weights", one_line(error), _WEIGHTS)
    else:
        yield Check("weights", f"{deep.architecture}, {deep.weights_file}")


def _check_opengl() -> Iterator[Check]:
    """Test OpenGL in another process, which a broken driver may crash."""
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
