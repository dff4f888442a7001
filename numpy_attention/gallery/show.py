"""The gallery on show: every mutant killed by the full check, and what weaker checks let through."""

import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import numpy as np

from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.properties import KILLERS, failure, same
from numpy_attention.catalogue.table import CATALOGUE
from numpy_attention.catalogue.trials import TRIALS
from numpy_attention.gallery.registry import MUTANTS, Mutant
from numpy_attention.gallery.weaker import WEAKER, Weakness
from numpy_attention.gradcheck.problem import Gradients, Problem
from numpy_attention.gradcheck.spec import Sizes

SEEDS = (0, 1, 2)

FULL = Weakness("the full check")


def kill(mutant: Mutant, weakness: Weakness = FULL) -> str:
    """What the check says against a mutant; empty when the mutant gets through."""
    if mutant.covers in TRIALS:
        trial = (weakness.trials or {}).get(mutant.covers, TRIALS[mutant.covers][1])
        return next(filter(None, (_tried(trial, mutant.stand_in, seed) for seed in SEEDS)), "") if trial else ""
    return next(filter(None, _complaints(mutant, weakness)), "")


def _tried(trial: Callable[[Any, int], None], made: Any, seed: int) -> str:
    try:
        trial(made, seed)
    except AssertionError as error:
        return str(error)
    except Exception as error:  # a mutant may break in any way
        return f"{type(error).__name__}: {error}"
    return ""


def _complaints(mutant: Mutant, weakness: Weakness) -> Iterator[str]:
    properties = [_gradients_by(weakness), *(KILLERS[1:] if not weakness.gradients_only else ())]
    entries = [entry for entry in CATALOGUE.values() if entry.covers == mutant.covers]
    for property_ in properties:
        for seed in SEEDS:
            for entry in entries:
                changed = weakness.change(entry)
                if changed is None:
                    continue
                sizes = _sizes(changed, weakness, seed)
                if property_ is properties[0] and _same_numbers(mutant, changed, seed, sizes):
                    continue
                yield failure(property_, mutant.spoil(changed), seed, sizes)


def _gradients_by(weakness: Weakness) -> Callable[[Entry, int, Sizes | None], None]:
    def gradients(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
        weakness.compare(entry.case(seed, np.float64, sizes).problem(), seed)

    return gradients


def _sizes(entry: Entry, weakness: Weakness, seed: int) -> Sizes | None:
    if weakness.sizes is None:
        return None
    drawn = entry.sizes(np.random.default_rng(seed))
    return {**drawn, **{name: size for name, size in weakness.sizes.items() if name in drawn}}


def _same_numbers(mutant: Mutant, entry: Entry, seed: int, sizes: Sizes | None) -> bool:
    """Where a mutant says to the last bit what the right op says, no comparison can tell: save the work."""
    right, wrong = (_answer(one, seed, sizes) for one in (entry, mutant.spoil(entry)))
    return right is not None and wrong is not None and same(right, wrong)


def _answer(entry: Entry, seed: int, sizes: Sizes | None) -> Any:
    problem: Problem = entry.case(seed, np.float64, sizes).problem()
    try:
        with np.errstate(all="ignore"):
            y, cache = problem.run(problem.inputs)
            dy = tuple(np.random.default_rng([seed, 8]).standard_normal(one.shape) for one in y)
            kept = tuple(one.copy() for one in dy)
            grads: Gradients = dict(problem.pull_back(dy, cache))
            again: Gradients = dict(problem.pull_back(dy, cache))
            return y, grads, again, same(kept, dy)
    except Exception:  # whatever it is, the check itself will run into it
        return None


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
        print(textwrap.fill(", ".join(missed) or "none", 112, initial_indent="    ", subsequent_indent="    "),
              file=out, flush=True)
    print(f"{time.perf_counter() - started:.0f} s", file=out)
    return survivors


def missed_by_weaker() -> Iterator[tuple[str, list[str]]]:
    """For each weaker check the names of the mutants that get through."""
    for weakness in WEAKER:
        yield weakness.name, [mutant.name for mutant in MUTANTS.values() if not kill(mutant, weakness)]
