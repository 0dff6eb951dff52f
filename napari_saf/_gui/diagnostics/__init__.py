"""The Diagnostics dock: curves of a run, its labels at earlier times, and branches."""
