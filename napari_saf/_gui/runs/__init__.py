"""Runs in worker threads: `run` defines, `controller` displays, and `panel` controls them."""
