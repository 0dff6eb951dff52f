"""Base class and shared widgets of the docks: keys, help, tables, batch and tiled labelling."""
