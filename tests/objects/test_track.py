"""Tracks of discs that move and divide, as the Cell Tracking Challenge measures them."""

import sys

import numpy as np
import pytest
import tifffile
import zarr

import napari_saf as saf

SIDE, N_FRAMES = 160, 16


@pytest.fixture(autouse=True)
def tracker():
    pytest.importorskip("laptrack")


def moving_discs(seed=0, n_discs=9, missing=0.0):
    """Frames of numbered discs; the tracks are a list of number, first, last frame and parent."""
    rng = np.random.default_rng(seed)
    grid = np.linspace(20, SIDE - 20, 3)
    places = {k + 1: np.array([grid[k // 3], grid[k % 3]]) for k in range(n_discs)}
    tracks = {number: [0, 0, 0] for number in places}
    rows, columns = np.ogrid[:SIDE, :SIDE]
    truth, seen = np.zeros((2, N_FRAMES, SIDE, SIDE), np.uint16)
    drift = {}  # of those that have divided, away from each other
    for t in range(N_FRAMES):
        if t == 7:
            for number in (2, 5, 9):
                middle = places.pop(number)
                for sign in (-1, 1):
                    new = max(tracks) + 1
                    drift[new] = (0, 0.6 * sign)
                    places[new], tracks[new] = np.add(middle, (0, 8 * sign)), [t, t, number]
        for number in places:
            step = rng.normal(drift.get(number, 0), 1.2, 2)
            places[number] = np.clip(places[number] + step, 9, SIDE - 10)
            tracks[number][1] = t
            y, x = places[number]
            inside = (rows - y) ** 2 + (columns - x) ** 2 <= 36
            truth[t][inside & (truth[t] == 0)] = number
            if rng.random() >= missing:
                seen[t][inside & (truth[t] == number)] = number
    return truth, seen, tracks


def objects_of(frames):
    return saf.split_objects(frames > 0, axis=0, smallest=1)


@pytest.mark.parametrize("by", ["distance", "overlap"])
def test_discs_are_followed_through_gaps_and_divisions(by):
    truth, _, expected = moving_discs()
    tracks = saf.track_objects(objects_of(truth), by=by)
    assert len(set(tracks.table["track"])) == len(expected)
    assert sorted(map(list(tracks.parents.values()).count, set(tracks.parents.values()))) == [2] * 3
    for number in np.unique(truth)[1:]:
        counts = np.bincount(tracks.labels[truth == number])
        assert counts.max() > 0.95 * counts.sum()
    rows, graph = tracks.layer_data
    assert rows.shape[1] == 4 and set(graph) == set(tracks.parents)
    where = np.round(rows[:, 1:]).astype(int)
    assert np.array_equal(tracks.labels[tuple(where.T)], rows[:, 0])


@pytest.mark.parametrize("by", ["distance", "overlap"])
def test_the_measure_of_the_challenge_is_high_although_discs_are_missed(tmp_path, by):
    metrics = pytest.importorskip("ctc_metrics")
    truth, seen, expected = moving_discs(1, missing=0.02)
    tracks = saf.track_objects(objects_of(seen), by=by)
    saf.save_tracks(tmp_path / "res", tracks)
    folder = tmp_path / "gt" / "TRA"
    folder.mkdir(parents=True)
    for t, frame in enumerate(truth):
        tifffile.imwrite(folder / f"man_track{t:03d}.tif", frame)
    lines = [
        f"{number} {first} {last} {parent}\n" for number, (first, last, parent) in expected.items()
    ]
    (folder / "man_track.txt").write_text("".join(lines))
    found = metrics.evaluate_sequence(str(tmp_path / "res"), str(tmp_path / "gt"), ["Valid", "TRA"])
    assert found["Valid"] == 1 and found["TRA"] > 0.97


def test_by_overlap_long_things_keep_their_track_where_centroids_are_nearer_to_others():
    frames = np.zeros((2, 20, 60), np.uint8)
    frames[0, 2:6, 2:42], frames[1, 2:6, 14:54] = 1, 1  # goes on by 12, over a small one
    frames[0, 8:12, 32:36] = 1
    found = {
        by: saf.track_objects(objects_of(frames), by=by).labels for by in ("distance", "overlap")
    }
    assert found["distance"][1, 3, 20] == found["distance"][0, 9, 33]
    assert found["overlap"][1, 3, 20] == found["overlap"][0, 3, 20]


def test_a_track_with_a_gap_is_saved_in_pieces(tmp_path):
    frames = np.zeros((4, 20, 20), np.uint8)
    for t in (0, 1, 3):
        frames[t, 5:10, 5:10] = 1
    tracks = saf.track_objects(objects_of(frames), most_missing=1)
    assert set(tracks.table["track"]) == {1}
    paths = saf.save_tracks(tmp_path, tracks)
    assert paths[-1].read_text().splitlines() == ["1 0 1 0", "2 3 3 1"]
    assert [int(tifffile.imread(path).max()) for path in paths[:-1]] == [1, 1, 0, 2]
    apart = saf.track_objects(objects_of(frames), most_missing=0)
    assert set(apart.table["track"]) == {1, 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reach": 0}, "reach"),
        ({"most_missing": 0.5}, "most_missing"),
        ({"spacing": (1, 1, 1)}, "spacing"),
        ({"by": "colour"}, "by"),
        ({"by": "overlap", "reach": 3}, "by"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(saf.InvalidInput, match=message):
        saf.track_objects(objects_of(moving_discs()[0][:3]), **options)


def test_objects_of_several_frames_are_refused_and_nothing_has_no_track(tmp_path, monkeypatch):
    with pytest.raises(saf.InvalidInput, match="frame"):
        saf.track_objects(saf.split_objects(np.ones((3, 9, 9), int)))
    with pytest.raises(saf.InvalidInput, match="series"):
        saf.track_objects(saf.split_objects(np.ones((9, 9), int)))
    nothing = saf.track_objects(objects_of(np.zeros((3, 5, 5), int)))
    assert not nothing.labels.any()
    (path,) = saf.save_tracks(tmp_path / "none.geff", nothing)
    assert zarr.open_group(path, mode="r")["edges/ids"].shape == (0, 2)
    monkeypatch.setitem(sys.modules, "laptrack", None)
    with pytest.raises(saf.SafError, match=r"napari-saf\[track\]"):
        saf.track_objects(objects_of(moving_discs()[0][:3]))


def test_a_geff_holds_objects_and_how_each_goes_on(tmp_path):
    truth, seen, _ = moving_discs(missing=0.02)
    tracks = saf.track_objects(objects_of(seen))
    (path,) = saf.save_tracks(tmp_path / "tracks.geff", tracks)
    saf.save_tracks(path, tracks)  # written over
    group = zarr.open_group(path, mode="r")
    about, nodes, edges = group.attrs["geff"], group["nodes/ids"][:], group["edges/ids"][:]
    assert about["directed"] and [axis["name"] for axis in about["axes"]] == ["t", "y", "x"]
    np.testing.assert_array_equal(np.sort(nodes), tracks.objects.numbers)
    values = {name: group[f"nodes/props/{name}/values"][:] for name in about["node_props_metadata"]}
    row = {int(node): k for k, node in enumerate(nodes)}
    ends = np.array([[row[int(end)] for end in edge] for edge in edges])
    assert edges.dtype == nodes.dtype and len(np.unique(edges, axis=0)) == len(edges)
    assert (np.diff(values["t"][ends], axis=1) >= 1).all()
    # Along a track one after the other, and to both of what it divides into.
    at_division = values["track"][ends[:, 0]] != values["track"][ends[:, 1]]
    found = {tuple(pair[::-1]) for pair in values["track"][ends[at_division]].tolist()}
    assert found == set(tracks.parents.items())
    assert (~at_division).sum() == len(nodes) - len(set(values["track"].tolist()))
    assert abs(values["y"][ends] - values["y"][ends[:, ::-1]]).max() < 20
    assert truth.shape[0] > values["t"].max()
