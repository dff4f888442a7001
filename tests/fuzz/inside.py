"""The code of a forked child: it becomes like a process that a shell starts, and runs a command."""

import contextlib
import faulthandler
import gc
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from numpy_attention.cli import main

resource = pytest.importorskip("resource")  # without this module there is no fork either
LIMIT = 2**30  # additional bytes that a child may use: protects only this machine
WORK = 20  # CPU seconds of a child; protects this machine too
FILE = 10**8  # bytes of a file of a child
STOPS = (signal.SIGINT, signal.SIGTERM)
QUIET = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)  # the default of Python


class Held(NamedTuple):
    """The memory of a process in bytes, in the order of /proc/self/statm."""

    addresses: int
    resident: int
    shared: int  # resident pages of files
    text: int
    libraries: int  # always 0
    data: int


def held() -> Held:
    """The memory of this process."""
    pages = Path("/proc/self/statm").read_text("utf-8").split()[:6]
    return Held(*(int(number) * resource.getpagesize() for number in pages))


def in_child(
    arguments: list[str], cwd: Path, prepare: Callable[[], None], ends: Callable[[], None], pipes: tuple[int, int]
) -> NoReturn:
    """Run a child, from the fork to its end."""
    code = 99
    try:
        os.setsid()
        for number in STOPS:  # an interrupt before the command has begun is too early
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        sys.settrace(None)
        gc.callbacks.clear()  # callbacks of Hypothesis: an interrupt inside would be lost
        faulthandler.disable()  # of pytest: its output would be lost here
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, pipe in enumerate(pipes, 1):
            os.dup2(pipe, number)
            os.close(pipe)
        standard_streams()
        ends()
        _own_warnings()
        most = held().data + LIMIT
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (WORK, WORK + 5))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
        os.chdir(cwd)
        prepare()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = main(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        code = 1
        _aside(traceback.format_exc())
    os._exit(_at_exit(code))


def standard_streams(encoding: str = "utf-8", closed: Collection[int] = ()) -> None:
    """Create the three standard streams as Python does; no stream for a descriptor that the shell has closed."""
    made: list[Any] = [None] * 3
    for number in {0, 1, 2}.difference(closed):
        errors = "backslashreplace" if number == 2 else "strict"
        made[number] = os.fdopen(number, "w" if number else "r", encoding=encoding, errors=errors, closefd=False)
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__ = made  # type: ignore[misc]


def _own_warnings() -> None:
    """Set the warning filters of a program, not those of the tests."""
    warnings.resetwarnings()
    for kind in QUIET:
        warnings.simplefilter("ignore", kind)
    warnings.showwarning = lambda message, category, *rest: _aside(f"{category.__name__}: {message}\n")


def _at_exit(code: int) -> int:
    """Flush the streams as Python does at exit."""
    for one, alone in ((sys.stdout, True), (sys.stderr, False)):
        try:
            if one is not None and not one.closed:
                one.flush()
        except Exception as error:
            _aside(f"Exception ignored in: {one!r}\n{type(error).__name__}: {error}\n" if alone else "")
            code = 120
    return code


def _aside(text: str) -> None:
    with contextlib.suppress(OSError):  # the reader has gone
        os.write(2, text.encode("utf-8", "backslashreplace"))


def drop_root() -> None:
    """Give up root rights, which would allow writing everywhere."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


def disk_of(size: int) -> Callable[[], None]:
    """A disk on which no file can be longer than this."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
