"""Whose mistake is it? A wrong answer beside every known wrong answer, on many inputs.

Two answers are the same mistake when they agree on every input, in all that an imprint shows, and on some input the
right answer says otherwise. Sizes that all differ tell transposes apart; equal ones let those answer that need squares.
"""

from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.properties import same
from numpy_attention.gallery.imprint import imprint
from numpy_attention.gallery.registry import Mutant
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.grade.exercise import Exercise
from numpy_attention.grade.references import ours


def recognize(exercise: Exercise, module: Any, subject: str) -> list[Mutant]:
    """The mutants that answer as this module does, wherever both answer, and not as the right one does."""
    known = [mutant for mutant in exercise.mutants if mutant.covers == subject or subject == "EncoderBlock"]
    if subject in exercise.imprints:
        imprint_of = exercise.imprints[subject]
        theirs, right = _or_none(lambda: imprint_of(getattr(module, subject))), imprint_of(getattr(ours(), subject))
        made = [(mutant, _or_none(lambda mutant=mutant: imprint_of(mutant.stand_in))) for mutant in known]
        return _alike(theirs, right, [(mutant, wrong) for mutant, wrong in made if wrong is not None])
    found: set[str] = set()
    alike = {mutant.name: True for mutant in known}  # on every input
    telling = {mutant.name: False for mutant in known}  # on some input the right answer says otherwise
    for dtype in (np.float64, np.float32):  # a dtype lost on the way hides no mistake that float64 shows
        for one in exercise.tries:
            if one.name != subject:
                continue
            entry, right_entry = one.entry(module), one.entry(ours())
            show: Any = imprint
            if exercise.from_nothing and all(imprint(entry, *drawn) is None for drawn in _draws(entry)):
                show = _outputs  # its backward is not written yet
            for seed, sizes in _draws(entry):
                answer, model = (show(either, seed, sizes, dtype) for either in (entry, right_entry))
                for mutant in known:
                    wrong = show(mutant.spoil(right_entry), seed, sizes, dtype)
                    alike[mutant.name] &= same(answer, wrong, rounding=True)
                    telling[mutant.name] |= not same(wrong, model, rounding=True)
        found |= {name for name in alike if alike[name] and telling[name]}
    return [mutant for mutant in known if mutant.name in found]


def _alike(theirs: list[Any] | None, right: list[Any], made: list[tuple[Mutant, list[Any]]]) -> list[Mutant]:
    """Who answers alike in all; or else as far as the first wrong answer, behind which others may wait."""
    pairs = enumerate(zip(theirs or (), right))
    first = next((i for i, pair in pairs if not same(*pair, rounding=True)), None)
    if theirs is None or first is None or any(one is None for one in theirs[first]):
        return []
    telling = [(mutant, one) for mutant, one in made if not same(one[first], right[first], rounding=True)]
    for upto in (len(right), first + 1):
        found = [mutant for mutant, one in telling if same(theirs[:upto], one[:upto], rounding=True)]
        if found:
            return found
    return []


def _outputs(entry: Entry, seed: int, sizes: Sizes, dtype: Any) -> Any:
    """What the forward alone gives; None when it stops."""
    problem = entry.case(seed, dtype, sizes).problem()
    with np.errstate(all="ignore"):
        return _or_none(lambda: problem.run(problem.inputs)[0])


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
