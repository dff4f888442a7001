r"""The output of a command, also when its reader has gone, its disk is full, or a character cannot be shown.

    train | head -1         the reader has closed the pipe: the training continues, since its result is a directory
    sample | head -1        the command ends at once without a message, since its result is its output
    train > /dev/full       one line on standard error reports this, and the training continues
    sample > /dev/full      one line on standard error reports this, and the exit code is 2
    train >&- 2>&- <&-      a closed stream is treated like a full disk; no later file gets the number of the stream
    PYTHONIOENCODING=ascii  a character that the stream cannot encode is escaped, \u2192
    sample on a terminal    a control character is escaped, \x1b; in a file or a pipe the text is unchanged

Text that standard error cannot take is lost silently. If a notebook or a test has replaced Python's streams, they are
not changed.
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

WINDOWS = os.name == "nt"
STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # control characters except tab and newline


class OutputError(Exception):
    """Nothing more can be printed. A failed write to a file raises a different error."""


class Output:
    """The reaction to a lost standard output; with `optional` the command continues without output."""

    optional = False

    def lost(self, error: OSError) -> None:
        """Called once, by the failed write. A reader that has closed the pipe is not a mistake.

        Raises: OutputError if the command needs its output.
        """
        why = f"cannot print: {error.strerror or error}"
        if not self.optional:
            raise OutputError(why) from error
        if not isinstance(error, ConnectionError):
            print(f"numpy-attention: {why}; the training continues without output", file=sys.stderr, flush=True)


@contextlib.contextmanager
def standard_streams() -> Iterator[Output]:
    """Inside this context, standard output and error exist and take every text; for lost text see the list above."""
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
    """Open closed streams (>&-) on os.devnull; otherwise the next opened file would become standard output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # os.open takes the lowest free number, this one


def _stream(before: TextIO | None, lost: Callable[[OSError], None], product: bool = False) -> TextIO:
    """The same stream, but it takes every text and does not fail; `before` is None for a closed stream."""
    if before is None:
        return io.TextIOWrapper(io.BufferedWriter(_Bytes(None, lost)), "utf-8", "backslashreplace")
    with contextlib.suppress(OSError):
        before.flush()
    raw = getattr(before.buffer, "raw", None)
    # with PYTHONUNBUFFERED the middle layer is missing
    layers: Any = _Bytes(before.buffer, lost) if raw is None else io.BufferedWriter(_Bytes(raw, lost))
    kind = _Screen if product and before.isatty() else io.TextIOWrapper
    return kind(
        layers, before.encoding, "backslashreplace", line_buffering=bool(before.line_buffering),
        write_through=raw is None,
    )


class _Screen(io.TextIOWrapper):
    """A terminal. Control characters in a text must not control it."""

    held_back = ""

    def write(self, text: str) -> int:
        """Print the text; a carriage return waits until we know whether a newline follows, as in DOS texts."""
        text_so_far = (self.held_back + text).replace("\r\n", "\n")
        self.held_back = "\r" if text_so_far.endswith("\r") else ""
        printed = text_so_far.removesuffix("\r")
        super().write(STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), printed))
        return len(text)


class _Bytes(io.RawIOBase):
    """The lowest layer of a stream; after its first failure, it discards all bytes."""

    def __init__(self, below: Any, lost: Callable[[OSError], None]) -> None:
        self.below, self.lost, self.works = below, lost, True

    def write(self, data: Any) -> int:
        if not self.works:
            return len(data)
        try:
            if self.below is None:
                raise OSError(errno.EBADF, "standard output is closed")
            while (count := self.below.write(data)) is None:  # a non-blocking pipe
                select.select([], [self.below], [])
            return int(count)
        except OSError as error:
            self.works = False
            gone = WINDOWS and error.errno == errno.EINVAL  # as Windows reports a pipe that has lost its reader
            self.lost(BrokenPipeError(errno.EPIPE, "its reader has gone") if gone else error)
            return len(data)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self.below is not None and bool(self.below.isatty())

    def fileno(self) -> int:
        return super().fileno() if self.below is None else int(self.below.fileno())
