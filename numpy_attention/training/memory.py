"""Reuse the memory that every step frees and allocates again.

Each training step allocates and frees arrays of the same sizes, and so does each token of generation. The C library
returns large arrays to the system at once. It gets new pages for the next arrays, and the kernel fills these pages with
zeros: this takes 5 to 20 % of the time. With the settings below, the C library keeps freed memory and reuses the same
pages. The process then holds the memory of its largest step until it ends.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # names and numbers of glibc's malloc.h


def keep_freed_memory() -> bool:
    """Ask the C library of this process to keep freed memory for reuse; True if it accepts (glibc on Linux)."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library, without this setting
        return False
    settings = {M_MMAP_THRESHOLD: 2**30, M_TRIM_THRESHOLD: 2**31 - 1, M_ARENA_MAX: 1}
    return all(mallopt(knob, value) == 1 for knob, value in settings.items())
