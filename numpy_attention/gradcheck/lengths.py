"""Axes of length 1: the gradient must be right for them too.

Typical mistakes: a squeeze removes one axis too many, or a helper function that sums over broadcast axes also sums over
other axes of length 1. So for each length that occurs, all axes of this length, in all arrays, are cut to their first
element. If the forward still runs, the backward must run too, return each gradient in the shape of its argument, and
agree with a difference along one direction through all arrays.

No caller may mean such arrays. If the function needs the length, because of a fixed mask or target, the call also fails
with axes that are shorter by one, and nothing is reported. A function may also read only the first T rows of a table of
positions, and broadcast the row that is left, or rotate the first features of x and broadcast one feature: then the
report contains a note.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numpy_attention.gradcheck.line import Scalar, first_step, is_kink, largest, refined, rms
from numpy_attention.gradcheck.problem import Gradients, Problem, in_float64, is_float
from numpy_attention.gradcheck.tolerance import random_cotangent, same, tolerance
from numpy_attention.gradcheck.trees import Arrays

MOST_SIZES = 3
ROUGH = 1e-4  # up to this relative error one central difference is enough; else use a whole tableau
CLOSE = 1e-6
RESOLVED = 1e-3  # relative to the terms: a difference with a larger error is not used

Allowed = tuple[Mapping[str, float], float]  # errors: absolute for each gradient, relative for all


def check_small_sizes(
    problem: Problem, grads: Gradients, seed: int, rtol: float = 0.0, atol: float = 0.0
) -> list[str]:
    """Cut axes of each length to 1, and check the gradients if the forward runs; `grads` belong to the full arrays.

    Raises: GradientError, if a gradient is wrong with one element along an axis, but right with more elements.
    """
    least = atol + problem.nondet
    whole = {name: CLOSE * largest(np.asarray(grad)) + least for name, grad in grads.items() if grad is not None}
    allowed, notes = (whole, CLOSE + rtol), []
    exact = in_float64(problem.inputs)
    for n in lengths(problem)[:MOST_SIZES]:
        cut = resized(exact, n, [0])
        failure = _failure_at(problem, exact, n, [0], allowed, seed)
        other = another_length(exact, n) if failure else None
        if other is None or _failure_at(problem, exact, n, other, allowed, seed) != "":
            continue
        shapes = ", ".join(f"{name} {x.shape}" for name, x in cut.items() if x is not exact[name])
        where = f"with one element along the axis of length {n} ({shapes})"
        why = "the function reads only a part of this axis" if _reads_a_part(problem, exact, n) else ""
        if why or _is_longer(problem, exact, n, other):
            notes.append(f"not checked {where}: {why or 'the forward broadcasts this element to a longer output'}")
            continue
        raise problem.error(
            f"{where} the forward runs, but {failure}\nlikely mistake: an axis of length 1 is squeezed away, or "
            "treated as a broadcast axis and summed over; or the backward has a mistake in a branch that only these "
            f"arrays take; repeat with seed={seed}"
        )
    return notes


def _reads_a_part(problem: Problem, exact: Arrays, n: int) -> bool:
    """Whether the function ignores the first or the last place of an axis, and broadcasts one element that is left."""
    pairs = ((name, axis) for name, x in exact.items() for axis, length in enumerate(np.shape(x)) if length == n)
    zeros = [0] * (n - 1)
    for name, axis in pairs:
        with contextlib.suppress(Exception):
            moved = (exact[name].take(places, axis) for places in ([0], [0, *zeros], [1, *zeros], [*zeros, 1]))
            one, *others = [problem.run(in_float64(exact | {name: x}))[0] for x in moved]
            repeated, first, last = (all(same(*pair, problem.nondet) for pair in zip(one, y)) for y in others)
            if repeated and (first or last):
                return True
    return False


def _is_longer(problem: Problem, exact: Arrays, n: int, other: Sequence[int]) -> bool:
    """Whether an output has more elements along an axis than its lengths at n and at `other` let expect for 1."""
    at_n, at_other, at_one = (problem.run(in_float64(resized(exact, n, at)))[0] for at in (range(n), other, [0]))
    shapes = zip(*([y.shape for y in outputs] for outputs in (at_n, at_other, at_one)))
    return any(c > max(1.0, a - (a - b) * (n - 1) / (n - len(other))) for three in shapes for a, b, c in zip(*three))


def lengths(problem: Problem) -> list[int]:
    """The different lengths above 1 of the axes of all inputs except parameters."""
    inputs = (value for name, value in problem.inputs.items() if name not in problem.parameters)
    found = (n for value in inputs if isinstance(value, np.ndarray) for n in value.shape if n > 1)
    return list(dict.fromkeys(found))


def resized(arrays: Arrays, n: int, indices: Sequence[int]) -> Arrays:
    """All arrays, with only these indices along every axis of length n."""

    def all_axes(x: Any) -> Any:
        for axis, length in enumerate(x.shape if isinstance(x, np.ndarray) else ()):
            x = x.take(indices, axis) if length == n else x
        return x

    return {name: all_axes(x) for name, x in arrays.items()}


def another_length(arrays: Arrays, n: int) -> Sequence[int] | None:
    """Indices that shorten axes of length n by one; length 2 becomes 3, unless this would make a matrix singular."""
    if n > 2:
        return range(n - 1)
    square = any(x.shape.count(n) > 1 for x in arrays.values() if is_float(x))
    return None if square else [0, 0, 1]


def _failure_at(problem: Problem, arrays: Arrays, n: int, at: Sequence[int], allowed: Allowed, seed: int) -> str | None:
    """The failure with these indices along axes of length n; "" without a failure, None if this cannot be decided."""
    problem = problem.with_changes(skip=resized(dict(problem.skip), n, at))
    arrays = in_float64(resized(arrays, n, at))
    try:
        y, cache = problem.run(arrays)
    except Exception:  # a function may refuse a size
        return None
    if not all(np.all(np.isfinite(one)) for one in y) or not any(one.size for one in y):
        return None
    dy = random_cotangent(y, seed)
    try:
        grads = problem.pull_back(dy, cache)
    except Exception as error:
        if type(error) is IndexError and "out of bounds" in str(error):  # the code uses a fixed index
            return None
        return f"the backward raises {type(error).__name__}: {error}"
    given = {name: np.asarray(grads[name]) for name in problem.differentiable if grads.get(name) is not None}
    for name, grad in given.items():
        if grad.shape != arrays[name].shape:
            return f"d{name} has shape {grad.shape}, {name} has {arrays[name].shape}"
        if grad.dtype.kind != "f":
            return f"d{name} holds {grad.dtype}, {name} holds {arrays[name].dtype}"
        if not np.all(np.isfinite(grad)):  # 0/0: the standard deviation of one element has no derivative
            return None
    judged = {name: grad for name, grad in given.items() if name not in problem.without}
    return _compared(problem.skip, Scalar(problem.bind(arrays), y, dy), arrays, judged, allowed, seed)


def _compared(
    skip: Mapping[str, Any], scalar: Scalar, arrays: Arrays, grads: dict[str, np.ndarray], allowed: Allowed, seed: int
) -> str | None:
    """Compare the gradients with a difference along one direction; `allowed` are absolute and relative errors."""
    rng = np.random.default_rng([seed, 23])
    directions = {}
    sizes = {name: rms(arrays[name]) for name in grads}
    largest_size = max(sizes.values(), default=0.0)
    for name, grad in grads.items():  # with the signs of the gradient, so the terms do not cancel
        signs = np.where(grad == 0, rng.choice([-1.0, 1.0], grad.shape), np.sign(grad))
        # one step moves every argument by the same share of its size
        size = sizes[name] / largest_size if sizes[name] else 1.0
        v = size * signs * rng.uniform(1.0, 1.5, grad.shape)
        directions[name] = np.where(skip.get(name, False), 0.0, v)
    line = scalar.through((arrays[name] for name in grads), directions.values())
    analytic = sum(float(np.sum(grad * directions[name])) for name, grad in grads.items())
    least = sum(allowed[0].get(name, 0.0) * float(np.abs(v).sum()) for name, v in directions.items())
    h = 0.25 * first_step(0.0, largest_size)
    if abs((line(h) - line(-h)) / (2 * h) - analytic) <= ROUGH * analytic + least:
        return ""
    found = refined(line, h)
    if abs(found.value - analytic) <= tolerance(found.error, 0.0, allowed[1] * analytic + least):
        return ""
    if not found.error <= RESOLVED * (analytic + abs(found.value)) or is_kink(line, found, h):
        return None
    return f"along a direction the gradient gives {analytic:.6g}, but differences give {found.value:.6g}"
