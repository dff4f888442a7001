"""The gallery of known mistakes: `catch(mistake)` returns the message of the check that catches it.

A mistake is put into the entries of its op, and the properties of the catalogue are checked on these entries in turn.
The gradients come first, because their report has the most details: the place, the size and the likely mistake. A
function without a gradient has a trial. A function that occurs only in an exercise is checked on the inputs of the
exercise.
"""

import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import numpy as np

from numpy_attention.tutor import properties
from numpy_attention.tutor.catalogue import CATALOGUE, EXERCISES, MISTAKES, TRIALS, ours
from numpy_attention.tutor.entry import Entry
from numpy_attention.tutor.exercise import SEEDS, Check
from numpy_attention.tutor.mistake import Mistake

PROPERTIES: tuple[properties.Property, ...] = (
    properties.gradients_agree_with_differences, properties.nothing_is_changed, properties.dtype_is_kept,
)
GALLERY = {name: mistake for name, mistake in MISTAKES.items() if mistake.diagnosis}


def catch(mistake: Mistake) -> str:
    """The error message of the check for a mistake; empty if the check misses the mistake with all seeds."""
    return next(filter(None, _messages(mistake)), "")


def _messages(mistake: Mistake) -> Iterator[str]:
    for trial in trials_of(mistake):
        yield from (message_of(trial, mistake.made(mistake.covers), seed) for seed in SEEDS)
    entries = entries_of(mistake)
    for check in PROPERTIES:
        yield from (message_of(check, mistake.spoil(entry), seed, None) for seed in SEEDS for entry in entries)
    forward = properties.forward_agrees
    yield from (message_of(forward, mistake.spoil(entry), entry, seed) for seed in SEEDS for entry in entries)


def message_of(check: Callable[..., Any], *given: Any) -> str:
    """The message of a property or trial if it fails on these arguments, else ""; any other error is a failure too."""
    try:
        with np.errstate(all="ignore"):
            check(*given)
    except AssertionError as error:
        return str(error)
    except Exception as error:  # a mistake may raise any error
        return f"{type(error).__name__}: {error}"
    return ""


def trials_of(mistake: Mistake) -> list[Check]:
    """The trials of a function or class without a gradient; of its exercise if the catalogue has none."""
    if mistake.covers in TRIALS:
        return [TRIALS[mistake.covers]]
    return [check for exercise in EXERCISES.values() for check in exercise.trials.get(mistake.covers, {}).values()]


def entries_of(mistake: Mistake) -> list[Entry]:
    """The entries for a mistake: those of its op or, without `diagnosis`, entries from the inputs of its exercise."""
    if mistake.diagnosis:
        return [entry for entry in CATALOGUE.values() if entry.covers == mistake.covers]
    tries = [one for exercise in EXERCISES.values() for one in exercise.tries if one.name == mistake.covers]
    return [one.entry(ours()) for one in tries]


def print_gallery(stream: TextIO | None = None) -> int:
    """Print every mistake, and whether the check catches it; return the number of missed mistakes."""
    out = sys.stdout if stream is None else stream
    missed, width = 0, max(len(name) for name in GALLERY)
    for mistake in sorted(GALLERY.values(), key=lambda mistake: mistake.covers.lower()):
        caught = bool(catch(mistake))
        missed += not caught
        print(f"{mistake.name:<{width}}  {'caught' if caught else 'MISSED'}  {mistake.covers}", file=out)
        text = textwrap.fill(f"{mistake.wrong} Hides: {mistake.hides}", 112)
        print(textwrap.indent(text, "    "), file=out, flush=True)
    print(f"\n{len(GALLERY) - missed} of {len(GALLERY)} caught by the full check", file=out)
    return missed
