"""Images larger than memory: tiles against the whole image.

python benchmarks/large.py [--mosaics 6] [--windows 3 9 21] [--tiles 128 256 512] [--learn 1048576]
python benchmarks/large.py --volumes 3 --tiles 48 [--learn 262144]
python benchmarks/large.py --nuclei 2048 4096 [--folder FOLDER]
python benchmarks/large.py --sizes 2048 8192 16384 [--labels 16] [--folder FOLDER]
python benchmarks/large.py --speed [--labels 16]
python benchmarks/large.py --workers 1 2 1 2 [--sizes 4096] [--labels 16]
python benchmarks/large.py --computed 100000 [--first 200] [--labels 3] [--folder FOLDER]

Mosaics of photographs, or volumes of blobs in noise of 64 x 96 x 96 voxels, labelled by the
assignment flow with the same 12 prototypes at full size, in tiles and as a whole: with the steps of
the plan, and with steps of its own. More pixels than `--learn` are labelled in tiles directly, with
the steps of blocks; others by the plan.

Nuclei: a first click on sheets of them, as of ``sizes.py``, in memory and in tiles, each in a
process of its own: F1, border, the pixels that differ, time of the processor, and memory.

With sizes: sheets of photographs of so many pixels a side, labelled from OME-Zarr into a pyramid:
what the plan estimates, memory of the process, time of the processor.

Computed: a source of so many pixels a side that is computed where it is read: the plan and the
first tiles, and the time for all of them at that pace.

The data folder comes from NAPARI_SAF_DATA (default ../shared/data beside the checkout).
"""

from __future__ import annotations

import argparse
import itertools
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
from scipy.ndimage import gaussian_filter

import napari_saf as saf
from napari_saf.features import Scaling
from napari_saf.flow import wait_for_kernels
from napari_saf.points import sampled_means
from napari_saf.problem import ImageOptions
from napari_saf.tiles import (
    LEARN_PIXELS,
    LargeJob,
    Plan,
    iterate_large,
    local_client,
    run_large,
)

DATA = Path(os.environ.get("NAPARI_SAF_DATA", Path(__file__).parents[1] / "../shared/data"))
Image = NDArray[Any]
N_PROTOTYPES = 12
NEAR = 8


def photographs(*folders: str) -> list[Path]:
    found = [sorted((DATA / name / "images").glob("*.jpg")) for name in folders or ("bsds_dev",)]
    return [path for paths in found for path in paths]


def mosaic(number: int, rows: int = 2, columns: int = 3) -> Image:
    """Return photographs side by side, turned to one shape: 1443 x 642 pixels for two rows."""
    paths = photographs("bsds_dev", "bsds_more")
    first = number * rows * columns
    tiles = [iio.imread(paths[(first + k) % len(paths)]) for k in range(rows * columns)]
    turned = [np.rot90(one) if one.shape[0] > one.shape[1] else one for one in tiles]
    lines = [np.hstack(turned[k * columns : (k + 1) * columns]) for k in range(rows)]
    return np.asarray(np.vstack(lines))


def volume(seed: int) -> Image:
    """Return a volume of blobs of four brightnesses with noise, one byte a voxel."""
    rng = np.random.default_rng(seed)
    smooth = gaussian_filter(rng.standard_normal((64, 96, 96)), 6)
    kinds = np.digitize(smooth, np.quantile(smooth, [0.3, 0.6, 0.85]))
    noisy = 40 + 55 * kinds + rng.normal(0, 25, kinds.shape)
    return np.asarray(np.clip(noisy, 0, 255).astype(np.uint8))


def plan_of(
    image: Image,
    window: int,
    features: str,
    tile: int,
    weights: str = "uniform",
    n_labels: int = N_PROTOTYPES,
    learn: int = LEARN_PIXELS,
) -> tuple[LargeJob, Plan]:
    """Return the plan for prototypes that are means of the features of the image."""
    known: dict[str, Any] = {"features": features, "window": window, "weights": weights}
    options = ImageOptions(**known, max_side=None, scaling=Scaling(0, 255))
    nodes = saf.Problem.from_image(image, **options.arguments()).features
    means = sampled_means(nodes, n_labels).astype(np.float32)
    taught = saf.PrototypeSet(means, options=options)
    job = LargeJob.of(image, taught, tile=tile, learn_pixels=learn)
    return job, job.plan()


def tiled(plan: Plan, image: Image) -> tuple[Image, NDArray[np.bool_]]:
    """Return the labels of tiles, and which pixels are near a seam."""
    labels = np.zeros(plan.shape, int)
    values = image[..., None] if image.ndim == len(plan.shape) else image
    for place in plan.tiles():
        region = plan.region(place)
        crop = plan.surroundings(region)
        labels[region] = plan.label(values[crop], None, crop, region)[0]
    near = np.zeros(plan.shape, bool)
    for axis, (side, n) in enumerate(zip(plan.tile, plan.shape, strict=True)):
        for seam in range(side, n, side):
            index: list[Any] = [slice(None)] * near.ndim
            index[axis] = slice(max(0, seam - NEAR), seam + NEAR)
            near[tuple(index)] = True
    return labels, near


