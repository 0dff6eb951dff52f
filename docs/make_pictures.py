"""Make the pictures of README and docs from the real app and command line.

xvfb-run -a -s "-screen 0 1280x800x24" python docs/make_pictures.py [NAME...]

A name is one of those in MAKERS; without one, all pictures are made.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import napari
import numpy as np
from PIL import Image
from qtpy.QtWidgets import QApplication
from skimage.filters import gaussian, threshold_local, threshold_otsu
from skimage.measure import label
from superqt import QCollapsible

from napari_saf import save_masks
from napari_saf._gui.export.dock import ExportWidget
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf.cli import main as command_line
from napari_saf.samples import read_sample

PICTURES = Path(__file__).parent / "pictures"
N_COLOURS = 255
"""Of a picture: enough for a screen, in a third of the bytes."""


def wait_until(done: object, seconds: float = 600) -> None:
    """Let the app run until `done()` is true."""
    end = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError("the app did not get there")
        QApplication.processEvents()
        time.sleep(0.01)


def wait(seconds: float) -> None:
    """Let the app run for a while."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end)


def open_dock(sample: str) -> tuple[napari.Viewer, SegmentWidget]:
    """Open a sample and the Segment dock in a window."""
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    viewer.open_sample("napari-saf", sample)
    _, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Segment")
    wait(1)
    return viewer, dock


def finish(viewer: napari.Viewer, dock: SegmentWidget, name: str) -> None:
    """Wait for the end of a run, take a picture of the window and close it."""
    wait_for_run(dock)
    take(viewer, name)
    viewer.close()


def wait_for_run(dock: Any) -> None:
    """Wait for the end of a run that was just started."""
    wait_until(lambda: dock.controller.is_running, 20)
    wait_until(lambda: not dock.controller.is_running and not dock.panel.is_calculating)


def make_diagnostics_picture() -> None:
    """Take a picture of the Diagnostics dock at an early time of a run."""
    viewer, dock = open_dock("astronaut")
    place, diagnostics = viewer.window.add_plugin_dock_widget(
        "napari-saf", "Diagnostics", tabify=True
    )
    place.raise_()
    wait(1)
    dock.start()
    wait_for_run(dock)
    diagnostics.go_to(3)
    wait_until(lambda: diagnostics.earlier.labels is not None)
    take(viewer, "diagnostics.png")
    viewer.close()


def make_segment_pictures() -> None:
    """Take pictures of a walk through the Segment dock: form, run, regions, more labels."""
    viewer, dock = open_dock("astronaut")
    take(viewer, "segment_1_form.png")
    frames: list[object] = []
    dock.controller.advanced.connect(frames.append)
    dock.start()
    wait_until(lambda: len(frames) > 0)
    take(viewer, "segment_2_running.png", 0)
    wait_until(lambda: not dock.controller.is_running and not dock.panel.is_calculating)
    take(viewer, "segment_3_regions.png")
    dock.regions.labels_button.click()
    dock.form.set_values({"max_labels": 12})
    dock.start()
    finish(viewer, dock, "segment_4_more.png")


def make_export_picture() -> None:
    """Take a picture of the Export dock after it has written."""
    viewer, dock = open_dock("coins")
    dock.start()
    wait_for_run(dock)
    _, export = viewer.window.add_plugin_dock_widget("napari-saf", "Export", tabify=True)
    assert isinstance(export, ExportWidget)
    wait(1)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        export.folder.set_path(Path("results"))
        export.choice.choose("figure", ".png")
        export.choice.choose("recipe", True)
        export.start()
        wait_until(lambda: not export.panel.is_busy)
        take(viewer, "export_dock.png")
        keep(Image.open(next(Path("results").glob("*.png"))), "export_figure.png")
        export.findChild(QCollapsible).expand(animate=False)
        wait_until(lambda: export.table.model.rowCount() > 0)
        take(viewer, "export_table.png")
    viewer.close()


