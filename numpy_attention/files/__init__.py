"""Files: whole or not at all, and nothing in them trusted.

    whole       a file is whole, or it is not there; what is read is a regular file
    arrays      arrays in a file, and a configuration beside them
"""

from numpy_attention.files.arrays import VERSION, config_from, load_arrays, read_into, save_arrays
from numpy_attention.files.whole import (
    open_regular,
    reading,
    sweep,
    temporary_folder,
    there,
    whole_or_not_at_all,
    writing,
)

__all__ = [
    "VERSION", "config_from", "load_arrays", "open_regular", "read_into", "reading", "save_arrays", "sweep",
    "temporary_folder", "there", "whole_or_not_at_all", "writing",
]
