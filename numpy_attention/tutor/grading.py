"""Grade one exercise: check its properties one after another; the tutor explains the first property that fails.

The order is useful for a student: the forward is unchanged; the backward returns the right number of arrays with the
right shapes; their elements are right; float32 inputs give float32 gradients. Each property is checked on random sizes
and numbers. If one draw fails, its sizes are reduced as long as the property still fails. A softmax of one number, or a
matrix of one number, would show too little, so only the sizes in MAY_BE_ONE are reduced to one.
"""

import copy
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.problem import random_cotangent
from numpy_attention.shapes import Sizes
from numpy_attention.tutor import properties
from numpy_attention.tutor.catalogue import ours
from numpy_attention.tutor.compare import close
from numpy_attention.tutor.entry import Case, Entry
from numpy_attention.tutor.exercise import LIKELY, Exercise, shown_beside, with_our_forward
from numpy_attention.tutor.explain import Failure, explain
from numpy_attention.tutor.form import check_form
from numpy_attention.tutor.outputs import likely_mistake
from numpy_attention.tutor.result import STATES, Grade

EXAMPLES = 12
FULL_CHECKS = 2  # the whole checker runs only on the first examples
MAX_ERROR = 1e-9  # of a gradient, relative to the largest element of our own gradient
MAY_BE_ONE = ("...", "B", "H", "H_kv", "N", "T_q")

Search = Callable[[int], Failure | None]
Property = Callable[[Entry, Entry, int, Sizes | None], None]  # the student's entry, and the entry with our functions
Pairs = list[tuple[Entry, Entry]]


def grade_module(
    exercise: Exercise, module: Any, examples: int = EXAMPLES, before: Callable[[Grade, str], None] = lambda *_: None
) -> Grade:
    """Grade a module that defines everything that the exercise needs.

    `before` is called before each property, with the grade so far and the property: a check may never end.
    """
    grade = Grade(exercise.name)
    properties_of: dict[str, list[tuple[str, Search]]] = {}
    for subject in exercise.subjects:
        before(grade, f"{subject}, in a first run of all checks")
        properties_of[subject] = list(_properties(exercise, module, subject, examples))
    grade.of = sum(map(len, properties_of.values()))
    for subject, checks in properties_of.items():
        for description, search in checks:
            before(grade, f"{subject}: {description}")
            failure = search(examples)
            if failure is None:
                grade.passed += 1
                grade.lines.append(f"  right    {subject}: {description}")
                continue
            state, lines, summary = explain(exercise, module, subject, failure)
            grade.state = max(grade.state, state, key=STATES.index)
            grade.summary = grade.summary or summary
            grade.lines.append(f"  {'to do ' if state == 'to do' else 'WRONG '}   {subject}: {description}")
            grade.lines += [f"           {part}".rstrip() for line in lines for part in _wrapped(line)]
            break
    return grade


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, 108) if line and not line.startswith(" ") else [line]


def _properties(exercise: Exercise, module: Any, subject: str, examples: int) -> Iterator[tuple[str, Search]]:
    """The description of each property, with the function that looks for a counterexample."""
    if subject in exercise.trials:
        for description, trial in exercise.trials[subject].items():
            yield description, partial(_first_seed, trial, getattr(module, subject))
        return
    tries = [one for one in exercise.tries if one.name == subject]
    pairs = [(one.entry(module), one.entry(ours())) for one in tries]
    forward = partial(_forward, exercise.from_scratch)
    unchanged = "the forward, compared with the formula" if exercise.from_scratch else "the given forward"
    fast = (forward, _alone(check_form), _gradients_are_ours, _alone(properties.nothing_is_changed),
            _alone(properties.dtype_is_kept))
    # One loop for all fast properties: a right answer needs no others, because each property has the same draws.
    failing = [pair for pair in pairs if _failure(partial(_every, fast), *pair, _draws(pair[0], examples))]
    yield unchanged, partial(_first_failure, forward, failing)
    yield "number and shapes of the gradients", partial(_first_failure, _alone(check_form), failing)
    wrong = partial(_first_wrong_gradient, pairs, failing)
    yield "every element, compared with numerical differences of the forward", wrong
    yield "dtype of the results for float32 inputs", partial(_first_failure, _alone(properties.dtype_is_kept), failing)
    if exercise.memory is not None:
        memory = exercise.memory
        yield "memory (no array of shape T_q x T_k)", lambda _: _first_seed(lambda made, _: memory(made), module, 1)


def _every(fast: tuple[Property, ...], entry: Entry, right: Entry, seed: int, sizes: Sizes | None) -> None:
    for property_ in fast:
        property_(entry, right, seed, sizes)


def _forward(from_scratch: bool, entry: Entry, right: Entry, seed: int, sizes: Sizes | None) -> None:
    """Check that the forward agrees with the formula. The student writes the forward only if `from_scratch`."""
    case, right_case = (one.case(seed, np.float64, sizes) for one in (entry, right))
    theirs, expected = _output(case), _output(right_case)
    if close(theirs, expected):
        return
    assert from_scratch, (
        f"the forward was changed: it must return {_summary(expected)}, but returns {_summary(theirs)}; restore the "
        "forward of the exercise, because only the backward is your task"
    )
    arguments = {**right_case.inputs, **right_case.options}
    likely = likely_mistake(lambda **some: right_case.op(**some)[0], (arguments, theirs, expected))
    raise AssertionError("\n".join([
        "the forward does not agree with the formula", *filter(None, [likely and LIKELY + likely]),
        *shown_beside("yours:", theirs, "right:", expected),
    ]))


