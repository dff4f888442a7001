"""The command line: `python -m numpy_attention COMMAND`."""

import argparse
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from numpy_attention.app import attend, chat, embed, fetch, gradcheck, grade, sample, train
from numpy_attention.backend import BackendError
from numpy_attention.errors import InputError, one_line
from numpy_attention.training.mpi import started_ranks


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. The exit code is 0 for success and 2 for unusable input."""
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except (InputError, BackendError) as error:
        reason, code = one_line(error), 2
    except MemoryError as error:
        reason, code = f"out of memory: {one_line(error) or 'give smaller sizes'}", 2
    except KeyboardInterrupt:
        reason, code = "interrupted", 130
    except BrokenPipeError:  # the reader, for example `head`, has closed the pipe; Python flushes once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        reason, code = f"cannot read or write {error.filename}: {error.strerror}", 2
    print(f"numpy-attention: {reason}", file=sys.stderr)
    return code


def _run(argv: Sequence[str] | None) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):  # a notebook has another class
        sys.stdout.reconfigure(errors="backslashreplace")  # for a character that the console cannot encode
    parser = _Parser(prog="numpy-attention", description="Attention in plain NumPy.", allow_abbrev=False)
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for module in (train, sample, fetch, chat, embed, attend, gradcheck, grade):
        module.add_parser(commands)
    arguments = started_ranks().together(lambda: parser.parse_args(argv))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # from NumPy; we report a NaN in one line with its place
        code: int = arguments.run(arguments)
    return code
