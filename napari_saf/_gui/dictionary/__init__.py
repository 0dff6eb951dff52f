"""The Patch dictionary dock: learn atoms, inspect them, apply them."""
