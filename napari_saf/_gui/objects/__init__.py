"""The Objects dock: individual objects of each label, split, corrected, measured, classified."""
