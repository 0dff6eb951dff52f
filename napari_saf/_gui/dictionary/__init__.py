"""The Patch dictionary dock: learn atoms, look at them, apply them."""
