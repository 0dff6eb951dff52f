"""The Prototypes dock: see what labels stand for, correct them, use them elsewhere."""
