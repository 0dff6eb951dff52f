"""The Compare dock: several methods and parameter values on one image, side by side."""
