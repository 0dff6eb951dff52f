"""``napari-saf fewshot``."""

import csv

import numpy as np
import pytest

import napari_saf as saf


@pytest.fixture
def tasks(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.tile(np.repeat([1, 2, 3], 8), (6, 1))
    features = rng.random((3, 10))[labels - 1] + 0.1 * rng.random((6, 24, 10))
    seeds = np.where(np.arange(24) % 8 < 2, labels, 0)
    order = rng.permutation(features.shape[0] * features.shape[1]).reshape(labels.shape)
    table = np.empty((order.size, 10))
    table[order] = features
    found = {"features": table, "rows": order, "seeds": seeds, "labels": labels}
    np.savez(tmp_path / "a.npz", **found)
    return saf.FewShotTasks(**found)


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_all_queries_get_the_labels_of_every_method(cli, tasks):
    outcome = cli("fewshot", "a.npz", "-o", "out/t.csv", "--max-iterations", 5)
    assert outcome.code == 0, outcome.err
    found, is_query = rows("out/t.csv"), tasks.seeds == 0
    assert len(found) == is_query.sum()
    for row in found:
        task, node = int(row["task"]), int(row["node"])
        assert is_query[task, node]
        assert int(row["row"]) == tasks.rows[task, node]
        assert int(row["label"]) == tasks.labels[task, node]
    for name in ("slk", "laplacianshot", "bavardage"):
        labels = saf.METHODS[name](max_iterations=5).run_tasks(
            tasks.features, tasks.seeds, rows=tasks.rows
        )
        assert [int(row[name]) for row in found] == labels[is_query].tolist()
        values = 100 * tasks.accuracies(labels)
        half = 1.96 * values.std(ddof=1) / len(values) ** 0.5
        assert f"{name}: 6 tasks, accuracy {values.mean():.2f} ± {half:.2f} %" in outcome.out
    assert cli("fewshot", "a.npz", "-o", "out/t.csv").is_error("t.csv", "--overwrite")


def test_a_method_its_parameters_and_normalized_features(cli, tasks):
    outcome = cli("fewshot", "a.npz", "-o", "t.csv", "--method", "laplacianshot",
                  "--laplacian-weight", 0.7, "--normalize", "power, unit")  # fmt: skip
    assert outcome.code == 0, outcome.err
    done = tasks.normalized("power", "unit")
    method = saf.LaplacianShot(laplacian_weight=0.7)
    labels = method.run_tasks(done.features, done.seeds, rows=done.rows)
    found = rows("t.csv")
    assert list(found[0]) == ["task", "node", "row", "label", "laplacianshot"]
    wanted = labels[tasks.seeds == 0].tolist()
    assert [int(row["laplacianshot"]) for row in found] == wanted


def test_without_truth_there_is_no_accuracy(cli, tasks):
    np.savez("b.npz", features=tasks.features[tasks.rows], seeds=tasks.seeds)
    outcome = cli("fewshot", "b.npz", "-o", "t.csv", "--method", "bavardage")
    assert outcome.code == 0 and "accuracy" not in outcome.out
    assert list(rows("t.csv")[0]) == ["task", "node", "bavardage"]


def test_what_does_not_do_is_refused(cli, tasks):
    np.savez("all.npz", features=tasks.features[tasks.rows], seeds=tasks.labels)
    assert cli("fewshot", "all.npz", "-o", "t.csv").is_error("queries")
    assert cli("fewshot", "a.npz", "-o", "t.csv", "--normalize", "center").is_error("base")
    assert cli("fewshot", "a.npz", "-o", "t.png").is_error("t.png")
    wrong = cli("fewshot", "a.npz", "-o", "t.csv", "--method", "slk", "--rectification", 5)
    assert wrong.code == 2 and "--rectification" in wrong.err
