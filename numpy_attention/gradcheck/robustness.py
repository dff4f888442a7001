"""Robustness: a gradient must be linear in dy, and must not depend on memory layout or on other calls.

    linear      a backward is a sum of dy times derivatives: 8 dy - dz gives 8 dx(dy) - dx(dz), and dy = 0 gives 0
    unchanged   later calls of forward and backward do not change the arrays of earlier calls
    separate    a second forward between a forward and its backward changes nothing, in either order
    layouts     arrays in Fortran order, with gaps, negative strides, read-only or broadcast change nothing
    sizes       the gradient is also right with axes of length 1

These checks run only if all gradients are right, and need about thirty calls. A gradient may be dy, or a view of dy. A
gradient must not share memory with an input, because an optimizer's step would change it. Two gradients that share
memory are right until the caller adds to one of them in place; the report contains a note about this.

Two gradients count as equal if they differ by a small share of their size; a mistake with layouts or calls changes them
much more. A gradient that is pure round-off, such as that of a key's bias, changes by more than this share: then the
measured jitter of the backward is the limit (`tolerance`).

Typical mistakes with layouts: a write into dy or an input, and code that relies on the order of the elements in memory.
`np.empty_like(x)` keeps the order of x, so `dx.reshape(-1)` may be a copy, and values written into the copy are lost.
`dy.flatten("A")` returns the elements in memory order. A forward may refuse a layout, as some C code does. A
backward must accept every dy, except for negative strides, which some libraries do not support.

Typical mistakes with axes of length 1: a squeeze removes one axis too many, or a helper function that sums over
broadcast axes also sums over other axes of length 1. So for each length that occurs, all axes of this length, in all
arrays, are cut to their first element. If the forward still runs, the backward must run too, return each gradient in
the shape of its argument, and agree with a difference along one direction through all arrays. A function or backward
may need this length, because of a fixed mask or target. Then the call also fails with axes that are shorter by one, and
nothing is reported.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from numpy_attention.gradcheck.line import Outputs, Scalar, first_step, is_kink, largest, refined, rms
from numpy_attention.gradcheck.problem import Gradients, Problem, in_float64, is_float, is_number
from numpy_attention.gradcheck.report import GradientError
from numpy_attention.gradcheck.tolerance import random_cotangent, tolerance, with_round_off
from numpy_attention.gradcheck.trees import Arrays

LOOSE = 1e-5  # relative to the gradient; for lower precisions the square root of the last bit
ROUND_OFF = 100.0  # a difference up to this multiple of the measured round-off is allowed

MOST_WORK: Any = 10_000  # NumPy's type stubs allow only 0 and -1
TIMES = 8  # exact in every dtype, and large enough to find a backward that clips dy
OUTPUT = 1e-5  # relative to an output: more than the round-off of a sum in another order
MOST_SIZES = 3
ROUGH = 1e-4  # up to this relative error one central difference is enough; else use a whole tableau
CLOSE = 1e-6
RESOLVED = 1e-3  # relative to the terms: a difference with a larger error is not used

Given = dict[str, np.ndarray]
Layout = Callable[[np.ndarray], np.ndarray]
Allowed = tuple[Mapping[str, float], float]  # errors: absolute for each gradient, relative for all
STRIDES = (
    "np.empty_like keeps the memory order of its argument, so reshape or ravel may return a copy: create results with "
    "np.zeros(x.shape, x.dtype), and do not rely on strides"
)


def root_of_eps(x: np.ndarray) -> float:
    """The square root of the last bit of 1 in the dtype of x; 0 for integers."""
    return float(np.finfo(x.dtype).eps) ** 0.5 if x.dtype.kind in "fc" else 0.0


@dataclass
class FirstRun:
    """The first run of forward and backward, and the allowed difference of gradients in later runs."""

    problem: Problem
    outputs: Outputs
    dy: Outputs
    grads: Gradients
    seed: int
    rtol: float
    atol: float
    round_off: dict[str, float] = field(default_factory=dict)

    def backward(self, dy: Outputs, cache: Any) -> Given:
        """The gradients that exist, exactly as the backward returns them."""
        returned = self.problem.pull_back(dy, cache)
        names = (name for name, grad in self.grads.items() if grad is not None)
        return {name: np.asarray(returned[name]) for name in names if returned.get(name) is not None}

    def fits(self, found: Given, name: str) -> bool:
        """Whether this gradient exists, with the shape and the kind of dtype of the first run."""
        first = np.asarray(self.grads[name])
        return name in found and (found[name].shape, found[name].dtype.kind) == (first.shape, first.dtype.kind)

    def differing(
        self, found: Given, expected: Mapping[str, Any], size: Mapping[str, Any] | None = None, times: float = 1.0
    ) -> str | None:
        """The first gradient that differs by more than round-off; dy may be `times` as large as in the first run.

        Differences are relative to the gradients `size`.
        """
        for name, grad in expected.items():
            if grad is None:
                continue
            if not self.fits(found, name):
                return name
            off = largest(found[name] - np.asarray(grad))
            share = max(LOOSE, root_of_eps(np.asarray(self.grads[name]))) + self.rtol
            allowed = share * largest(np.asarray((size or expected)[name])) + self.atol
            if not off <= allowed and not off <= times * self._round_off(name):  # also for NaN
                return name
        return None

    def _round_off(self, name: str) -> float:
        if not self.round_off:
            terms = max((largest(dy * y) for dy, y in zip(self.dy, self.outputs, strict=True)), default=0.0)
            found, _ = with_round_off(self.problem, self.dy, self.grads, terms)
            self.round_off = {one.name: ROUND_OFF * (one.base + one.lenient + largest(one.jitter)) for one in found}
        return self.round_off.get(name, 0.0)

    def require(
        self, dy: Outputs, cache: Any, expected: Mapping[str, Any], raises: str, differs: str,
        size: Mapping[str, Any] | None = None,
    ) -> None:
        """Run the backward and compare; the messages contain `{kind}` and `{error}` of an error, or the `{name}`.

        Raises: GradientError
        """
        try:
            found = self.backward(dy, cache)
        except Exception as error:
            raise self.error(raises.format(kind=type(error).__name__, error=error)) from error
        name = self.differing(found, expected, size)
        if name is not None:
            raise self.error(differs.format(name=name))

    def error(self, text: str) -> GradientError:
        return GradientError(f"gradcheck {self.problem.name}: {text}; repeat with seed={self.seed}")


def check_structure(
    problem: Problem, dy: Outputs, grads: Gradients, seed: int, rtol: float = 0.0, atol: float = 0.0
) -> list[str]:
    """Run all checks of this module; `grads` are the gradients at `dy`. Return notes for the report.

    Raises: GradientError, in one sentence, for the first failure.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        y, cache = problem.run(problem.inputs)
        run = FirstRun(problem, y, dy, grads, seed, rtol, atol)
        first = run.backward(dy, cache)
        for _ in range(3):
            _require_same(run, cache)
        outputs = problem.returned(cache)
        names = [f"output {i}" for i in range(len(outputs))] if len(outputs) > 1 else ["the output"]
        returned = dict(zip(names, outputs)) | {f"d{name}": grad for name, grad in first.items()}
        copies = {name: array.copy() for name, array in returned.items()}
        _require_own_memory(run, first)
        _require_linear(run, cache)
        _require_unchanged(run, returned, copies)
        _require_separate(run)
        _require_unchanged(run, returned, copies)
        check_layouts(run)
        check_small_sizes(problem, grads, seed, rtol, atol)
    return [
        f"d{one} and d{other} share memory: adding to one in place changes the other; return a copy"
        for one, other in combinations(first, 2) if _share_memory(first[one], first[other])
    ]


