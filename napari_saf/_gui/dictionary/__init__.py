"""The Patch dictionary dock: learn, inspect and apply dictionaries of patches."""
