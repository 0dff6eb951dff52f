"""Widgets independent of runs: fields, forms, choices and layout; `image_input` combines them."""