def _require_unchanged(run: FirstRun, returned: Given, copies: Given) -> None:
    for what, array in returned.items():
        if not np.array_equal(array, copies[what], equal_nan=array.dtype.kind in "fc"):
            raise run.error(
                f"a later call changes {what} of an earlier call: both calls use the same array; return a new array "
                "from each call"
            )


def _require_same(run: FirstRun, cache: Any) -> None:
    advice = "when the backward runs several times with one cache: does a call change the cache, or data outside it?"
    raises, differs = "the backward raises {kind} ({error}) " + advice, "d{name} changes " + advice
    run.require(run.dy, cache, run.grads, raises, differs)


def _require_own_memory(run: FirstRun, grads: Given) -> None:
    for name, grad in grads.items():
        for other, value in run.problem.inputs.items():
            if isinstance(value, np.ndarray) and _share_memory(grad, value):
                raise run.error(
                    f"d{name} shares memory with the input {other}: a step that changes {other} in place would change "
                    f"d{name} too; return a new array"
                )


def _share_memory(a: np.ndarray, b: np.ndarray) -> bool:
    try:
        return np.shares_memory(a, b, MOST_WORK)  # without a limit this may take very long
    except np.exceptions.TooHardError:
        return False


def _require_linear(run: FirstRun, cache: Any) -> None:
    """g(8 dy - dz) = 8 g(dy) - g(dz), and g(0) = 0."""

    def at(factor: int, dz: Outputs) -> Given:
        try:
            found = run.backward(tuple(factor * a - b for a, b in zip(run.dy, dz, strict=True)), cache)
        except Exception as error:
            raise run.error(f"with another dy the backward raises {type(error).__name__}: {error}") from error
        for name in first:
            if not run.fits(found, name):
                raise run.error(f"with another dy the backward returns no d{name} of floats in the shape of {name}")
        return found

    first: Given = {name: np.asarray(grad) for name, grad in run.grads.items() if grad is not None}
    zeros = tuple(np.zeros_like(one) for one in run.dy)
    dz = random_cotangent(run.dy, run.seed + 1)
    minus = {name: grad.copy() for name, grad in at(0, dz).items()}
    expected = {name: TIMES * grad + minus[name] for name, grad in first.items()}
    size = {name: np.maximum(np.abs(TIMES * grad), np.abs(minus[name])) for name, grad in first.items()}
    name = run.differing(at(TIMES, dz), expected, size, times=2 * TIMES)
    if name is not None:
        square = float(np.sum(np.abs(first[name]) ** 2))
        product = float(np.sum(at(TIMES, zeros)[name] * first[name].conj()).real)
        times = product / square if square else TIMES
        scaled = abs(times - TIMES) > 1e-3
        seen = f"{TIMES} dy gives {times:.4g} times the gradient" if scaled else (
            "the gradient for a sum of two dy is not the sum of their gradients")
        raise run.error(
            f"d{name} is not linear in dy: {seen}; a backward multiplies dy by derivatives once, and does not clip or "
            "normalize dy"
        )
    none = at(0, zeros)
    name = run.differing(none, {name: np.zeros_like(grad) for name, grad in first.items()})
    if name is not None:
        stray = none[name].reshape(-1)[np.argmax(none[name].reshape(-1) != 0)]
        raise run.error(
            f"d{name} holds {stray:.4g} although dy is zero everywhere; every term of a gradient is dy times a "
            "derivative, and a backward must not divide by dy"
        )


