"""The Project dock."""
