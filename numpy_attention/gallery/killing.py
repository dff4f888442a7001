"""How a mutant is killed: the properties of the catalogue in turn, on the lines of the op that it spoils.

The gradients come first, since they say most: where, by how much, and the likely mistake. Then the forward against the
plain formula, a second use before the backward, inputs and caches left alone, dtypes. What has no gradient has a trial.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from numpy_attention.catalogue import properties
from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.table import CATALOGUE
from numpy_attention.catalogue.trials import TRIALS
from numpy_attention.gallery.imprint import imprint
from numpy_attention.gallery.registry import Mutant
from numpy_attention.gallery.weaker import Weakness
from numpy_attention.gradcheck.spec import Sizes

SEEDS = (0, 1, 2)
KILLERS: tuple[properties.Property, ...] = (
    properties.gradients_agree_with_differences, properties.forward_is_the_formula,
    properties.two_uses_do_not_disturb_each_other, properties.nothing_is_changed, properties.dtype_is_kept,
)
FULL = Weakness("the full check")


def kill(mutant: Mutant, weakness: Weakness = FULL) -> str:
    """What the check says against a mutant; empty when the mutant gets through."""
    if mutant.covers in TRIALS:
        trial = (weakness.trials or {}).get(mutant.covers, TRIALS[mutant.covers][1])
        return next(filter(None, (failure(trial, mutant.stand_in, seed) for seed in SEEDS)), "") if trial else ""
    return next(filter(None, _complaints(mutant, weakness)), "")


def failure(check: Callable[..., Any], *given: Any) -> str:
    """What a property or a trial says against what it is given; empty when it holds. A crash is a failure too."""
    try:
        with np.errstate(all="ignore"):
            check(*given)
    except AssertionError as error:
        return str(error)
    except Exception as error:  # a mutant may break in any way
        return f"{type(error).__name__}: {error}"
    return ""


def _complaints(mutant: Mutant, weakness: Weakness) -> Iterator[str]:
    """What each property says to each line of the catalogue, as far as the weakness leaves them."""

    def gradients(entry: Entry, seed: int, sizes: Sizes | None) -> None:
        weakness.compare(entry.case(seed, np.float64, sizes).problem(), seed)

    entries = [weakness.change(entry) for entry in CATALOGUE.values() if entry.covers == mutant.covers]
    for property_ in (gradients, *(() if weakness.gradients_only else KILLERS[1:])):
        for seed in SEEDS:
            for entry in filter(None, entries):
                sizes = _sizes(entry, weakness, seed)
                spoiled = mutant.spoil(entry)
                if property_ is gradients and _same_numbers(entry, spoiled, seed, sizes):
                    continue
                yield failure(property_, spoiled, seed, sizes)


def _sizes(entry: Entry, weakness: Weakness, seed: int) -> Sizes | None:
    if weakness.sizes is None:
        return None
    drawn = entry.sizes(np.random.default_rng(seed))
    return {**drawn, **{name: size for name, size in weakness.sizes.items() if name in drawn}}


def _same_numbers(right: Entry, wrong: Entry, seed: int, sizes: Sizes | None) -> bool:
    """Where a mutant says to the last bit what the right op says, no comparison can tell: save the work."""
    ours, theirs = (imprint(entry, seed, sizes) for entry in (right, wrong))
    return ours is not None and theirs is not None and properties.same(ours, theirs)
