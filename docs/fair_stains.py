"""Two images of one tissue, one stained and lit differently, clustered together.

python docs/fair_stains.py    writes docs/pictures/fair_stains.png and fair_trade_off.png
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray

import napari_saf as saf
from napari_saf.samples import read_sample

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PICTURES = Path(__file__).parent / "pictures"
N_LABELS = 3


def stain_darker(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the image under a weaker, bluer light and a stronger stain."""
    return np.uint8(255 * (image / 255) ** 1.3 * (0.55, 0.5, 0.6))


def paint(labels: NDArray[np.integer], prototypes: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return labels in colours from dark to light by the lightness of their prototypes."""
    order = np.argsort(np.argsort(prototypes[:, 0]))
    colours = plt.cm.viridis(np.linspace(0, 1, len(prototypes)))[order, :3]
    return colours[labels - 1]


def main() -> None:
    """Cluster at rising fairness, print what comes of it, draw it."""
    first = read_sample("histology").array
    images = [first, stain_darker(first)]
    problem = saf.Problem.from_images(
        images, features="lab", groups="image", weights="uniform", max_side=None
    )
    found = saf.FairClustering(n_clusters=N_LABELS).sweep(problem)
    print("weight, objective, fairness error, balance, pixels with one label in both images")
    agreement = []
    for point in found.points:
        one, other = point.segmentation.labels
        agreement.append(float((one == other).mean()))
        print(
            f"{point.weight:10.1f} {point.objective:9.1f} {point.fairness_error:7.3f} "
            f"{point.balance:6.3f} {100 * agreement[-1]:6.1f} %"
        )
    PICTURES.mkdir(exist_ok=True)
    figure, axes = plt.subplots(3, 2, figsize=(6.4, 9.6), layout="constrained")
    plain, fair = found.points[0], found.points[-1]
    for column, name in enumerate(("first image", "second image")):
        axes[0, column].imshow(images[column])
        axes[0, column].set_title(name)
        for row, point in ((1, plain), (2, fair)):
            result = point.segmentation
            axes[row, column].imshow(paint(result.labels[column], result.prototypes))
    axes[1, 0].set_title("without fairness: labels follow the image", loc="left")
    axes[2, 0].set_title("with fairness: labels follow the tissue", loc="left")
    for axis in axes.flat:
        axis.set_axis_off()
    figure.savefig(PICTURES / "fair_stains.png", dpi=70)
    figure, axis = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    finite = [k for k, point in enumerate(found.points) if np.isfinite(point.fairness_error)]
    points = [found.points[k] for k in finite]
    axis.plot([p.fairness_error for p in points], [p.objective for p in points], "o-")
    for k, point in zip(finite, points, strict=True):
        if point.fairness_error > 4:
            continue  # these lie on one another
        words = f"λ = {point.weight:,.0f}, {100 * agreement[k]:.0f} % alike"
        place = (point.fairness_error, point.objective)
        axis.annotate(words, place, xytext=(6, 3), textcoords="offset points", fontsize=8)
    axis.set(xlabel="fairness error (nats, sum over labels)", ylabel="objective")
    axis.margins(y=0.15)
    figure.savefig(PICTURES / "fair_trade_off.png", dpi=90)


if __name__ == "__main__":
    main()
