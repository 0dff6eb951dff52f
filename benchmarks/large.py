"""Images larger than memory: time and memory of tiles, whole images and volumes.

    python benchmarks/large.py --nuclei 2048 4096 [--folder FOLDER]
    python benchmarks/large.py --volumes 64x256x256 [--ways click strokes tiles]
    python benchmarks/large.py --sizes 2048 8192 16384 [--labels 16] [--folder FOLDER]
    python benchmarks/large.py --speed [--labels 16]
    python benchmarks/large.py --workers 1 2 1 2 [--sizes 4096] [--labels 16]
    python benchmarks/large.py --computed 100000 [--first 200] [--labels 3] [--folder FOLDER]

--nuclei    A first click on sheets of nuclei, as of ``first_click.py sizes``, in memory and in
            tiles, each in a process of its own: F1, border, the pixels that differ, time of the
            processor, and memory.
--volumes   Balls of 5 to 9 voxels radius, 7 % of a volume, blurred, in noise of an eighth of their
            contrast; strokes on three of them and three times on the ground of the middle plane.
            Each way runs in a process of its own, whose memory is printed less that of the volume
            and the libraries.
--sizes     Sheets of photographs of so many pixels a side, labelled from OME-Zarr into a pyramid:
            what the plan estimates, memory of the process, time of the processor.
--speed     A pixel of a tile, with kernels and without, beside a random forest.
--workers   Tiles a second of so many processes.
--computed  A source of so many pixels a side that is computed where it is read: the plan and the
            first tiles, and the time for all of them at that pace.

The data folder comes from NAPARI_SAF_DATA (default ../shared/data beside the checkout).
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import dask.array as da
import imageio.v3 as iio
import numpy as np
import zarr
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, label

import napari_saf as saf
from napari_saf.features import Scaling
from napari_saf.flow import wait_for_kernels
from napari_saf.methods import AbstractMethod, run_to_end
from napari_saf.points import sampled_means
from napari_saf.problem import ImageOptions
from napari_saf.tiles import LargeJob, iterate_large, local_client, run_large

DATA = Path(os.environ.get("NAPARI_SAF_DATA", Path(__file__).parents[1] / "../shared/data"))
Image = NDArray[Any]
LONGEST_STROKE = 30


def photographs(*folders: str) -> list[Image]:
    """Return photographs, turned so that they are wide."""
    paths = [p for name in folders for p in sorted((DATA / name / "images").glob("*.jpg"))]
    pictures = (iio.imread(path) for path in paths)
    return [np.rot90(x) if x.shape[0] > x.shape[1] else x for x in pictures]


def speed(n_labels: int) -> None:
    """Print what a pixel of a tile takes, and a random forest on features of several scales."""
    from skimage.feature import multiscale_basic_features
    from sklearn.ensemble import RandomForestClassifier

    tiles = photographs("bsds_dev")[:6]
    image = np.vstack([np.hstack(tiles[:3]), np.hstack(tiles[3:])])  # 642 x 1443 pixels
    print("processor time of a tile of 512 x 512, us a pixel (and of it, of torch's)")
    common: dict[str, Any] = {"max_side": None, "scaling": Scaling(0, 255)}
    for options in (
        ImageOptions("lab", 3, "uniform", **common),
        ImageOptions("lab", 9, "uniform", **common),
        ImageOptions("texture", 13, "contrast", **common),
    ):
        nodes = saf.Problem.from_image(image, **options.arguments()).features
        means = sampled_means(nodes, n_labels).astype(np.float32)
        taught = saf.PrototypeSet(means, options=options)
        plan = LargeJob.of(image, taught, tile=512, learn_pixels=2**18).plan()
        region = plan.region((0, 1))
        crop, spent = plan.surroundings(region), []
        for kernels in ("1", "0"):
            os.environ["NAPARI_SAF_KERNELS"] = kernels
            plan.label(image[crop], None, crop, region)
            began = time.process_time()
            plan.label(image[crop], None, crop, region)
            spent.append((time.process_time() - began) * 1e6 / 512**2)
        del os.environ["NAPARI_SAF_KERNELS"]
        setting = f"{options.features:8} window {options.window:2} {options.weights:8}"
        print(f"  {setting} {spent[0]:6.2f} ({spent[1]:.2f})")
    labels, _ = plan.label(image[crop], None, crop, region)
    pixels = image[region]

    def described() -> Image:
        found = multiscale_basic_features(pixels, channel_axis=-1, workers=1)
        return np.asarray(found.reshape(-1, found.shape[-1]))

    chosen = np.random.default_rng(0).choice(labels.size, 5000, replace=False)
    forest = RandomForestClassifier(100, n_jobs=1, random_state=0)
    forest.fit(described()[chosen], labels.ravel()[chosen])
    began = time.process_time()
    values = described()
    middle = time.process_time()
    forest.predict(values)
    ended = time.process_time()
    parts = [(one * 1e6) / labels.size for one in (middle - began, ended - middle)]
    print(f"  random forest, 100 trees: {sum(parts):.2f}, features {parts[0]:.2f} of it")


def nuclei(given: argparse.Namespace) -> None:
    """Label sheets of nuclei by a first click in memory and in tiles."""
    if given.way is not None:
        way, name = given.way
        label_nuclei(given.nuclei[0], way, name, given.folder)
        return
    for side, name in itertools.product(given.nuclei, ("fluor_01", "fluor_19")):
        for way in ("memory", "tiles"):
            own = ["--nuclei", str(side), "--way", way, name, "--folder", str(given.folder)]
            subprocess.run([sys.executable, __file__, *own], check=True)


def label_nuclei(side: int, way: str, name: str, folder: Path) -> None:
    """Label a sheet of nuclei by a first click in memory or in tiles, and print how well."""
    from first_click import boundary_f, named, read_sheet
    from first_click import sheet as sheet_of
    from scribbles import f1

    image, truth = (sheet_of(array, side // 256) for array in read_sheet(name))
    kept, path = folder / f"{name}.labels.npy", folder / f"{name}.zarr"
    if way == "tiles":
        zarr.create_array(path, data=image, chunks=(256, 256, *image.shape[2:]), overwrite=True)
    wait_for_kernels()
    began = time.process_time()
    if way == "tiles":
        out = folder / f"{name}.labels.ome.zarr"
        found = saf.label_large(path, saf.SelfAssignmentFlow(), out, overwrite=True)
        took, labels = time.process_time() - began, np.asarray(found.labels[:])
        print(
            f"{name} {side:6} {np.count_nonzero(labels != np.load(kept))} pixels differ from memory"
        )
    else:
        labels = np.asarray(saf.SelfAssignmentFlow().run(saf.Problem.from_image(image)).labels)
        took = time.process_time() - began
        np.save(kept, labels)
    most, inside = memory(), named(labels, truth > 0)
    scores = f1(inside, truth > 0), boundary_f(inside, truth > 0)
    texts = "F1 {:.4f} border {:.4f}".format(*scores)
    print(f"{name} {side:6} {way:6} {texts} {took:6.1f} s {most:5.0f} MiB")


def balls(shape: tuple[int, ...]) -> tuple[Image, Image]:
    """Return a volume of 8 bits, and where the balls are."""
    rng, truth = np.random.default_rng(0), np.zeros(shape, bool)
    for _ in range(math.prod(shape) // 20_000):
        centre, radius = [rng.integers(side) for side in shape], rng.uniform(5, 9)
        box = tuple(
            slice(max(0, c - 10), min(side, c + 11)) for c, side in zip(centre, shape, strict=True)
        )
        square = sum((axis - c) ** 2 for axis, c in zip(np.ogrid[box], centre, strict=True))
        truth[box] |= square < radius**2
    volume = 30 + 100 * gaussian_filter(truth.astype(np.float32), 1)
    volume += 12 * rng.standard_normal(shape, np.float32)
    return volume.clip(0, 255).astype(np.uint8), truth


def strokes_on(truth: Image) -> Image:
    strokes, rng = np.zeros(truth.shape, np.uint8), np.random.default_rng(0)
    middle, plane = truth[len(truth) // 2], strokes[len(truth) // 2]
    things, _ = label(middle)
    for number in (1, 2, 3):
        row = int(np.median(np.nonzero(things == number)[0]))
        plane[row, things[row] == number] = 1
    for row, column in rng.permutation(np.argwhere(~middle))[:3]:
        ahead = middle[row, column : column + LONGEST_STROKE]
        plane[row, column : column + (ahead.argmax() if ahead.any() else len(ahead))] = 2
    return strokes


def labels_of(way: str, volume: Image, truth: Image) -> tuple[Image, float]:
    """Return labels, and seconds until the first were there."""
    began = time.perf_counter()
    if way == "tiles":
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder) / "volume.npy", volume)
            out = Path(folder) / "labels.ome.zarr"
            saf.label_large(Path(folder) / "volume.npy", saf.SelfAssignmentFlow(), out)
            return np.asarray(zarr.open(out)["0"]), time.perf_counter() - began
    method: AbstractMethod = saf.SelfAssignmentFlow()
    if way == "click":
        problem = saf.Problem.from_image(volume)
    else:
        strokes = strokes_on(truth)
        choice = saf.choose_for_strokes(volume, strokes)
        problem = saf.Problem.from_image(volume, seeds=strokes, **choice.options.arguments())
        method = choice.method
    seconds: list[float] = []
    steps = method.iterate(problem)
    result = run_to_end(steps, lambda _: seconds.append(time.perf_counter() - began))
    return np.asarray(result.labels), seconds[0]


def measure_volume(way: str, shape: tuple[int, ...]) -> None:
    wait_for_kernels()
    volume, truth = balls(shape)
    held = memory()
    began, cpu = time.perf_counter(), sum(os.times()[:4])
    labels, first = labels_of(way, volume, truth)
    seconds, cpu = time.perf_counter() - began, sum(os.times()[:4]) - cpu
    grown = (memory() - held) / 2**10
    from first_click import named
    from scribbles import f1  # once memory was taken note of

    found = named(labels, truth)
    print(
        f"{'x'.join(map(str, shape)):>12} {way:>8} {f1(found, truth):5.3f} first {first:6.1f} s  "
        f"all {seconds:6.1f} s  processor {cpu:6.1f} s  {1e6 * cpu / volume.size:5.2f} us a voxel  "
        f"{grown:5.2f} GiB",
        flush=True,
    )


def volumes(shapes: list[str], ways: list[str]) -> None:
    """Print time, memory and F1 of volumes."""
    context = multiprocessing.get_context("spawn")
    for shape, way in itertools.product(shapes, ways):
        sides = tuple(map(int, shape.split("x")))
        process = context.Process(target=measure_volume, args=(way, sides))
        process.start()
        process.join()


def sheet(path: Path, side: int) -> None:
    """Write photographs side by side, of 480 x 320 pixels each, as a pyramid of such a side."""
    pictures = photographs("bsds_dev")
    group = zarr.open_group(path, mode="w", zarr_format=3)
    sides = [side]
    while sides[-1] > 512:
        sides.append(-(-sides[-1] // 2))
    options: dict[str, Any] = {"chunks": (256, 256, 3), "dtype": "uint8"}
    levels = [group.create_array(str(k), shape=(n, n, 3), **options) for k, n in enumerate(sides)]
    for row in range(0, side, 320):
        line = [pictures[(row // 320 * 7919 + k * 104729) % len(pictures)][:320, :480]
                for k in range(-(-side // 480))]  # fmt: skip
        levels[0][row : row + 320] = np.hstack(line)[: side - row, :side]
    for coarse, fine in zip(levels[1:], levels[:-1], strict=True):
        for row in range(0, coarse.shape[0], 512):
            coarse[row : row + 512] = fine[2 * row : 2 * row + 1024 : 2, ::2]
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "yx"]
    sizes = [{"type": "scale", "scale": [0.5 * 2**k, 0.5 * 2**k, 1]} for k in range(len(sides))]
    found = [{"path": str(k), "coordinateTransformations": [one]} for k, one in enumerate(sizes)]
    about = {"axes": [*axes, {"name": "c", "type": "channel"}], "datasets": found}
    group.attrs["ome"] = {"version": "0.5", "multiscales": [about]}


def memory() -> float:
    """Return the most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def colors(n_labels: int) -> saf.PrototypeSet:
    """Return colours all over the range of bytes as prototypes."""
    points = sampled_means(np.random.default_rng(0).random((4096, 3)), n_labels)
    options = ImageOptions("intensity", 3, "uniform", scaling=Scaling(0, 255))
    return saf.PrototypeSet(points.astype(np.float32), options=options)


