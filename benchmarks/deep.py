"""Deep features beside the forward pass of timm: time, memory, and strokes on features kept.

``python benchmarks/deep.py [ARCHITECTURE]``, with random weights, on 1024 x 1024 pixels. Times are
of the processor, ratios of one run side by side; memory is the peak of a process of its own above
what it holds before, the median of three. Strokes: first and final labels on the problem that a
first stroke left, with the settings of the Scribbles dock for objects, and the problem itself from
features that an earlier session left.

``python benchmarks/deep.py --quality [--images odd|even|all]``: what strokes choose without a
network and with VGG16, real weights. GrabCut photographs that are not of BSDS500, on which these
weights were trained, with all strokes of people and a tenth of them: intersection over union;
mosaics and nuclei as in ``features.py``. Seconds of the processor: for the choice without the
network, with it when nothing is kept, and at the next stroke; until the first labels after that.
Even images served to choose the rule.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import features
import imageio.v3 as iio
import numpy as np
import psutil
import safetensors.torch
import scribbles
import torch

import napari_saf as saf
from napari_saf.features import DeepFeatures
from napari_saf.features._timm import import_timm
from napari_saf.methods import run_to_end, stroke_choices

SIDE = 1024


def picture() -> np.ndarray[Any, Any]:
    from skimage.data import astronaut
    from skimage.transform import resize

    return np.asarray(resize(astronaut(), (SIDE, SIDE)), dtype=np.float32)


@contextmanager
def empty_cache() -> Iterator[None]:
    """Let features be kept in an empty folder, which platformdirs takes from the environment."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        yield