def _require_separate(run: FirstRun) -> None:
    """Two forwards, then their backwards in either order."""
    problem, dy = run.problem, run.dy
    for elsewhere, arrays in other_calls(problem):
        try:
            y, cache = elsewhere.run(arrays)
            alone = {name: grad.copy() for name, grad in run.backward(dy, cache).items()}
        except Exception:  # outside the domain
            continue
        if [one.shape for one in y] == [one.shape for one in dy] and all(np.all(np.isfinite(one)) for one in y):
            break
    else:
        return
    _, first = problem.run(problem.inputs)
    _, second = elsewhere.run(arrays)
    elsewhere.use_again(first, arrays)
    advice = (
        "when the forward is called once more, on other arrays, before the backward: is data stored outside the "
        "cache, in self, in a global or in a reused array? Each call must return the data for its backward in new "
        "arrays"
    )
    answers: list[tuple[Any, Mapping[str, Any]]] = [(first, run.grads), (second, alone), (first, run.grads)]
    raises, differs = "the backward raises {kind} ({error}) " + advice, "d{name} changes " + advice
    for cache, expected in answers:
        run.require(dy, cache, expected, raises, differs)


def other_calls(problem: Problem) -> Iterator[tuple[Problem, Arrays]]:
    """Problems with other random options, and arrays of the same shapes that are probably in the domain."""
    draws = {
        name: np.random.default_rng(99) if isinstance(value, np.random.Generator) else value
        for name, value in problem.options.items()
    }
    drawn = any(value is not problem.options[name] for name, value in draws.items())
    elsewhere = problem.with_options(draws) if drawn else problem
    for factor, turned in ((0.9375, True), (1.0, True), (0.9375, False), (1 - 2.0**-10, False)):
        arrays = {}
        for name, value in problem.inputs.items():
            if isinstance(value, np.ndarray):
                value = np.flip(value).copy() if turned else value
                arrays[name] = value * value.dtype.type(factor) if is_number(value) else value
            else:
                arrays[name] = value
        yield elsewhere, arrays


