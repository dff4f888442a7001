"""Robustness: a right gradient stays right in other calls, and with another dy, memory layout or size.

    repeated    several calls of the backward with one cache give the same gradients
    memory      a gradient shares no memory with an input, because an optimizer's step would change the gradient too
    linear      a gradient is a sum of dy times derivatives: -8 dy gives -8 dx, and dy = 0 gives 0
    separate    a second forward between a forward and its backward changes nothing, and no result of an earlier call
    layouts     arrays that are read-only, in Fortran order or with gaps change nothing
    sizes       the gradient is also right with axes of length 1

These checks run only if all gradients are right, and need about forty calls; the option `robustness` selects them by
these names. A gradient may be dy, or a view of dy.

Two results count as equal if they differ by a small share of their size. A gradient that is pure round-off, such as
that of a key's bias, may differ by more: by a multiple of its change when inputs and dy move by a few last bits.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from numpy_attention.gradcheck.compare import moved_by
from numpy_attention.gradcheck.derivative import Scalar, first_step, quick, rms
from numpy_attention.gradcheck.problem import Outputs, Problem, in_float64, is_float, largest, random_cotangent
from numpy_attention.gradcheck.report import GradientError, symbol_of
from numpy_attention.gradcheck.trees import Arrays, Gradients

LOOSE = 1e-5  # relative to a result: more than the round-off of sums in another order
ROUND_OFF = 1000.0  # a difference up to this multiple of the measured round-off is allowed
MOST_SIZES = 3  # the check of sizes cuts axes of at most so many lengths
ROUGH = 1e-4  # relative to the gradient: a mistake that only one element shows is larger

Given = dict[str, np.ndarray]
Kept = Mapping[int, Sequence[int]]  # length of an axis -> the indices that are kept along each axis of this length


@dataclass
class FirstRun:
    """The results of the first run of forward and backward: `outputs` and `grads` by their names in messages."""

    problem: Problem
    dy: Outputs
    outputs: Given
    grads: Given
    seed: int
    rtol: float
    atol: float

    def new_cache(self) -> Any:
        """The cache of one more forward with the same arrays."""
        return self.problem.run(self.problem.inputs)[1]

    def backward(self, dy: Outputs, cache: Any) -> Given:
        """The gradients by their names in messages, exactly as the backward returns them."""
        return by_symbol(self.problem.pull_back(dy, cache))

    def differing(self, found: Given, expected: Given) -> str | None:
        """The name of the first result that differs by more than round-off."""
        for name, one in expected.items():
            other = found.get(name)
            if other is None or (other.shape, other.dtype.kind) != (one.shape, one.dtype.kind):
                return name
            share = max(LOOSE, float(np.finfo(one.dtype).eps) ** 0.5) + self.rtol
            allowed = share * largest(one) + self.atol + self.problem.nondet
            off = largest(other - one)
            if not off <= allowed and not off <= allowed + self.round_off[name]:  # also for NaN
                return name
        return None

    @cached_property
    def round_off(self) -> dict[str, float]:
        """For each result, a multiple of the measured round-off."""
        first = self.outputs | self.grads
        size = max(map(largest, first.values()))
        change = {name: float(np.finfo(one.dtype).eps) * size for name, one in first.items()}
        for move in moved_by([8] * 6, self.problem, self.problem.inputs, self.dy):
            there = named(move.y) | by_symbol(move.grads)
            change = {name: max(most, largest(there[name] - first[name])) for name, most in change.items()}
        return {name: ROUND_OFF * most for name, most in change.items()}

    def require_same(self, dy: Outputs, cache: Any, expected: Given, when: str, what: str = "changes") -> None:
        """Run the backward and compare; `when` ends the messages.

        Raises: GradientError if the backward raises an error or a gradient differs.
        """
        try:
            found = self.backward(dy, cache)
        except Exception as error:
            raise self.error(f"the backward raises {type(error).__name__} ({error}) {when}") from error
        if name := self.differing(found, expected):
            raise self.error(f"{name} {what} {when}")

    def error(self, text: str) -> GradientError:
        return self.problem.error(f"{text}; repeat with seed={self.seed}")


def named(outputs: Sequence[np.ndarray]) -> Given:
    """The outputs by their names in messages."""
    names = [f"output {i}" for i in range(len(outputs))] if len(outputs) > 1 else ["the output"]
    return dict(zip(names, outputs))


def by_symbol(grads: Gradients) -> Given:
    """The gradients that exist, by their names in messages."""
    return {symbol_of(name): np.asarray(grad) for name, grad in grads.items() if grad is not None}


def chosen(name: str, robustness: Any) -> frozenset[str]:
    """The names of the checks to run, from the option `robustness`; `name` is for messages.

    Raises: ValueError, in one line, for other names.
    """
    if isinstance(robustness, bool):
        return ROBUSTNESS if robustness else frozenset()
    several = np.iterable(robustness) and not isinstance(robustness, str)
    names = frozenset(map(str, robustness if several else [robustness]))
    if unknown := sorted(names - ROBUSTNESS):
        known = f"True, False, or hold names among {', '.join(CHECKS)}"
        raise ValueError(f"gradcheck {name}: robustness must be {known}, got {unknown[0]!r}")
    return names


def check_structure(
    problem: Problem, dy: Outputs, grads: Gradients, seed: int, rtol: float = 0.0, atol: float = 0.0,
    robustness: Any = True,
) -> list[str]:
    """Run the `chosen` checks; `grads` are the gradients at `dy`. Return a note for the report if some did not run.

    Raises: GradientError, in one sentence, for the first failure.
    """
    names = chosen(problem.name, robustness)
    left_out = [name for name in CHECKS if name not in names]
    notes = [f"robustness was not checked: {', '.join(left_out)}"] if left_out else []
    if not names:
        return notes
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        outputs = named(problem.run(problem.inputs)[0])
        run = FirstRun(problem, dy, outputs, by_symbol(grads), seed, rtol, atol)
        for name, check in CHECKS.items():
            if name in names:
                check(run)
    return notes


def repeated(run: FirstRun) -> None:
    """One forward, and several backwards with its cache."""
    cache = run.new_cache()
    advice = "when the backward runs several times with one cache: does a call change the cache, or data outside it?"
    for _ in range(4):
        run.require_same(run.dy, cache, run.grads, advice)


def memory(run: FirstRun) -> None:
    """No gradient shares memory with an input."""
    for name, grad in run.backward(run.dy, run.new_cache()).items():
        for other, value in run.problem.inputs.items():
            if isinstance(value, np.ndarray) and np.shares_memory(grad, value):
                raise run.error(
                    f"{name} shares memory with the input {other}: a step that changes {other} in place would change "
                    f"{name} too; return a new array"
                )


def linear(run: FirstRun) -> None:
    """-8 dy gives -8 times the gradients, and a dy of zeros gives zeros.

    The factor -8 is exact in every dtype. It finds a backward that clips dy, or is right for dy of one sign.
    """
    cache = run.new_cache()
    for times, what, when in (
        (-8.0, "is not linear in dy: it is not -8 times as large",
         "with -8 dy; a backward multiplies dy by derivatives once, and does not clip or normalize dy"),
        (0.0, "is not zero",
         "with a dy of zeros; every term of a gradient is dy times a derivative, and a backward must not divide by dy"),
    ):
        dy = tuple(np.asarray(times * one, one.dtype) for one in run.dy)
        run.require_same(dy, cache, {name: times * grad for name, grad in run.grads.items()}, when, what)


def separate(run: FirstRun) -> None:
    """Two forwards, then their backwards in either order; the arrays that the first forward returned do not change."""
    problem, dy, cache = run.problem, run.dy, run.new_cache()
    returned = named(problem.returned(cache)) | run.backward(dy, cache)
    copies = {name: array.copy() for name, array in returned.items()}
    elsewhere = problem.with_changes(options={  # another state of a generator, such as that of a dropout
        name: np.random.default_rng(99) if isinstance(value, np.random.Generator) else value
        for name, value in problem.options.items()
    })
    arrays = {name: np.array(np.flip(x)) if isinstance(x, np.ndarray) else x for name, x in problem.inputs.items()}
    arrays |= {name: np.asarray(0.9375 * x, x.dtype) for name, x in arrays.items() if is_float(x)}
    try:
        y, cache = elsewhere.run(arrays)
        dz = random_cotangent(y, run.seed + 1)
        alone = {name: grad.copy() for name, grad in run.backward(dz, cache).items()}
    except Exception:  # these arrays are outside the domain
        return
    for name, array in returned.items():
        if not np.array_equal(array, copies[name], equal_nan=array.dtype.kind in "fc"):
            raise run.error(
                f"a later call changes {name} of an earlier call: both calls use the same array; return a new array "
                "from each call"
            )
    if not all(np.all(np.isfinite(one)) for one in (*y, *alone.values())):
        return
    first, (_, second) = run.new_cache(), elsewhere.run(arrays)
    elsewhere.use_again(first, arrays)
    advice = (
        "when the forward is called once more, on other arrays, before the backward: is data stored outside the "
        "cache, in self, in a global or in a reused array? Each call must return the data for its backward in new "
        "arrays"
    )
    run.require_same(dy, first, run.grads, advice)
    run.require_same(dz, second, alone, advice)
    run.require_same(dy, first, run.grads, advice)


def layouts(run: FirstRun) -> None:
    """Other layouts of the inputs, or of dy, give the same outputs and gradients.

    Typical mistakes: a write into dy or an input, and code that relies on the order of the elements in memory.
    """
    for state, (layout, fix) in LAYOUTS.items():
        run.require_same(tuple(map(layout, run.dy)), run.new_cache(), run.grads, f"if dy is {state}; {fix}")
        inputs = {name: layout(x) if type(x) is np.ndarray else x for name, x in run.problem.inputs.items()}
        when = f"if the inputs are {state}; {fix}"
        try:
            y, cache = run.problem.run(inputs)
        except Exception as error:
            if layout is read_only:
                raise run.error(f"the forward raises {type(error).__name__} ({error}) {when}") from error
            continue  # a forward may refuse a layout, as some C code does
        if name := run.differing(named(y), run.outputs):
            raise run.error(f"{name} changes {when}")
        run.require_same(run.dy, cache, run.grads, when)


def read_only(x: np.ndarray) -> np.ndarray:
    """A copy that refuses writes."""
    copy = x.copy()
    copy.flags.writeable = False
    return copy


def spaced(x: np.ndarray) -> np.ndarray:
    """A view with the same values, with gaps between them, in Fortran order."""
    room = np.zeros((2, *x.shape), x.dtype, order="F")
    room[0] = x
    return room[0, ...]


STRIDES = (
    "np.empty_like keeps the memory order of its argument, so reshape or ravel may return a copy: create results with "
    "np.zeros(x.shape, x.dtype), and do not rely on strides"
)
LAYOUTS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "read-only": (read_only, "the code writes into its argument; it must work on a copy"),
    "in Fortran order": (lambda x: x.copy(order="F"), STRIDES),
    "arrays with gaps": (spaced, STRIDES),
}


def sizes(run: FirstRun) -> None:
    """For each length, all axes of this length, in all arrays, are cut to their first element: is the gradient right?

    Typical mistakes: a squeeze removes one axis too many, or a function that sums over broadcast axes also sums over
    other axes of length 1. A failure counts only if the gradient is right at the lengths 2 and 3; else the function
    is made for certain lengths. Axes of length 2 become 3 long then, because two elements would fit there by chance.
    """
    inputs = [x for name, x in run.problem.inputs.items() if name not in run.problem.parameters]
    lengths = dict.fromkeys(n for x in inputs for n in np.shape(x) if n > 1)
    for n in list(lengths)[:MOST_SIZES]:
        failure = failure_at(run, {n: [0]})
        if failure and all(failure_at(run, {n: at, 2: [0, 1, 0]}) == "" for at in ([0, 1], [0, 1, 0])):
            raise run.error(
                f"with one element along the axis of length {n} the forward runs, but {failure}\nlikely mistake: an "
                "axis of length 1 is squeezed away, or treated as a broadcast axis and summed over; or the backward "
                "has a mistake in a branch that only these arrays take"
            )


def resized(arrays: Mapping[str, Any], kept: Kept) -> Arrays:
    """All arrays, with only these indices along the axes of these lengths."""

    def one(x: Any) -> Any:
        for axis, length in enumerate(x.shape if isinstance(x, np.ndarray) else ()):
            x = x.take(kept[length], axis) if length in kept else x
        return x

    return {name: one(x) for name, x in arrays.items()}


def failure_at(run: FirstRun, kept: Kept) -> str | None:
    """The failure of the resized arrays; "" without a failure, None if this cannot be decided.

    Integers may be positions along an axis that is cut, so all integers are 0.
    """
    arrays = in_float64(resized(run.problem.inputs, kept))
    arrays |= {name: x * 0 for name, x in arrays.items() if isinstance(x, np.ndarray) and x.dtype.kind in "iu"}
    problem = run.problem.with_changes(inputs=arrays, skip=resized(run.problem.skip, kept))
    try:
        y, cache = problem.run(arrays)
    except Exception:  # a function may refuse a size
        return None
    dy = random_cotangent(y, run.seed)
    try:
        grads = {name: np.asarray(grad) for name, grad in problem.pull_back(dy, cache).items() if grad is not None}
    except Exception as error:
        if type(error) is IndexError:  # the code uses a fixed index
            return None
        return f"the backward raises {type(error).__name__}: {error}"
    for name, grad in grads.items():
        if grad.shape != arrays[name].shape:
            return f"{symbol_of(name)} has shape {grad.shape}, {name} has {arrays[name].shape}"
    return failure_along(run, problem, y, dy, grads)


def failure_along(run: FirstRun, problem: Problem, y: Outputs, dy: Outputs, grads: Given) -> str | None:
    """Compare the gradients of a problem with a difference along one random direction through all arrays.

    The direction moves each array in proportion to its own size.
    """
    rng, v, analytic, allowed = np.random.default_rng([run.seed, 23]), {}, 0.0, 0.0
    for name, grad in grads.items():
        step = first_step(0.0, rms(problem.inputs[name]))
        v[name] = step * rng.standard_normal(grad.shape) * problem.kept(name)
        analytic += float(np.sum(grad * v[name]))
        whole = largest(run.grads.get(symbol_of(name), grad))  # with one element, a gradient may be zero in theory
        share = (ROUGH + run.rtol) * np.abs(grad) + ROUGH * whole + run.atol + problem.nondet
        allowed += float(np.sum(share * np.abs(v[name])))
    scalar = Scalar(problem.bind(problem.inputs), y, dy)
    slope = quick(scalar.through([problem.inputs[name] for name in v], v.values()), 0.25)
    off = abs(slope.value - analytic)
    if off <= allowed:
        return ""
    if not slope.smooth or not off > 10 * slope.error:  # a corner, noise, or outside the domain
        return None
    return f"along a direction the gradient gives {analytic:.6g}, but differences give {slope.value:.6g}"


CHECKS: dict[str, Callable[[FirstRun], None]] = {
    one.__name__: one for one in (repeated, memory, linear, separate, layouts, sizes)
}
ROBUSTNESS = frozenset(CHECKS)
