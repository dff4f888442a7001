"""Part III, appendix. A file is whole, or it is not there

A process can be killed in the middle of a write. So a file is written under another name, forced to the disk (fsync),
and only then given its real name; renaming is atomic, so a reader finds the whole old file or the whole new one:

    .93b1f0c2a4d85e67.tmp/model.npz   ->   fsync   ->   model.npz

It is written in a directory of its own beside the real file. Nobody can guess its name, and a directory is only made
where nothing of that name is, not even a link; so no link that somebody has laid out leads the write astray.

What is read must be a regular file: a pipe would be waited for, and a device read, without end.
"""

import contextlib
import errno
import io
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from numpy_attention.errors import MAX_SAID, InputError

UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.tmp")  # the directory of a file that is being written


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Within it another path to write to, with the same name; at its end that file is the one at `path`.

    Raises: OSError for what cannot be written, or a `path` that is something else than a file: a device, a directory.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # a device would be replaced by a file, of whoever may do that
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    room = path.parent / f".{os.urandom(8).hex()}.tmp"
    try:
        room.mkdir(0o700)
    except OSError as error:  # told of the path that was given, not of one that nobody knows
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        temporary = room / path.name
        yield temporary
        _sync(temporary, os.O_RDWR)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(room, ignore_errors=True)
    with contextlib.suppress(OSError):  # some systems do not open directories
        _sync(path.parent, os.O_RDONLY)


def sweep(directory: Path, names: re.Pattern[str]) -> None:
    """Remove what killed processes have left of unfinished files with such names; what else lies there is not ours."""
    for room in directory.iterdir():
        of_files = UNFINISHED.fullmatch(room.name) and room.is_dir() and not room.is_symlink()
        if of_files and all(names.fullmatch(file.name) for file in room.iterdir()):
            shutil.rmtree(room, ignore_errors=True)


@contextlib.contextmanager
def writing(place: object) -> Iterator[None]:
    """Within it what the system refuses to write is told in one line.

    Raises: InputError
    """
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write to {place}: {error.strerror or error}") from None


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A new folder where the system keeps what is soon thrown away.

    Raises: InputError where nothing can be written there.
    """
    try:
        return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # Windows keeps a file that is still open
    except OSError as error:
        said = f"cannot make a temporary folder: {error.strerror or error}"
        raise InputError(f"{said}; set TMPDIR to a folder that can be written to") from None


def exists(path: Path) -> bool:
    """Whether there is a file or folder of that path.

    Raises: InputError where that cannot be seen: in a folder that may not be read, or under a name that cannot be.
    """
    try:
        path.stat()  # path.exists() hides the reason from Python 3.14 on
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a null byte, or half a character
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:  # links in a circle lead to no file
            return False
        raise _unreadable(path, error) from None
    return True


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader]:
    """A regular file, opened; what the system refuses to read is told in one line.

    Raises: InputError
    """
    try:
        with open_regular(path) as file:
            yield file
    except OSError as error:
        raise _unreadable(path, error) from None


def open_regular(path: str | os.PathLike[str]) -> io.BufferedReader:
    """A file, opened for reading.

    Raises: OSError for what cannot be opened, or is not a regular file: a directory, a pipe, a device.
    """
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe opens, and is refused
    try:
        handle = os.open(path, flags)
    except ValueError:  # a NUL, or half a character
        raise OSError(errno.EINVAL, "no file can be called so") from None
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return open(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(kind):
        raise OSError(errno.EISDIR, "it is a directory, not a regular file")
    raise OSError(errno.EINVAL, "it is not a regular file; save what it holds in one first")


def _unreadable(path: object, error: OSError) -> InputError:
    return InputError(f"cannot read {str(path)[:MAX_SAID]}: {error.strerror or error}")


def _sync(path: Path, mode: int) -> None:
    handle = os.open(path, mode)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
