"""Grading one exercise: its properties in turn, and the smallest example against the first that fails.

The order is that in which a student can use the answer: the forward is still the one that was handed out; the backward
returns arrays at all, so many and of these shapes; their numbers are right; the contract of an op is kept. Hypothesis
looks for an example and shrinks it, the tutor explains it, and what comes after a failure waits.
"""

import copy
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue import properties
from numpy_attention.catalogue.compare import close
from numpy_attention.catalogue.entry import Case, Entry
from numpy_attention.catalogue.exercise import Exercise, beside, shown
from numpy_attention.catalogue.table import ours
from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.grade.form import right_form
from numpy_attention.grade.formula import as_exact_as_a_formula
from numpy_attention.grade.tutor import explain

EXAMPLES = 20
MOST = 100  # numbers in an example: it is to be read by eye
STATES = ("right", "to do", "wrong", "broken", "too slow")


@dataclass
class Grade:
    """What came out: `state` is right, wrong, to do, broken or too slow; `text` is the tutor's answer."""

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


@dataclass
class Failure:
    """The smallest example that fails."""

    error: BaseException
    entry: Entry | None
    seed: int
    sizes: Sizes | None
    right: Entry | None = None  # the same with our own functions


def grade_module(exercise: Exercise, module: Any, examples: int = EXAMPLES) -> Grade:
    """Grade a module that holds everything the exercise needs."""
    grade = Grade(exercise.name)
    checks = {subject: list(_checks(exercise, module, subject)) for subject in exercise.subjects}
    grade.of = sum(len(own) for own in checks.values())
    for subject, own in checks.items():
        for words, attempt in own:
            failure = attempt(examples)
            if failure is None:
                grade.passed += 1
                grade.lines.append(f"  right    {subject}: {words}")
                continue
            state, lines, summary = explain(
                exercise, module, subject, failure.error, failure.entry, failure.seed, failure.sizes, failure.right
            )
            grade.state = max(grade.state, state, key=STATES.index)
            grade.summary = grade.summary or summary
            grade.lines.append(f"  {'to do ' if state == 'to do' else 'WRONG '}   {subject}: {words}")
            grade.lines += [f"           {part}".rstrip() for line in lines for part in _wrapped(line)]
            break
    return grade


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, 108) if line and not line.startswith(" ") else [line]


def _checks(exercise: Exercise, module: Any, subject: str) -> Iterator[tuple[str, Callable[[int], Failure | None]]]:
    """Each property in words, with the function that looks for an example against it."""
    if subject in exercise.trials:
        for words, trial in exercise.trials[subject].items():
            yield words, partial(_first_seed, trial, getattr(module, subject))
        return
    tries = [one for one in exercise.tries if one.name == subject]
    entries = [one.entry(module) for one in tries]
    own = {id(entry): one.entry(ours()) for entry, one in zip(entries, tries)}

    def forward_is_right(entry: Entry, seed: int, sizes: Sizes | None) -> None:
        """The forward gives what the formula gives; where it was handed out, it was right then."""
        theirs, right = (_output(one.case(seed, np.float64, sizes), subject) for one in (entry, own[id(entry)]))
        assert close(theirs, right), (
            f"the forward gives other numbers than the formula\n  yours: {shown(theirs)}\n  right: {shown(right)}"
            if exercise.from_nothing else
            f"the forward no longer gives what it should, {_short(right)}, but {_short(theirs)}; it was right as it "
            "was handed out, so put it back: only the backward is yours to write"
        )

    def gradients_agree(entry: Entry, seed: int, sizes: Sizes | None) -> None:
        """The backward gives the gradients of the formula's forward, and as exactly as a formula gives them."""
        problem = beside(entry, own[id(entry)], seed, sizes)
        report = check(problem, seed)
        assert report.error <= entry.tolerance, f"{subject}: off by {report.error:.1e}"
        as_exact_as_a_formula(subject, problem, own[id(entry)].case(seed, np.float64, sizes).problem(), seed)

    in_turn: list[tuple[str, properties.Property]] = [
        (f"the forward is {'' if exercise.from_nothing else 'still '}that of the formula", forward_is_right),
        ("the backward returns arrays of the right number, shape and dtype", right_form),
        ("every element agrees with differences of the forward", gradients_agree),
        ("inputs, dy and cache stay as they were; called twice it says the same", properties.nothing_is_changed),
        ("a second use before the backward disturbs nothing", properties.two_uses_do_not_disturb_each_other),
        ("float32 stays float32", properties.dtype_is_kept),
    ]
    for words, property_ in in_turn:
        yield words, partial(_smallest, property_, list(zip(entries, own.values())))
    if exercise.memory is not None:
        memory = exercise.memory
        yield "no array of T_q x T_k is built", lambda _: _first_seed(lambda made, _: memory(made), module, 1)


def _output(case: Case, subject: str) -> np.ndarray:
    answer = case.op(**case.inputs, **copy.deepcopy(case.options))
    pair = isinstance(answer, tuple) and len(answer) == 2
    assert pair, f"{subject} must return two things, (y, cache), got {type(answer).__name__}"
    return np.asarray(answer[0])


def _short(y: np.ndarray) -> str:
    return f"an array {y.shape} beginning with {y.reshape(-1)[:2].round(4).tolist()}"


def _first_seed(trial: Callable[[Any, int], None], made: Any, examples: int) -> Failure | None:
    for seed in range(examples):
        try:
            trial(made, seed)
        except Exception as error:  # whatever the answer does is to be explained
            return Failure(error, None, seed, None)
    return None


def _smallest(property_: properties.Property, entries: list[tuple[Entry, Entry]], examples: int) -> Failure | None:
    """The smallest example against a property, of the first entry that has one."""
    return next(filter(None, (_smallest_of(property_, *pair, examples) for pair in entries)), None)


def _smallest_of(property_: properties.Property, entry: Entry, right: Entry, examples: int) -> Failure | None:
    """Let Hypothesis look for an example, and shrink it."""
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
                property_(entry, seed, sizes)
        except Exception as error:
            found[:] = [Failure(error, entry, seed, sizes, right)]
            raise AssertionError from error

    try:
        attempt()
    except BaseException:  # Hypothesis raises what it found, sometimes in a group
        if not found:
            raise
    return found[0] if found else None
