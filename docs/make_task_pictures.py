"""Make the pictures of the page on tasks from the real app, where other pages have none.

xvfb-run -a -s "-screen 0 1280x800x24" python docs/make_task_pictures.py [NAME...]

A name is one of those in MAKERS; without one, all pictures are made.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dask.array
import napari
import numpy as np
from make_pictures import follow, take, wait, wait_for_run, wait_until
from numpy.typing import NDArray

from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf.samples import read_sample

NUCLEI = {
    "bright": [(8, slice(66, 74)), (23, slice(46, 55))],
    "dim": [(68, slice(18, 27)), (35, slice(86, 92))],
    "ground": [(50, slice(5, 60)), (12, slice(5, 35))],
}
"""Row and columns of the strokes of each class on slice 12 of the nuclei."""
SIDE = 160
"""Of a texture in the mosaic."""


def open_image(pixels: Any, name: str, dock: str, **more: Any) -> tuple[napari.Viewer, Any]:
    """Show an image and a dock in a window."""
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    viewer.add_image(pixels, name=name, **more)
    _, widget = viewer.window.add_plugin_dock_widget("napari-saf", dock)
    wait(1)
    return viewer, widget


def teach(
    dock: ScribblesWidget, classes: Mapping[str, Sequence[tuple[Any, slice]]], features: str
) -> None:
    """Paint strokes of classes by name, and wait for the labels."""
    dock.new_strokes()
    dock.follow.setChecked(False)
    dock.input.choose(features=features)
    for number, (name, strokes) in enumerate(classes.items(), start=1):
        if number > 2:
            dock.add_class()
        dock.classes.renamed.emit(number, name)
        layer: Any = dock.strokes.layer
        for row, columns in strokes:
            at = np.arange(columns.start, columns.stop)
            layer.data_setitem((np.full(len(at), row), at), number)
    dock.follow.setChecked(True)
    dock.start()
    follow(dock)


def make_count_picture() -> None:
    """Mark some nuclei of two kinds, split all of them, and show their table."""
    viewer, dock = open_image(read_sample("nuclei").array[12], "nuclei", "Scribbles")
    teach(dock, NUCLEI, "intensity")
    frame, objects = viewer.window.add_plugin_dock_widget("napari-saf", "Objects", tabify=True)
    wait_until(lambda: not objects.panel.is_calculating)
    objects.start()
    wait_until(lambda: not objects.panel.is_busy and not objects.panel.is_calculating)
    frame.raise_()
    viewer.reset_view()
    take(viewer, "task_count.png")
    viewer.close()


def texture_mosaic() -> NDArray[np.float64]:
    """Return bricks, tissue, stripes and grain side by side, all with one mean and deviation."""
    part = slice(150, 150 + SIDE)
    bricks = read_sample("brick").array[:SIDE, :SIDE]
    tissue = read_sample("histology").array[part, part].mean(axis=-1)
    stripes = np.tile(np.sin(np.arange(SIDE) / 2), (SIDE, 1))
    grain = np.random.default_rng(0).random((SIDE, SIDE))
    parts = [(own - own.mean()) / own.std() for own in (bricks, tissue, stripes, grain)]
    return np.block([parts[:2], parts[2:]])


def make_textures_picture() -> None:
    """Label a mosaic of four textures by a stroke on each."""
    viewer, dock = open_image(texture_mosaic(), "mosaic", "Scribbles")
    columns = slice(SIDE // 5, 4 * SIDE // 5)
    right = slice(columns.start + SIDE, columns.stop + SIDE)
    rows = range(SIDE // 2 - 2, SIDE // 2 + 2)
    strokes = {
        "bricks": [(row, columns) for row in rows],
        "tissue": [(row, right) for row in rows],
        "stripes": [(row + SIDE, columns) for row in rows],
        "grain": [(row + SIDE, right) for row in rows],
    }
    teach(dock, strokes, "multiscale")
    take(viewer, "task_textures.png")
    viewer.close()


def make_large_picture() -> None:
    """Label an image in tiles, and take a picture when a third of them is done."""
    photo = read_sample("astronaut").array
    pixels = dask.array.tile(dask.array.from_array(photo, chunks=(512, 512, 3)), (9, 9, 1))
    viewer, dock = open_image(pixels, "slide", "Segment", rgb=True)
    dock.form.set_values({"max_labels": 6})
    dock.input.choose(features="lab")
    dock.input.scale.set_value(5)
    with tempfile.TemporaryDirectory() as folder:
        dock.large.store.set_path(Path(folder) / "slide.ome.zarr")
        dock.large.start()
        wait_until(lambda: tiles_done(dock.large.status.text) >= 30)
        take(viewer, "task_large.png")
        dock.large.pause()
        wait_until(lambda: not dock.large.is_busy)
        viewer.close()


def tiles_done(text: str) -> int:
    """Return the first number of a text such as 30 of 81 tiles."""
    number = text.partition(" of ")[0].replace(",", "")
    return int(number) if number.isdigit() else 0


def moving_discs(n_frames: int = 12) -> NDArray[np.float64]:
    """Return frames of noise with three discs that move; one divides on its way."""
    rows, columns = np.ogrid[:96, :128]
    frames = np.random.default_rng(0).normal(scale=0.08, size=(n_frames, 96, 128))
    for t, frame in enumerate(frames):
        apart = max(0, t - 4)
        places = [(22 + t, 14 + 6 * t), (74 - 2 * t, 112 - 3 * t)]
        places += [(52 + sign * 3 * apart, 26 + 3 * t) for sign in (-1, 1)]
        discs = [(rows - row) ** 2 + (columns - column) ** 2 < 70 for row, column in places]
        frame += np.logical_or.reduce(discs)
    return frames


def make_tracks_picture() -> None:
    """Follow discs that move and divide."""
    viewer, dock = open_image(moving_discs(), "cells", "Segment")
    dock.input.choose(extent="each")
    dock.form.set_values({"max_labels": 2})
    dock.start()
    wait_for_run(dock)
    frame, objects = viewer.window.add_plugin_dock_widget("napari-saf", "Objects", tabify=True)
    wait_until(lambda: not objects.panel.is_calculating)
    objects.choices.slices.setChecked(True)
    objects.start()
    wait_until(lambda: not objects.panel.is_busy and not objects.panel.is_calculating)
    objects.track()
    wait_until(lambda: not objects.panel.is_busy and not objects.panel.is_calculating)
    frame.raise_()
    viewer.layers[-1].tail_width = 6
    viewer.dims.set_current_step(0, 10)
    viewer.reset_view()
    take(viewer, "task_tracks.png")
    viewer.close()


MAKERS = {
    "count": make_count_picture,
    "textures": make_textures_picture,
    "large": make_large_picture,
    "tracks": make_tracks_picture,
}

if __name__ == "__main__":
    for chosen in sys.argv[1:] or MAKERS:
        MAKERS[chosen]()
