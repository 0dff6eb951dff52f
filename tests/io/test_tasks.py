"""Files of few-shot tasks."""

import numpy as np
import pytest

import napari_saf as saf


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    labels = np.array([[1, 2, 1, 2, 2], [1, 2, 2, 1, 1], [1, 2, 2, 2, 1]])
    return {
        "features": rng.random((9, 4)).astype(np.float32),
        "rows": rng.integers(0, 9, labels.shape),
        "seeds": np.where(np.arange(5) < 2, labels, 0),
        "labels": labels,
        "base": rng.random((6, 4)).astype(np.float32),
    }


def save_parquet(path, arrays, *, wide, order=slice(None)):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    features = arrays["features"][arrays["rows"]].reshape(-1, 4)[order]
    columns = {
        "task": np.repeat([7, 11, 30], 5)[order],
        "seed": arrays["seeds"].ravel()[order],
        "label": arrays["labels"].ravel()[order],
    }
    if wide:
        columns |= {f"f{k}": column for k, column in enumerate(features.T)}
    else:
        columns["features"] = list(features)
    parquet.write_table(pyarrow.table(columns), path)


def test_arrays_come_back_from_npz(tmp_path, arrays):
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    found = saf.load_tasks(tmp_path / "a.npz")
    assert found.n_tasks == 3
    for name, array in arrays.items():
        np.testing.assert_array_equal(getattr(found, name), array)


@pytest.mark.parametrize("wide", [True, False])
def test_parquet_holds_the_nodes_of_each_task(tmp_path, arrays, wide):
    """In the order of the file within a task, whatever the order of tasks."""
    order = np.r_[10:15, 0:3, 5:10, 3:5]
    save_parquet(tmp_path / "a.parquet", arrays, wide=wide, order=order)
    found = saf.load_tasks(tmp_path / "a.parquet")
    np.testing.assert_array_equal(found.features, arrays["features"][arrays["rows"]])
    np.testing.assert_array_equal(found.seeds, arrays["seeds"])
    np.testing.assert_array_equal(found.labels, arrays["labels"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": None}, "expected features, seeds"),
        ({"label": np.zeros((3, 5), int)}, "label"),
        ({"seeds": np.ones((3, 4), int)}, "seeds: expected shape"),
        ({"seeds": np.ones((3, 5), int)}, "none of class 2"),
        ({"rows": np.full((3, 5), 9)}, "rows: expected"),
        ({"rows": np.zeros(5, int)}, "rows: expected"),
        ({"rows": None}, "features: expected finite numbers of shape (n_tasks"),
        ({"labels": np.ones((2, 5), int)}, "labels: expected shape"),
        ({"base": np.ones((6, 3))}, "base: expected"),
        ({"features": np.full((9, 4), np.nan)}, "finite"),
        ({"features": np.array([[{}]])}, "allow_pickle"),
    ],
)
def test_a_wrong_npz_is_refused_by_name(tmp_path, arrays, changes, said):
    entries = {name: array for name, array in (arrays | changes).items() if array is not None}
    np.savez(tmp_path / "a.npz", **entries)
    with pytest.raises(saf.FormatError) as error:
        saf.load_tasks(tmp_path / "a.npz")
    assert "a.npz" in str(error.value) and said in str(error.value)


@pytest.mark.parametrize("name", ["a.npz", "a.parquet", "a.csv"])
def test_a_file_of_something_else_is_refused_by_name(tmp_path, name):
    if name == "a.parquet":
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(b"PK" + bytes(40))
    with pytest.raises(saf.FormatError, match=name):
        saf.load_tasks(tmp_path / name)


def test_tasks_of_several_sizes_are_refused(tmp_path, arrays):
    save_parquet(tmp_path / "a.parquet", arrays, wide=True, order=slice(14))
    with pytest.raises(saf.FormatError, match="one size, got 4 to 5"):
        saf.load_tasks(tmp_path / "a.parquet")


def test_normalized_features_go_through_the_steps(arrays):
    tasks = saf.FewShotTasks(**arrays)
    rows, base = np.sqrt(arrays["features"]), np.sqrt(arrays["base"])
    rows, base = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (rows, base))
    found = tasks.normalized("power", "unit", "center")
    np.testing.assert_allclose(found.features, rows - base.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.base.mean(axis=0), 0, atol=1e-6)
    again = found.normalized("unit")
    np.testing.assert_allclose(np.linalg.norm(again.features, axis=1), 1, rtol=1e-5)
    assert tasks.normalized().features is tasks.features


@pytest.mark.parametrize(
    ("changes", "step", "said"),
    [
        ({"base": None}, "center", "base classes"),
        ({"features": -np.ones((9, 4))}, "power", "negative"),
        ({}, "whiten", "power, unit, center"),
    ],
)
def test_a_step_that_cannot_be_made_is_refused(arrays, changes, step, said):
    with pytest.raises(saf.InvalidInput, match=said):
        saf.FewShotTasks(**(arrays | changes)).normalized(step)


def test_accuracy_counts_queries_alone(arrays):
    tasks = saf.FewShotTasks(**arrays)
    found = arrays["labels"].copy()
    assert tasks.accuracies(found).tolist() == [1, 1, 1]
    found[1, 0], found[1, 2], found[2, 3:] = 2, 1, [1, 2]
    np.testing.assert_allclose(tasks.accuracies(found), [1, 2 / 3, 1 / 3])
    with pytest.raises(saf.InvalidInput, match="found"):
        tasks.accuracies(found[:2])


@pytest.mark.parametrize("last", [[[1.0], [1.0, 2.0, 3.0]], [None, [0.0, 1.0, 2.0, 4.0]]])
def test_lists_of_several_lengths_are_refused(tmp_path, last):
    """Else the numbers of one node would count for the next."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [[0.0, 1.0], [1.0, 0.0], *last]
    table = {"task": [0] * 4, "seed": [1, 2, 0, 0], "features": rows}
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    with pytest.raises(saf.errors.FormatError, match="features: expected lists of one"):
        saf.load_tasks(tmp_path / "a.parquet")


def test_a_table_without_features_is_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = {"task": [0] * 4, "seed": [1, 2, 0, 0]}
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    with pytest.raises(saf.errors.FormatError, match="expected columns of features"):
        saf.load_tasks(tmp_path / "a.parquet")
