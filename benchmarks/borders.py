"""How well borders lie on those that people drew: labels of ours beside peers.

    python benchmarks/borders.py [--images 30]

F of border pixels within 1 and 2 pixels. Photographs of the folder bsds_dev, against the
best-matching of the people: labels of a first click and regions, with and without full resolution,
Felzenszwalb and SLIC with merging at the setting that is best for all. Objects of the folder
grabcut from strokes, what the Scribbles dock does, beside OpenCV's grabCut (pip install
opencv-python-headless) where it is there; with the mean intersection over union. The folders are
sought under NAPARI_SAF_DATA (../shared/data).
"""

from __future__ import annotations

import argparse
import dataclasses
from collections import defaultdict

import imageio.v3 as iio
import numpy as np
from defaults import peers, problem_of
from regions import Photograph
from scribbles import BACKGROUND, DATA, OBJECT, UNKNOWN, grab_cut, score
from sharpen import Labels, boundary_f

import napari_saf as saf


def best_f(labels: Labels, references: Labels) -> list[float]:
    """Return F at 1 and 2 pixels with the reference whose mean of both is highest."""
    return max((boundary_f(labels, reference) for reference in references), key=np.mean)


def photographs(n_images: int) -> None:
    scores: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for path in sorted((DATA.parent / "bsds_dev" / "images").iterdir())[:n_images]:
        photograph = Photograph.read(path.parents[1], path.stem, 2)
        image = np.rint(255 * photograph.image).astype(np.uint8)
        found: dict[tuple[str, str], Labels] = {}
        for full in (True, False):
            problem = problem_of(image)
            assert problem.options is not None
            options = dataclasses.replace(problem.options, full_resolution=full)
            problem = dataclasses.replace(problem, options=options)
            labels = np.asarray(saf.SelfAssignmentFlow().run(problem).labels)
            size = "" if full else ", size alone"
            found["first click, labels", size] = labels
            found["first click, regions", size] = saf.merge_regions(labels, image).at_level()
        found |= {(name, setting): labels for name, setting, labels in peers(photograph)}
        for key, labels in found.items():
            scores[key].append(best_f(labels, photograph.references))
    means = {key: np.mean(rows, axis=0) for key, rows in scores.items()}
    for name in dict.fromkeys(name for name, _ in means):
        own = {setting: mean for (key, setting), mean in means.items() if key == name}
        if "" in own:
            for setting, mean in own.items():
                print(f"{name + setting:36} {mean[0]:.3f} {mean[1]:.3f}")
        else:
            setting = max(own, key=lambda each: float(own[each].mean()))
            print(f"{f'{name}, {setting}':36} {own[setting][0]:.3f} {own[setting][1]:.3f}")


def objects(n_images: int) -> None:
    scores: dict[str, list[list[float]]] = defaultdict(list)
    for path in sorted((DATA / "images").iterdir())[:n_images]:
        image, truth = iio.imread(path), iio.imread(DATA / "masks" / f"{path.stem}.png")
        strokes = iio.imread(DATA / "scribbles1" / f"{path.stem}.png")
        choice, found = saf.choose_for_strokes(image, strokes), {}
        for full, name in ((True, "strokes"), (False, "strokes, size alone")):
            options = choice.options.arguments() | {"full_resolution": full}
            problem = saf.Problem.from_image(image, seeds=strokes, **options)
            found[name] = np.asarray(choice.method.run(problem).labels == OBJECT)
        try:
            found["grabCut"] = grab_cut(image, strokes)
        except ImportError:
            print("OpenCV is not there")
        for name, mask in found.items():
            mask = np.where(strokes == OBJECT, True, mask & (strokes != BACKGROUND))
            mask[truth == UNKNOWN] = (truth == 255)[truth == UNKNOWN]
            f = boundary_f(mask.astype(int), (truth == 255).astype(int))
            scores[name].append([*f, score(found[name], strokes, truth)[0]])
    for name, rows in scores.items():
        print("{:36} {:.3f} {:.3f}  IoU {:.3f}".format(name, *np.mean(rows, axis=0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=30)
    options = parser.parse_args()
    print("photographs: F at 1 px, 2 px")
    photographs(options.images)
    print("objects from strokes: F at 1 px, 2 px")
    objects(options.images)


if __name__ == "__main__":
    main()
