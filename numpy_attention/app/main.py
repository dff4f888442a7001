"""The command line: `python -m numpy_attention COMMAND`."""

import argparse
import contextlib
import re
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from numpy_attention.app import attend, chat, embed, fetch, gradcheck, grade, sample, train
from numpy_attention.app.streams import Output, OutputError, standard_streams
from numpy_attention.backend import BackendError
from numpy_attention.errors import InputError, one_line
from numpy_attention.training.mpi import started_ranks


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. The exit code is 0 for success and 2 for unusable input."""
    with standard_streams() as output:
        try:
            return _run(argv, output)
        except (InputError, BackendError) as error:
            print(f"numpy-attention: {one_line(error)}", file=sys.stderr)
            return 2
        except MemoryError as error:
            print(f"numpy-attention: out of memory: {one_line(error) or 'give smaller sizes'}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C while this line is printed
                print("numpy-attention: interrupted", file=sys.stderr)
            return 130
        except OutputError as error:
            if isinstance(error.__cause__, ConnectionError):  # the reader, for example `head`, has closed the pipe
                return 0
            print(f"numpy-attention: {error}", file=sys.stderr)
            return 2


def _run(argv: Sequence[str] | None, output: Output) -> int:
    parser = _Parser(prog="numpy-attention", description="Attention in plain NumPy.", allow_abbrev=False)
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for module in (train, sample, fetch, chat, embed, attend, gradcheck, grade):
        module.add_parser(commands)
    for argument in argv or ():
        if "\0" in argument:  # impossible in a shell, possible from Python
            raise InputError("an argument contains a null byte; no file name can contain one")
        if re.fullmatch("--[a-z-]+=--", argument):  # argparse turns this into an empty list
            raise InputError(f"argument {argument[:-3]}: expected one argument")
    try:
        arguments = started_ranks().together(lambda: parser.parse_args(argv))
    except SystemExit:  # --help has printed its text
        sys.stdout.flush()
        raise
    output.optional = arguments.run is train.run  # the result of train is a directory, not the printed text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # from NumPy; we report a NaN in one line with its place
        code: int = arguments.run(arguments)
    sys.stdout.flush()
    return code
