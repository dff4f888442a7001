"""The analytic gradients, and the round-off in each of them.

dy is drawn at random for every output: a dy of ones would hide whatever sums to zero, such as a gradient behind a
softmax. Before any number is compared, the gradients must be in order: no NaN, inputs and dy unchanged, the same
result when the backward is called twice, and each gradient in the shape of its argument.

A right backward is off by its round-off, which cannot be derived for an unknown function. So it is measured:

    jitter    inputs and dy are moved by a few last bits, and the answer jitters as its rounding does
    base      eps sqrt(K) max|dx|, for K terms of a sum rounded each on its own; K is the longest axis of any input
    lenient   eps sqrt(K) |dy y| / |x|, for large terms that cancel; allowed in low precision (`tolerance.py`)
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from numpy_attention.gradcheck.line import Outputs, Scalar, largest, rms
from numpy_attention.gradcheck.problem import Gradients, Problem, in_float64, is_float
from numpy_attention.gradcheck.report import GradientError
from numpy_attention.gradcheck.trees import Arrays


class Move(NamedTuple):
    """The gradients when inputs and dy are moved by a few last bits."""

    arrays: Arrays
    dy: Outputs
    grads: Gradients


@dataclass
class Claim:
    """The analytic gradient of one argument, and the round-off to allow in it."""

    name: str
    gradient: np.ndarray  # in float64, whatever it came in
    eps: float  # the last bit of a 1 in the dtype it came in
    base: float  # for all elements
    jitter: np.ndarray  # for each
    lenient: float


@dataclass
class Point:
    """Where a problem is checked: its arrays in float64, L there, and what the backward returns close by."""

    problem: Problem
    exact: Arrays
    scalar: Scalar
    moves: list[Move]


def ask_backward(problem: Problem, seed: int) -> tuple[Outputs, Gradients]:
    """Run forward and backward with a random dy; return dy and the gradients.

    Raises: GradientError for gradients that are not in order
    """
    arrays = problem.inputs
    for name in problem.differentiable:
        _require_finite(problem, f"the input {name}", arrays[name], seed)
    before = {name: value.copy() for name, value in arrays.items() if isinstance(value, np.ndarray)}
    y, cache = problem.run(arrays)
    _require_unchanged(problem, before, "forward")
    for i, one in enumerate(y):
        _require_finite(problem, "the output" if len(y) == 1 else f"output {i}", one, seed)
    _require_function(problem, y)
    dy = random_cotangent(y, seed)
    kept = tuple(one.copy() for one in dy)
    try:
        claimed = problem.pull_back(dy, cache)
    except (ValueError, IndexError) as error:
        raise _refusal(
            problem, f"the backward raised {type(error).__name__}: {error}\nlikely mistake: a factor that should be "
            f"transposed, or axes of the wrong argument; repeat with seed={seed}"
        ) from error
    grads = {name: None if grad is None else np.array(grad) for name, grad in claimed.items()}
    _require_names(problem, grads)
    _require_unchanged(problem, before, "backward")
    if not all(np.array_equal(a, b) for a, b in zip(dy, kept, strict=True)):
        raise _refusal(
            problem, "backward changed dy in place; a residual branch that reads the same dy would then read "
            "something else"
        )
    for name, again in problem.pull_back(dy, cache).items():
        first = grads[name]
        if first is not None and again is not None and not _same(first, np.asarray(again)):
            raise _refusal(
                problem, f"backward called twice gives two different d{name}; does it change its cache in place?"
            )
    for name in problem.differentiable:
        grad = grads.get(name)
        if grad is not None:
            _require_shape(problem, name, grad)
            _require_finite(problem, f"d{name}", grad, seed)
        elif name not in problem.without:
            kind = "parameter" if name in problem.parameters else "argument"
            fix = f"; if it has none, say so: no_gradient=[{name!r}]" if kind == "argument" else ""
            raise _refusal(problem, f"backward returned no gradient for the {kind} {name}{fix}")
    return dy, grads


def _require_unchanged(problem: Problem, before: Arrays, who: str) -> None:
    for name, value in before.items():
        if not np.array_equal(problem.inputs[name], value, equal_nan=value.dtype.kind == "f"):
            raise _refusal(problem, f"the input {name} was changed in place; work on a new array in the {who}")


def _require_function(problem: Problem, y: Outputs) -> None:
    """The same arrays must give the same result."""
    again = problem.run(problem.inputs)[0]
    if len(y) != len(again) or not all(map(_same, y, again)):
        fix = "pass a seeded np.random.Generator as an option, which is copied for every call, or seed one inside"
        raise _refusal(problem, f"two calls with the same arrays give different results: it is no function; {fix}")


def _same(one: np.ndarray, again: np.ndarray) -> bool:
    """Equal, but for what the order of a sum may change; NaN is refused elsewhere."""
    if one.shape != again.shape or one.dtype.kind != again.dtype.kind:
        return False
    few = 64 * float(np.finfo(one.dtype).eps) * largest(one) if one.dtype.kind in "fc" else 0.0
    return np.array_equal(one, again, equal_nan=one.dtype.kind in "fc") or bool(np.all(np.abs(one - again) <= few))


def _require_names(problem: Problem, grads: Gradients) -> None:
    """Each gradient must belong to an argument, and be of real floats where the argument is."""
    known = ", ".join(problem.differentiable)
    for name, grad in grads.items():
        if name not in problem.inputs:
            raise _refusal(
                problem, f"backward returned a gradient called {name!r}; gradients go by the arguments: {known}"
            )
        if grad is None or grad.dtype.kind == "f" or not is_float(problem.inputs[name]):
            continue
        if grad.dtype.kind == "c":
            raise _refusal(problem, f"d{name} is complex, but {name} is real: take the real part, if that is meant")
        whole = "; is it made like an array of integers, or a comparison without its dy?"
        raise _refusal(
            problem, f"d{name} holds {grad.dtype}, but {name} holds {problem.inputs[name].dtype}: a gradient is made "
            f"of floats{whole if grad.dtype.kind in 'iub' else ''}"
        )


def random_cotangent(y: Outputs, seed: int) -> Outputs:
    """A normal dy for each output, in its dtype."""
    rng = np.random.default_rng([seed, 7])
    return tuple(
        np.asarray(rng.standard_normal(one.shape), dtype=one.dtype if one.dtype.kind == "f" else np.float64)
        for one in y
    )


def measured(problem: Problem, dy: Outputs, grads: Gradients) -> tuple[Point, list[Claim], list[Claim]]:
    """The point in float64 and the gradients there with their round-off; and those in a lower precision, if any."""
    exact = in_float64(problem.inputs)
    evaluate = problem.bind(exact)
    scalar = Scalar(evaluate, evaluate(), tuple(np.asarray(one, dtype=np.float64) for one in dy))
    low: list[Claim] = []
    double = in_double(problem, exact, scalar.dy, grads)
    if double is not None:
        low, _ = claims(problem, dy, grads, scalar.terms)
        problem, dy, grads = problem.but(inputs=exact), scalar.dy, double
    found, moves = claims(problem, dy, grads, scalar.terms)
    return Point(problem, exact, scalar, moves), found, low


def claims(problem: Problem, dy: Outputs, grads: Gradients, terms: float) -> tuple[list[Claim], list[Move]]:
    """Each gradient with the round-off to expect in it, and the moves by which that was measured; `terms` is |dy y|."""
    arrays = problem.inputs
    given = {name: grad for name, grad in grads.items() if grad is not None and name in problem.differentiable}
    jitter = {name: np.zeros(grad.shape) for name, grad in given.items()}
    moves = moved_by((2, 2, 8, 8, 32, 32), problem, arrays, dy, np.random.default_rng(len(grads)))
    for move in moves:
        for name, grad in given.items():
            with np.errstate(all="ignore"):
                change = np.abs(np.asarray(move.grads.get(name), np.float64) - np.asarray(grad, np.float64))
            jitter[name] = np.fmax(jitter[name], change)
    longest = max((max(x.shape, default=1) for x in arrays.values() if isinstance(x, np.ndarray)), default=1)
    sizes = {name: largest(grad.astype(np.float64)) for name, grad in given.items()}
    # A gradient that is zero in theory (a key's bias) is left with the round-off of the terms that cancelled in it.
    least = 0.02 * max(sizes.values(), default=0.0)
    found = []
    for name, grad in given.items():
        eps = float(np.finfo(grad.dtype).eps)
        unit = eps * longest**0.5
        # Terms of the size |dy y / x| that cancel leave this much, and all elements may be rounded alike.
        natural = terms / (min(1.0, rms(np.asarray(arrays[name], np.float64))) or 1.0) if grad.size else 0.0
        base = unit * max(sizes[name], least)
        found.append(Claim(name, np.asarray(grad, np.float64), eps, base, jitter[name], 0.25 * unit * natural))
    return found, moves


def in_double(problem: Problem, exact: Arrays, dy: Outputs, grads: Gradients) -> Gradients | None:
    """What the same backward returns in float64; None if that is what it has returned, or if it cannot run there."""
    if all(np.array_equal(exact[name].dtype, problem.inputs[name].dtype) for name in problem.differentiable):
        return None
    try:
        again = problem.gradients(exact, dy)
    except (TypeError, ValueError):  # written for one dtype only
        return None
    fits = all(
        grad is None or ((one := np.asarray(again.get(name))).shape, one.dtype.kind) == (grad.shape, "f")
        for name, grad in grads.items()
    )
    return {name: None if grad is None else np.array(grad) for name, grad in again.items()} if fits else None


def moved_by(
    ulps: Iterable[int], problem: Problem, arrays: Arrays, dy: Outputs, rng: np.random.Generator
) -> list[Move]:
    """The backward run at arrays that are moved by up to so many last bits, dy by two; where that can be done."""
    moves = []
    for most in ulps:
        moved = {name: _jittered(value, most, rng) if is_float(value) else value for name, value in arrays.items()}
        dy_moved = tuple(_jittered(one, 2, rng) for one in dy)
        with np.errstate(all="ignore"), contextlib.suppress(Exception):  # a last bit may leave the domain
            grads = problem.gradients(moved, dy_moved)
            given = [(arrays[name], grad) for name, grad in grads.items() if grad is not None]
            if all((grad.shape, grad.dtype.kind) == (x.shape, "f") for x, grad in given):
                moves.append(Move(moved, dy_moved, grads))
    return moves


def _jittered(value: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    ulps = rng.integers(-most, most + 1, value.shape).astype(value.dtype)
    moved: np.ndarray = value + ulps * np.spacing(np.abs(value))
    return moved


def _require_finite(problem: Problem, what: str, value: np.ndarray, seed: int) -> None:
    bad = ~np.isfinite(value)
    if not bad.any():
        return
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    mistake = ""
    if not what.startswith("the input"):
        mistake = "\nlikely mistake: 0/0, log(0), inf - inf, or the exponential of a large number, at that place"
        kinds = {value.dtype.kind for value in problem.inputs.values() if isinstance(value, np.ndarray)}
        if "b" in kinds:
            mistake += "; a row that is hidden whole must give zeros, and what is hidden stays hidden on the way back"
        elif kinds & set("iu"):
            mistake += "; what is ignored must be left out: 0 times infinity is NaN"
    raise _refusal(
        problem, f"{what} holds {value[index]} at index {index} ({int(bad.sum())} of {value.size} elements are NaN or "
        f"infinite){mistake}; repeat with seed={seed}"
    )


def _require_shape(problem: Problem, name: str, grad: np.ndarray) -> None:
    shapes = {other: problem.inputs[other].shape for other in problem.differentiable}
    expected = shapes.pop(name)
    if grad.shape != expected:
        raise _refusal(
            problem, f"d{name} has shape {grad.shape}, but {name} has {expected}\n"
            f"likely mistake: {explain_shape(grad.shape, expected, shapes)}"
        )


def explain_shape(
    got: tuple[int, ...], expected: tuple[int, ...], others: Mapping[str, tuple[int, ...]] | None = None
) -> str:
    """The likely mistake behind a gradient of another shape; `others` are the shapes of the other arguments."""
    for other, shape in (others or {}).items():
        if shape == got:
            return f"this is the shape of {other}: are the arguments, or the gradients, in the right order?"
    extra = len(got) - len(expected)
    if extra > 0 and got[extra:] == expected:
        flat = ", or a reshape to the shape of the argument" if set(got[:extra]) == {1} else ""
        return f"the sum over the batch axes {tuple(range(extra))} is missing{flat}"
    if len(got) == len(expected) and sorted(got) == sorted(expected):
        return "transposed"
    if len(got) == len(expected) and all(a == b or b == 1 for a, b in zip(got, expected)):
        axes = tuple(i for i, (a, b) in enumerate(zip(got, expected)) if a != b)
        return (
            f"the sum over axes {axes}, along which the argument was broadcast, is missing; or a sum without "
            "keepdims=True was broadcast"
        )
    if int(np.prod(got)) == int(np.prod(expected)):
        return "the right number of elements: a reshape is missing"
    if extra < 0:
        return "summed over too many axes, or not spread back over those that the forward summed"
    return "a gradient has the shape of its argument"


def _refusal(problem: Problem, text: str) -> GradientError:
    return GradientError(f"gradcheck {problem.name}: {text}")
