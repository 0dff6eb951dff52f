"""Patch dictionaries: quality of reconstructions beside those of other dictionaries.

python benchmarks/dictionary.py [--sets brick brodatz fingerprint ridges] [--atoms 4 10 20 60 100]

PSNR in dB (peak = the range of the learning images) on novel images; on two fingerprints
themselves. Others, one patch a pixel: k-means, each patch its nearest mean;
MiniBatchDictionaryLearning of patches without their mean, each patch its mean and one atom with a
gain; k-means of shapes under the 8 symmetries, each patch its mean and the shape that fits best
with a gain, the overlaps averaged alike or, as ours in "fitted", with weights that fall with the
residual. They see the same images, scaled alike; k-means learns from 60,000 patches, dictionary
learning from 20,000. The last column is "fitted" of atoms learned under any contrast.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import MiniBatchDictionaryLearning

import napari_saf as saf
from napari_saf.dictionary import RECONSTRUCTIONS
from napari_saf.features import Scaling

DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data"))
SIZE = 7
SETS = ("brick", "brodatz", "fingerprint", "ridges")
Images = list[NDArray[Any]]
Coding = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def read_sets(names: list[str]) -> dict[str, tuple[Images, Images]]:
    """Return the images to learn from and the novel ones of each set, channels last."""
    found: dict[str, tuple[Images, Images]] = {}
    for name, folder in (("brick", DATA / "facades" / "brick"), ("brodatz", DATA / "brodatz")):
        parts = [sorted((folder / part).glob("*.png")) for part in ("learn", "novel")]
        learn, novel = ([_planes(iio.imread(path)) for path in paths] for paths in parts)
        found[name] = learn, novel
    for name, file in (("fingerprint", "sourceafis_probe.png"), ("ridges", "fp_336x258.jpg")):
        one = _planes(iio.imread(DATA / "fingerprint" / file))[..., :1]
        found[name] = ([one], [one])
    return {name: found[name] for name in names}


def _planes(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return image[..., None] if image.ndim == 2 else image[..., :3]


def patches(image: NDArray[np.floating]) -> NDArray[np.float32]:
    views = np.lib.stride_tricks.sliding_window_view(image, (SIZE, SIZE), axis=(0, 1))
    return views.reshape(-1, image.shape[-1] * SIZE**2).astype(np.float32)


def psnr_of_patches(
    image: NDArray[np.floating], rows: NDArray[np.floating], *, weighted: bool = False
) -> float:
    """Return the PSNR of the mean of all patches, each in its place.

    If they are weighted, by exp(-r / (mean of r / 2)), r the squared residuals of patches.
    """
    height, width, channels = image.shape
    total, count = np.zeros(image.shape), np.zeros((height, width, 1))
    shape = (height - SIZE + 1, width - SIZE + 1)
    residuals = np.square(rows - patches(image)).sum(axis=1)
    weights = np.exp(-2 * residuals / residuals.mean()) if weighted else np.ones(len(rows))
    weights = np.maximum(weights, 1e-6).reshape(*shape, 1)
    cube = rows.reshape(*shape, channels, SIZE, SIZE)
    for y in range(SIZE):
        for x in range(SIZE):
            total[y : y + shape[0], x : x + shape[1]] += weights * cube[..., y, x]
            count[y : y + shape[0], x : x + shape[1]] += weights
    return float(-10 * np.log10(np.square(total / count - image).mean()))


def k_means(learn: Images, n_atoms: int) -> Coding:
    model = KMeans(n_atoms, n_init=1, random_state=0).fit(_sample(learn, 60_000))
    return lambda rows: model.cluster_centers_[model.predict(rows)]


def dictionary_learning(learn: Images, n_atoms: int) -> Coding:
    rows = _sample(learn, 20_000)
    model = MiniBatchDictionaryLearning(
        n_atoms, random_state=0, batch_size=512, max_iter=20, fit_algorithm="lars"
    ).fit(rows - rows.mean(axis=1, keepdims=True))
    atoms = model.components_ / np.linalg.norm(model.components_, axis=1, keepdims=True)
    return partial(_fitted, shapes=np.concatenate([atoms, -atoms]).astype(np.float32))


def shape_means(learn: Images, n_atoms: int, n_rounds: int = 30) -> Coding:
    """K-means of shapes, |P° - g T Q|^2 over gains g >= 0 and symmetries T."""
    rows = _sample(learn, 60_000)
    rows -= rows.mean(axis=1, keepdims=True)
    shapes = rows[:n_atoms]
    for _ in range(n_rounds):
        shapes /= np.maximum(np.linalg.norm(shapes, axis=1, keepdims=True), 1e-12)
        # Row 8 k + T of the products: the patches turned by T, with shape k.
        gains = np.stack([rows @ turned.T for turned in _turns(shapes)])
        symmetry, atom = np.divmod(
            gains.transpose(1, 0, 2).reshape(len(rows), -1).argmax(1), n_atoms
        )
        gain = gains[symmetry, np.arange(len(rows)), atom].clip(min=0)
        shapes = np.zeros_like(shapes)
        for k in range(8):
            own = symmetry == k
            # The inverse of a turn by k quarters is one by 4 - k; mirrored ones undo themselves.
            turned = _turns(rows[own])[(4 - k) % 4 if k < 4 else k]
            np.add.at(shapes, atom[own], gain[own, None] * turned)
    shapes /= np.maximum(np.linalg.norm(shapes, axis=1, keepdims=True), 1e-12)
    return partial(_fitted, shapes=np.concatenate(_turns(shapes)))


def _turns(rows: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """Return patches under the 8 symmetries: quarter turns, then those of the mirrored."""
    cube = rows.reshape(len(rows), -1, SIZE, SIZE)
    both = (cube, cube[..., ::-1])
    return [np.rot90(one, k, (2, 3)).reshape(rows.shape) for one in both for k in range(4)]


def _fitted(rows: NDArray[np.float32], shapes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return of each patch its mean and the shape that fits best, with its gain."""
    means = rows.mean(axis=1, keepdims=True)
    gains = (rows - means) @ shapes.T
    best = gains.argmax(axis=1)
    return np.asarray(means + gains[np.arange(len(rows)), best, None].clip(min=0) * shapes[best])


