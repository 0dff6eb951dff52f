"""Patch dictionaries of a texture, and of prints at several numbers and sizes of atoms.

python docs/dictionary_facades.py
    learns from one half of the brick sample, applies to the other; writes
    docs/pictures/dictionary_brick.png and dictionary_sizes.png

python docs/dictionary_facades.py --learn FOLDER --novel FOLDER --print IMAGE -o OUT
    does the same with other images: 20 atoms of 7 x 7 from all images of one folder applied to
    all of another; 4 and 10 atoms of sides 7, 11 and 15 from one image
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray

import napari_saf as saf
from napari_saf.dictionary import RECONSTRUCTIONS
from napari_saf.samples import read_sample

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PICTURES = Path(__file__).parent / "pictures"
SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
Image = NDArray[np.generic]


def read_folder(folder: Path) -> list[Image]:
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    return [saf.read_image(path).array for path in paths]


def sheet(dictionary: saf.PatchDictionary, columns: int = 10) -> NDArray[np.floating]:
    """Return the atoms side by side, the most used first, with a rim of white."""
    side = dictionary.patch_size + 1
    rows = -(-dictionary.n_atoms // columns)
    shape = (rows * side + 1, columns * side + 1, dictionary.n_channels)
    canvas = np.ones(shape, dtype=np.float32)
    for k, atom in enumerate(dictionary.atoms.clip(0, 1)):
        y, x = 1 + k // columns * side, 1 + k % columns * side
        canvas[y : y + side - 1, x : x + side - 1] = atom
    return canvas if canvas.shape[-1] == 3 else canvas[..., 0]


def show(axis: plt.Axes, image: Image, title: str, **options: object) -> None:
    axis.imshow(image, interpolation="nearest", **{"cmap": "gray", **options})
    axis.set_title(title, fontsize=9)
    axis.set_axis_off()


def apply_to_novel(learn: list[Image], novel: list[Image], path: Path) -> None:
    """Learn 20 atoms of 7 x 7 and draw what they make of other images."""
    dictionary = saf.PatchDictionary.learn(learn, n_atoms=20, patch_size=7)
    low, high = dictionary.scaling.low, dictionary.scaling.high
    figure, axes = plt.subplots(
        len(novel) + 1, 4, figsize=(9, 2.4 * (len(novel) + 1)), layout="constrained", squeeze=False
    )
    show(axes[0, 0], learn[0], f"learned from ({len(learn)})", vmin=low, vmax=high)
    show(axes[0, 1], sheet(dictionary), f"{dictionary.n_atoms} atoms of 7 x 7", vmin=0, vmax=1)
    for axis in axes[0, 2:]:
        axis.set_axis_off()
    print("novel image, PSNR in dB: matched, blended, fitted")
    for number, (row, image) in enumerate(zip(axes[1:], novel, strict=True)):
        found = {how: dictionary.apply(image, reconstruction=how) for how in RECONSTRUCTIONS}
        print(f"{number:2}", *(f"{one.psnr:6.2f}" for one in found.values()))
        show(row[0], image, "novel image", vmin=low, vmax=high)
        show(row[1], found["matched"].labels, "labels", cmap="tab20")
        for axis, how in zip(row[2:], ("matched", "fitted"), strict=True):
            made = found[how].reconstruction
            shown = np.clip((made - low) / (high - low), 0, 1)
            show(axis, shown, f"{how}, {found[how].psnr:.1f} dB", vmin=0, vmax=1)
    figure.savefig(path, dpi=80)
    print(path)


def compare_sizes(image: Image, path: Path) -> None:
    """Learn 4 and 10 atoms of three sizes from one image and draw what they make of it."""
    figure, axes = plt.subplots(2, 6, figsize=(13, 4.8), layout="constrained")
    print("atoms, side, PSNR in dB: matched, blended, fitted")
    for row, n_atoms in zip(axes, (4, 10), strict=True):
        for k, size in enumerate((7, 11, 15)):
            dictionary = saf.PatchDictionary.learn([image], n_atoms=n_atoms, patch_size=size)
            found = [dictionary.apply(image, reconstruction=how) for how in RECONSTRUCTIONS]
            print(f"{n_atoms:5} {size:4}", *(f"{one.psnr:6.2f}" for one in found))
            title = f"{dictionary.n_atoms} of {size} x {size}, {found[0].psnr:.1f} dB"
            show(row[2 * k], sheet(dictionary, 4), title, vmin=0, vmax=1)
            low, high = dictionary.scaling.low, dictionary.scaling.high
            show(row[2 * k + 1], found[0].reconstruction, "matched", vmin=low, vmax=high)
    figure.savefig(path, dpi=80)
    print(path)


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learn", type=Path)
    parser.add_argument("--novel", type=Path)
    parser.add_argument("--print", dest="one", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=PICTURES)
    arguments = parser.parse_args()
    brick = read_sample("brick").array
    learn = read_folder(arguments.learn) if arguments.learn else [brick[:256, :256]]
    novel = read_folder(arguments.novel) if arguments.novel else [brick[256:, 256:]]
    one = saf.read_image(arguments.one).array if arguments.one else brick[:256, 256:]
    arguments.output.mkdir(parents=True, exist_ok=True)
    own = not (arguments.learn or arguments.novel or arguments.one)
    apply_to_novel(learn, novel, arguments.output / f"dictionary_{'brick' if own else 'novel'}.png")
    compare_sizes(one, arguments.output / "dictionary_sizes.png")


if __name__ == "__main__":
    main()
