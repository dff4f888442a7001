"""The command line: `python -m numpy_attention COMMAND`."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from numpy_attention.backend import BackendError
from numpy_attention.cli import attend, chat, embed, fetch, gradcheck, grade, sample, train
from numpy_attention.errors import MAX_SAID, InputError
from numpy_attention.runs.mpi import started_ranks


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 for success, 2 for input that cannot be used."""
    parser = _Parser(prog="numpy-attention", description="Attention in plain NumPy.", allow_abbrev=False)
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for module in (train, sample, fetch, chat, embed, attend, gradcheck, grade):
        module.add_parser(commands)
    try:
        arguments = started_ranks().together(lambda: parser.parse_args(argv))
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except (InputError, BackendError) as error:
        print(f"numpy-attention: {_one_line(error)}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"numpy-attention: out of memory: {_one_line(error) or 'give smaller sizes'}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("numpy-attention: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output, `head` for example, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _one_line(error: Exception) -> str:
    """What is said, in one line of bounded length: what is wrong stands at its beginning, what to do at its end."""
    said = " ".join(str(error).split())
    return said if len(said) <= 3 * MAX_SAID else f"{said[: 2 * MAX_SAID]} ... {said[-MAX_SAID // 2 :]}"
