"""The Export dock: take labels away, repeat their recipe."""
