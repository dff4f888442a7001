"""Axes of length 1: the batch of one, the single head, the one feature.

A backward that is right for (3, 4) may fail for (1, 4): a squeeze drops one axis more than was meant, a helper that
sums over what was broadcast takes every axis of length 1 for such a one. So for each length that occurs, all axes of
it, in all arrays, are cut down to their first element. Where the forward still runs, the backward must run too, give
each gradient in the shape of its argument, and agree with a difference along one direction through all arrays.

Two things are no mistake. The forward may refuse. And function or backward may be bound to the length, by an array of
their own say, a mask or a target: then they fail with an axis that is shorter by one as well, and nothing is said.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.gradcheck.numbers.claims import random_cotangent
from numpy_attention.gradcheck.numbers.differences import first_step, is_kink, refined
from numpy_attention.gradcheck.numbers.line import Scalar, largest, rms
from numpy_attention.gradcheck.problems.problem import Gradients, Problem, in_float64, is_float
from numpy_attention.gradcheck.problems.trees import Arrays
from numpy_attention.gradcheck.report import GradientError

MOST_SIZES = 3
ROUGH = 1e-4  # what a single central difference must agree to; else it is looked at closely
CLOSE = 1e-6
RESOLVED = 1e-3  # a difference whose error is a larger share of the terms judges nothing


class Allowed(NamedTuple):
    """What an element of a gradient may be off by, absolute and relative."""

    absolute: float
    relative: float


def check_small_sizes(problem: Problem, grads: Gradients, seed: int, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Cut each length that occurs to 1, and check what the forward accepts; `grads` are those of the whole.

    Raises: GradientError, where a gradient is wrong that is right with more than one element along the axis.
    """
    size = max((largest(np.asarray(grad)) for grad in grads.values() if grad is not None), default=0.0)
    allowed = Allowed(CLOSE * size + atol, CLOSE + rtol)
    exact = in_float64(problem.inputs)
    for n in lengths(problem)[:MOST_SIZES]:
        cut = resized(exact, n, [0])
        fault = _fault(problem, cut, allowed, seed)
        other = another_length(exact, n) if fault else None
        if other is not None and _fault(problem, other, allowed, seed) == "":
            shapes = ", ".join(f"{name} {x.shape}" for name, x in cut.items() if x is not exact[name])
            raise GradientError(
                f"gradcheck {problem.name}: with one element along the axis of length {n} ({shapes}) the forward runs, "
                f"but {fault}\nlikely mistake: an axis of length 1 is squeezed away, or taken for one that was "
                "broadcast and is summed over; or a branch on values that these arrays alone take; repeat with "
                f"seed={seed}"
            )


def lengths(problem: Problem) -> list[int]:
    """The lengths above 1 that occur as axes of the inputs, parameters aside, each once."""
    inputs = (value for name, value in problem.inputs.items() if name not in problem.parameters)
    found = (n for value in inputs if isinstance(value, np.ndarray) for n in value.shape if n > 1)
    return list(dict.fromkeys(found))


def resized(arrays: Arrays, n: int, indices: Sequence[int]) -> Arrays:
    """These indices of all axes of length n, in all arrays."""

    def all_axes(x: Any) -> Any:
        for axis, length in enumerate(x.shape if isinstance(x, np.ndarray) else ()):
            x = x.take(indices, axis) if length == n else x
        return x

    return {name: all_axes(x) for name, x in arrays.items()}


def another_length(arrays: Arrays, n: int) -> Arrays | None:
    """Axes shorter by one; for 2, which can only grow, longer by one, unless that made a matrix singular."""
    if n > 2:
        return resized(arrays, n, range(n - 1))
    square = any(x.shape.count(n) > 1 for x in arrays.values() if is_float(x))
    return None if square else resized(arrays, n, [0, 0, 1])


def _fault(problem: Problem, arrays: Arrays, allowed: Allowed, seed: int) -> str | None:
    """What is wrong at these arrays, in words; "" where nothing is, None where that cannot be judged."""
    arrays = in_float64(arrays)
    try:
        y, cache = problem.run(arrays)
    except Exception:  # it may refuse
        return None
    if not all(np.all(np.isfinite(one)) for one in y) or not any(one.size for one in y):
        return None
    dy = random_cotangent(y, seed)
    try:
        grads = problem.pull_back(dy, cache)
    except Exception as error:
        if type(error) is IndexError and "out of bounds" in str(error):  # it takes an element by its number
            return None
        return f"the backward raises {type(error).__name__}: {error}"
    given = {name: np.asarray(grads[name]) for name in problem.differentiable if grads.get(name) is not None}
    for name, grad in given.items():
        if grad.shape != arrays[name].shape:
            return f"d{name} has shape {grad.shape}, {name} has {arrays[name].shape}"
        if grad.dtype.kind != "f":
            return f"d{name} holds {grad.dtype}, {name} holds {arrays[name].dtype}"
        if not np.all(np.isfinite(grad)):  # 0/0 of a single element: a standard deviation has no derivative there
            return None
    judged = {name: grad for name, grad in given.items() if name not in problem.without}
    return _compared(Scalar(problem.bind(arrays), y, dy), arrays, judged, allowed, seed)


def _compared(scalar: Scalar, arrays: Arrays, grads: dict[str, np.ndarray], allowed: Allowed, seed: int) -> str | None:
    """Hold the gradients against the difference along one direction through all arrays."""
    rng = np.random.default_rng([seed, 23])
    directions = {}
    for name, grad in grads.items():  # uphill as far as the backward knows, so that the terms do not cancel
        signs = np.where(grad == 0, rng.choice([-1.0, 1.0], grad.shape), np.sign(grad))
        directions[name] = signs * rng.uniform(1.0, 1.5, grad.shape)
    line = scalar.through((arrays[name] for name in grads), directions.values())
    claimed = sum(float(np.sum(grad * directions[name])) for name, grad in grads.items())
    least = allowed.absolute * sum(float(np.abs(v).sum()) for v in directions.values())
    h = 0.25 * first_step(0.0, max((rms(arrays[name]) for name in grads), default=0.0))
    if abs((line(h) - line(-h)) / (2 * h) - claimed) <= ROUGH * claimed + least:
        return ""
    found = refined(line, h)
    if abs(found.value - claimed) <= 8 * found.error + allowed.relative * claimed + least:
        return ""
    if not found.error <= RESOLVED * (claimed + abs(found.value)) or is_kink(line, found, h):
        return None
    return f"along a direction the backward says {claimed:.6g}, differences say {found.value:.6g}"
