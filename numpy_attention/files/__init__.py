"""Files: atomic writes, and loading that checks everything.

    whole       atomic writes; only regular files are read
    arrays      arrays in a file, together with a configuration
"""

import warnings

from numpy_attention.files.arrays import VERSION, config_from, load_arrays, read_into, save_arrays
from numpy_attention.files.whole import atomic_write, exists, open_regular, reading, sweep, temporary_folder, writing

__all__ = [
    "VERSION", "atomic_write", "config_from", "exists", "load_arrays", "open_regular", "read_into", "reading",
    "save_arrays", "sweep", "temporary_folder", "writing",
]


def __getattr__(name: str) -> object:
    """The new function for an old name; the old names work for one release."""
    new = {"there": "exists", "whole_or_not_at_all": "atomic_write"}.get(name)
    if new is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{name} is now called {new}.", DeprecationWarning, stacklevel=2)
    return globals()[new]
