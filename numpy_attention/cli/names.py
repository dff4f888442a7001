"""What several commands ask of a name that is typed."""

import argparse
from pathlib import Path


def named_path(name: str) -> Path:
    """The path; an empty name would be that of the folder we are in.

    Raises: ArgumentTypeError, which argparse tells with the option's name.
    """
    if not name:
        raise argparse.ArgumentTypeError("must be a name, got ''; is a variable of the shell unset?")
    return Path(name)