def forward(architecture: str, file: Path) -> Callable[[], object]:
    """Return timm's own forward pass on the whole image."""
    timm = import_timm()
    model = timm.create_model(architecture, num_classes=0, dynamic_img_size=True).eval()
    model.load_state_dict(safetensors.torch.load_file(file), strict=False)
    side = -(-SIDE // model.patch_embed.patch_size[0]) * model.patch_embed.patch_size[0]
    image = torch.nn.functional.interpolate(
        torch.from_numpy(picture()).movedim(-1, 0)[None], (side, side)
    )

    def run() -> object:
        with torch.inference_mode():
            return model.forward_features(image)

    return run


def ours(architecture: str, file: Path) -> Callable[[], object]:
    """Return features of the image, with components and interpolation, nothing kept before."""
    extractor, image = DeepFeatures(architecture, str(file)), picture()
    extractor.network()

    def run() -> object:
        with empty_cache():
            return extractor.features(image)

    return run


def peak(kind: str, architecture: str, file: Path, pipe: Any) -> None:
    """Send the bytes that a run takes at its peak, above what there was before it."""
    run, own = {"timm": forward, "ours": ours}[kind](architecture, file), psutil.Process()
    import skimage.color  # modules that are loaded at first use are no features
    import zarr

    zarr.zeros(1)
    skimage.color.rgb2lab(np.zeros((1, 3)))
    np.linalg.eigh(np.eye(64))
    before, seen, is_done = own.memory_info().rss, [0], threading.Event()

    def watch() -> None:
        while not is_done.wait(0.002):
            seen.append(own.memory_info().rss - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    run()
    is_done.set()
    watcher.join()
    pipe.send(max(seen))


def memory(kind: str, architecture: str, file: Path) -> float:
    """Return the peak of a process of its own in MiB, above what it held with the model."""
    context = multiprocessing.get_context("spawn")
    end, other = context.Pipe()
    process = context.Process(target=peak, args=(kind, architecture, file, other))
    process.start()
    other.close()  # so that the end of a process that dies is the end of the pipe
    try:
        n_bytes = end.recv()
    except EOFError:
        process.join()
        raise SystemExit(f"{kind}: the process ended with {process.exitcode}") from None
    process.join()
    return float(n_bytes) / 2**20


def seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def strokes(architecture: str, file: Path) -> None:
    """Print how long strokes take on features that are there."""
    seeds = np.zeros((SIDE, SIDE), dtype=int)
    seeds[100:120, 100:300], seeds[800:820, 400:700] = 1, 2
    choice = stroke_choices()["object"]
    extractor = DeepFeatures(architecture, str(file))
    options = dataclasses.replace(choice.options, features=extractor).arguments()
    with empty_cache():
        saf.Problem.from_image(picture(), **options)
        began = time.process_time()
        problem = saf.Problem.from_image(picture(), **options)
        print(f"  problem from features kept on disk   {time.process_time() - began:6.2f} s")
        plain = saf.Problem.from_image(picture(), **(options | {"features": "lab"}))
        for number in range(3):
            seeds[300 + 20 * number, 100:300] = 1
            for name, one in (("deep", problem), ("lab", plain)):
                began = time.process_time()
                steps = choice.method.iterate(one.with_seeds(seeds))
                assert np.any(next(steps).labels)
                first = time.process_time() - began
                run_to_end(steps)
                took = time.process_time() - began
                print(f"  stroke {number + 1}, {name:4}: labels {first:.2f} s, final {took:.2f} s")


def photographs(numbers: Sequence[int], share: float) -> Iterator[features.Case]:
    """Yield photographs that are not of BSDS500, with a share of the strokes, and IoU."""
    folder = scribbles.DATA
    names = sorted(one.stem for one in (folder / "images").iterdir() if not one.stem.isdigit())
    for number in numbers:
        image = iio.imread(folder / "images" / f"{names[number]}.jpg")
        truth = iio.imread(folder / "masks" / f"{names[number]}.png")
        drawn = iio.imread(folder / "scribbles1" / f"{names[number]}.png")
        drawn = scribbles.thin(drawn, share, np.random.default_rng(number))

        def score(found: Any, drawn: Any = drawn, truth: Any = truth) -> float:
            return scribbles.score(found == scribbles.OBJECT, drawn, truth)[0]

        yield image, drawn, score


def one_case(case: features.Case, deep: DeepFeatures) -> list[float]:
    """Return scores without and with the network, whether it was chosen, and seconds."""
    image, drawn, score = case
    found, times = list[float](), list[float]()
    for network in (None, deep, deep):
        began = time.process_time()
        choice = saf.choose_for_strokes(image, drawn, deep=network)
        times.append(time.process_time() - began)
        if len(found) < 2:
            problem = saf.Problem.from_image(image, seeds=drawn, **choice.options.arguments())
            found.append(score(np.asarray(choice.method.run(problem).labels)))
    more = drawn.copy()
    row, column = np.argwhere(drawn > 0)[0]
    more[max(0, row - 1) : row + 2, column] = drawn[row, column]
    began = time.process_time()
    next(choice.method.iterate(problem.with_seeds(more)))
    times.append(time.process_time() - began)
    return [*found, choice.options.features_name == "deep", *times]


def quality(images: str) -> None:
    first, step = {"even": (0, 2), "odd": (1, 2), "all": (0, 1)}[images]
    mosaics = range(first, 32, step)
    sets = {
        "GrabCut": photographs(range(first, 20, step), 1.0),
        "GrabCut, a tenth": photographs(range(first, 20, step), 0.1),
        "Brodatz": features.mosaics(features.brodatz(), mosaics),
        "facades": features.mosaics(features.facades(), mosaics),
        "nuclei": features.of_nuclei(range(first, 15, step)),
    }
    deep = DeepFeatures("vgg16", str(features.WEIGHTS))
    heads = ("images", "without", "with", "taken", "choice", "with", "again", "labels")
    print(f"{'':18}" + "".join(f"{head:>9}" for head in heads))
    for name, cases in sets.items():
        with empty_cache():
            rows = np.array([one_case(case, deep) for case in cases])
        means, seconds = rows[:, :2].mean(axis=0), np.median(rows[:, 3:], axis=0)
        numbers = [f"{len(rows):9}", *(f"{x:9.3f}" for x in means), f"{int(rows[:, 2].sum()):9}"]
        print(f"{name:18}" + "".join([*numbers, *(f"{x:9.2f}" for x in seconds)]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("architecture", nargs="?", default="vit_small_patch14_dinov2")
    parser.add_argument("--quality", action="store_true")
    parser.add_argument("--images", choices=("even", "odd", "all"), default="odd")
    options = parser.parse_args()
    if options.quality:
        quality(options.images)
        return
    architecture = options.architecture
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "weights.safetensors"
        torch.manual_seed(0)
        model = import_timm().create_model(architecture, num_classes=0)
        safetensors.torch.save_file(model.state_dict(), file)
        runs = {"timm": forward(architecture, file), "ours": ours(architecture, file)}
        times = {kind: min(seconds(run) for _ in range(2)) for kind, run in runs.items()}
        peaks = {
            kind: statistics.median(memory(kind, architecture, file) for _ in range(3))
            for kind in runs
        }
        print(f"{architecture}, {SIDE} x {SIDE}, {torch.get_num_threads()} threads")
        for kind in runs:
            print(f"  {kind}   {times[kind]:6.1f} s   {peaks[kind]:6.0f} MiB")
        print(
            f"  ratio  {times['ours'] / times['timm']:6.2f}     "
            f"{peaks['ours'] / peaks['timm']:6.2f}"
        )
        strokes(architecture, file)


if __name__ == "__main__":
    main()
