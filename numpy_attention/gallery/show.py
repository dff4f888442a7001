"""The gallery on show: every mutant killed by the full check, and what weaker checks let through."""

import sys
import textwrap
import time
from collections.abc import Iterator
from typing import TextIO

from numpy_attention.gallery.killing import kill
from numpy_attention.gallery.registry import MUTANTS
from numpy_attention.gallery.weaker import WEAKER


def print_gallery(stream: TextIO | None = None) -> int:
    """Show every mutant, then what weaker checks miss; return how many got through the full check."""
    out = sys.stdout if stream is None else stream
    started, survivors = time.perf_counter(), 0
    width = max(len(name) for name in MUTANTS)
    for mutant in sorted(MUTANTS.values(), key=lambda mutant: mutant.covers.lower()):
        said = kill(mutant)
        survivors += not said
        print(f"{mutant.name:<{width}}  {'killed' if said else 'SURVIVES'}  {mutant.covers}", file=out)
        text = textwrap.fill(f"{mutant.wrong} Hides: {mutant.hides}", 112)
        print(textwrap.indent(text, "    "), file=out, flush=True)
    print(f"\n{len(MUTANTS) - survivors} of {len(MUTANTS)} killed by the full check\n", file=out)
    print(f"{'the full check, but with':<44}misses", file=out)
    for name, missed in missed_by_weaker():
        print(f"{name:<44}{len(missed):>3} of {len(MUTANTS)}", file=out)
        print(
            textwrap.fill(", ".join(missed) or "none", 112, initial_indent="    ", subsequent_indent="    "),
            file=out, flush=True,
        )
    print(f"{time.perf_counter() - started:.0f} s", file=out)
    return survivors


def missed_by_weaker() -> Iterator[tuple[str, list[str]]]:
    """For each weaker check the names of the mutants that get through."""
    for weakness in WEAKER:
        yield weakness.name, [mutant.name for mutant in MUTANTS.values() if not kill(mutant, weakness)]
