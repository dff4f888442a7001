"""Chapter 30, appendix. One run to a directory

Two runs that write into one directory both go on, and lose each other's work. To look whether somebody is there and
then begin is not enough, for two can look at the same moment, and a note that says "taken" outlives whoever is killed.
The kernel's lock on an open file does both at once: of many who ask for it one gets it, and it ends with the process
that has it, however that ends.

    first      open run.lock   flock: granted   writes who it is   trains . . . . . . . . . . .   ends: lock gone
    second                        open run.lock   flock: refused   reads who it is, says so

The file stays, and means nothing by itself. Windows locks a part of a file; there that is a byte which nobody reads.
Where a file system has no locks, the run goes on without one.

A file may have a second name: `cp -al run copy` makes one file of both locks, and the second name may be that of
anything. So the directory itself, which has no second name, is locked before it where that can be, and whoever has it
puts a fresh file in the place of such a lock.
"""

import contextlib
import importlib
import io
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

from numpy_attention.errors import InputError
from numpy_attention.files import writing

NAME = "run.lock"
FAR = 2**30  # the byte that Windows locks lies here: nobody can read what is locked there
MOST = 200  # bytes of what a holder writes


@contextlib.contextmanager
def hold(directory: Path | str) -> Iterator[None]:
    """Within it no other run writes into the directory.

    Raises: InputError that says which run does, or why nobody can.
    """
    path, alone = Path(directory) / NAME, True
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):  # where a directory can be opened and locked
            importlib.import_module("fcntl")
            folder = os.open(path.parent, os.O_RDONLY)
            stack.callback(os.close, folder)
            alone = _granted(folder)
        with writing(path):
            file = stack.enter_context(_opened(path, fresh=alone))
        if not (alone and _granted(file.fileno())):
            raise InputError(f"{directory} is in use: {_holder(file)}; wait for its end, or name another directory")
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        _write(file, f"process {os.getpid()} on {platform.node()} has trained there since {since}")
        stack.callback(_write, file, "")
        yield


def _opened(path: Path, fresh: bool) -> io.FileIO:
    """The lock's file; with `fresh` another one in the place of one that has a second name."""
    safe = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # no link is followed, no pipe waited for
    while True:
        try:
            file = io.FileIO(path, "r+", opener=lambda name, flags: os.open(name, flags | os.O_CREAT | safe, 0o666))
        except PermissionError:
            if not path.is_file():
                raise
            file = io.FileIO(path, opener=lambda name, flags: os.open(name, flags | safe))  # a lock needs no more
        if not fresh or os.fstat(file.fileno()).st_nlink < 2:
            return file
        file.close()
        path.unlink(missing_ok=True)


def _granted(handle: int) -> bool:
    """Whether the kernel gives us the lock; where there is none to be had, nobody is refused."""
    try:
        with contextlib.suppress(ImportError):
            fcntl = importlib.import_module("fcntl")
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        msvcrt = importlib.import_module("msvcrt")
        os.lseek(handle, FAR, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):
        return False
    except (OSError, ImportError):  # this file system, or this system, has no locks
        pass
    return True


def _holder(file: io.FileIO) -> str:
    """What the holder has written, if it makes sense."""
    time.sleep(0.1)  # it may have the lock, but the words of a dead run still stand there
    with contextlib.suppress(OSError):
        file.seek(0)
        said = file.read(MOST).decode("ascii", "backslashreplace")
        if said and said.isprintable():
            return said
    return "another process trains there"


def _write(file: io.FileIO, text: str) -> None:
    """Put it in place of what the file holds; a file that may only be read, or a full disk, is no reason to stop."""
    with contextlib.suppress(OSError):
        file.truncate(0)
        file.seek(0)
        file.write(text.encode("ascii", "replace"))
