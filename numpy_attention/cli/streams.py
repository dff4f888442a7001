r"""What a command prints, and what becomes of it where nobody reads it, or where not all of it can be shown.

    train | head -1         the reader has closed its end: the training goes on, for its product is its directory
    sample | head -1        the command ends at once and quietly, for its product is its output
    train > /dev/full       one line on standard error says so, and the training goes on
    sample > /dev/full      one line on standard error says so, and the exit code is 2
    train >&- 2>&- <&-      a closed stream is like a full one; no file that is opened later takes its place
    PYTHONIOENCODING=ascii  what the stream has no letters for is escaped, \u2192
    sample on a terminal    what would steer the terminal is escaped, \x1b; in a file or a pipe the text stays as it is

What standard error cannot take is lost without a word. Streams that somebody has put in the place of Python's own, a
notebook or a test, are left as they are.
"""

import contextlib
import errno
import io
import os
import re
import select
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO

STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # control characters, but no tab and no newline


class OutputError(Exception):
    """Nothing more can be printed. A failed write elsewhere, of a file, is of another kind."""


class Output:
    """What to do when standard output is lost; `optional` says whether the command does without."""

    optional = False

    def lost(self, error: OSError) -> None:
        """Called once, by the write that has failed; a reader who has had enough is no fault.

        Raises: OutputError where the command ends with its output.
        """
        why = f"cannot print: {error.strerror or error}"
        if not self.optional:
            raise OutputError(why) from error
        if not isinstance(error, ConnectionError):
            print(f"numpy-attention: {why}; the training goes on without a word", file=sys.stderr, flush=True)


@contextlib.contextmanager
def standard_streams() -> Iterator[Output]:
    """Within it standard output and error are there and take every text; what is lost goes by the rules above."""
    _occupy_closed_numbers()
    output, before = Output(), (sys.stdout, sys.stderr)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _stream(sys.stdout, output.lost, product=True)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(sys.stderr, lambda _: None)
    try:
        yield output
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OutputError):
                stream.flush()
        sys.stdout, sys.stderr = before


def _occupy_closed_numbers() -> None:
    """Open what a shell has closed (>&-) on nothing: else the next file that is opened would be standard output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest free number, this one


def _stream(before: TextIO | None, lost: Callable[[OSError], None], product: bool = False) -> TextIO:
    """The same stream for any text and without failures; of a closed one there is nothing to begin with."""
    if before is None:
        return io.TextIOWrapper(io.BufferedWriter(_Bytes(None, lost)), "utf-8", "backslashreplace")
    with contextlib.suppress(OSError):
        before.flush()
    raw = getattr(before.buffer, "raw", None)
    # PYTHONUNBUFFERED leaves the middle layer out
    layers: Any = _Bytes(before.buffer, lost) if raw is None else io.BufferedWriter(_Bytes(raw, lost))
    kind = _Screen if product and before.isatty() else io.TextIOWrapper
    return kind(
        layers, before.encoding, "backslashreplace", line_buffering=bool(before.line_buffering),
        write_through=raw is None,
    )


class _Screen(io.TextIOWrapper):
    """A terminal, which a text of somebody else must not steer."""

    kept = ""

    def write(self, text: str) -> int:
        """Print it; a carriage return is kept back until it is known whether a newline follows, as in texts of DOS."""
        said = (self.kept + text).replace("\r\n", "\n")
        self.kept = "\r" if said.endswith("\r") else ""
        said = said.removesuffix("\r")
        super().write(STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), said))
        return len(text)


class _Bytes(io.RawIOBase):
    """The lowest layer of a stream; from its first failure on, the bytes go nowhere."""

    def __init__(self, below: Any, lost: Callable[[OSError], None]) -> None:
        self.below, self.lost, self.works = below, lost, True

    def write(self, data: Any) -> int:
        if not self.works:
            return len(data)
        try:
            if self.below is None:
                raise OSError(errno.EBADF, "standard output is closed")
            while (count := self.below.write(data)) is None:  # a pipe that somebody has set not to wait
                select.select([], [self.below], [])
            return int(count)
        except OSError as error:
            self.works = False
            self.lost(error)
            return len(data)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self.below is not None and bool(self.below.isatty())

    def fileno(self) -> int:
        return super().fileno() if self.below is None else int(self.below.fileno())
