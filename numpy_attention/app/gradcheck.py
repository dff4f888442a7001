"""gradcheck: check every backward by complex steps and finite differences."""

import argparse
import importlib
import sys
from typing import Any

from numpy_attention.backend import NAMES, get_backend
from numpy_attention.errors import InputError


def add_parser(commands: Any) -> None:
    """The arguments of `gradcheck`."""
    about = "check every backward by complex steps and finite differences"
    parser = commands.add_parser("gradcheck", help=about, allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help="ops, layers or models to check (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default: 0)")
    parser.add_argument("--backend", default="numpy", choices=NAMES, help="where to compute (default: numpy)")
    parser.add_argument("--gallery", action="store_true", help="show that the known mistakes are caught")
    parser.set_defaults(run=run)


def run(a: argparse.Namespace) -> int:
    """Print one line for each entry with its worst error against the complex step; the exit code is 1 if any fails."""
    if a.seed < 0:
        raise InputError(f"--seed must be at least 0, got {a.seed}")
    if a.gallery:
        if a.names:
            raise InputError("--gallery shows all known mistakes; do not give a NAME")
        survivors: int = importlib.import_module("numpy_attention.catalogue").print_gallery(sys.stdout)
        return 1 if survivors else 0
    catalogue = importlib.import_module("numpy_attention.catalogue.table")
    backend = get_backend(a.backend)
    failures: int = catalogue.run(a.names or None, a.seed, sys.stdout, backend)
    return 1 if failures else 0
