"""Memory that is freed and asked for again at every step.

A training step makes and drops the same arrays each time, and so does a model that writes, token by token. The C
library returns large ones to the system at once and gets fresh pages for the next, which the kernel fills with zeros
one by one: 5 to 20 % of the time. Told to keep what is freed, it hands the same pages out again. The process then holds
on to the memory of its largest step until it ends.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # names and numbers of glibc's malloc.h


def keep_freed_memory() -> bool:
    """Ask the C library of this process to keep freed memory for reuse; whether it could be asked (glibc on Linux)."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library, which has no such knob
        return False
    settings = {M_MMAP_THRESHOLD: 2**30, M_TRIM_THRESHOLD: 2**31 - 1, M_ARENA_MAX: 1}
    return all(mallopt(knob, value) == 1 for knob, value in settings.items())
