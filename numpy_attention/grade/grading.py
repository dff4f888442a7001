"""Grading one exercise: its properties in turn, until one fails; then the tutor explains the smallest example.

The order is the one in which a student needs the properties: the forward is unchanged; the backward returns the right
number of arrays, of the right shapes; their numbers are right; float32 stays float32. For each property Hypothesis
draws sizes and a seed; it shrinks those that fail.
"""

import copy
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue import properties
from numpy_attention.catalogue.compare import close
from numpy_attention.catalogue.entry import Case, Entry
from numpy_attention.catalogue.exercise import Exercise, value_text, with_our_forward
from numpy_attention.catalogue.table import ours
from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.grade.form import right_form
from numpy_attention.grade.formula import as_exact_as_a_formula
from numpy_attention.grade.tutor import Failure, explain

EXAMPLES = 20
WHOLE = 4  # a quarter of the examples, at least three, go through the whole checker
MOST = 100  # numbers in an example, which a student reads
STATES = ("right", "to do", "wrong", "broken", "too slow")

Look = Callable[[int], Failure | None]
Property = Callable[[Entry, Entry, int, Sizes | None], None]  # the student's entry, the same with our functions


@dataclass
class Grade:
    """The result: `state` is one of STATES, `text` is the tutor's answer."""

    exercise: str
    state: str = "right"
    passed: int = 0
    of: int = 0
    lines: list[str] = field(default_factory=list)
    summary: str = ""

    @property
    def text(self) -> str:
        """The whole answer."""
        return "\n".join(self.lines)


def grade_module(exercise: Exercise, module: Any, examples: int = EXAMPLES) -> Grade:
    """Grade a module that holds everything the exercise needs."""
    grade = Grade(exercise.name)
    in_turn = {subject: list(_in_turn(exercise, module, subject)) for subject in exercise.subjects}
    grade.of = sum(map(len, in_turn.values()))
    for subject, own in in_turn.items():
        for words, look in own:
            failure = look(examples)
            if failure is None:
                grade.passed += 1
                grade.lines.append(f"  right    {subject}: {words}")
                continue
            state, lines, summary = explain(exercise, module, subject, failure)
            grade.state = max(grade.state, state, key=STATES.index)
            grade.summary = grade.summary or summary
            grade.lines.append(f"  {'to do ' if state == 'to do' else 'WRONG '}   {subject}: {words}")
            grade.lines += [f"           {part}".rstrip() for line in lines for part in _wrapped(line)]
            break
    return grade


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, 108) if line and not line.startswith(" ") else [line]


def _in_turn(exercise: Exercise, module: Any, subject: str) -> Iterator[tuple[str, Look]]:
    """Each property in words, with the function that looks for a counterexample."""
    if subject in exercise.trials:
        for words, trial in exercise.trials[subject].items():
            yield words, partial(_first_seed, trial, getattr(module, subject))
        return
    tries = [one for one in exercise.tries if one.name == subject]
    pairs = [(one.entry(module), one.entry(ours())) for one in tries]
    still = "" if exercise.from_scratch else "still "
    yield f"the forward is {still}that of the formula", partial(_first, partial(_forward, exercise.from_scratch), pairs)
    yield "the backward returns arrays of the right number, shape and dtype", partial(_first, _form, pairs)
    yield "every element agrees with differences of the forward", partial(_first_wrong_gradient, pairs)
    yield "float32 stays float32", partial(_first, _dtype, pairs)
    if exercise.memory is not None:
        memory = exercise.memory
        yield "no array of T_q x T_k is built", lambda _: _first_seed(lambda made, _: memory(made), module, 1)


def _forward(from_scratch: bool, entry: Entry, right: Entry, seed: int, sizes: Sizes | None) -> None:
    """The forward gives what the formula gives. The student writes it only if the exercise is `from_scratch`."""
    theirs, expected = (_output(one.case(seed, np.float64, sizes)) for one in (entry, right))
    assert close(theirs, expected), (
        f"the forward gives other numbers than the formula\n  yours: {value_text(theirs)}\n"
        f"  right: {value_text(expected)}"
        if from_scratch else
        f"the forward no longer gives what it should, {_short(expected)}, but {_short(theirs)}; it was right as it "
        "was handed out, so put it back: only the backward is yours to write"
    )


