"""What is kept on disk is kept in folders of a test."""

import pytest


@pytest.fixture(autouse=True)
def _own_folders(own_cache):
    pass
