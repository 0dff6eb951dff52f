"""The Prototypes dock: see what labels stand for, edit them, use them on other images."""