def _output(case: Case) -> np.ndarray:
    answer = case.op(**case.inputs, **copy.deepcopy(case.options))
    pair = isinstance(answer, tuple) and len(answer) == 2
    assert pair, f"{case.entry.covers} must return two things, (y, cache), got {type(answer).__name__}"
    return np.asarray(answer[0])


def _short(y: np.ndarray) -> str:
    return f"an array {y.shape} beginning with {y.reshape(-1)[:2].round(4).tolist()}"


def _form(entry: Entry, _: Entry, seed: int, sizes: Sizes | None) -> None:
    right_form(entry, seed, sizes)


def _as_ours(entry: Entry, right: Entry, seed: int, sizes: Sizes | None) -> None:
    """The backward gives the gradients of our own backward, as exactly as a formula gives them."""
    problem = with_our_forward(entry, right, seed, sizes)
    as_exact_as_a_formula(entry.covers, problem, right.case(seed, np.float64, sizes).problem(), seed)


def _gradients(entry: Entry, right: Entry, seed: int, sizes: Sizes | None) -> None:
    """The whole checker, which also finds a changed dy and hidden state; then the comparison with our gradients."""
    report = check(with_our_forward(entry, right, seed, sizes), seed)
    assert report.error <= entry.tolerance, f"{entry.covers}: off by {report.error:.1e}"
    _as_ours(entry, right, seed, sizes)


def _nothing_is_changed(entry: Entry, _: Entry, seed: int, sizes: Sizes | None) -> None:
    properties.nothing_is_changed(entry, seed, sizes)


def _dtype(entry: Entry, _: Entry, seed: int, sizes: Sizes | None) -> None:
    properties.dtype_is_kept(entry, seed, sizes)


def _first_wrong_gradient(pairs: list[tuple[Entry, Entry]], examples: int) -> Failure | None:
    """Compare with our own gradient, which is fast; the checker, a hundred times slower, then tells what is wrong."""
    for pair in pairs:
        found = _smallest(_as_ours, *pair, examples)
        if found is not None:
            try:
                _gradients(*pair, found.seed, found.sizes)
            except Exception as error:
                found = replace(found, error=error)
        else:
            found = _smallest(_gradients, *pair, max(examples // WHOLE, 3))
            found = found or _smallest(_nothing_is_changed, *pair, examples)  # a change may leave the numbers right
        if found is not None:
            return found
    return None


def _first(property_: Property, pairs: list[tuple[Entry, Entry]], examples: int) -> Failure | None:
    """The smallest counterexample to a property, for the first entry that has one."""
    return next(filter(None, (_smallest(property_, *pair, examples) for pair in pairs)), None)


def _first_seed(trial: Callable[[Any, int], None], made: Any, examples: int) -> Failure | None:
    for seed in range(examples):
        try:
            trial(made, seed)
        except Exception as error:  # whatever the answer does is to be explained
            return Failure(error, seed)
    return None


def _smallest(property_: Property, entry: Entry, right: Entry, examples: int) -> Failure | None:
    """Let Hypothesis look for a counterexample, and shrink it."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    from numpy_attention.gradcheck.strategies import sizes_of

    found: list[Failure] = []

    @settings(
        max_examples=examples, database=None, deadline=None, derandomize=True, report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink], print_blob=False
    )
    @given(sizes_of(entry.parsed, fixed=entry.fixed, at_least=entry.at_least, most=MOST), st.integers(0, 99))
    def attempt(sizes: Sizes, seed: int) -> None:
        try:
            with np.errstate(all="ignore"):
                property_(entry, right, seed, sizes)
        except Exception as error:
            found[:] = [Failure(error, seed, sizes, entry, right)]
            raise AssertionError from error

    try:
        attempt()
    except BaseException:  # Hypothesis raises what it found, sometimes in a group
        if not found:
            raise
    return found[0] if found else None
