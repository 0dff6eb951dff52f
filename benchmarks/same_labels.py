"""Whether another checkout of this package gives the same labels, on fixed images.

Every method runs on every fixed image, in both versions, each in processes of its own with one
thread. Prints the share of pixels whose label is the same, case by case, the mean and the least.

    git worktree add /tmp/before v0.1.0
    python benchmarks/same_labels.py /tmp/before
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]

CHILD = """
import sys
import napari_saf as saf
import numpy as np
from napari_saf.samples import read_sample
from skimage.transform import resize

assert saf.__file__.startswith(sys.argv[2]), saf.__file__
coins = resize(read_sample("coins").array, (76, 96), anti_aliasing=True)
person = resize(read_sample("astronaut").array, (80, 80), anti_aliasing=True)
volume = np.stack([np.roll(coins, k, axis=1)[:48, :48] for k in range(6)])
images = {"coins": coins, "astronaut": person, "volume": volume, "rgb 0 to 255": 255 * person}
options = {
    "coins": {}, "astronaut": {"features": "lab", "window": 5}, "volume": {},
    "rgb 0 to 255": {"weights": "nonlocal", "window": 5},
}
found = {}
for image_name, image in images.items():
    shape = image.shape if image_name in ("coins", "volume") else image.shape[:2]
    seeds = np.zeros(shape, dtype=np.uint8)
    seeds[..., 2:5, 2:20] = 1
    seeds[..., shape[-2] // 2, 8:30] = 2
    seeds[..., shape[-2] - 6, 4:40] = 3
    groups = np.broadcast_to(np.arange(shape[-1]) % 2 + 1, shape)
    for name, method in saf.METHODS.items():
        for strokes in (False, True):
            problem = saf.Problem.from_image(
                image, seeds=seeds if strokes else None, groups=groups, **options[image_name]
            )
            try:
                result = method().run(problem)
            except saf.InvalidInput:
                continue  # methods that need strokes
            found[f"{image_name}, {name}" + ", strokes" * strokes] = result.labels
np.savez(sys.argv[1], **found)
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("before", type=Path, help="folder of the other checkout")
    given = arguments.parse_args()
    before, after = labels_of(given.before.resolve()), labels_of(ROOT)
    shares = {case: float((before[case] == after[case]).mean()) for case in before}
    for case, share in shares.items():
        print(f"{case:38} {100 * share:7.3f} %")
    least, mean = min(shares, key=lambda case: shares[case]), np.mean([*shares.values()])
    print(f"mean {100 * mean:.3f} %, least {100 * shares[least]:.3f} % ({least})")


def labels_of(folder: Path) -> dict[str, np.ndarray]:
    """Return the labels that the checkout in a folder gives, by case."""
    variables = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "labels.npz"
        command = [sys.executable, "-c", CHILD, str(out), str(folder)]
        subprocess.run(command, env=variables, check=True, cwd=place)
        with np.load(out) as found:
            return dict(found)


if __name__ == "__main__":
    main()