def seams(images: list[tuple[Image, str]], given: argparse.Namespace) -> None:
    """Print how well tiles of images, with their features, agree with a run of the whole."""
    print("agreement of tiles with the whole image, and disagreement near seams and elsewhere, %")
    print("window tile | steps of the plan:  all  near  far | own steps:  all  near  far")
    for window in given.windows:
        found: dict[int, list[list[float]]] = {}
        for image, features in images:
            job, plan = plan_of(image, window, features, given.tiles[0], learn=given.learn)
            values = image if image.ndim > len(plan.shape) else image[..., None]
            fixed, _ = plan.label(values, None)
            run = job.recipe.method.run(job.recipe.problem(image))
            steps = f"steps {len(plan.steps)} {len(run.history.time) - 1}"
            for tile in given.tiles:
                own = plan.model_copy(update={"tile": [tile] * len(plan.shape)})
                labels, near = tiled(own, image)
                row, counts = list[float](), list[str]()
                for whole in (fixed, np.asarray(run.labels)):
                    wrong = labels != whole
                    parts = [wrong[near], wrong[~near]]
                    row += [100 * (1 - float(wrong.mean())), *(100 * one.mean() for one in parts)]
                    counts.append("/".join(str(one.sum()) for one in parts))
                found.setdefault(tile, []).append(row)
                _print_row(f"{window:6} {tile:4} each ", row, f"{steps} pixels {counts}")
        for tile, rows in found.items():
            for name, f in (("least", np.min), ("mean", np.mean), ("most", np.max)):
                _print_row(f"{window:6} {tile:4} {name:5}", list(f(rows, axis=0)))


def _print_row(title: str, row: list[float], more: str = "") -> None:
    halves = (" ".join(f"{one:8.4f}" for one in half) for half in (row[:3], row[3:]))
    print(f"{title} | {' | '.join(halves)} {more}", flush=True)


def speed(n_labels: int) -> None:
    """Print what a pixel of a tile takes, and a random forest on features of several scales."""
    from skimage.feature import multiscale_basic_features
    from sklearn.ensemble import RandomForestClassifier

    image = mosaic(0)
    print("processor time of a tile of 512 x 512, us a pixel (and of it, of torch's)")
    for features, window, weights in (("lab", 3, "uniform"), ("lab", 9, "uniform"),
                                      ("texture", 13, "contrast")):  # fmt: skip
        _, plan = plan_of(image, window, features, 512, weights, n_labels, 2**18)
        region = plan.region((0, 1))
        crop, spent = plan.surroundings(region), []
        for kernels in ("1", "0"):
            os.environ["NAPARI_SAF_KERNELS"] = kernels
            plan.label(image[crop], None, crop, region)
            began = time.process_time()
            plan.label(image[crop], None, crop, region)
            spent.append((time.process_time() - began) * 1e6 / 512**2)
        del os.environ["NAPARI_SAF_KERNELS"]
        print(f"  {features:8} window {window:2} {weights:8} {spent[0]:6.2f} ({spent[1]:.2f})")
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
    from sizes import DATA as NUCLEI
    from sizes import boundary_f, named
    from sizes import sheet as sheet_of

    array, objects = (iio.imread(NUCLEI / kind / f"{name}.png") for kind in ("images", "labels"))
    image, truth = (sheet_of(one[:256, :256], side // 256) for one in (array, objects))
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
    f1 = 2 * (inside & (truth > 0)).sum() / (inside.sum() + (truth > 0).sum())
    border = boundary_f(inside, truth > 0)
    print(f"{name} {side:6} {way:6} F1 {f1:.4f} border {border:.4f} {took:6.1f} s {most:5.0f} MiB")


def sheet(path: Path, side: int) -> None:
    """Write photographs side by side, of 480 x 320 pixels each, as a pyramid of such a side."""
    pictures = [iio.imread(one) for one in photographs()]
    pictures = [np.rot90(one) if one.shape[0] > one.shape[1] else one for one in pictures]
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
    parser.add_argument("--mosaics", type=int, default=6)
    parser.add_argument("--volumes", type=int, help="in place of mosaics")
    parser.add_argument("--learn", type=int, default=LEARN_PIXELS, help="pixels, at most")
    parser.add_argument("--windows", type=int, nargs="+", default=[3, 9, 21])
    parser.add_argument("--tiles", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--nuclei", type=int, nargs="+", metavar="SIDE")
    parser.add_argument("--way", nargs=2, help=argparse.SUPPRESS)
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
        return
    if given.nuclei is not None:
        nuclei(given)
        return
    if given.computed is not None:
        computed(given.computed, given.first, given.labels, given.folder)
        return
    if given.workers is not None:
        workers(given.workers, given.labels, (given.sizes or [4096])[0], given.folder)
        return
    if given.speed:
        speed(given.labels)
        return
    if given.sizes is not None:
        sizes(given.sizes, given.labels, given.folder)
        return
    if given.volumes:
        seams([(volume(k), "intensity") for k in range(given.volumes)], given)
        return
    seams([(mosaic(k), "lab") for k in range(given.mosaics)], given)


if __name__ == "__main__":
    main()