def make_objects_picture() -> None:
    """Take a picture of the Objects dock with the coins, one of them chosen."""
    viewer, dock = open_dock("coins")
    dock.form.set_values({"max_labels": 2})
    dock.start()
    wait_for_run(dock)
    frame, objects = viewer.window.add_plugin_dock_widget("napari-saf", "Objects", tabify=True)
    wait_until(lambda: not objects.panel.is_calculating)
    objects.start()
    wait_until(lambda: not objects.panel.is_busy)
    objects.split_form.set_values({"smallest": 300})
    wait_until(lambda: not objects.panel.is_calculating)
    wait(1)
    objects.table.filter.measure.choose("eccentricity")
    objects.table.select([8])
    frame.raise_()
    take(viewer, "objects_dock.png")
    viewer.close()


def make_classes_picture() -> None:
    """Take a picture of the Objects dock with coins of two classes, by three clicks each."""
    viewer, dock = open_dock("coins")
    dock.form.set_values({"max_labels": 2})
    dock.start()
    wait_for_run(dock)
    frame, objects = viewer.window.add_plugin_dock_widget("napari-saf", "Objects", tabify=True)
    wait_until(lambda: not objects.panel.is_calculating)
    objects.split_form.set_values({"smallest": 300})
    objects.start()
    wait_until(lambda: not objects.panel.is_busy and not objects.panel.is_calculating)
    frame.raise_()
    for fold in objects.findChildren(QCollapsible):
        if "Classes" in fold.toggleButton().text():
            fold.expand(animate=False)
    table = objects.table.model.table
    numbers = table["object"][np.argsort(table["pixels"])].tolist()
    examples = {"small": numbers[:12:4], "large": numbers[-1:-10:-4]}
    for row, (name, clicked) in enumerate(examples.items()):
        objects.classes.add()
        objects.classes.table.item(row, 0).setText(name)
        for number in clicked:
            objects.classes.click([number])
            wait_until(lambda: not objects.panel.is_calculating)
    wait(1)
    wait_until(lambda: not objects.panel.is_calculating)
    take(viewer, "classes_dock.png")
    viewer.close()