def run(path: Path, n_labels: int) -> None:
    """Label a sheet in this process; print the estimate of the plan, and what it took."""
    taught = colors(n_labels)
    job, out = LargeJob.of(path, taught), path.with_name(f"{path.name}.labels.ome.zarr")
    shutil.rmtree(out, ignore_errors=True)
    out.with_name(f"{out.name}.journal").unlink(missing_ok=True)
    began, plan = time.process_time(), job.plan()
    planned = time.process_time() - began
    began = time.process_time()
    _, n_bytes = job.probe(plan)
    estimate = (time.process_time() - began) * len(plan.tiles())
    began = time.process_time()
    run_large(job, out)  # makes the same plan again
    took = time.process_time() - began - planned
    print(
        f"{job.image.shape[0]:6}  labels {n_labels:2}  steps {len(plan.steps):3}  "
        f"memory {memory():6.0f} MiB (fields {n_bytes / 2**20:.0f})  "
        f"plan {planned:5.1f} s  estimate {estimate:6.0f} s  tiles and levels {took:6.0f} s  "
        f"{1e6 * took / np.prod(job.image.shape):.2f} us a pixel",
        flush=True,
    )


def sizes(sides: list[int], n_labels: int, folder: Path) -> None:
    """Label sheets of some sides, each in a process of its own; times are those of processors."""
    for side in sides:
        path = folder / f"sheet{side}.ome.zarr"
        if not path.exists():
            sheet(path, side)
        command = [sys.executable, __file__, "--run", str(path), "--labels", str(n_labels)]
        subprocess.run(command, check=True)


