"""The Objects dock: single things of a kind."""
