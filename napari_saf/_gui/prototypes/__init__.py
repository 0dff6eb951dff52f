"""The Prototypes dock: inspect and edit labels, and apply their prototypes to other images."""
