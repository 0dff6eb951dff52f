"""Widgets that know no run: fields, forms, choices, curves."""
