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
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

from numpy_attention.errors import InputError
from numpy_attention.files import writing

NAME = "run.lock"
FAR = 2**30  # where the byte lies that Windows locks: nobody can read what is locked there
MOST = 200  # bytes of what a holder says
WHEN = "%Y-%m-%d %H:%M:%S"


@contextlib.contextmanager
def hold(directory: Path | str) -> Iterator[None]:
    """Within it no other run writes into the directory.

    Raises: InputError that says which run does, or why nobody can.
    """
    path = Path(directory) / NAME
    with contextlib.ExitStack() as handles:
        alone = True
        for folder in _folder(path.parent):
            handles.callback(os.close, folder)
            alone = _granted(folder)
        with writing(path):
            handle = _opened(path, fresh=alone)
        handles.callback(os.close, handle)
        if not (alone and _granted(handle)):
            raise InputError(f"{directory} is in use: {_holder(handle)}; wait for its end, or name another directory")
        _write(handle, f"process {os.getpid()} on {platform.node()} has trained there since {time.strftime(WHEN)}")
        try:
            yield
        finally:
            _write(handle, "")


def _folder(directory: Path) -> list[int]:
    """The directory, opened, where one can be locked."""
    with contextlib.suppress(ImportError, OSError):
        importlib.import_module("fcntl")
        return [os.open(directory, os.O_RDONLY)]
    return []


def _opened(path: Path, fresh: bool) -> int:
    """The lock's file; with `fresh` another one in the place of one that has a second name."""
    handle = _opened_as_it_is(path)
    while fresh and os.fstat(handle).st_nlink > 1:
        os.close(handle)
        path.unlink(missing_ok=True)
        handle = _opened_as_it_is(path)
    return handle


def _opened_as_it_is(path: Path) -> int:
    safe = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # no link is followed, no pipe waited for
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | safe, 0o666)
    except PermissionError:
        if not path.is_file():
            raise
        return os.open(path, os.O_RDONLY | safe)  # a lock needs no more


def _granted(handle: int) -> bool:
    """Whether the kernel gives us the lock; where there is none to be had, nobody is refused."""
    try:
        try:
            fcntl = importlib.import_module("fcntl")
        except ImportError:
            msvcrt = importlib.import_module("msvcrt")
            os.lseek(handle, FAR, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except (OSError, ImportError):  # this file system, or this system, has no locks
        pass
    return True


def _holder(handle: int) -> str:
    """What the holder has written, if it makes sense."""
    time.sleep(0.1)  # it may have the lock, but the words of a dead run still stand there
    with contextlib.suppress(OSError):
        os.lseek(handle, 0, os.SEEK_SET)
        said = os.read(handle, MOST).decode("ascii", "backslashreplace")
        if said and said.isprintable():
            return said
    return "another process trains there"


def _write(handle: int, text: str) -> None:
    """Put it in place of what the file holds; a file that may only be read, or a full disk, is no reason to stop."""
    with contextlib.suppress(OSError):
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, text.encode("ascii", "replace"))