def waves(block_info: dict[Any, Any]) -> Image:
    """Compute a block of noisy waves of three channels from its place in the array."""
    place = block_info[None]["array-location"]
    rows, columns = np.arange(*place[0])[:, None], np.arange(*place[1])[None]
    wave = np.sin(rows / 97) * np.cos(columns / 61) + 0.3 * np.sin((rows + columns) / 13)
    wave += np.random.default_rng([place[0][0], place[1][0]]).normal(0, 0.2, wave.shape)
    return np.clip(128 + 60 * np.stack([wave, -wave, wave**2], -1), 0, 255).astype(np.uint8)


def computed(side: int, n_first: int, n_labels: int, folder: Path) -> None:
    """Label the first tiles of a source that no disk holds; print memory and time on the way."""
    chunks = da.core.normalize_chunks((1024, 1024, 3), shape=(side, side, 3), dtype=np.uint8)
    source = da.map_blocks(waves, chunks=chunks, dtype=np.uint8, meta=np.zeros((0, 0, 0), np.uint8))
    out = folder / "computed.ome.zarr"
    shutil.rmtree(out, ignore_errors=True)
    out.with_name(f"{out.name}.journal").unlink(missing_ok=True)
    began, n_done = time.process_time(), 0
    for step in iterate_large(LargeJob.of(source, colors(n_labels)), out):
        took = time.process_time() - began
        if step.tile is None:
            print(f"plan of {step.n_tiles} tiles: {took:.0f} s, {memory():.0f} MiB", flush=True)
            began = time.process_time()
            continue
        n_done += 1
        if n_done in (10, n_first):
            hours = took / n_done * step.n_tiles / 3600
            print(
                f"{n_done} tiles: {took:.0f} s, {memory():.0f} MiB; all: {hours:.1f} h", flush=True
            )
        if n_done == n_first:
            return


