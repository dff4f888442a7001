"""Compare a wrong answer with every known mistake, on many inputs, to find the mistake in the answer.

An answer has a known mistake if the two have the same outcome on every input, and the right answer has a different
outcome on at least one input. Sizes that all differ show a wrong transpose; some mistakes run only with equal sizes.

An answer can have two mistakes. Then one known mistake has the same outcome in some cases of the exercise, and together
with a second mistake it has the same outcome in the others; or the two together have the same outcome in all cases.
"""

import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.gradcheck.problem import Gradients, Outputs, random_cotangent
from numpy_attention.shapes import Sizes
from numpy_attention.tutor.catalogue import exercise_module, ours
from numpy_attention.tutor.compare import same
from numpy_attention.tutor.entry import Entry
from numpy_attention.tutor.exercise import Exercise, or_none
from numpy_attention.tutor.mistake import Mistake
from numpy_attention.tutor.one_change import one_change


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
    known = _known(exercise, subject)
    if subject in exercise.quizzes:
        outcome_of = exercise.quizzes[subject].outcome
        theirs, right = or_none(lambda: outcome_of(getattr(module, subject))), outcome_of(getattr(ours(), subject))
        made = [(mistake, or_none(partial(lambda one: outcome_of(one.made(subject)), mistake))) for mistake in known]
        return _matching(theirs, right, [(mistake, wrong) for mistake, wrong in made if wrong is not None])
    entries = [(one.entry(module), one.entry(ours())) for one in exercise.tries if one.name == subject]
    in_parts = [mistake for mistake in exercise.in_parts if mistake.covers == subject]
    for some in (known, in_parts):
        if found := _of_entries(some, entries, exercise.from_scratch):
            return found
    return []


def _known(exercise: Exercise, subject: str) -> list[Mistake]:
    return [mistake for mistake in exercise.mistakes if mistake.covers == subject or subject == "EncoderBlock"]


Made = Callable[[Entry], Entry]  # makes a mistake in our entry


class Case(NamedTuple):
    """One case of an exercise: the student's entry and ours, some draws, and the student's outcomes."""

    answer: Entry
    right: Entry
    draws: list[tuple[int, Sizes]]
    outcomes: list[Outcome | None]

    @classmethod
    def of(cls, answer: Entry, right: Entry) -> "Case":
        """A case with the student's outcomes on four draws with different sizes, and on one with equal sizes."""
        draws = _draws(answer)
        return cls(answer, right, draws, [outcome(answer, *drawn) for drawn in draws])

    def agrees(self, made: Made) -> bool:
        """Whether our entry with a mistake has the student's outcomes."""
        try:
            return self.agrees_with(made(self.right))
        except ValueError:  # two mistakes cannot be made together
            return False

    def agrees_with(self, other: Entry) -> bool:
        """Whether another entry has the student's outcomes, and at least one run raises no error."""
        pairs = zip(self.outcomes, self.draws)
        return any(self.outcomes) and all(
            same(one, outcome(other, *drawn), rounding=np.float64) for one, drawn in pairs
        )


def recognize_two(exercise: Exercise, module: Any, subject: str) -> list[tuple[list[str], Mistake | str]]:
    """Two mistakes of an answer, each with the cases that show it; the second is a text if it is not a known mistake.

    Only the first, if nothing explains the other cases; an empty list without a first.
    """
    own, in_parts = _known(exercise, subject), [one for one in exercise.in_parts if one.covers == subject]
    wrong = [case for case in _cases(exercise, module, subject) if not case.agrees_with(case.right)]
    explained = {one.name: [case for case in wrong if case.agrees(one.spoil)] for one in [*own, *in_parts]}
    first = max([*own, *in_parts], key=lambda one: len(explained[one.name]), default=None)
    if first is None or not explained[first.name]:
        for one, other in itertools.combinations(own, 2):
            if wrong and all(case.agrees(partial(_both, one, other)) for case in wrong):
                return [([case.answer.name for case in wrong], mistake) for mistake in (one, other)]
        return []
    found: list[tuple[list[str], Mistake | str]] = [([case.answer.name for case in explained[first.name]], first)]
    rest = [case for case in wrong if case not in explained[first.name]]
    for words, made in _second(first, [*own, *in_parts]):
        if cases := [case.answer.name for case in rest if case.agrees(made)]:
            return [*found, (cases, words)]
    return found


def _second(first: Mistake, known: list[Mistake]) -> Iterator[tuple[Mistake | str, Made]]:
    """Mistakes that an answer can have in addition to the first, and how each is made."""
    for other in known:
        yield other, other.spoil
        yield other, partial(_both, first, other)
    for option, parameter in inspect.signature(first.made(first.covers)).parameters.items():
        if parameter.default is not parameter.empty:
            words = f"It ignores the option {option} and uses the default, {option}={parameter.default!r}."
            yield words, partial(_with_default, first, {option: parameter.default})


def _both(first: Mistake, second: Mistake, right: Entry) -> Entry:
    return first.and_also(second).spoil(right)


def _with_default(first: Mistake, default: dict[str, Any], right: Entry) -> Entry:
    """An entry with a mistake whose backward finds the default of an option in its cache, instead of the option."""
    entry = first.spoil(right)
    backward: Any = entry.op_backward
    return replace(entry, op_backward=lambda dy, cache: backward(dy, cache._replace(**default)))


def recognize_change(exercise: Exercise, module: Any, subject: str) -> list[str]:
    """The change, or the two changes, of the page's solution that give the numbers of this answer, in words.

    The list is empty if no change gives them.
    """
    solution = exercise_module(exercise.name)
    if subject in exercise.quizzes:
        outcome_of = exercise.quizzes[subject].outcome
        theirs, right = (or_none(partial(outcome_of, getattr(one, subject))) for one in (module, ours()))
        first = next((answer for answer, one in zip(theirs or (), right) if not same(answer, one, rounding=True)), None)
        if first is None or (isinstance(first, list) and any(one is None for one in first)):
            return []  # the answer raises an error, so it has no numbers

        def answers(made: Any) -> bool:
            return same(theirs, or_none(lambda: outcome_of(getattr(made, subject))), rounding=np.float64)

        return one_change(exercise, solution, answers)
    tries = [one for one in exercise.tries if one.name == subject]
    cases = list(zip(tries, _cases(exercise, module, subject)))
    right = {one.title for one, case in cases if case.agrees_with(case.right)}
    cases.sort(key=lambda pair: pair[0].title in right)  # a case that is wrong excludes most changes
    if len(right) == len(cases):
        return []
    return one_change(exercise, solution, lambda made: all(case.agrees_with(one.entry(made)) for one, case in cases))


def _cases(exercise: Exercise, module: Any, subject: str) -> list[Case]:
    """The cases of an op or a layer of the exercise."""
    return [Case.of(one.entry(module), one.entry(ours())) for one in exercise.tries if one.name == subject]


def _of_entries(known: list[Mistake], entries: list[tuple[Entry, Entry]], from_scratch: bool) -> list[Mistake]:
    """The mistakes that agree with the student in all cases."""
    found, rest = set[str](), known
    for dtype in (np.float64, np.float32):  # float64 first: there a lost dtype cannot hide another mistake
        alike, visible = _matching_in_runs(rest, entries, from_scratch, dtype)
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
