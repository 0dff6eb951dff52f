"""What a first click makes of images of scikit-image, as it comes out.

python docs/first_click.py    writes docs/pictures/first_click.png
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from skimage import data

import napari_saf as saf
from napari_saf.features import Foreground

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PICTURE = Path(__file__).parent / "pictures" / "first_click.png"
NAMES = (
    *("page", "text", "clock", "coins", "cell", "camera", "brick", "horse"),
    *("immunohistochemistry", "hubble_deep_field", "retina", "moon"),
)
COLOURS = np.array([*plt.cm.tab10.colors[:9]])


def main() -> None:
    """Draw each image above its labels, and say what was chosen."""
    figure, axes = plt.subplots(6, 4, figsize=(8, 11.4), layout="constrained")
    for k, name in enumerate(NAMES):
        image = getattr(data, name)()
        problem = saf.Problem.from_image(image)
        result = saf.SelfAssignmentFlow().run(problem)
        chosen = problem.options.extractor
        word = f"{chosen.ground} ground" if isinstance(chosen, Foreground) else chosen.title
        print(f"{name}: {word}, {result.n_labels} labels")
        above, below = axes[2 * (k // 4) : 2 * (k // 4) + 2, k % 4]
        above.imshow(image, cmap="gray", interpolation="antialiased")
        above.set_title(name.replace("_", " "), fontsize=8)
        below.imshow(COLOURS[result.labels - 1], interpolation="antialiased")
        below.set_title(f"{word}, {result.n_labels} labels", fontsize=8)
        for one in (above, below):
            one.set_axis_off()
    figure.savefig(PICTURE, dpi=75)


if __name__ == "__main__":
    main()
