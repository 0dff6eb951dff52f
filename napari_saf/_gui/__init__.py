"""The napari app. The only place that knows napari and Qt."""
