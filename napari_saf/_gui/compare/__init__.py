"""The Compare dock: methods and values side by side."""