def _output(case: Case) -> np.ndarray:
    answer = case.op(**case.inputs, **copy.deepcopy(case.options))
    pair = isinstance(answer, tuple) and len(answer) == 2
    assert pair, f"{case.entry.covers} must return a tuple of two, (y, cache), got {type(answer).__name__}"
    return np.asarray(answer[0])


def _summary(y: np.ndarray) -> str:
    return f"an array of shape {y.shape} that begins with {y.reshape(-1)[:2].round(4).tolist()}"


def _alone(property_: properties.Property) -> Property:
    """A property of the student's entry alone."""
    return lambda entry, _, seed, sizes: property_(entry, seed, sizes)


def _gradients_are_ours(entry: Entry, right: Entry, seed: int, sizes: Sizes | None) -> None:
    """Check that the gradients agree with those of our own backward."""
    problem, our_problem = with_our_forward(entry, right, seed, sizes), right.case(seed, np.float64, sizes).problem()
    y, cache = problem.run(problem.inputs)
    dy = random_cotangent(y, seed)
    theirs, ours = problem.pull_back(dy, cache), our_problem.gradients(our_problem.inputs, dy)
    expected = {name: grad for name, grad in ours.items() if grad is not None}
    largest = max(float(np.max(np.abs(one), initial=0.0)) for one in (*dy, *expected.values()))
    for name, grad in expected.items():
        # A gradient that is zero in theory contains round-off of the size of dy and of the other gradients.
        size = max(float(np.max(np.abs(grad), initial=0.0)), 1e-3 * largest) or 1.0
        error = float(np.max(np.abs(np.asarray(theirs[name], np.float64) - grad), initial=0.0)) / size
        assert error <= MAX_ERROR, f"d{name} is off by {error:.1e} of its largest element"


def _gradients(entry: Entry, right: Entry, seed: int, sizes: Sizes | None) -> None:
    """Run the whole checker, which also finds hidden state and changes of dy; then compare with our gradients."""
    report = check(with_our_forward(entry, right, seed, sizes), seed, explain=False)
    assert report.error <= entry.tolerance, f"{entry.covers}: off by {report.error:.1e}"
    _gradients_are_ours(entry, right, seed, sizes)


def _first_wrong_gradient(pairs: Pairs, failing: Pairs, examples: int) -> Failure | None:
    """Compare with our own gradient, which is fast; only then run the checker, which is a hundred times slower."""
    for pair in failing:
        found = _smallest_failure(_gradients_are_ours, *pair, examples)
        if found is not None:
            return replace(found, error=_error(_gradients, *pair, found.seed, found.sizes or {}) or found.error)
    # If an argument is changed in place, the gradients may still be right.
    return _first_failure(_gradients, pairs, FULL_CHECKS) or _first_failure(
        _alone(properties.nothing_is_changed), failing, examples
    )


def _first_failure(property_: Property, pairs: Pairs, examples: int) -> Failure | None:
    """The smallest counterexample to a property, from the first entry that has a counterexample."""
    return next(filter(None, (_smallest_failure(property_, *pair, examples) for pair in pairs)), None)


def _first_seed(trial: Callable[[Any, int], None], made: Any, examples: int) -> Failure | None:
    for seed in range(examples):
        try:
            trial(made, seed)
        except Exception as error:  # the tutor explains every exception
            return Failure(error, seed)
    return None


def _smallest_failure(property_: Property, entry: Entry, right: Entry, examples: int) -> Failure | None:
    """A counterexample; it has no size or seed that could be smaller."""
    found, smaller = None, _failure(property_, entry, right, _draws(entry, examples))
    while smaller is not None:
        found = smaller
        smaller = _failure(property_, entry, right, _smaller(entry, found.seed, found.sizes or {}))
    return found


def _failure(property_: Property, entry: Entry, right: Entry, draws: Iterable[tuple[int, Sizes]]) -> Failure | None:
    """The first of these draws that is a counterexample."""
    for seed, sizes in draws:
        error = _error(property_, entry, right, seed, sizes)
        if error is not None:
            return Failure(error, seed, sizes, entry, right)
    return None


def _error(property_: Property, entry: Entry, right: Entry, seed: int, sizes: Sizes) -> Exception | None:
    try:
        with np.errstate(all="ignore"):
            property_(entry, right, seed, sizes)
    except Exception as error:  # a student's function may raise any error
        return error
    return None


def _draws(entry: Entry, examples: int) -> Iterator[tuple[int, Sizes]]:
    """Sizes that all differ; every fourth time the smallest sizes, most of which are equal."""
    for seed in range(examples):
        yield seed, _least(entry) if seed % 4 == 0 else entry.sizes(np.random.default_rng(seed))


def _least(entry: Entry) -> Sizes:
    """The smallest sizes that an example should have, without leading axes."""
    sizes: Sizes = {}
    for name in entry.parsed.size_names:
        sizes[name] = () if name == "..." else max(1 if name in MAY_BE_ONE else 2, entry.at_least.get(name, 0))
    return {**sizes, **entry.fixed}


def _smaller(entry: Entry, seed: int, sizes: Sizes) -> Iterator[tuple[int, Sizes]]:
    """Draws that are simpler in one respect; a size of one, which shows little, is replaced by two."""
    least = _least(entry)
    for name, size in sizes.items():
        wanted = least[name]
        if isinstance(size, tuple):
            shorter = [size[:i] + size[i + 1 :] for i in range(len(size))]
            lower = [(*size[:i], n - 1, *size[i + 1 :]) for i, n in enumerate(size) if n > 1]
            yield from ((seed, {**sizes, name: axes}) for axes in (shorter + lower if name not in entry.fixed else []))
        elif size != wanted:
            yield seed, {**sizes, name: wanted}
            yield from ((seed, {**sizes, name: n}) for n in range(3, size) if n != wanted)
    yield from ((fewer, sizes) for fewer in range(seed))