def read_only(x: np.ndarray) -> np.ndarray:
    """A copy that cannot be written to."""
    y = x.copy()
    y.flags.writeable = False
    return y


def fortran(x: np.ndarray) -> np.ndarray:
    """A copy in Fortran order."""
    return x.copy(order="F")


def spaced(x: np.ndarray) -> np.ndarray:
    """A view with the same values, with gaps between them, in Fortran order."""
    return _within(x, lambda n: slice(1, None, 2))


def strided(x: np.ndarray) -> np.ndarray:
    """A view with the same values, with gaps and negative strides."""
    return _within(x, lambda n: slice(2 * n - 1, None, -2) if n else slice(0, 0))


def broadcast(x: np.ndarray) -> np.ndarray:
    """The first element, broadcast to the shape of x (stride 0)."""
    return np.broadcast_to(x.reshape(-1)[0], x.shape) if x.size else x


def _within(x: np.ndarray, along: Callable[[int], slice]) -> np.ndarray:
    if not x.ndim:
        return x.copy()
    view = np.empty(tuple(2 * n + 1 for n in x.shape), dtype=x.dtype, order="F")[tuple(along(n) for n in x.shape)]
    view[...] = x
    return view


def in_layout(value: Any, layout: Layout) -> Any:
    """An array in another layout; any other value unchanged."""
    return layout(value) if type(value) is np.ndarray else value


LAYOUTS: dict[str, tuple[Layout, str]] = {
    "is read-only": (read_only, "the code writes into its argument; it must work on a copy"),
    "is in Fortran order": (fortran, ""),
    "has gaps between its elements": (spaced, ""),
    "has negative strides": (strided, ""),
}


def check_layouts(run: FirstRun) -> None:
    """Other layouts of the inputs and of dy give the same outputs and gradients.

    Raises: GradientError; the message contains the array and the layout.
    """
    for together in (lambda x: _frozen(fortran(x)), lambda x: _frozen(spaced(x)), strided):
        arrays = {name: in_layout(value, together) for name, value in run.problem.inputs.items()}
        dy = tuple(together(one) for one in run.dy)
        failure = _failure(run, arrays, dy, together is strided)
        if failure is None:  # the forward refuses the layout: test only the backward
            failure = _failure(run, run.problem.inputs, dy, together is strided)
        if failure:
            raise _narrowed_down(run, failure)
    _check_broadcast(run)


def _check_broadcast(run: FirstRun) -> None:
    """Compare a dy of stride 0, as from np.broadcast_to, with a copy of the same values."""
    if not any(one.ndim for one in run.dy):
        return
    _, cache = run.problem.run(run.problem.inputs)
    dy = tuple(broadcast(one) for one in run.dy)
    plain = {name: grad.copy() for name, grad in run.backward(tuple(one.copy() for one in dy), cache).items()}
    where = "if dy comes from np.broadcast_to, as after a sum,"
    raises, differs = "the backward raises {kind}: {error}", "d{name} changes; "
    run.require(dy, cache, plain, f"{where} {raises}", f"{where} {differs}{STRIDES}", run.grads)


