"""Labels of a reduced size become those of the image itself, by every way the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import binary_opening, gaussian_filter

import napari_saf as saf
from napari_saf.methods import _full_resolution as full_resolution
from napari_saf.methods import run_to_end
from napari_saf.parts import in_view

SIDE, REDUCED = 256, 64


def disks(side: int = SIDE, seed: int = 0) -> NDArray[np.bool_]:
    """Return disks of radius 9 to 14 in a grid, and dots of radius 2 between them."""
    rng = np.random.default_rng(seed)
    truth = np.zeros((side, side), bool)
    rows, columns = np.mgrid[:side, :side]
    for row in range(20, side, 40):
        for column in range(20, side, 40):
            radius = rng.uniform(9, 14)
            truth |= np.hypot(rows - row, columns - column) < radius
            truth |= np.hypot(rows - row - 20, columns - column - 20) < 2.5
    return truth


def picture(truth: NDArray[np.bool_], seed: int = 0) -> NDArray[np.float32]:
    noise = np.random.default_rng(seed).normal(0, 0.05, truth.shape)
    return np.asarray(gaussian_filter(0.2 + 0.6 * truth, 0.7) + noise, np.float32)


def problem_of(image: NDArray[Any], **options: Any) -> saf.Problem:
    chosen: dict[str, Any] = {"features": "intensity", "window": 3, "max_side": REDUCED} | options
    return saf.Problem.from_image(image, **chosen)


def agreement(labels: Any, truth: NDArray[np.bool_]) -> float:
    """Return the share of the pixels whose label, called by what most of it is, is right."""
    counts = np.bincount(labels.ravel())
    inside = np.bincount(labels.ravel(), weights=truth.ravel())
    return float(((inside > counts / 2)[labels] == truth).mean())


METHODS: dict[str, saf.methods.AbstractMethod] = {
    "saf": saf.SelfAssignmentFlow(max_labels=2),
    "slk": saf.SLK(n_clusters=2),
    "fair": saf.FairClustering(n_clusters=2),
    "af": saf.AssignmentFlow(prototypes=np.array([[0.1], [0.9]])),
}


@pytest.mark.parametrize("name", METHODS)
def test_labels_have_the_borders_of_the_image(name: str) -> None:
    truth = disks()
    groups = np.indices(truth.shape)[1] // 32 % 2 + 1
    more = {"groups": groups} if name == "fair" else {}
    image = picture(truth)
    small = METHODS[name].run(problem_of(image, full_resolution=False, **more))
    full = METHODS[name].run(problem_of(image, **more))
    assert agreement(small.labels, truth) < 0.97
    assert agreement(full.labels, truth) > (0.97 if name == "fair" else 0.99)
    assert full.labels.dtype == small.labels.dtype  # type: ignore[union-attr]


def test_what_is_smaller_than_a_node_appears() -> None:
    truth = disks()
    image = picture(truth)
    dots = truth & ~binary_opening(truth, np.ones((9, 9)))
    for full, least, most in ((False, 0.0, 0.4), (True, 0.9, 1.0)):
        result = METHODS["saf"].run(problem_of(image, full_resolution=full))
        bright = result.labels == np.argmax([image[result.labels == k].mean() for k in (1, 2)]) + 1
        assert least <= bright[dots].mean() <= most


def test_snapshots_tell_the_stage_and_how_far_it_is() -> None:
    """Columns keep their numbers from one stage to the next, whatever their sizes."""
    stages, fractions, first, preview = [], [], None, None
    for snapshot in METHODS["saf"].iterate(problem_of(picture(disks()))):
        stages.append(snapshot.stage)
        fractions.append(snapshot.fraction)
        if snapshot.stage == "preview":
            preview = snapshot.labels
        elif first is None:
            first = snapshot.labels
    changes = [a for a, b in zip(stages, [*stages[1:], ""], strict=True) if a != b]
    assert changes == ["preview", "full resolution"]
    assert fractions == sorted(fractions) and fractions[-1] == 1
    assert first is not None and first.shape == (SIDE, SIDE) and first.min() >= 1
    assert (preview == first).mean() > 0.9  # type: ignore[attr-defined]
    whole = problem_of(picture(disks(64)), max_side=None)
    assert {snapshot.stage for snapshot in METHODS["saf"].iterate(whole)} == {""}


@pytest.fixture
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let images be learned from in four blocks of 64 pixels a side, and labelled in parts."""
    monkeypatch.setattr("napari_saf.parts._BLOCK", {2: 64})
    monkeypatch.setattr("napari_saf.parts._MOST_LEARNED", 2**14)
    monkeypatch.setattr(full_resolution, "_MOST_AT_ONCE", 2**14)


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("name", ["_MOST_FIELDS", "_MOST_AT_ONCE"])
def test_parts_have_the_labels_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether features are made once or for each part, and however many parts there are."""
    found: list[Any] = []
    for most in (2**13, 2**30):
        monkeypatch.setattr(full_resolution, name, most)
        problem = problem_of(picture(disks()), features="texture", window=7, weights="contrast")
        found.append(METHODS["saf"].run(problem).labels)
    assert all((found[-1] == one).mean() > 0.9999 for one in found)


@pytest.mark.parametrize("stage", ["preview", "full resolution"])
def test_stop_keeps_the_labels_that_are_there(stage: str) -> None:
    truth, seen = disks(), [""]
    problem = problem_of(picture(truth))
    steps = METHODS["saf"].iterate(problem, cancelled=lambda: seen[0] == stage)
    result = run_to_end(steps, lambda snapshot: seen.__setitem__(0, snapshot.stage))
    assert result.status is saf.Status.CANCELLED
    assert result.labels.shape == (SIDE, SIDE) and result.labels.min() >= 1  # type: ignore[union-attr]
    if stage == "full resolution":  # borders are sharp by then
        assert agreement(result.labels, truth) > 0.975


def test_planes_of_a_stack_are_labelled_as_alone() -> None:
    truths = [disks(seed=seed) for seed in range(2)]
    stack = np.stack([picture(truth, seed) for seed, truth in enumerate(truths)])
    method = METHODS["af"]
    scaling = (0.0, 1.0)
    together: Any = method.run(problem_of(stack, window=(1, 3, 3), scaling=scaling)).labels
    for plane, labels in zip(stack, together, strict=True):
        alone = method.run(problem_of(plane, scaling=scaling)).labels
        assert (alone == labels).mean() > 0.995


def test_volumes_too() -> None:
    grid = np.mgrid[:48, :48, :48] - 23.5
    truth = np.linalg.norm(grid, axis=0) < 15.3
    image = picture(truth)
    found = METHODS["af"].run(problem_of(image, max_side=12, scaling=(0.2, 0.8))).labels
    assert agreement(found, truth) > 0.99


def test_several_images_share_their_labels() -> None:
    truths = [disks(seed=1), disks(128, seed=2), disks(48, seed=3)]  # the last is not reduced
    images = [picture(truth) for truth in truths]
    problem = saf.Problem.from_images(images, features="intensity", window=3, max_side=REDUCED)
    labels = METHODS["saf"].run(problem).labels
    assert isinstance(labels, list)
    for found, truth, image in zip(labels, truths, images, strict=True):
        assert found.shape == truth.shape and agreement(found, truth) > 0.97
        assert image[found == 1].mean() < image[found == 2].mean()  # the larger one is the ground


def test_outside_of_a_mask_is_0() -> None:
    truth = disks()
    inside = np.ones(truth.shape, bool)
    inside[:, :100] = False
    image = picture(truth)
    image[:, :90] = np.nan
    found: Any = METHODS["saf"].run(problem_of(image, mask=inside)).labels
    np.testing.assert_array_equal(found > 0, inside)
    assert agreement(found[:, 100:], truth[:, 100:]) > 0.985


def test_nearness_to_strokes_is_not_lost() -> None:
    """Two disks alike, one of which is painted: labels of the other do not spread at full size."""
    truth = disks()
    image, seeds = picture(truth), np.zeros(truth.shape, int)
    seeds[20, 16:25], seeds[40:60, 2] = 1, 2
    problem = problem_of(image, seeds=seeds, weights="contrast")
    labels: Any = saf.AssignmentFlow(connected=True).run(problem).labels
    assert (labels[:40, :40] == 1).mean() > 0.1 and (labels[50:] == 1).mean() < 0.02


@pytest.mark.usefixtures("in_blocks")
def test_parts_in_view_come_first_and_labels_are_the_same() -> None:
    truth = disks()
    problem, method = problem_of(picture(truth)), METHODS["af"]
    expected, first = method.run(problem), []
    preview = np.array([])
    with in_view(lambda: (250, 3)):
        for snapshot in method.iterate(problem):
            labels = np.asarray(snapshot.labels)
            if snapshot.stage != "full resolution":
                continue
            if len(preview) and not len(first) and (labels != preview).any():
                first = np.argwhere(labels != preview).tolist()
            preview = labels if not len(first) else preview
    assert np.min(first, axis=0)[0] >= 128 and np.max(first, axis=0)[1] < 128
    with in_view(lambda: (3, 250)):
        np.testing.assert_array_equal(method.run(problem).labels, expected.labels)


def test_a_stroke_changes_only_the_blocks_that_its_labels_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("napari_saf.parts._BLOCK", {2: 32})
    truth = disks()
    image, strokes = picture(truth), np.zeros(truth.shape, int)
    strokes[18:23, 14:26], strokes[38:40, 2:30] = 1, 2
    image[200:230, 200:230] = 0.5  # as near to one class as to the other
    method = saf.AssignmentFlow(paths=0.0, rounds=0)
    problem = problem_of(image, seeds=strokes)
    before = method.run(problem)
    labelled: list[Any] = []
    label_parts = full_resolution._FullRun._label_parts

    def spy(run: Any, flow: Any, blocks: Any, *arguments: Any) -> Any:
        labelled.extend(blocks[0])
        return label_parts(run, flow, blocks, *arguments)

    monkeypatch.setattr(full_resolution._FullRun, "_label_parts", spy)
    strokes[205:225, 205:225] = 3 - int(before.labels[215, 215])
    changed = problem.with_seeds(strokes)
    after = method.run(changed, before.assignment)
    assert 0 < len(labelled) < 16 and (after.labels[205:225, 205:225] == strokes[215, 215]).all()
    is_labelled = np.zeros(truth.shape, bool)
    for block in labelled:
        is_labelled[block] = True
    np.testing.assert_array_equal(after.labels[~is_labelled], before.labels[~is_labelled])
    anew = method.run(problem_of(image, seeds=strokes))
    assert (after.labels == anew.labels).mean() > 0.99
