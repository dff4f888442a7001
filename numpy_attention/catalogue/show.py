"""The gallery of known mistakes: the full check catches each of them; weaker checks miss some.

A mistake is put into the entries of its op, and the properties of the catalogue are checked on these entries in turn.
The gradients come first, because their report has the most details: the place, the size and the likely mistake. Then
come the forward compared with the plain formula, a second forward before the backward, inputs and caches that must not
change, and dtypes. A function without a gradient has a trial. A function that occurs only in an exercise is checked on
the inputs of the exercise.
"""

import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import numpy as np

from numpy_attention.catalogue import properties
from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.exercise import SEEDS, Check
from numpy_attention.catalogue.mistake import MISTAKES, Mistake
from numpy_attention.catalogue.table import CATALOGUE, EXERCISES, TRIALS, ours
from numpy_attention.catalogue.weaker import WEAKER, Weakness
from numpy_attention.gradcheck.spec import Sizes

PROPERTIES: tuple[properties.Property, ...] = (
    properties.gradients_agree_with_differences, properties.forward_matches_formula,
    properties.two_uses_do_not_disturb_each_other, properties.nothing_is_changed, properties.dtype_is_kept,
)
FULL = Weakness("the full check")
GALLERY = {name: mistake for name, mistake in MISTAKES.items() if mistake.diagnosis}


def catch(mistake: Mistake, weakness: Weakness = FULL, seeds: tuple[int, ...] = SEEDS) -> str:
    """The error message of the check for a mistake; empty if the check misses the mistake with all these seeds."""
    return next(filter(None, _messages(mistake, weakness, seeds)), "")


def failure(check: Callable[..., Any], *given: Any) -> str:
    """The message of a property or trial if it fails on these arguments, else ""; any other error is a failure too."""
    try:
        with np.errstate(all="ignore"):
            check(*given)
    except AssertionError as error:
        return str(error)
    except Exception as error:  # a mistake may raise any error
        return f"{type(error).__name__}: {error}"
    return ""


def _messages(mistake: Mistake, weakness: Weakness, seeds: tuple[int, ...]) -> Iterator[str]:
    """The messages of all trials, or of all properties on all entries, that this weakness includes."""

    def gradients(entry: Entry, seed: int, sizes: Sizes | None) -> None:
        weakness.compare(entry.case(seed, np.float64, sizes).problem(), seed)

    def message_of(property_: properties.Property, entry: Entry, seed: int) -> str:
        sizes = _sizes(entry, weakness, seed)
        message = failure(property_, mistake.spoil(entry), seed, sizes)
        fails_on_the_right_op = message and weakness is not FULL and failure(property_, entry, seed, sizes)
        return "" if fails_on_the_right_op else message  # such a failure does not show the mistake

    for trial in _trials(mistake, weakness):
        for seed in seeds:
            yield failure(trial, mistake.stand_in, seed)
    entries = [weakness.change(entry) for entry in _entries(mistake)]
    for property_ in (gradients, *(() if weakness.gradients_only else PROPERTIES[1:])):
        for seed in seeds:
            for entry in filter(None, entries):
                yield message_of(property_, entry, seed)


def _trials(mistake: Mistake, weakness: Weakness) -> list[Check]:
    if mistake.covers in TRIALS:
        trial = (weakness.trials or {}).get(mistake.covers, TRIALS[mistake.covers][1])
        return [trial] if trial else []
    return [check for exercise in EXERCISES.values() for check in exercise.trials.get(mistake.covers, {}).values()]


def _entries(mistake: Mistake) -> list[Entry]:
    """The entries for a mistake: those of its op or, without `diagnosis`, entries from the inputs of its exercise."""
    if mistake.covers in TRIALS:
        return []
    if mistake.diagnosis:
        return [entry for entry in CATALOGUE.values() if entry.covers == mistake.covers]
    tries = [one for exercise in EXERCISES.values() for one in exercise.tries if one.name == mistake.covers]
    return [one.entry(ours()) for one in tries]


def _sizes(entry: Entry, weakness: Weakness, seed: int) -> Sizes | None:
    if weakness.sizes is None:
        return None
    drawn = entry.sizes(np.random.default_rng(seed))
    return {**drawn, **{name: size for name, size in weakness.sizes.items() if name in drawn}}


def print_gallery(stream: TextIO | None = None) -> int:
    """Print every mistake, then the misses of the weaker checks; return how many mistakes the full check misses."""
    out = sys.stdout if stream is None else stream
    started, num_missed = time.perf_counter(), 0
    width = max(len(name) for name in GALLERY)
    for mistake in sorted(GALLERY.values(), key=lambda mistake: mistake.covers.lower()):
        caught = bool(catch(mistake))
        num_missed += not caught
        print(f"{mistake.name:<{width}}  {'caught' if caught else 'MISSED'}  {mistake.covers}", file=out)
        text = textwrap.fill(f"{mistake.wrong} Hides: {mistake.hides}", 112)
        print(textwrap.indent(text, "    "), file=out, flush=True)
    print(f"\n{len(GALLERY) - num_missed} of {len(GALLERY)} caught by the full check\n", file=out)
    print(f"{'change to the full check':<58}missed", file=out)
    for name, missed in missed_by_weaker():
        print(f"{name:<58}{len(missed):>3} of {len(GALLERY)}", file=out)
        print(
            textwrap.fill(", ".join(missed) or "none", 112, initial_indent="    ", subsequent_indent="    "),
            file=out, flush=True,
        )
    print(f"{time.perf_counter() - started:.0f} s", file=out)
    return num_missed


def missed_by_weaker() -> Iterator[tuple[str, list[str]]]:
    """Yields for each weaker check its name and the names of the mistakes that it misses."""
    for weakness in WEAKER:
        yield weakness.name, [mistake.name for mistake in GALLERY.values() if not catch(mistake, weakness)]
