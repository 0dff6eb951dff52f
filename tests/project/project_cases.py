"""A small project on disk, and the parts of a project file to change."""

import hashlib
import io
import json
import zipfile

import numpy as np
import tifffile

import napari_saf as saf
from napari_saf.io import PaintedClass, with_prototypes
from napari_saf.pipeline import Pipeline

SHAPE = (12, 15)
STROKES = np.zeros(SHAPE, np.uint8)
STROKES[2:4, 3:8] = 1
STROKES[8:, 9] = 2
CLASSES = {1: PaintedClass("Kern", (1.0, 0.5, 0.0)), 2: PaintedClass("φόντο", (0.0, 0.25, 1.0))}


def pixels(seed):
    return np.random.default_rng(seed).random(SHAPE).astype(np.float32)


def taught():
    """A recipe with what strokes taught."""
    problem = saf.Problem.from_image(pixels(0), seeds=STROKES, window=3)
    raw = saf.AssignmentFlow(rho=0.2).run(problem).recipe
    return Pipeline.from_plain(with_prototypes(raw, saf.PrototypeSet.fit(problem, STROKES)))


def make(folder, n_images=2):
    """Write images to a folder; return a project of them in a folder next to it."""
    folder.mkdir(parents=True, exist_ok=True)
    images = []
    for k in range(n_images):
        path = folder / f"image {k}.tif"
        tifffile.imwrite(path, pixels(k))
        strokes = saf.ProjectLayer("strokes", f"s{k}", saf.EncodedLabels.of(STROKES), CLASSES)
        labels = saf.ProjectLayer(
            "labels",
            f"l{k}",
            saf.EncodedLabels.of(np.where(pixels(k) > 0.5, 2, 1)),
            scale=(0.5, 0.25),
            translate=(1.0, -2.0),
            place={"axes": [0, 1]},
            recipe="strokes",
            level=0.25,
            is_edited=True,
        )
        layers = (strokes, labels)[: 2 - k % 2]
        images.append(saf.ProjectImage(saf.FileReference.of(path), layers))
    docks = {"Segment": {"method": "saf", "scale": 5}}
    return saf.Project(tuple(images), {"strokes": taught()}, docks=docks, current=0)


def parts(path):
    """Return the JSON values of a project file and its other entries."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(entries.pop("project.json")), entries


def pack(main, entries=(), compression=zipfile.ZIP_DEFLATED, signed=True, others=()):
    """Return the content of a project file of these parts."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        text = main if isinstance(main, str | bytes) else json.dumps(main)
        archive.writestr("project.json", text, compression)
        for name, content in dict(entries).items():
            archive.writestr(name, content)
        for name, content in others:
            archive.writestr(name, content, zipfile.ZIP_DEFLATED)
        archive.comment = b"0" * 64
    whole = stream.getvalue()[:-64]
    return whole + (hashlib.sha256(whole).hexdigest().encode() if signed else b"0" * 64)
