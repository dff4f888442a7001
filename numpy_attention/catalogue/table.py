"""One table of every op, layer and model, in every variant: what is proven, and the proof."""

import sys
import time
from typing import TextIO

from numpy_attention.backend import NumPyBackend
from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.layers import LAYERS
from numpy_attention.catalogue.models import MODELS
from numpy_attention.catalogue.ops import OPS
from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.report import GradientError

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in (*OPS, *LAYERS, *MODELS)}


def named(names: list[str] | None = None) -> list[Entry]:
    """The entries whose name, or whose op or class, is among `names`; all of them for None."""
    if names is None:
        return list(CATALOGUE.values())
    known = set(CATALOGUE) | {entry.covers for entry in CATALOGUE.values()}
    for name in names:
        if name not in known:
            raise ValueError(
                f"gradcheck: no op, layer or model called {name!r}; one of "
                + ", ".join(sorted({entry.covers for entry in CATALOGUE.values()}))
            )
    return [entry for entry in CATALOGUE.values() if {entry.name, entry.covers} & set(names)]


def run(
    names: list[str] | None = None, seed: int = 0, stream: TextIO | None = None, backend: NumPyBackend | None = None
) -> int:
    """Check the gradients of the catalogue, a line an entry with its worst relative error; return how many failed."""
    out = stream if stream is not None else sys.stdout
    failures, started = 0, time.perf_counter()
    entries = named(names)
    for entry in entries:
        try:
            report = check(entry.case(seed).problem(backend), seed)
        except GradientError as error:
            failures += 1
            print(f"{entry.name:<64} WRONG\n{error}", file=out)
            continue
        bad = report.error > entry.tolerance
        failures += bad
        print(f"{entry.name:<64} {report.error:8.1e}{'  WRONG' if bad else ''}", file=out, flush=True)
    seconds = time.perf_counter() - started
    proven = f"{len(entries) - failures} of {len(entries)} proven, {failures} wrong"
    print(f"{proven}, {seconds:.0f} s; seed {seed}", file=out)
    return failures