def make_sharpen_picture() -> None:
    """Take a picture of the Sharpen borders dock with coins that had steps of eight pixels."""
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    image = viewer.open_sample("napari-saf", "coins")[0]
    sides = [side // 8 * 8 for side in image.data.shape]
    image.data = image.data[: sides[0], : sides[1]]
    smooth = gaussian(image.data, 2)
    coarse = label(smooth > threshold_local(smooth, 151))[4::8, 4::8]
    blocks = np.kron(coarse, np.ones((8, 8), int))
    viewer.add_labels(blocks, name="mask of another program", opacity=0.5)
    _, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Sharpen borders")
    wait(1)
    dock.start()
    wait_until(lambda: not dock.panel.is_busy)
    take(viewer, "sharpen_dock.png")
    viewer.close()


def make_dictionary_picture() -> None:
    """Take a picture of the Patch dictionary dock after it has learned from half a wall."""
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    viewer.open_sample("napari-saf", "brick")
    viewer.layers[0].data = viewer.layers[0].data[:256, :256]
    _, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Patch dictionary")
    viewer.reset_view()
    wait(1)
    dock.start()
    wait_for_run(dock)
    take(viewer, "dictionary_dock.png")
    viewer.close()


def make_stack_pictures() -> None:
    """Take pictures of a volume that was labelled: a slice, and all of it in 3-D."""
    viewer, dock = open_dock("nuclei")
    dock.input.choose(extent="volume")
    dock.form.set_values({"max_labels": 3})
    dock.start()
    wait_for_run(dock)
    take(viewer, "stack_slice.png")
    viewer.layers[0].visible = False
    viewer.layers[1].show_selected_label = True
    viewer.layers[1].selected_label = 3
    viewer.dims.ndisplay = 3
    wait(1)
    viewer.scene.camera.angles = (0, 25, 60)
    take(viewer, "stack_volume.png")
    viewer.close()


def make_fairness_picture() -> None:
    """Take a picture of the trade-off of a stack of two stains."""
    viewer, dock = open_dock("histology")
    first = viewer.layers[0].data
    viewer.layers.clear()
    second = np.uint8(255 * (first / 255) ** 1.3 * (0.55, 0.5, 0.6))
    viewer.add_image(np.stack([first, second]), name="two stains", rgb=True)
    dock.form.choose("fair")
    dock.input.choose(extent="each")
    dock.input.choose(groups="axis:0")
    dock.input.choose(features="lab")
    dock.form.set_values({"n_clusters": 3})
    viewer.dims.set_current_step(0, 1)
    dock.start(is_sweep=True)
    finish(viewer, dock, "fair_dock.png")


def make_scribbles_pictures() -> None:
    """Take pictures of a walk through the Scribbles dock: strokes, labels, a correction, a mask."""
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    viewer.open_sample("napari-saf", "astronaut")
    _, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Scribbles")
    wait(1)
    dock.new_strokes()
    dock.classes.renamed.emit(1, "person")
    dock.classes.renamed.emit(2, "background")
    dock.follow.setChecked(False)
    for way, number in STROKES:
        paint(dock, way, number)
    take(viewer, "scribbles_1_strokes.png")
    dock.follow.setChecked(True)
    dock.start()
    follow(dock)
    take(viewer, "scribbles_2_labels.png")
    for way, number in CORRECTIONS:
        paint(dock, way, number)
        follow(dock)
    take(viewer, "scribbles_3_corrected.png")
    save_masks(PICTURES / "scribbles_4_mask.png", dock.result.data)
    viewer.close()


CELLS = (
    (((8, 66), (8, 74)), 1),
    (((50, 5), (50, 60)), 2),
    (((23, 46), (23, 55)), 1),
    (((12, 5), (12, 35)), 2),
)
"""Strokes on bright nuclei of slice 12, and between nuclei."""
ANIMATION_SIZE = (960, 600)
MOST_COLOURS = 96


def make_animation() -> None:
    """Record how labels follow strokes on nuclei and on a photograph, a picture a stroke."""
    pictures: list[Image.Image] = []
    times: list[int] = []

    def record(milliseconds: int) -> None:
        viewer.theme = "dark"
        wait(0.4)
        picture = Image.fromarray(viewer.screenshot(canvas_only=False)).convert("RGB")
        pictures.append(picture.resize(ANIMATION_SIZE, Image.Resampling.LANCZOS))
        times.append(milliseconds)

    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    _, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Scribbles")
    nuclei, photograph = read_sample("nuclei").array[12], read_sample("astronaut").array
    for pixels, names, ways in (
        (nuclei, ("nucleus", "ground"), CELLS),
        (photograph, ("person", "background"), STROKES + CORRECTIONS),
    ):
        viewer.layers.clear()
        viewer.add_image(pixels, name="image")
        wait(1)
        dock.new_strokes()
        for number, name in enumerate(names, start=1):
            dock.classes.renamed.emit(number, name)
        viewer.reset_view()
        record(1200)
        for k, (way, number) in enumerate(ways):
            paint(dock, way, number)
            record(300)
            follow(dock)
            record(2500 if k == len(ways) - 1 else 900)
    viewer.close()
    first, *others = [p.quantize(MOST_COLOURS, dither=Image.Dither.NONE) for p in pictures]
    file = PICTURES / "strokes.gif"
    first.save(file, save_all=True, append_images=others, duration=times, loop=0, optimize=True)


STROKES = (
    (((100, 210), (160, 220), (250, 200)), 1),
    (((330, 120), (400, 200), (470, 330)), 1),
    (((30, 60), (200, 60)), 2),
    (((60, 360), (200, 340), (330, 400)), 2),
)
"""Rows and columns along each stroke, and its class."""
CORRECTIONS = (
    (((12, 415), (140, 428)), 2),
    (((70, 283), (105, 280)), 1),
    (((380, 440), (470, 430)), 1),
)


def paint(dock: ScribblesWidget, way: Sequence[tuple[int, int]], number: int) -> None:
    """Paint a stroke as wide as the brush along a way."""
    layer = dock.strokes.layer
    dock.strokes.paint_with(number)
    with layer.block_history():
        for start, end in itertools.pairwise(way):
            for place in np.linspace(start, end, 40):
                layer.paint(tuple(place), number)


def follow(dock: ScribblesWidget) -> None:
    """Wait until the strokes have been followed."""
    wait(0.2)
    wait_until(lambda: not dock.panel.is_busy and not dock.panel.is_calculating)


def make_prototypes_picture() -> None:
    """Take a picture of labels that were merged and named in the Prototypes dock."""
    viewer, segment = open_dock("histology")
    segment.input.choose(features="lab")
    segment.input.scale.set_value(9)
    segment.form.set_values({"max_labels": 8})
    segment.start()
    wait_until(lambda: segment.controller.is_running, 20)
    wait_until(lambda: not segment.controller.is_running)
    viewer.window.remove_dock_widget(segment)
    _, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Prototypes")
    wait(2)
    brightness = {n: own[0, 0] for n, own in dock.source.state.prototypes.items()}
    order = sorted(brightness, key=brightness.__getitem__)
    dock.table.select(order[:2])
    dock.edit("merge")
    wait_until(lambda: not dock.panel.is_busy)
    wait(1)
    merged = dock.table.selected()[0]
    dock.rename(merged, "stained")
    dock.rename(order[-1], "lumen")
    dock.lock(order[-1])
    take(viewer, "prototypes_dock.png")
    dock.status.reset()
    dialog = dock.applying
    dialog.ask(to_files=True)
    dialog.source.set_path(Path("slides"))
    dialog.maps.choose(".ome.zarr")
    wait(1)
    with tempfile.TemporaryDirectory() as folder:
        dialog.grab().save(f"{folder}/dialog.png")
        keep(Image.open(f"{folder}/dialog.png").convert("RGB"), "apply_dialog.png")
    viewer.close()


def take(viewer: napari.Viewer, name: str, seconds: float = 1) -> None:
    """Take a picture of the window, after a while."""
    for widget in QApplication.allWidgets():
        if "Notification" in type(widget).__name__:
            widget.close()
    viewer.theme = "dark"  # whatever the person prefers who makes the pictures
    wait(seconds)
    keep(Image.fromarray(viewer.screenshot(canvas_only=False)), name)


def keep(picture: Image.Image, name: str) -> None:
    """Write a picture in few colours."""
    few = picture.convert("RGB").quantize(N_COLOURS, dither=Image.Dither.NONE)
    few.save(PICTURES / name, optimize=True)


def make_demo_picture() -> None:
    """Keep the figure of the demo."""
    with tempfile.TemporaryDirectory() as folder:
        command_line(["demo", "-o", folder, "--headless"])
        keep(Image.open(Path(folder) / "astronaut.png"), "demo.png")


def make_compare_pictures() -> None:
    """Compare s and window on a photograph; take a picture of the Compare dock."""
    picture = str(PICTURES / "compare.png")
    image = str(PICTURES.parent.parent / "sample_images" / "astronaut.png")
    grids = ["--grid", "s=0,0.5,1", "--grid", "window=3,9,41"]
    size = ["--max-side", "256", "--max-labels", "16"]
    command_line(["compare", image, "-o", picture, *grids, *size, "--overwrite"])
    make_compare_dock_picture()


def make_compare_dock_picture() -> None:
    """Take a picture of a finished comparison in the app."""
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    viewer.open_sample("napari-saf", "colour_wheel")
    _, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Compare")
    wait(1)
    dock.start()
    wait_until(lambda: not dock.panel.is_busy, 600)
    dock.table.choose(0)
    take(viewer, "compare_dock.png")
    viewer.close()


def make_truth_picture() -> None:
    """Take a picture of coins by one threshold, scored against coins by a local one."""
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    smooth = gaussian(viewer.open_sample("napari-saf", "coins")[0].data, 2)
    truth = viewer.add_labels(label(smooth > threshold_local(smooth, 151)), name="truth")
    labels = viewer.add_labels(label(smooth > threshold_otsu(smooth)), name="one threshold")
    _, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Compare")
    folds = dock.findChildren(QCollapsible)
    next(fold for fold in folds if fold.isAncestorOf(dock.scoring)).expand(animate=False)
    wait(1)
    dock.scoring.truth.choose(truth)
    dock.scoring.labels.choose(labels)
    dock.scoring.kind.choose("objects")
    dock.scoring.start()
    wait_until(lambda: not dock.panel.is_busy)
    take(viewer, "compare_truth.png")
    viewer.close()


def make_walk_pictures() -> None:
    """Run the walks of the tests and keep the pictures that they take."""
    walks = PICTURES.parent.parent / "tests" / "gui" / "walks"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-k", "test_walk", str(walks)],
            env={**os.environ, "NAPARI_SAF_PICTURES": folder},
            check=True,
        )
        for path in sorted(Path(folder).glob("*.png")):
            keep(Image.open(path), path.name)


