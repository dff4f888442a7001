"""What a gradient must be besides right: the same whatever else is called, and however the arrays lie in memory.

    linear      a backward is a sum of dy times derivatives: 8 dy - dz gives 8 dx(dy) - dx(dz), and no dy no gradient
    kept        what a call has returned stays as it is when forward and backward are called again
    separate    another forward between a forward and its backward changes nothing, in whatever order two go back
    layouts     arrays in Fortran order, with gaps, negative strides, read-only or broadcast change nothing (`layouts`)
    sizes       with axes of length 1 it is right as well (`small_sizes`)

These are asked of every function whose numbers are right, in some thirty calls. A gradient may be dy itself, or a view
of it: adding and reshaping hand it on. It may not lie in the memory of an input, where an optimizer's step would change
it. Two gradients in one array are right as long as nobody adds to one of them in place, so that is a note.
"""

import warnings
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from numpy_attention.gradcheck.circumstances.answers import Asked, Given
from numpy_attention.gradcheck.circumstances.layouts import check_layouts
from numpy_attention.gradcheck.circumstances.small_sizes import check_small_sizes
from numpy_attention.gradcheck.numbers.claims import random_cotangent
from numpy_attention.gradcheck.numbers.line import Outputs
from numpy_attention.gradcheck.problems.problem import Gradients, Problem, is_number
from numpy_attention.gradcheck.problems.trees import Arrays

MOST_WORK: Any = 10_000  # NumPy's stubs know of 0 and -1 alone
TIMES = 8  # exact in any dtype, and large enough for what clips dy


