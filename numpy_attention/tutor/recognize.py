"""Compare a wrong answer with every known mistake, on many inputs, to find the mistake in the answer.

An answer has a known mistake if the two have the same outcome on every input, and the right answer has a different
outcome on at least one input. Sizes that all differ show a wrong transpose; some mistakes run only with equal sizes.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.gradcheck.problem import Gradients, Outputs, random_cotangent
from numpy_attention.shapes import Sizes
from numpy_attention.tutor.catalogue import ours
from numpy_attention.tutor.compare import same
from numpy_attention.tutor.entry import Entry
from numpy_attention.tutor.exercise import Exercise, or_none
from numpy_attention.tutor.mistake import Mistake


class Outcome(NamedTuple):
    """Outputs and gradients, and whether the backward changed dy or its cache."""

    y: Outputs
    grads: Gradients
    changed_dy: bool
    changed_cache: bool


def outcome(entry: Entry, seed: int, sizes: Sizes | None, dtype: Any = np.float64) -> Outcome | None:
    """The outcome of one run; None if the run raises an exception."""
    try:
        problem = entry.case(seed, dtype, sizes).problem()
        with np.errstate(all="ignore"):
            y, cache = problem.run(problem.inputs)
            dy = random_cotangent(y, seed)
            original = tuple(one.copy() for one in dy)
            analytic = problem.pull_back(dy, cache)
            grads = {name: None if grad is None else np.array(grad) for name, grad in analytic.items()}
            changed_dy = not same(original, dy)
            for one, before in zip(dy, original):
                one[...] = before
            again = problem.pull_back(dy, cache)
    except Exception:
        return None
    return Outcome(y, grads, changed_dy, not same(grads, again))


def recognize(exercise: Exercise, module: Any, subject: str) -> list[Mistake]:
    """The known mistakes that this module makes."""
    known = [mistake for mistake in exercise.mistakes if mistake.covers == subject or subject == "EncoderBlock"]
    if subject in exercise.quizzes:
        outcome_of = exercise.quizzes[subject].outcome
        theirs, right = or_none(lambda: outcome_of(getattr(module, subject))), outcome_of(getattr(ours(), subject))
        made = [(mistake, or_none(partial(lambda one: outcome_of(one.made(subject)), mistake))) for mistake in known]
        return _matching(theirs, right, [(mistake, wrong) for mistake, wrong in made if wrong is not None])
    entries = [(one.entry(module), one.entry(ours())) for one in exercise.tries if one.name == subject]
    found, rest = set[str](), known
    for dtype in (np.float64, np.float32):  # float64 first: there a lost dtype cannot hide another mistake
        alike, visible = _matching_in_runs(rest, entries, exercise.from_scratch, dtype)
        found |= visible & {mistake.name for mistake in alike}
        rest = [mistake for mistake in alike if mistake.name not in visible]
    return [mistake for mistake in known if mistake.name in found]


def _matching_in_runs(
    known: list[Mistake], entries: list[tuple[Entry, Entry]], from_scratch: bool, dtype: Any
) -> tuple[list[Mistake], set[str]]:
    """The mistakes that agree with the student on every draw; the names of mistakes that the draws make visible."""
    alike, visible = known, set[str]()
    for entry, right in entries:
        show: Any = outcome
        if from_scratch and all(outcome(entry, *drawn) is None for drawn in _draws(entry)):
            show = _outputs  # the student has not written the backward yet
        for seed, sizes in _draws(entry):
            if not alike:
                break
            answer, expected = (show(either, seed, sizes, dtype) for either in (entry, right))
            wrong = {mistake.name: show(mistake.spoil(right), seed, sizes, dtype) for mistake in alike}
            alike = [mistake for mistake in alike if same(answer, wrong[mistake.name], rounding=dtype)]
            visible |= {mistake.name for mistake in alike if not same(wrong[mistake.name], expected, rounding=dtype)}
    return alike, visible


def _matching(theirs: list[Any] | None, right: list[Any], made: list[tuple[Mistake, list[Any]]]) -> list[Mistake]:
    """The mistakes that agree on every answer; if there are none, those that agree up to the first wrong answer."""
    pairs = enumerate(zip(theirs or (), right))
    first = next((i for i, pair in pairs if not same(*pair, rounding=True)), None)
    if theirs is None or first is None or any(one is None for one in theirs[first]):
        return []
    visible = [(mistake, one) for mistake, one in made if not same(one[first], right[first], rounding=True)]
    for upto in (len(right), first + 1):
        found = [mistake for mistake, one in visible if same(theirs[:upto], one[:upto], rounding=True)]
        if found:
            return found
    return []


def _outputs(entry: Entry, seed: int, sizes: Sizes, dtype: Any) -> Any:
    """Only the outputs of the forward; None if it raises an exception."""
    problem = entry.case(seed, dtype, sizes).problem()
    return or_none(lambda: problem.run(problem.inputs)[0])


def _draws(entry: Entry) -> list[tuple[int, Sizes]]:
    """Four draws with sizes that all differ, and one draw with equal sizes."""
    drawn: list[tuple[int, Sizes]] = [(seed, entry.sizes(np.random.default_rng(seed))) for seed in range(4)]
    equal: Sizes = {name: (3, 3) if name == "..." else 3 for name in drawn[0][1]}
    return [*drawn, (5, {**equal, **entry.fixed})]
