"""Which features tell textures apart: strokes on mosaics and on nuclei, one method.

python benchmarks/features.py [--images odd|even|all] [--mosaics 32] [--only NAME ...]

Mosaics have 200 pixels a side and 2 to 5 textures, each in 3 cells of a Voronoi diagram, of which
2 have a stroke of 20 pixels. Textures are Brodatz tiles, of equal mean and contrast, or brick
facades, each facade a texture. The score is the share of the pixels without a stroke that are
right; of nuclei, with strokes of ``scribbles_nuclei.py``, it is F1. The method is what the
Scribbles dock takes for textures, with other features; "automatic" is what it chooses itself. Even
images are for choosing, odd ones for reporting.

Beside the features that have a name there are others which are in no package of ours: Gabor
filters, scattering of first and second order, filters that are patches of the image, whitened, or
noise, and an encoder that was trained on the image itself for so many seconds, by denoising. Deep
features are those of VGG16, of the stages that are taken by default or of the first two, if its
weights are there.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import imageio.v3 as iio
import numpy as np
import scribbles_nuclei as nuclei
import torch
from numpy.typing import NDArray
from scipy import fft
from scipy.ndimage import distance_transform_edt, gaussian_filter
from scipy.signal import fftconvolve
from skimage.filters import gabor_kernel

import napari_saf as saf
from napari_saf.features import FEATURES, DeepFeatures, FeatureExtractor, perceived, standardized
from napari_saf.methods import stroke_choices
from napari_saf.methods._stroke_choice import left_out_accuracy

DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data"))
N_CELLS, LENGTH, MARGIN = 3, 20, 3
AROUND, N_ORIENTATIONS, COLOUR = 8.0, 6, 0.5
Array = NDArray[Any]
Case = tuple[Array, Array, Callable[[Array], float]]


def mosaic(textures: Sequence[Sequence[Array]], count: int, rng: np.random.Generator) -> Case:
    """Return image, strokes and score of a mosaic of `count` textures, each a list of tiles."""
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
    truth = kinds[cells] + 1
    return image, strokes, lambda found: float((found == truth)[strokes == 0].mean())


def _least_distance(points: Array) -> float:
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    return float((apart + 1e9 * np.eye(len(points))).min())


def mosaics(textures: Sequence[Sequence[Array]], numbers: Sequence[int]) -> Iterator[Case]:
    for number in numbers:
        yield mosaic(textures, 2 + number // 2 % 4, np.random.default_rng(number))


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
    paths = sorted((DATA / "nuclei/images").iterdir())
    for number in numbers:
        image = iio.imread(paths[number])
        truth = iio.imread(next((DATA / "nuclei/labels").glob(f"{paths[number].stem}.*")))
        strokes = nuclei.draw(truth, np.random.default_rng(0))
        yield image, strokes, _nuclei_score(strokes, truth)


def _nuclei_score(strokes: Array, truth: Array) -> Callable[[Array], float]:
    return lambda found: nuclei.f1(found == nuclei.NUCLEUS, strokes, truth)


def lightness(image: Array) -> Array:
    return np.asarray(perceived(image)[..., 0] if image.shape[-1] == 3 else image.mean(axis=-1))


def with_colour(responses: Sequence[Array], image: Array, n_axes: int = 24) -> Array:
    """Return the first principal axes of log responses, averaged around, beside colour."""
    around = np.stack([gaussian_filter(response, AROUND) for response in responses], axis=-1)
    values = standardized(np.log(around + 0.02 * around.mean(axis=(0, 1)) + 1e-9))
    flat = values.reshape(-1, values.shape[-1])
    axes = np.linalg.eigh(flat.T @ flat)[1][:, ::-1][:, :n_axes]
    found = np.concatenate([values @ axes, COLOUR * perceived(image)], axis=-1)
    return np.asarray(found, np.float32)


def gabor(image: Array) -> Array:
    light, found = lightness(image), []
    for frequency in (0.06, 0.12, 0.24):
        for turn in range(N_ORIENTATIONS):
            kernel = gabor_kernel(frequency, np.pi * turn / N_ORIENTATIONS)
            rims = [(side // 2, side // 2) for side in kernel.shape]
            padded = np.pad(light, rims, mode="symmetric")
            found.append(np.abs(fftconvolve(padded, kernel - kernel.mean(), mode="valid")))
    return with_colour(found, image)


def morlet(shape: tuple[int, ...], scale: int, turn: int) -> Array:
    """Return a Morlet wavelet by frequency, 2^scale times the finest."""
    y, x = 2 * np.pi * fft.fftfreq(shape[0])[:, None], 2 * np.pi * fft.fftfreq(shape[1])
    angle, width = np.pi * turn / N_ORIENTATIONS, 0.8 * 2**scale

    def bump(at: float) -> Array:
        along = x * np.cos(angle) + y * np.sin(angle) - at
        across = (y * np.cos(angle) - x * np.sin(angle)) * N_ORIENTATIONS / 4
        return np.asarray(np.exp(-(width**2) / 2 * (along**2 + across**2)))

    wave, rest = bump(3 * np.pi / 4 / 2**scale), bump(0.0)
    return np.asarray(wave - wave[0, 0] / rest[0, 0] * rest, np.float32)


def scattering(image: Array, n_scales: int = 4) -> Array:
    rim = 2**n_scales
    padded = np.pad(lightness(image), rim, mode="reflect")
    inner = (slice(rim, -rim),) * 2
    every = [(scale, turn) for scale in range(n_scales) for turn in range(N_ORIENTATIONS)]
    bank = {which: morlet(padded.shape, *which) for which in every}
    spectrum, found = fft.fft2(padded), []
    for (scale, _), wave in bank.items():
        first = np.abs(fft.ifft2(spectrum * wave))
        found.append(first[inner])
        own, mean = fft.fft2(first), gaussian_filter(first, AROUND)[inner] + 1e-3
        coarser = [other for (wider, _), other in bank.items() if wider > scale]
        found += [np.abs(fft.ifft2(own * other))[inner] / mean for other in coarser]
    return with_colour(found, image)


def filtered(light: Array, filters: Array, stride: int) -> list[Array]:
    """Return positive and negative parts of what filters (n, side, side) respond."""
    side = filters.shape[-1]
    rows = torch.from_numpy(light)[None, None].float()
    padded = torch.nn.functional.pad(rows, (side // 2 * stride,) * 4, mode="reflect")
    kernels = torch.from_numpy(filters)[:, None].float()
    found = torch.nn.functional.conv2d(padded, kernels, dilation=stride)[0].numpy()
    return [*np.maximum(found, 0), *np.maximum(-found, 0)]


def random_filters(image: Array, *, seed: int, patches: bool, n_filters: int = 32) -> Array:
    rng, light, side, found = np.random.default_rng(seed), lightness(image), 7, []
    for stride in (1, 2, 4):
        blurred = gaussian_filter(light, 0.5 * stride) if stride > 1 else light
        weights = rng.standard_normal((n_filters, side * side))
        if patches:
            windows = np.lib.stride_tricks.sliding_window_view(
                blurred, (stride * (side - 1) + 1,) * 2
            )
            rows, columns = (rng.integers(0, n, 4000) for n in windows.shape[:2])
            own = windows[rows, columns, ::stride, ::stride].reshape(len(rows), -1)
            own = own - own.mean(axis=1, keepdims=True)
            values, vectors = np.linalg.eigh(np.cov(own.T))
            weights = own[:n_filters] @ (vectors / (values + 0.05 * values.mean())) @ vectors.T
        weights -= weights.mean(axis=1, keepdims=True)
        weights /= np.linalg.norm(weights, axis=1, keepdims=True)
        found += filtered(blurred, weights.reshape(-1, side, side), stride)
    return with_colour(found, image)


def trained(image: Array, seconds: float) -> Array:
    """Return what an encoder of three layers says that was trained to take noise away."""
    torch.manual_seed(0)
    conv = torch.nn.Conv2d
    encoder = torch.nn.Sequential(
        conv(1, 32, 5, padding=2, padding_mode="reflect"), torch.nn.ReLU(),
        conv(32, 32, 3, padding=2, dilation=2, padding_mode="reflect"), torch.nn.ReLU(),
        conv(32, 32, 3, padding=4, dilation=4, padding_mode="reflect"), torch.nn.ReLU(),
    )  # fmt: skip
    network = torch.nn.Sequential(encoder, conv(32, 1, 1))
    rows = torch.from_numpy(lightness(image))[None, None].float()
    rows = (rows - rows.mean()) / rows.std()
    adam, ends = torch.optim.Adam(network.parameters(), 2e-3), time.process_time() + seconds
    while time.process_time() < ends:
        top, left = (int(torch.randint(0, n - 95, ())) for n in rows.shape[2:])
        patch = rows[..., top : top + 96, left : left + 96]
        loss = (network(patch + 0.7 * torch.randn_like(patch)) - patch).square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    with torch.no_grad():
        found = encoder(rows)[0].numpy()
    return with_colour([*found], image)


OTHERS: dict[str, Callable[[Array], Array]] = {
    "gabor": gabor,
    "scattering": scattering,
    "patches, seed 0": partial(random_filters, seed=0, patches=True),
    "patches, seed 1": partial(random_filters, seed=1, patches=True),
    "noise, seed 0": partial(random_filters, seed=0, patches=False),
    "noise, seed 1": partial(random_filters, seed=1, patches=False),
    "untrained": partial(trained, seconds=0),
    "trained, 20 s": partial(trained, seconds=20),
}


WEIGHTS = DATA / "vgg16" / "vgg16_hed_bsds500.safetensors"
DEEP = {
    "deep": DeepFeatures("vgg16", str(WEIGHTS)),
    "deep, layers 0,1": DeepFeatures("vgg16", str(WEIGHTS), layers=(0, 1)),
}


class Other(FeatureExtractor):
    """One of `OTHERS`."""

    name, title, normalisation = "other", "other", "image"
    function: ClassVar[Callable[[Array], Array]]

    def features(self, image: Array, axes: Any = None, mask: Any = None) -> Array:
        return np.asarray(type(self).function(image))


def label(image: Array, strokes: Array, name: str) -> Array:
    """Label by the method that the Scribbles dock takes for textures, with named features."""
    if name == "automatic":
        chosen = saf.choose_for_strokes(image, strokes)
        problem = saf.Problem.from_image(image, seeds=strokes, **chosen.options.arguments())
        return np.asarray(chosen.method.run(problem).labels)
    colour = image.ndim == 3
    choice = stroke_choices(3 if colour else 1)["texture"]
    if name == "colour":
        name = "lab" if colour else "intensity"
    if name in OTHERS:
        Other.function = staticmethod(OTHERS[name])
    features: Any = DEEP.get(name) or (name if name in FEATURES else Other())
    options = dataclasses.replace(choice.options, features=features)
    problem = saf.Problem.from_image(image, seeds=strokes, **options.arguments())
    return np.asarray(choice.method.run(problem).labels)


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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    fixed = [name for name in FEATURES if name not in ("lab", "deep")]
    named = ["automatic", "colour", *fixed, *(DEEP if WEIGHTS.is_file() else ())]
    parser.add_argument("--images", choices=("even", "odd", "all"), default="odd")
    parser.add_argument("--mosaics", type=int, default=32, help="before those are chosen")
    parser.add_argument("--only", nargs="+", choices=[*named, *OTHERS], default=[*named, *OTHERS])
    parser.add_argument("--threshold", action="store_true", help="cross-validate a choice instead")
    arguments = parser.parse_args()
    FEATURES[Other.name] = Other
    with tempfile.TemporaryDirectory() as folder:  # deep features of an earlier run do not count
        os.environ["XDG_CACHE_HOME"] = folder
        report(arguments)


def report(arguments: argparse.Namespace) -> None:
    first, step = {"even": (0, 2), "odd": (1, 2), "all": (0, 1)}[arguments.images]
    numbers = range(first, arguments.mosaics, step)
    sets = {
        "brodatz": list(mosaics(brodatz(), numbers)),
        "facades": list(mosaics(facades(), numbers)),
        "nuclei": list(of_nuclei(range(first, 15, step))),
    }
    if arguments.threshold:
        return threshold(sets)
    print(f"{'features':18} {' '.join(f'{name:>8}' for name in sets)}  s/image")
    for name in arguments.only:
        means, began = [], time.process_time()
        for cases in sets.values():
            scores = [score(label(image, strokes, name)) for image, strokes, score in cases]
            means.append(float(np.mean(scores)))
        seconds = (time.process_time() - began) / sum(map(len, sets.values()))
        print(f"{name:18} {' '.join(f'{mean:8.3f}' for mean in means)} {seconds:8.2f}", flush=True)


if __name__ == "__main__":
    main()