def check_structure(
    problem: Problem, dy: Outputs, grads: Gradients, seed: int, rtol: float = 0.0, atol: float = 0.0
) -> list[str]:
    """Ask forward and backward in other circumstances; `grads` is what they say at `dy`. Return notes.

    Raises: GradientError, in one sentence, for the first thing that is not as it should be.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        y, cache = problem.run(problem.inputs)
        asked = Asked(problem, y, dy, grads, seed, rtol, atol)
        first = asked.backward(dy, cache)
        for _ in range(3):
            _require_same(asked, cache)
        outputs = problem.returned(cache) if problem.returned is not None else []
        names = [f"output {i}" for i in range(len(outputs))] if len(outputs) > 1 else ["the output"]
        returned = dict(zip(names, outputs)) | {f"d{name}": grad for name, grad in first.items()}
        kept = {name: array.copy() for name, array in returned.items()}
        _require_own_memory(asked, first)
        _require_linear(asked, cache)
        _require_kept(asked, returned, kept)
        _require_separate(asked)
        _require_kept(asked, returned, kept)
        check_layouts(asked)
        check_small_sizes(problem, grads, seed, rtol, atol)
    return [
        f"d{one} and d{other} lie in the same memory: adding to one in place changes the other; a copy is safe"
        for one, other in combinations(first, 2) if _share(first[one], first[other])
    ]


def _require_kept(asked: Asked, returned: Given, kept: Given) -> None:
    for what, array in returned.items():
        if not np.array_equal(array, kept[what], equal_nan=array.dtype.kind in "fc"):
            raise asked.error(
                f"a later call changes {what}, as an earlier one returned it: it lies in an array that is used again; "
                "return a new array from each call"
            )


def _require_same(asked: Asked, cache: Any) -> None:
    advice = "when called a few times with one cache: is the cache, or anything outside it, changed by a call?"
    try:
        grads = asked.backward(asked.dy, cache)
    except Exception as error:
        raise asked.error(f"the backward raises {type(error).__name__} ({error}) {advice}") from error
    name = asked.differing(grads, {name: grad for name, grad in asked.grads.items() if grad is not None})
    if name is not None:
        raise asked.error(f"the backward gives another d{name} {advice}")


def _require_own_memory(asked: Asked, grads: Given) -> None:
    for name, grad in grads.items():
        for other, value in asked.problem.inputs.items():
            if isinstance(value, np.ndarray) and _share(grad, value):
                raise asked.error(
                    f"d{name} lies in the memory of the input {other}: a step that moves {other} in place would change "
                    "it; return a new array"
                )


def _share(a: np.ndarray, b: np.ndarray) -> bool:
    try:
        return np.shares_memory(a, b, MOST_WORK)  # without a limit the answer may take forever
    except np.exceptions.TooHardError:
        return False


def _require_linear(asked: Asked, cache: Any) -> None:
    """g(8 dy - dz) = 8 g(dy) - g(dz), and g(0) = 0."""

    def at(factor: int, dz: Outputs) -> Given:
        try:
            found = asked.backward(tuple(factor * a - b for a, b in zip(asked.dy, dz, strict=True)), cache)
        except Exception as error:
            raise asked.error(f"with another dy the backward raises {type(error).__name__}: {error}") from error
        for name in once:
            if not asked.fits(found, name):
                raise asked.error(f"with another dy the backward returns no d{name} of floats in the shape of {name}")
        return found

    once: Given = {name: np.asarray(grad) for name, grad in asked.grads.items() if grad is not None}
    zeros = tuple(np.zeros_like(one) for one in asked.dy)
    dz = random_cotangent(asked.dy, asked.seed + 1)
    minus = {name: grad.copy() for name, grad in at(0, dz).items()}
    expected = {name: TIMES * grad + minus[name] for name, grad in once.items()}
    size = {name: np.maximum(np.abs(TIMES * grad), np.abs(minus[name])) for name, grad in once.items()}
    name = asked.differing(at(TIMES, dz), expected, size, times=2 * TIMES)
    if name is not None:
        square = float(np.sum(np.abs(once[name]) ** 2))
        product = float(np.sum(at(TIMES, zeros)[name] * once[name].conj()).real)
        times = product / square if square else TIMES
        scaled = abs(times - TIMES) > 1e-3
        seen = f"at {TIMES} dy it is {times:.4g} times what it is at dy" if scaled else "a sum of two dy gives no sum"
        raise asked.error(
            f"d{name} is not linear in dy: {seen}; a backward multiplies dy by derivatives once, and neither clips nor "
            "normalizes it"
        )
    none = at(0, zeros)
    name = asked.differing(none, {name: np.zeros_like(grad) for name, grad in once.items()})
    if name is not None:
        stray = none[name].reshape(-1)[np.argmax(none[name].reshape(-1) != 0)]
        raise asked.error(
            f"d{name} holds {stray:.4g} where dy is zero everywhere; every term of a gradient is some dy times a "
            "derivative, and dy must not be divided by"
        )


def _require_separate(asked: Asked) -> None:
    """Two forwards, then their backwards in either order."""
    problem, dy = asked.problem, asked.dy
    for elsewhere, arrays in others(problem):
        try:
            y, cache = elsewhere.run(arrays)
            alone = {name: grad.copy() for name, grad in asked.backward(dy, cache).items()}
        except Exception:  # outside the domain
            continue
        if [one.shape for one in y] == [one.shape for one in dy] and all(np.all(np.isfinite(one)) for one in y):
            break
    else:
        return
    _, first = problem.run(problem.inputs)
    _, second = elsewhere.run(arrays)
    if elsewhere.use_again is not None:  # `run` made a new layer each time
        elsewhere.use_again(first, arrays)
    advice = (
        "when the forward is called once more, on other arrays, before the backward: is something kept outside the "
        "cache, in self or in a global, or in an array used again? Each call returns what its own backward needs, in "
        "new arrays"
    )
    answers: list[tuple[Any, Mapping[str, Any]]] = [(first, asked.grads), (second, alone), (first, asked.grads)]
    for cache, expected in answers:
        try:
            name = asked.differing(asked.backward(dy, cache), expected)
        except Exception as error:
            raise asked.error(f"the backward raises {type(error).__name__} ({error}) {advice}") from error
        if name is not None:
            raise asked.error(f"d{name} changes {advice}")


def others(problem: Problem) -> Iterator[tuple[Problem, Arrays]]:
    """Arrays of the same shapes, likely to be in the domain, for another call; and other draws of a dropout."""
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
