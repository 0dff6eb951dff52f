"""Which features tell textures apart, and what features of a network cost and gain.

    python benchmarks/features.py [--images odd|even|all] [--mosaics 32] [--only NAME ...]
    python benchmarks/features.py threshold [--images odd|even|all] [--mosaics 32]
    python benchmarks/features.py deep [--images odd|even|all]
    python benchmarks/features.py network [--architecture NAME]

By default a score for each kind of features, of one method. Mosaics have 200 pixels a side and 2 to
5 textures, each in 3 cells of a Voronoi diagram, of which 2 have a stroke of 20 pixels. Textures
are Brodatz tiles, of equal mean and contrast, or brick facades, each facade a texture. The score is
the share of the pixels without a stroke that are right; of nuclei, with strokes of
``scribbles.py``, it is F1. The method is what the Scribbles dock takes for textures, with other
features; "automatic" is what it chooses itself. Deep features are those of VGG16, of the stages
that are taken by default or of the first two, if its weights are there. Even images are for
choosing, odd ones for reporting.

threshold  How well "automatic" does with the least gain of patterns chosen on the other half.
deep       What strokes choose without a network and with VGG16, real weights. GrabCut photographs
           that are not of BSDS500, on which these weights were trained, with all strokes of people
           and a tenth of them: intersection over union; mosaics and nuclei as above. Seconds of the
           processor: for the choice without the network, with it when nothing is cached, and at the
           next stroke; until the first labels after that.
network    Deep features beside timm's forward pass, with random weights, on 1024 x 1024 pixels.
           Times are of the processor; memory is the peak of a process of its own above what it
           holds before, the median of three. Strokes: first and final labels on the problem that a
           first stroke left, with the settings of the Scribbles dock for objects, and the problem
           itself from cached features.
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
from functools import partial
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
import psutil
import safetensors.torch
import scribbles
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

import napari_saf as saf
from napari_saf.features import FEATURES, DeepFeatures
from napari_saf.features._timm import import_timm
from napari_saf.methods import run_to_end, stroke_choices
from napari_saf.methods._stroke_choice import left_out_accuracy

DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data"))
N_CELLS, LENGTH, MARGIN = 3, 20, 3
Array = NDArray[Any]
Case = tuple[Array, Array, Callable[[Array], float]]


def mosaic(
    textures: Sequence[Sequence[Array]], count: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Return image, strokes and truth of a mosaic of `count` textures, each a list of tiles."""
    side = min(min(tile.shape[:2]) for tiles in textures for tile in tiles)
    chosen = rng.choice(len(textures), count, replace=False)
    kinds = np.repeat(np.arange(count), N_CELLS)
    draws = [rng.random((len(kinds), 2)) * side for _ in range(200)]
    points = max(draws, key=_least_distance)
    grid = np.moveaxis(np.indices((side, side)), 0, -1)
    cells = np.linalg.norm(grid[:, :, None] - points, axis=-1).argmin(axis=-1)
    image = np.zeros((side, side, *textures[0][0].shape[2:]), np.uint8)
    for cell, kind in enumerate(kinds):
        tiles = textures[int(chosen[kind])]
        tile = tiles[int(rng.integers(len(tiles)))][:side, :side]
        image[cells == cell] = tile[cells == cell]
    strokes = np.zeros((side, side), np.uint8)
    for number in range(count):
        for own_cell in rng.choice(np.flatnonzero(kinds == number), N_CELLS - 1, replace=False):
            inside = np.pad(cells == own_cell, 1)
            rows, columns = np.nonzero(distance_transform_edt(inside)[1:-1, 1:-1] >= MARGIN)
            row = int(np.median(rows))
            own = columns[rows == row]
            strokes[row, own[np.abs(own - np.median(own)) <= LENGTH / 2]] = number + 1
    return image, strokes, kinds[cells] + 1


def accuracy(found: Array, strokes: Array, truth: Array) -> float:
    """Return the share of the pixels without a stroke that are right."""
    return float((found == truth)[strokes == 0].mean())