def make_project_picture() -> None:
    """Take a picture of the Project dock: four parts of one slide, strokes on two of them."""
    pixels = read_sample("histology").array
    half = [side // 2 for side in pixels.shape[:2]]
    with tempfile.TemporaryDirectory() as folder:
        for k, (row, column) in enumerate(itertools.product((0, 1), (0, 1))):
            part = pixels[row * half[0] :, column * half[1] :][: half[0], : half[1]]
            Image.fromarray(part).save(Path(folder) / f"slide {k + 1}.png")
        viewer = napari.Viewer()
        viewer.window.resize(1280, 800)
        _, strokes = viewer.window.add_plugin_dock_widget("napari-saf", "Scribbles")
        _, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Project")
        dock.add_files([Path(folder)])
        wait(1)
        for at in (1, 0):
            dock.go_to(dock.session.model.entries[at])
            strokes.new_strokes()
            strokes.classes.renamed.emit(1, "nuclei")
            strokes.classes.renamed.emit(2, "tissue")
            dark = viewer.layers[0].data.mean(axis=-1)
            for number, value in ((1, 5), (2, 70)):
                near = np.abs(dark - np.percentile(dark, value)) < 2
                strokes.strokes.layer.data_setitem(np.nonzero(near), number)
            follow(strokes)
        dock.label_all()
        wait_until(lambda: not dock.panel.is_busy)
        dock.save_to(Path(folder) / "slides.napari-saf")
        wait_until(lambda: not dock.panel.is_calculating)
        take(viewer, "project_dock.png")
        viewer.close()


MAKERS = {
    "demo": make_demo_picture,
    "diagnostics": make_diagnostics_picture,
    "segment": make_segment_pictures,
    "export": make_export_picture,
    "objects": make_objects_picture,
    "classes": make_classes_picture,
    "sharpen": make_sharpen_picture,
    "dictionary": make_dictionary_picture,
    "stack": make_stack_pictures,
    "fairness": make_fairness_picture,
    "scribbles": make_scribbles_pictures,
    "animation": make_animation,
    "prototypes": make_prototypes_picture,
    "compare": make_compare_pictures,
    "truth": make_truth_picture,
    "project": make_project_picture,
    "walks": make_walk_pictures,
}

if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as data:
        for chosen in sys.argv[1:] or MAKERS:
            os.environ["XDG_DATA_HOME"] = f"{data}/{chosen}"  # none shows what others left unsaved
            MAKERS[chosen]()
