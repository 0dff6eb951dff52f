"""Workers of dask that all tests of tiles share."""

import pytest


@pytest.fixture(scope="session")
def threads():
    """Return a client of one worker of two threads, in this process."""
    distributed = pytest.importorskip("distributed")
    settings = {"processes": False, "n_workers": 1, "threads_per_worker": 2}
    with (
        distributed.LocalCluster(**settings, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client
