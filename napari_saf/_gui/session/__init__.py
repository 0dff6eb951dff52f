"""What is done in a viewer from its first dock on: kept on its own, saved, opened again."""
