"""Chapter 30, appendix. One run in each directory

Two runs that write to the same directory destroy each other's work. It is not enough to look for another run first and
then to begin: two runs can look at the same moment, and a file that says "taken" remains after its process is killed.
The kernel's lock on an open file solves both: only one of many processes gets it, and the kernel releases it when the
process ends or is killed.

    first      open run.lock   flock: granted   writes its id   trains . . . . . . . . . . .   ends: lock released
    second                        open run.lock   flock: refused   reads the id and reports it

The file remains; without a lock it means nothing. Windows locks a part of a file; there we lock a byte that is never
read. If a file system has no locks, the run continues without one.

A file may have a second name (a hard link): after `cp -al run copy`, both locks are the same file, and a link may lead
to any other file. A directory has no second name. So where possible we lock the directory first; the process that
holds this lock replaces a linked lock file by a new file.

The lock belongs to the directory, not to its name. After `mv run old; mkdir run` a second run may lock the new
directory, and the first run would write there, too. So the first run compares before it writes: is the directory with
this name still the one that it has locked? The kernel's number of a directory (inode) stays when its name changes.
"""

import contextlib
import importlib
import io
import os
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from numpy_attention.errors import InputError
from numpy_attention.files import writing

NAME = "run.lock"
FAR = 2**30  # the position of the byte that Windows locks: a locked byte cannot be read
MOST = 200  # bytes of the holder's message


@contextlib.contextmanager
def hold(directory: Path | str) -> Iterator[Callable[[], None]]:
    """Inside this context no other run writes to the directory.

    Gives a function that raises an InputError if the directory has been moved or replaced.

    Raises: InputError that names the other run, or gives the reason why the directory cannot be locked.
    """
    path, alone, folder = Path(directory) / NAME, True, None
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):  # not every system can open and lock a directory
            importlib.import_module("fcntl")
            folder = os.open(path.parent, os.O_RDONLY)
            stack.callback(os.close, folder)
            alone = _granted(folder)
        with writing(path):
            file = stack.enter_context(_opened(path, fresh=alone))
        if not (alone and _granted(file.fileno())):
            raise InputError(f"{directory} is in use: {_holder(file)}; wait until it ends, or use another directory")
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        _write(file, f"process {os.getpid()} on {platform.node()} has trained there since {since}")
        stack.callback(_write, file, "")
        yield partial(_require_same, directory, folder)


def _require_same(directory: Path | str, folder: int | None) -> None:
    with contextlib.suppress(OSError):  # there is no directory with this name
        if folder is None or os.path.samestat(os.stat(directory), os.fstat(folder)):
            return
    fix = "find its new name NAME, and continue with: python -m numpy_attention train --resume NAME"
    raise InputError(f"{directory} has been moved or replaced, so this run stops; its last checkpoint moved too: {fix}")


def _opened(path: Path, fresh: bool) -> io.FileIO:
    """The file of the lock; with `fresh`, a file that has a second name is replaced by a new file."""
    safe = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # follow no link, wait for no pipe
    while True:
        try:
            file = io.FileIO(path, "r+", opener=lambda name, flags: os.open(name, flags | os.O_CREAT | safe, 0o666))
        except PermissionError:
            if not path.is_file():
                raise
            file = io.FileIO(path, opener=lambda name, flags: os.open(name, flags | safe))  # enough for a lock
        if not fresh or os.fstat(file.fileno()).st_nlink < 2:
            return file
        file.close()
        path.unlink(missing_ok=True)


def _granted(handle: int) -> bool:
    """Whether the kernel grants the lock; True if the system has no locks."""
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
    except (OSError, ImportError):  # this file system or this operating system has no locks
        pass
    return True


def _holder(file: io.FileIO) -> str:
    """The message of the holder, if it is readable."""
    time.sleep(0.1)  # a new holder may not yet have replaced the message of an ended run
    with contextlib.suppress(OSError):
        file.seek(0)
        message = file.read(MOST).decode("ascii", "backslashreplace")
        if message and message.isprintable():
            return message
    return "another process trains there"


def _write(file: io.FileIO, text: str) -> None:
    """Replace the content of the file; a read-only file or a full disk does not stop the run."""
    with contextlib.suppress(OSError):
        file.truncate(0)
        file.seek(0)
        file.write(text.encode("ascii", "replace"))
