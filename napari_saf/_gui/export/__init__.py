"""The Export dock: save labels and apply their recipe to other images."""
