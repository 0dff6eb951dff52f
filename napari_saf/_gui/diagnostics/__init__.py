"""The Diagnostics dock: how a run went, back in time, and on from there."""