def workers(counts: list[int], n_labels: int, side: int, folder: Path) -> None:
    """Print tiles a second for some numbers of processes, once all of them have begun."""
    path, out = folder / f"sheet{side}.ome.zarr", folder / "workers.ome.zarr"
    if not path.exists():
        sheet(path, side)
    job, rates = LargeJob.of(path, colors(n_labels)), list[float]()
    for n_workers in counts:
        shutil.rmtree(out, ignore_errors=True)
        times = list[float]()
        load = os.getloadavg()[0]
        with local_client(n_workers) as client:
            for step in iterate_large(job, out, client=client):
                times += [time.perf_counter()] if step.tile and not step.tile[0] else []
        n_first = 8 * n_workers
        rates.append((len(times) - n_first) / (times[-1] - times[n_first - 1]))
        print(
            f"{n_workers} processes: {rates[-1]:.2f} tiles a second, "
            f"{rates[-1] / rates[0]:.2f} times the first; load before {load:.1f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nuclei", type=int, nargs="+", metavar="SIDE")
    parser.add_argument("--way", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--volumes", nargs="+", metavar="SHAPE")
    parser.add_argument("--ways", nargs="+", default=["click", "strokes", "tiles"])
    parser.add_argument("--sizes", type=int, nargs="+", metavar="SIDE")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--computed", type=int, metavar="SIDE")
    parser.add_argument("--first", type=int, default=200, help="tiles of the computed source")
    parser.add_argument("--workers", type=int, nargs="+", metavar="N", help="processes")
    parser.add_argument("--labels", type=int, default=16)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run is not None:
        run(given.run, given.labels)
    elif given.nuclei is not None:
        nuclei(given)
    elif given.volumes is not None:
        volumes(given.volumes, given.ways)
    elif given.computed is not None:
        computed(given.computed, given.first, given.labels, given.folder)
    elif given.workers is not None:
        workers(given.workers, given.labels, (given.sizes or [4096])[0], given.folder)
    elif given.sizes is not None:
        sizes(given.sizes, given.labels, given.folder)
    elif given.speed:
        speed(given.labels)
    else:
        parser.error("expected one of the options of the first lines")


if __name__ == "__main__":
    main()
