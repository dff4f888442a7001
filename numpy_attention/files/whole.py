"""Part III, appendix. Atomic writes

A process can be killed in the middle of a write. So a file is first written under another name and forced to the disk
(fsync). After that it gets its real name. Renaming is atomic: a reader finds the complete old file or the complete new
file, never a part of one.

    .93b1f0c2a4d85e67.tmp/model.npz   ->   fsync   ->   model.npz

The new file is written in a separate directory next to the real file. The name of this directory is random, so another
user cannot guess it, and mkdir fails if a file or a link with this name exists. So another user's link cannot redirect
the write.

Only regular files are read: reading a pipe may wait forever, and reading a device may never end.
"""

import contextlib
import errno
import io
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from numpy_attention.errors import MAX_SAID, InputError

UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.tmp")  # name of the directory of a file that is being written


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A context manager that gives a temporary path with the same file name. The caller writes there; when the block
    ends without an error, the temporary file is moved to `path`.

    Raises: OSError if the file cannot be written, or if `path` is a directory, a device or a pipe.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # else the superuser could replace a device by a file
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    folder = path.parent / f".{os.urandom(8).hex()}.tmp"
    try:
        folder.mkdir(0o700)
    except OSError as error:  # report the user's path, not the temporary one
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        temporary = folder / path.name
        yield temporary
        _sync(temporary, os.O_RDWR)
        _move(temporary, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # some systems cannot open directories
        _sync(path.parent, os.O_RDONLY)


def sweep(directory: Path, names: re.Pattern[str]) -> None:
    """Remove unfinished files of killed processes, if their names match `names`; keep everything else."""
    for folder in directory.iterdir():
        of_files = UNFINISHED.fullmatch(folder.name) and folder.is_dir() and not folder.is_symlink()
        if of_files and all(names.fullmatch(file.name) for file in folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def writing(place: object) -> Iterator[None]:
    """A context manager that turns an OSError into an InputError, which names `place`.

    Raises: InputError
    """
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write to {place}: {error.strerror or error}") from None


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A new folder in the system's folder for temporary files.

    Raises: InputError if no folder can be made there.
    """
    try:
        return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # Windows cannot delete a file that is open
    except OSError as error:
        reason = f"cannot make a temporary folder: {error.strerror or error}"
        raise InputError(f"{reason}; set TMPDIR to a folder that can be written to") from None


def exists(path: Path) -> bool:
    """Whether a file or folder with this path exists.

    Raises: InputError if the system cannot answer: the folder is not readable, or the name is too long.
    """
    try:
        path.stat()  # path.exists() hides the reason from Python 3.14 on
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a null byte, or half a surrogate pair
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:  # links in a circle, which do not lead to a file
            return False
        raise _unreadable(path, error) from None
    return True


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader]:
    """A context manager that opens a regular file for reading and turns an OSError into an InputError.

    Raises: InputError
    """
    try:
        with open_regular(path) as file:
            yield file
    except OSError as error:
        raise _unreadable(path, error) from None


def open_regular(path: str | os.PathLike[str]) -> io.BufferedReader:
    """A regular file, opened for reading.

    Raises: OSError for a file that cannot be opened, and for a directory, a pipe or a device.
    """
    try:
        return open(path, "rb", opener=open_handle)
    except ValueError:  # a null byte, or half a surrogate pair
        raise OSError(errno.EINVAL, "no file can have this name") from None


def open_handle(path: str, flags: int) -> int:
    """The `opener` of a regular file. To write, no link is followed.

    Raises: OSError as `open_regular`, and for a link.
    """
    flags |= getattr(os, "O_NONBLOCK", 0)  # opening a pipe must not wait
    handle = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) if flags & os.O_WRONLY else flags, 0o666)
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return handle
    os.close(handle)
    if stat.S_ISDIR(kind):
        raise OSError(errno.EISDIR, "it is a directory, not a regular file")
    raise OSError(errno.EINVAL, "it is not a regular file; save its contents in a regular file first")


def _unreadable(path: object, error: OSError) -> InputError:
    return InputError(f"cannot read {str(path)[:MAX_SAID]}: {error.strerror or error}")


def _move(temporary: Path, path: Path) -> None:
    """Rename the file. Windows refuses this while another process reads `path`, so try again for one second."""
    for pause in (0.1, 0.3, 0.6):
        with contextlib.suppress(PermissionError):
            os.replace(temporary, path)
            return
        time.sleep(pause)
    os.replace(temporary, path)


def _sync(path: Path, mode: int) -> None:
    handle = os.open(path, mode)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
