"""Whose mistake is it? A wrong answer is compared with every known wrong answer, on many inputs."""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.properties import same
from numpy_attention.gallery.registry import Mutant
from numpy_attention.gradcheck.check import random_cotangent
from numpy_attention.gradcheck.problem import Gradients
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.grade.exercise import Exercise, ours


class Imprint(NamedTuple):
    """All that one run shows of an op: outputs, gradients, and what it did to dy and to its cache."""

    y: Any
    grads: Gradients
    changed_dy: bool
    changed_cache: bool


def recognize(exercise: Exercise, module: Any, subject: str) -> list[Mutant]:
    """The mutants that answer as this module does, wherever both answer, and not as the right one does."""
    known = [mutant for mutant in exercise.mutants if mutant.covers == subject or subject == "EncoderBlock"]
    if subject in exercise.imprints:
        imprint_of = exercise.imprints[subject]
        theirs = _or_none(lambda: imprint_of(getattr(module, subject)))
        right = imprint_of(getattr(ours(), subject))
        if theirs is None or _alike(theirs, right):
            return []
        return [mutant for mutant in known if _alike(theirs, _or_none(lambda m=mutant: imprint_of(m.stand_in)))]
    found = {mutant.name: [0, 0] for mutant in known}  # alike where the right answer is not; not alike
    for one in exercise.tries:
        if one.name != subject:
            continue
        entry, right_entry = one.entry(module), one.entry(ours())
        spoiled = {mutant.name: mutant.spoil(right_entry) for mutant in known}
        for dtype in (np.float64, np.float32):
            for seed, sizes in _draws(entry):
                answer, model = (imprint(e, seed, sizes, dtype) for e in (entry, right_entry))
                for name, wrong_entry in spoiled.items():
                    wrong = imprint(wrong_entry, seed, sizes, dtype)
                    if answer is None or wrong is None:
                        found[name][0] += answer is wrong and model is not None  # both stop, the right one does not
                        found[name][1] += answer is not wrong
                    elif not _alike(answer, wrong):
                        found[name][1] += 1
                    elif not _alike(answer, model):
                        found[name][0] += 1
    return [mutant for mutant in known if found[mutant.name][0] and not found[mutant.name][1]]


def imprint(entry: Entry, seed: int, sizes: Sizes, dtype: Any) -> Imprint | None:
    """What a run shows; None when it stops."""
    return _or_none(lambda: _imprint(entry, seed, sizes, dtype))


def _imprint(entry: Entry, seed: int, sizes: Sizes, dtype: Any) -> Imprint:
    problem = entry.case(seed, dtype, sizes).problem()
    with np.errstate(all="ignore"):
        y, cache = problem.run(problem.inputs)
        dy = random_cotangent(y, seed)
        kept = tuple(one.copy() for one in dy)
        grads = {name: None if grad is None else np.array(grad) for name, grad in problem.pull_back(dy, cache).items()}
        changed_dy = not same(kept, dy)
        for one, before in zip(dy, kept):
            one[...] = before
        again = problem.pull_back(dy, cache)
    return Imprint(y, grads, changed_dy, not same(grads, again))


def _draws(entry: Entry) -> list[tuple[int, Sizes]]:
    """Sizes all different, and, for what only works on squares, all equal."""
    drawn: list[tuple[int, Sizes]] = [(seed, entry.sizes(np.random.default_rng(seed))) for seed in range(4)]
    equal: Sizes = {name: (3, 3) if name == "..." else 3 for name in drawn[0][1]}
    return [*drawn, (5, {**equal, **entry.fixed})]


def _alike(a: Any, b: Any) -> bool:
    """Equal but for rounding, dtypes included."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)) or (a.shape, a.dtype) != (b.shape, b.dtype):
            return False
        if a.dtype.kind != "f":
            return bool(np.array_equal(a, b))
        tolerance = 1e-4 if a.dtype == np.float32 else 1e-9
        return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance * 1e-2, equal_nan=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(_alike(x, y) for x, y in zip(a, b))
    return bool(a == b)


def _or_none(run: Any) -> Any:
    try:
        return run()
    except Exception:  # an answer may stop in any way
        return None
