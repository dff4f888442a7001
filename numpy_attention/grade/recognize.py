"""Whose mistake is it? A wrong answer beside every known wrong answer, on many inputs.

Two answers are the same mistake when they agree on every input, in all that an imprint shows, and on some input the
right answer says otherwise. Sizes that all differ tell transposes apart; equal ones let those answer that need squares.
"""

import itertools
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.properties import same
from numpy_attention.gallery.imprint import imprint
from numpy_attention.gallery.registry import Mutant
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.grade.exercise import Exercise, ours


def recognize(exercise: Exercise, module: Any, subject: str) -> list[Mutant]:
    """The mutants that answer as this module does, wherever both answer, and not as the right one does."""
    known = [mutant for mutant in exercise.mutants if mutant.covers == subject or subject == "EncoderBlock"]
    if subject in exercise.imprints:
        imprint_of = exercise.imprints[subject]
        theirs = _or_none(lambda: imprint_of(getattr(module, subject)))
        right = imprint_of(getattr(ours(), subject))
        if theirs is None or same(theirs, right, rounding=True):
            return []
        made = [_or_none(lambda mutant=mutant: imprint_of(mutant.stand_in)) for mutant in known]
        return [mutant for mutant, wrong in zip(known, made) if same(theirs, wrong, rounding=True)]
    alike = {mutant.name: True for mutant in known}  # on every input
    telling = {mutant.name: False for mutant in known}  # on some input the right answer says otherwise
    for one in exercise.tries:
        if one.name != subject:
            continue
        entry, right_entry = one.entry(module), one.entry(ours())
        spoiled = {mutant.name: mutant.spoil(right_entry) for mutant in known}
        for dtype, (seed, sizes) in itertools.product((np.float64, np.float32), _draws(entry)):
            answer, model = (imprint(either, seed, sizes, dtype) for either in (entry, right_entry))
            for name, wrong_entry in spoiled.items():
                wrong = imprint(wrong_entry, seed, sizes, dtype)
                alike[name] &= same(answer, wrong, rounding=True)
                telling[name] |= not same(wrong, model, rounding=True)
    return [mutant for mutant in known if alike[mutant.name] and telling[mutant.name]]


def _draws(entry: Entry) -> list[tuple[int, Sizes]]:
    """Sizes all different, and, for what only works on squares, all equal."""
    drawn: list[tuple[int, Sizes]] = [(seed, entry.sizes(np.random.default_rng(seed))) for seed in range(4)]
    equal: Sizes = {name: (3, 3) if name == "..." else 3 for name in drawn[0][1]}
    return [*drawn, (5, {**equal, **entry.fixed})]


def _or_none(run: Any) -> Any:
    try:
        return run()
    except Exception:  # an answer may stop in any way
        return None