def _least_distance(points: Array) -> float:
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    return float((apart + 1e9 * np.eye(len(points))).min())


def mosaics(textures: Sequence[Sequence[Array]], numbers: Sequence[int]) -> Iterator[Case]:
    for number in numbers:
        image, strokes, truth = mosaic(textures, 2 + number // 2 % 4, np.random.default_rng(number))
        yield image, strokes, partial(accuracy, strokes=strokes, truth=truth)


def brodatz() -> list[list[Array]]:
    tiles: dict[str, list[Array]] = {}
    for path in sorted((DATA / "brodatz").glob("*/*.png")):
        tile = iio.imread(path).astype(float)
        even = 128 + 42 * (tile - tile.mean()) / tile.std()
        tiles.setdefault(path.stem.split("_")[0], []).append(np.clip(even, 0, 255).astype(np.uint8))
    return list(tiles.values())


def facades() -> list[list[Array]]:
    return [
        [iio.imread(path)[..., :3]] for path in sorted((DATA / "facades/brick").glob("*/*.png"))
    ]


def of_nuclei(numbers: Sequence[int]) -> Iterator[Case]:
    items = list(scribbles.nuclei("nuclei"))
    for image, truth in (items[number] for number in numbers):
        strokes = scribbles.draw(truth, np.random.default_rng(0))

        def score(found: Array, strokes: Array = strokes, truth: Array = truth) -> float:
            return scribbles.f1(found == scribbles.NUCLEUS, truth, strokes)

        yield image, strokes, score


WEIGHTS = DATA / "vgg16" / "vgg16_hed_bsds500.safetensors"
DEEP = {
    "deep": DeepFeatures("vgg16", str(WEIGHTS)),
    "deep, layers 0,1": DeepFeatures("vgg16", str(WEIGHTS), layers=(0, 1)),
}


def label(image: Array, strokes: Array, name: str) -> Array:
    """Label by the method that the Scribbles dock takes for textures, with named features."""
    if name == "automatic":
        return scribbles.chosen(image, strokes)
    colour = image.ndim == 3
    choice = stroke_choices(3 if colour else 1)["texture"]
    if name == "colour":
        name = "lab" if colour else "intensity"
    options = dataclasses.replace(choice.options, features=DEEP.get(name, name))
    return scribbles.chosen(image, strokes, dataclasses.replace(choice, options=options))


def threshold(sets: dict[str, list[Case]]) -> None:
    """Print how well *Automatic* does where what patterns must gain is chosen on other images.

    Each half of the images by the other: of 0.05, 0.1, ... what has the highest mean over the sets.
    """
    rows = []
    for which, cases in sets.items():
        for image, strokes, score in cases:
            choices = stroke_choices(3 if image.ndim == 3 else 1)
            own = {name: choices[name] for name in ("many", "texture", "patterns")}
            side = choices["object"].options.max_side
            told, scores = {}, {}
            for name, choice in own.items():
                options = dataclasses.replace(own["many"].options, features=choice.options.features)
                small = dataclasses.replace(options, max_side=side).arguments()
                problem = saf.Problem.from_image(image, seeds=strokes, **small)
                told[name] = left_out_accuracy(problem) or 0.0
                arguments = choice.options.arguments()
                problem = saf.Problem.from_image(image, seeds=strokes, **arguments)
                scores[name] = score(np.asarray(choice.method.run(problem).labels))
            plain = max("many", "texture", key=lambda k: told[k] - 0.1 * (k == "texture"))
            gain = told["patterns"] - told[plain]
            rows.append((which, gain, scores[plain], scores["patterns"]))

    def mean(some: Sequence[Any], least: float) -> float:
        found = [
            np.mean(
                [
                    good if gain >= least else plain
                    for name, gain, plain, good in some
                    if name == which
                ]
            )
            for which in sets
        ]
        return float(np.mean(found))

    for first in (0, 1):
        tried = np.arange(1, 14) / 20
        least = max(tried, key=lambda t: mean(rows[first::2], t))
        held = rows[1 - first :: 2]
        print(
            f"chosen {least:.2f}: {mean(held, least):.3f} on the others; 0.30: "
            f"{mean(held, 0.3):.3f}, never patterns {mean(held, 9):.3f}",
            flush=True,
        )


# Features of a network

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


def time_strokes(architecture: str, file: Path) -> None:
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


def photographs(numbers: Sequence[int], share: float) -> Iterator[Case]:
    """Yield photographs that are not of BSDS500, with a share of the strokes, and IoU."""
    items = [item for item in scribbles.photographs() if not item[1].isdigit()]
    for number in numbers:
        _, name, image, truth = items[number]
        drawn = scribbles.scribbles_of(name, 1)
        drawn = scribbles.thin(drawn, share, np.random.default_rng(number))

        def score(found: Any, drawn: Any = drawn, truth: Any = truth) -> float:
            return scribbles.score(found == scribbles.OBJECT, drawn, truth)[0]

        yield image, drawn, score


def one_case(case: Case, deep: DeepFeatures) -> list[float]:
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
    numbers = range(first, 32, step)
    sets = {
        "GrabCut": photographs(range(first, 20, step), 1.0),
        "GrabCut, a tenth": photographs(range(first, 20, step), 0.1),
        "Brodatz": mosaics(brodatz(), numbers),
        "facades": mosaics(facades(), numbers),
        "nuclei": of_nuclei(range(first, 15, step)),
    }
    deep = DeepFeatures("vgg16", str(WEIGHTS))
    heads = ("images", "without", "with", "taken", "choice", "with", "again", "labels")
    print(f"{'':18}" + "".join(f"{head:>9}" for head in heads))
    for name, cases in sets.items():
        with empty_cache():
            rows = np.array([one_case(case, deep) for case in cases])
        means, seconds = rows[:, :2].mean(axis=0), np.median(rows[:, 3:], axis=0)
        texts = [f"{len(rows):9}", *(f"{x:9.3f}" for x in means), f"{int(rows[:, 2].sum()):9}"]
        print(f"{name:18}" + "".join([*texts, *(f"{x:9.2f}" for x in seconds)]), flush=True)


def network(architecture: str) -> None:
    """Print time and memory of deep features beside the network itself."""
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
        time_strokes(architecture, file)


def scores(sets: dict[str, list[Case]], names: Sequence[str]) -> None:
    """Print the mean score of each kind of features."""
    print(f"{'features':18} {' '.join(f'{name:>8}' for name in sets)}  s/image")
    for name in names:
        means, began = [], time.process_time()
        for cases in sets.values():
            found = [score(label(image, strokes, name)) for image, strokes, score in cases]
            means.append(float(np.mean(found)))
        spent = (time.process_time() - began) / sum(map(len, sets.values()))
        print(f"{name:18} {' '.join(f'{mean:8.3f}' for mean in means)} {spent:8.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    fixed = [name for name in FEATURES if name not in ("lab", "deep")]
    named = ["automatic", "colour", *fixed, *(DEEP if WEIGHTS.is_file() else ())]
    parts = ("scores", "threshold", "deep", "network")
    parser.add_argument("part", nargs="?", choices=parts, default="scores")
    parser.add_argument("--images", choices=("even", "odd", "all"), default="odd")
    parser.add_argument("--mosaics", type=int, default=32, help="before those are chosen")
    parser.add_argument("--only", nargs="+", choices=named, default=named)
    parser.add_argument("--architecture", default="vit_small_patch14_dinov2")
    options = parser.parse_args()
    if options.part == "network":
        return network(options.architecture)
    if options.part == "deep":
        return quality(options.images)
    first, step = {"even": (0, 2), "odd": (1, 2), "all": (0, 1)}[options.images]
    numbers = range(first, options.mosaics, step)
    with empty_cache():
        sets = {
            "brodatz": list(mosaics(brodatz(), numbers)),
            "facades": list(mosaics(facades(), numbers)),
            "nuclei": list(of_nuclei(range(first, min(15, options.mosaics), step))),
        }
        if options.part == "threshold":
            threshold(sets)
        else:
            scores(sets, options.only)


if __name__ == "__main__":
    main()