def _sample(images: Images, count: int) -> NDArray[np.float32]:
    rows = np.concatenate([patches(image) for image in images])
    rng = np.random.default_rng(0)
    return rows[rng.choice(len(rows), min(count, len(rows)), replace=False)]


def show_psnr(sets: dict[str, tuple[Images, Images]], counts: list[int]) -> None:
    names = ("k-means", "dict.learning", "shapes", "weighted", *RECONSTRUCTIONS, "any contrast")
    for name, (learn, novel) in sets.items():
        print(f"\n{name}: {len(learn)} images learned from, {len(novel)} made anew, PSNR in dB")
        print(f"{'atoms':>5} {'ours':>5}", *(f"{word:>13}" for word in names), "  seconds of each")
        scaling = Scaling.of(learn)
        scaled = [scaling.apply(image) for image in learn]
        truth = [(image - scaling.low) / (scaling.high - scaling.low) for image in novel]
        for n_atoms in counts:
            values, seconds = [], []
            for fit in (k_means, dictionary_learning, shape_means):
                began = time.process_time()
                model = fit(scaled, n_atoms)
                seconds.append(time.process_time() - began)
                rows = [model(patches(image)) for image in truth]
                for weighted in (False, True)[: 1 + (fit is shape_means)]:
                    pairs = zip(truth, rows, strict=True)
                    values.append(
                        np.mean([psnr_of_patches(*pair, weighted=weighted) for pair in pairs])
                    )
            began = time.process_time()
            learning = partial(saf.PatchDictionary.learn, learn, n_atoms=n_atoms, channel_axis=-1)
            dictionary = learning()
            seconds.append(time.process_time() - began)
            last = learning(any_contrast=True)
            for ours, how in (*((dictionary, how) for how in RECONSTRUCTIONS), (last, "fitted")):
                found = [ours.apply(x, reconstruction=how, channel_axis=-1) for x in novel]
                values.append(np.mean([one.psnr for one in found]))
            times = " / ".join(f"{value:.1f}" for value in seconds)
            columns = " ".join(f"{value:13.2f}" for value in values)
            print(f"{n_atoms:5} {dictionary.n_atoms:5} {columns}   {times}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--atoms", nargs="+", type=int, default=[4, 10, 20, 60, 100])
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", module="sklearn")
    show_psnr(read_sets(arguments.sets), arguments.atoms)


if __name__ == "__main__":
    main()