def _narrowed_down(run: FirstRun, failure: str) -> Exception:
    """The error; its message contains the array and the layout, if one array and one layout are enough to cause it."""
    inputs = run.problem.inputs
    for name in ("", *(name for name, value in inputs.items() if type(value) is np.ndarray)):  # "": dy
        for state, (layout, fix) in LAYOUTS.items():
            arrays = {**inputs, name: layout(inputs[name])} if name else inputs
            dy = run.dy if name else tuple(layout(one) for one in run.dy)
            found = _failure(run, arrays, dy, layout is strided)
            if found:
                return run.error(f"if {name or 'dy'} {state}, {found}; {fix or STRIDES}")
    return run.error(f"if inputs and dy are read-only and not contiguous, {failure}; {STRIDES}")


def _failure(run: FirstRun, arrays: Arrays, dy: Outputs, may_refuse: bool) -> str | None:
    """The failure as text; "" without a failure, None if the forward refuses the layout."""
    try:
        y, cache = run.problem.run(arrays)
    except Exception as error:
        return f"the forward raises {type(error).__name__}: {error}" if "read-only" in str(error) else None
    for one, other in zip(y, run.outputs, strict=True):
        if one.shape != other.shape or not largest(one - other) <= max(OUTPUT, root_of_eps(other)) * largest(other):
            return "the result of the forward changes"
    try:
        grads = run.backward(dy, cache)
    except Exception as error:
        if may_refuse and "read-only" not in str(error):
            return ""
        return f"the backward raises {type(error).__name__}: {error}"
    name = run.differing(grads, run.grads)
    return "" if name is None else f"d{name} changes"


def _frozen(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x


def check_small_sizes(problem: Problem, grads: Gradients, seed: int, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Cut axes of each length to 1, and check the gradients if the forward runs; `grads` belong to the full arrays.

    Raises: GradientError, if a gradient is wrong with one element along an axis, but right with more elements.
    """
    whole = {name: CLOSE * largest(np.asarray(grad)) + atol for name, grad in grads.items() if grad is not None}
    allowed = (whole, CLOSE + rtol)
    exact = in_float64(problem.inputs)
    for n in lengths(problem)[:MOST_SIZES]:
        cut = resized(exact, n, [0])
        failure = _failure_at(problem, cut, allowed, seed)
        other = another_length(exact, n) if failure else None
        if other is not None and _failure_at(problem, other, allowed, seed) == "":
            shapes = ", ".join(f"{name} {x.shape}" for name, x in cut.items() if x is not exact[name])
            raise GradientError(
                f"gradcheck {problem.name}: with one element along the axis of length {n} ({shapes}) the forward runs, "
                f"but {failure}\nlikely mistake: an axis of length 1 is squeezed away, or treated as a broadcast axis "
                "and summed over; or the backward has a mistake in a branch that only these arrays take; repeat with "
                f"seed={seed}"
            )


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


def another_length(arrays: Arrays, n: int) -> Arrays | None:
    """Axes of length n shortened by one; length 2 becomes 3, unless this would make a matrix singular."""
    if n > 2:
        return resized(arrays, n, range(n - 1))
    square = any(x.shape.count(n) > 1 for x in arrays.values() if is_float(x))
    return None if square else resized(arrays, n, [0, 0, 1])


def _failure_at(problem: Problem, arrays: Arrays, allowed: Allowed, seed: int) -> str | None:
    """The failure at these arrays as text; "" without a failure, None if this cannot be decided."""
    arrays = in_float64(arrays)
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
    return _compared(Scalar(problem.bind(arrays), y, dy), arrays, judged, allowed, seed)


def _compared(scalar: Scalar, arrays: Arrays, grads: Given, allowed: Allowed, seed: int) -> str | None:
    """Compare the gradients with a difference along one direction; `allowed` are absolute and relative errors."""
    rng = np.random.default_rng([seed, 23])
    directions = {}
    sizes = {name: rms(arrays[name]) for name in grads}
    largest_size = max(sizes.values(), default=0.0)
    for name, grad in grads.items():  # with the signs of the gradient, so the terms do not cancel
        signs = np.where(grad == 0, rng.choice([-1.0, 1.0], grad.shape), np.sign(grad))
        # one step moves every argument by the same share of its size
        size = sizes[name] / largest_size if sizes[name] else 1.0
        directions[name] = size * signs * rng.uniform(1.0, 1.5, grad.shape)
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
