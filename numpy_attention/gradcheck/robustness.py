"""Robustness: a gradient must be linear in dy, and must not depend on memory layout or on other calls.

    repeated    several calls of the backward with one cache give the same gradients
    memory      a gradient shares no memory with an input, because an optimizer's step would change the gradient too
    linear      a backward is a sum of dy times derivatives: 8 dy - dz gives 8 dx(dy) - dx(dz), and dy = 0 gives 0
    separate    a second forward between a forward and its backward changes nothing, and no result of an earlier call
    layouts     arrays in Fortran order, with gaps, negative strides, read-only or broadcast change nothing
    sizes       the gradient is also right with axes of length 1 (`lengths`)

These checks run only if all gradients are right, and need about thirty calls; `chosen` selects them by these names. A
gradient may be dy, or a view of dy. Two gradients that share memory are right until the caller adds to one of them in
place; the report contains a note about this.

Two gradients count as equal if they differ by a small share of their size; a mistake with layouts or calls changes them
much more. A gradient that is pure round-off, such as that of a key's bias, changes by more than this share: then the
measured jitter of the backward is the limit (`tolerance`).

Typical mistakes with layouts: a write into dy or an input, and code that relies on the order of the elements in memory.
A forward may refuse a layout, as some C code does. A backward must accept every dy, except for negative strides, which
some libraries do not support.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from numpy_attention.gradcheck.lengths import check_small_sizes
from numpy_attention.gradcheck.line import Outputs, largest
from numpy_attention.gradcheck.problem import Gradients, Problem, is_number
from numpy_attention.gradcheck.report import GradientError
from numpy_attention.gradcheck.tolerance import random_cotangent, with_round_off
from numpy_attention.gradcheck.trees import Arrays

LOOSE = 1e-5  # relative to the gradient; for lower precisions the square root of the last bit
ROUND_OFF = 100.0  # a difference up to this multiple of the measured round-off is allowed

MOST_WORK: Any = 10_000  # NumPy's type stubs allow only 0 and -1
TIMES = 8  # exact in every dtype, and large enough to find a backward that clips dy
OUTPUT = 1e-5  # relative to an output: more than the round-off of a sum in another order

Given = dict[str, np.ndarray]
Layout = Callable[[np.ndarray], np.ndarray]
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
            if not off <= allowed and not off <= times * self.allowed(name):  # also for NaN
                return name
        return None

    def allowed(self, name: str) -> float:
        """The measured round-off of a gradient, or of the output with this number, and `nondet`."""
        if not self.round_off:
            terms = max((largest(dy * y) for dy, y in zip(self.dy, self.outputs, strict=True)), default=0.0)
            found, moves = with_round_off(self.problem, self.dy, self.grads, terms)
            self.round_off = {one.name: ROUND_OFF * (one.base + one.lenient + largest(one.jitter)) for one in found}
            for y in (self.problem.run(move.arrays)[0] for move in moves):
                for i, off in enumerate(map(np.subtract, y, self.outputs)):
                    self.round_off[f"{i}"] = max(ROUND_OFF * largest(off), self.round_off.get(f"{i}", 0.0))
        return self.round_off.get(name, 0.0) + self.problem.nondet

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
        return self.problem.error(f"{text}; repeat with seed={self.seed}")


def chosen(name: str, robustness: Any) -> frozenset[str]:
    """The names of the checks to run, from the option `robustness`; `name` is for messages.

    Raises: ValueError, in one line, for other names.
    """
    if isinstance(robustness, (bool, np.bool_)):
        robustness = ROBUSTNESS if robustness else ()
    one = isinstance(robustness, (str, bytes, Mapping)) or not np.iterable(robustness)
    names = frozenset(map(str, [robustness] if one else robustness))
    if unknown := sorted(names - ROBUSTNESS):
        known = f"True, False, or hold names among {', '.join(CHECKS)}"
        raise ValueError(f"gradcheck {name}: robustness must be {known}, got {unknown[0]!r}")
    return names


def check_structure(
    problem: Problem, dy: Outputs, grads: Gradients, seed: int, rtol: float = 0.0, atol: float = 0.0,
    robustness: Any = True,
) -> list[str]:
    """Run the `chosen` checks; `grads` are the gradients at `dy`. Return notes for the report.

    Raises: GradientError, in one sentence, for the first failure.
    """
    names = chosen(problem.name, robustness)
    left_out = [name for name in CHECKS if name not in names]
    notes = [f"robustness was not checked: {', '.join(left_out)}"] if left_out else []
    if not names:
        return notes
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        y, cache = problem.run(problem.inputs)
        run = FirstRun(problem, y, dy, grads, seed, rtol, atol)
        for name, one in CHECKS.items():
            notes += (one(run, cache) or []) if name in names else []
    return notes


def _require_same(run: FirstRun, cache: Any) -> None:
    advice = "when the backward runs several times with one cache: does a call change the cache, or data outside it?"
    raises, differs = "the backward raises {kind} ({error}) " + advice, "d{name} changes " + advice
    for _ in range(4):
        run.require(run.dy, cache, run.grads, raises, differs)


def _check_memory(run: FirstRun, cache: Any) -> list[str]:
    grads = run.backward(run.dy, cache)
    for name, grad in grads.items():
        for other, value in run.problem.inputs.items():
            if isinstance(value, np.ndarray) and _share_memory(grad, value):
                raise run.error(
                    f"d{name} shares memory with the input {other}: a step that changes {other} in place would change "
                    f"d{name} too; return a new array"
                )
    return [
        f"d{one} and d{other} share memory: adding to one in place changes the other; return a copy"
        for one, other in combinations(grads, 2) if _share_memory(grads[one], grads[other])
    ]


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


def _require_separate(run: FirstRun, cache: Any) -> None:
    """Two forwards, then their backwards in either order; the arrays that the first forward returned do not change."""
    problem, dy, dz = run.problem, run.dy, random_cotangent(run.dy, run.seed + 1)
    outputs = problem.returned(cache)
    names = [f"output {i}" for i in range(len(outputs))] if len(outputs) > 1 else ["the output"]
    returned = dict(zip(names, outputs)) | {f"d{name}": grad for name, grad in run.backward(dy, cache).items()}
    copies = {name: array.copy() for name, array in returned.items()}
    for elsewhere, arrays in other_calls(problem):
        try:
            y, cache = elsewhere.run(arrays)
            alone = {name: grad.copy() for name, grad in run.backward(dz, cache).items()}
        except Exception:  # outside the domain
            continue
        finite = all(np.all(np.isfinite(one)) for one in (*y, *alone.values()))
        if [one.shape for one in y] == [one.shape for one in dy] and finite:
            break
    else:
        return
    for what, array in returned.items():
        if not np.array_equal(array, copies[what], equal_nan=array.dtype.kind in "fc"):
            raise run.error(
                f"a later call changes {what} of an earlier call: both calls use the same array; return a new array "
                "from each call"
            )
    _, first = problem.run(problem.inputs)
    _, second = elsewhere.run(arrays)
    elsewhere.use_again(first, arrays)
    advice = (
        "when the forward is called once more, on other arrays, before the backward: is data stored outside the "
        "cache, in self, in a global or in a reused array? Each call must return the data for its backward in new "
        "arrays"
    )
    raises, differs = "the backward raises {kind} ({error}) " + advice, "d{name} changes " + advice
    run.require(dy, first, run.grads, raises, differs)
    run.require(dz, second, alone, raises, differs)
    run.require(dy, first, run.grads, raises, differs)


def other_calls(problem: Problem) -> Iterator[tuple[Problem, Arrays]]:
    """Problems with other random options, and arrays of the same shapes that are probably in the domain."""
    draws = {
        name: np.random.default_rng(99) if isinstance(value, np.random.Generator) else value
        for name, value in problem.options.items()
    }
    drawn = any(value is not problem.options[name] for name, value in draws.items())
    elsewhere = problem.with_options(draws) if drawn else problem
    for factor, turned in ((0.9375, True), (1.0, True), (0.9375, False), (1 - 2.0**-10, False)):
        arrays = {
            name: np.flip(value).copy() if turned and isinstance(value, np.ndarray) else value
            for name, value in problem.inputs.items()
        }
        yield elsewhere, {
            name: value * value.dtype.type(factor) if is_number(value) else value for name, value in arrays.items()
        }


def spaced(x: np.ndarray) -> np.ndarray:
    """A view with the same values, with gaps between them, in Fortran order."""
    return _within(x, lambda n: slice(1, None, 2))


def strided(x: np.ndarray) -> np.ndarray:
    """A view with the same values, with gaps and negative strides."""
    return _within(x, lambda n: slice(2 * n - 1, None, -2) if n else slice(0, 0))


def _within(x: np.ndarray, along: Callable[[int], slice]) -> np.ndarray:
    if not x.ndim:
        return x.copy()
    view = np.zeros(tuple(2 * n + 1 for n in x.shape), dtype=x.dtype, order="F")[tuple(along(n) for n in x.shape)]
    view[...] = x
    return view


def in_layout(value: Any, layout: Layout) -> Any:
    """An array in another layout; any other value unchanged."""
    return layout(value) if type(value) is np.ndarray else value


LAYOUTS: dict[str, Layout] = {
    "is read-only": lambda x: _frozen(x.copy()), "is in Fortran order": lambda x: x.copy(order="F"),
    "has gaps between its elements": spaced, "has negative strides": strided,
}


def check_layouts(run: FirstRun, _: Any = None) -> None:
    """Other layouts of the inputs and of dy give the same outputs and gradients.

    Raises: GradientError; the message contains the array and the layout.
    """
    for together in (lambda x: _frozen(x.copy(order="F")), lambda x: _frozen(spaced(x)), strided):
        arrays = {name: in_layout(value, together) for name, value in run.problem.inputs.items()}
        dy = tuple(together(one) for one in run.dy)
        failure = _failure(run, arrays, dy, together is strided)
        if failure is None:  # the forward refuses the layout: test only the backward
            failure = _failure(run, run.problem.inputs, dy, together is strided)
        if failure:
            raise _narrowed_down(run, failure)
    if not any(one.ndim for one in run.dy):
        return
    # A dy of stride 0, as from np.broadcast_to, must give the gradients of a copy of the same values.
    _, cache = run.problem.run(run.problem.inputs)
    dy = tuple(np.broadcast_to(one.reshape(-1)[0], one.shape) if one.size else one for one in run.dy)
    plain = {name: grad.copy() for name, grad in run.backward(tuple(one.copy() for one in dy), cache).items()}
    where = "if dy comes from np.broadcast_to, as after a sum,"
    raises, differs = "the backward raises {kind}: {error}", "d{name} changes; "
    run.require(dy, cache, plain, f"{where} {raises}", f"{where} {differs}{STRIDES}", run.grads)


def _narrowed_down(run: FirstRun, failure: str) -> Exception:
    """The error; its message contains the array and the layout, if one array and one layout are enough to cause it."""
    inputs = run.problem.inputs
    for name in ("", *(name for name, value in inputs.items() if type(value) is np.ndarray)):  # "": dy
        for state, layout in LAYOUTS.items():
            arrays = {**inputs, name: layout(inputs[name])} if name else inputs
            dy = run.dy if name else tuple(layout(one) for one in run.dy)
            found = _failure(run, arrays, dy, layout is strided)
            if found:
                writes = "the code writes into its argument; it must work on a copy"
                fix = writes if state == "is read-only" else STRIDES
                return run.error(f"if {name or 'dy'} {state}, {found}; {fix}")
    return run.error(f"if inputs and dy are read-only and not contiguous, {failure}; {STRIDES}")


def _failure(run: FirstRun, arrays: Arrays, dy: Outputs, may_refuse: bool) -> str | None:
    """The failure as text; "" without a failure, None if the forward refuses the layout."""
    try:
        y, cache = run.problem.run(arrays)
    except Exception as error:
        return f"the forward raises {type(error).__name__}: {error}" if "read-only" in str(error) else None
    for i, (one, other) in enumerate(zip(y, run.outputs, strict=True)):
        off = largest(one - other) if one.shape == other.shape else np.inf
        if not off <= max(OUTPUT, root_of_eps(other)) * largest(other) and not off <= run.allowed(f"{i}"):
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


CHECKS: dict[str, Callable[[FirstRun, Any], list[str] | None]] = {
    "repeated": _require_same,
    "memory": _check_memory,
    "linear": _require_linear,
    "separate": _require_separate,
    "layouts": check_layouts,
    "sizes": lambda run, _: check_small_sizes(run.problem, run.grads, run.seed, run.rtol, run.atol),
}
ROBUSTNESS = frozenset(CHECKS)
