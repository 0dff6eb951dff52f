"""Files whatever is in them: written atomically, read within limits, tensors with a header.

Nothing read from a file is ever executed, and a file that is written replaces an older one only
when it is complete. What the formats of this project are is said by those that own them.
"""

from napari_saf.storage._atomic_write import (
    atomic_write,
    hidden_name,
    make_folder,
    remove_leftovers,
    remove_path,
)
from napari_saf.storage._reading import (
    FileModel,
    Model,
    Text,
    VersionedModel,
    check_room,
    format_errors,
    parse_json,
    read_limited,
    validated,
)
from napari_saf.storage._tensors import load_tensors, save_tensors

__all__ = [
    "FileModel",
    "Model",
    "Text",
    "VersionedModel",
    "atomic_write",
    "check_room",
    "format_errors",
    "hidden_name",
    "load_tensors",
    "make_folder",
    "parse_json",
    "read_limited",
    "remove_leftovers",
    "remove_path",
    "save_tensors",
    "validated",
]
