"""limited_memory.py MEGABYTES ARGUMENTS: the program, in a process that may take so much memory beyond what it has
taken by being loaded. `read FILE` in place of the arguments reads a whole text.

The limit is on what a process writes to for itself. Pages of a file that is mapped to be read are not counted: the
system may drop them and read them again.
"""

import resource
import sys
from pathlib import Path

from numpy_attention.app.main import main
from numpy_attention.training.data import read_text


def own_memory():
    """Bytes of private writable memory."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))


if __name__ == "__main__":
    limit = own_memory() + int(sys.argv[1]) * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    if sys.argv[2] == "read":
        try:
            print(len(read_text(sys.argv[3])))
        except MemoryError:
            sys.exit("out of memory")
    else:
        sys.exit(main(sys.argv[2:]))
