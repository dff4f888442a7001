"""What changes the right result of a function into the given result? In one sentence, for an answer without a gradient.

    other arguments    is it the right result for n + 1, for gamma of ones, for two arguments exchanged?
    other numbers      is it the right result times a factor, plus a number, in another order, wrong in one place?

A sentence explains every wrong element; the first sentence that does is returned.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from numpy_attention.gradcheck.problem import is_float
from numpy_attention.gradcheck.why.relations import place, same_numbers
from numpy_attention.tutor.compare import same

Values = Mapping[str, Any]


def likely_mistake(right: Callable[..., Any], *examples: tuple[Values, Any, Any]) -> str:
    """The likely mistake of an answer; "" if nothing explains it.

    An example has the arguments of the function, the answer, and the right result. The sentence is true of all examples
    with a wrong answer: in one small example, many other arguments give the same numbers by chance.
    """
    wrong = [one for one in examples if not _equal(*one[1:])]
    each = [dict.fromkeys(_sentences(right, *one)) for one in wrong]
    return next((words for words in each[0] if all(words in others for others in each)), "") if wrong else ""


def _sentences(right: Callable[..., Any], arguments: Values, answer: Any, expected: Any) -> Iterator[str]:
    """All sentences that explain one example."""
    if is_float(answer) and is_float(expected) and answer.size > 1 and not answer.any() and expected.any():
        yield "all numbers are zero"
    moved = list[str]()
    for words, changed in _other_arguments(arguments):
        try:
            with np.errstate(all="ignore"):
                other = right(**changed)
        except Exception:  # the right function may refuse other arguments
            continue
        if _equal(answer, other) and not _equal(other, expected):
            if "reverse" in words or "shifted" in words:  # it can be the result that is in another order
                moved.append(words)
            else:
                yield words
    mine, theirs = (one if isinstance(one, tuple) else (one,) for one in (expected, answer))
    for a, b in zip(theirs, mine):
        if not _equal(a, b):
            yield from _of_numbers(a, b, arguments)
            break
    yield from moved


def _equal(a: Any, b: Any) -> bool:
    """Whether two results are equal up to rounding; the dtype is compared elsewhere."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    if is_float(a) and is_float(b):
        return a.shape == b.shape and np.allclose(a, b, rtol=1e-5, atol=1e-7, equal_nan=True)
    return same(a, b)


def _other_arguments(arguments: Values) -> Iterator[tuple[str, dict[str, Any]]]:
    """Other arguments, each with the mistake that they show."""
    for name, x in arguments.items():
        if isinstance(x, bool) or x is None:
            continue
        if isinstance(x, int):
            for sign, number in (("+", x + 1), ("-", x - 1)):
                yield f"right for {name} {sign} 1: is an index or a limit off by one?", {**arguments, name: number}
        elif isinstance(x, float):
            for constant in (0.0, 1.0):
                yield f"right for {name} = {constant:g}: is {name} left out?", {**arguments, name: constant}
            yield f"right for {name} ** 2: is a square root missing?", {**arguments, name: x * x}
            yield f"right for sqrt({name}): is there a square root too much?", {**arguments, name: math.sqrt(abs(x))}
        elif isinstance(x, list):
            yield f"right for {name} in the reverse order", {**arguments, name: x[::-1]}
            yield f"right without the first element of {name}", {**arguments, name: x[1:]}
            yield f"right without the last element of {name}", {**arguments, name: x[:-1]}
        elif isinstance(x, np.ndarray):
            yield from ((words, {**arguments, name: other}) for words, other in _other_arrays(name, x))
    for (one, x), (other, y) in itertools.combinations(arguments.items(), 2):
        if isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and x.shape == y.shape and x.dtype == y.dtype:
            yield f"right if {one} and {other} are exchanged", {**arguments, one: y, other: x}
            yield f"right with {one} in place of {other}", {**arguments, other: x}
            yield f"right with {other} in place of {one}", {**arguments, one: y}


def _other_arrays(name: str, x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    if x.dtype == bool:
        yield f"right if {name} hides nothing: is {name} ignored?", np.ones_like(x)
        yield f"right with ~{name}: does the function take True for hidden?", ~x
    elif is_float(x):
        yield f"right for {name} of ones: is the factor {name} left out?", np.ones_like(x)
        yield f"right for {name} of zeros: is the part with {name} left out?", np.zeros_like(x)
        yield f"right for -{name}: is a sign wrong?", -x
        if x.ndim:
            centred = x - x.mean(-1, keepdims=True)
            yield f"right for {name} minus its mean: is the mean of {name} subtracted once too often?", centred
    for axis, n in enumerate(x.shape):
        if n > 1:
            where = f" along axis {axis}" if x.ndim > 1 else ""
            yield f"right for {name} in the reverse order{where}", np.flip(x, axis)
            yield f"right for {name} shifted by one place{where}: is an index off by one?", np.roll(x, 1, axis)
            yield f"right for {name} shifted by one place{where}: is an index off by one?", np.roll(x, -1, axis)
            yield f"right without the first place of {name}{where}", np.delete(x, 0, axis)
            yield f"right without the last place of {name}{where}", np.delete(x, -1, axis)
    if x.ndim > 1 and x.shape[-1] == x.shape[-2]:
        yield f"right for {name} transposed", x.swapaxes(-1, -2)


def _of_numbers(answer: Any, expected: Any, arguments: Values) -> Iterator[str]:
    """Relations between the numbers of two arrays, lists or dicts of arrays."""
    if isinstance(answer, dict) and isinstance(expected, dict) and answer.keys() == expected.keys():
        answer, expected = (np.concatenate([np.ravel(one[key]) for key in expected]) for one in (answer, expected))
    if isinstance(answer, list) and isinstance(expected, list):
        yield from _of_lists(answer, expected)
        return
    if not (isinstance(answer, np.ndarray) and isinstance(expected, np.ndarray)) or answer.shape != expected.shape:
        return
    if expected.dtype == bool and answer.dtype == bool:
        if np.array_equal(answer, ~expected):
            yield "True and False are exchanged"
        return
    if not is_float(expected) or not np.isfinite(answer).all():
        return
    a, b = answer.astype(np.float64), expected.astype(np.float64)
    close = 1e-5 * float(np.max(np.abs(b), initial=0.0)) + 1e-9
    largest = np.unravel_index(int(np.argmax(np.abs(b))), b.shape)
    factor = float(a[largest] / b[largest]) if b[largest] else 1.0
    if a.size > 1 and abs(factor - 1) > 1e-6 and np.all(np.abs(a - factor * b) <= (1 + abs(factor)) * close):
        yield f"every number is {factor:.6g} times the right one{_factor_in_words(factor, arguments)}"
    if a.size > 1 and np.ptp(a - b) <= close:
        yield f"every number is the right one {(a - b).flat[0]:+.6g}"
    for axis in reversed(range(a.ndim)):
        if np.allclose(a, np.flip(b, axis), atol=close):
            yield f"the right numbers in the reverse order along axis {axis}"
        for step in (1, -1):
            if a.shape[axis] > 1 and np.allclose(a, np.roll(b, step, axis), atol=close):
                yield f"the right numbers, shifted by one place along axis {axis}: is an index off by one?"
        rows, right_rows = (np.moveaxis(one, axis, 0).reshape(one.shape[axis], -1) for one in (a, b))
        order = [next((j for j, row in enumerate(right_rows) if np.allclose(one, row, atol=close)), -1) for one in rows]
        if sorted(order) == list(range(len(rows))) and a.shape[axis] > 1:
            yield f"the right rows along axis {axis}, in the order {order}: is a permutation used, or its inverse?"
    if same_numbers(a, b):
        yield "the right numbers in the wrong places: is a transpose missing, or a reshape in another order of axes?"
    for axis in reversed(range(a.ndim)):
        if a.shape[axis] < 2 or a.ndim < 2:
            continue
        ratio, off = a / np.where(b == 0, np.nan, b), a - b
        if np.nanmax(np.nanmax(ratio, axis) - np.nanmin(ratio, axis)) < 1e-5:
            yield f"each row along axis {axis} is the right row times a number: is it divided by a wrong sum or width?"
        if np.max(np.ptp(off, axis)) <= close:
            yield f"each row along axis {axis} is the right row plus a number: is a mean or a sum not subtracted?"
    where = place(np.abs(a - b) > close, np.ones(a.shape, dtype=bool))
    if where.startswith(("only", "the diagonal")):
        yield f"wrong {where}: is an index or a limit off by one there?"


def _factor_in_words(factor: float, arguments: Values) -> str:
    """The factor as a size of an argument: n, 1/n, sqrt(n), 1/sqrt(n), n / (n - 1)."""
    if abs(factor + 1) < 1e-6:
        return ": the sign is wrong"
    arrays = {name: x for name, x in arguments.items() if isinstance(x, np.ndarray)}
    sizes: dict[str, float] = {
        f"the length of axis {axis} of {name}": n for name, x in arrays.items() for axis, n in enumerate(x.shape)
    }
    sizes |= {name: x for name, x in arguments.items() if type(x) is int}
    for name, x in arguments.items():
        if isinstance(x, list):
            sizes |= {f"the length of {name}": len(x)}
            if x and all(type(one) is int for one in x):
                sizes |= {f"the sum of {name}": sum(x), f"the mean of {name}": sum(x) / len(x)}
    found = []
    for name, n in sizes.items():
        for words, number in (
            ("n", n), ("1 / n", 1 / n if n else 0), ("sqrt(n)", math.sqrt(n)), ("1 / sqrt(n)", n**-0.5 if n else 0),
            ("n / (n - 1)", n / (n - 1) if n > 1 else 0), ("(n - 1) / n", (n - 1) / n if n else 0),
        ):
            if n > 1 and abs(factor - number) < 1e-5 * number:
                found.append(f"{words} with n = {n}, {name}")
    for name, x in arguments.items():
        if isinstance(x, float) and 0 < x < 1:
            for words, number in (
                (f"{name}", x), (f"1 / {name}", 1 / x), (f"1 - {name}", 1 - x), (f"1 / (1 - {name})", 1 / (1 - x)),
                (f"(1 - {name}) / {name}", (1 - x) / x), (f"{name} / (1 - {name})", x / (1 - x)),
            ):
                if abs(factor - number) < 1e-5 * number:
                    found.append(words)
    return f" ({'; or '.join(found[:2])}): is it divided by a wrong number?" if found else ""


def _of_lists(answer: list[Any], expected: list[Any]) -> Iterator[str]:
    if answer == expected[: len(answer)]:
        yield "the end is missing: does the loop stop too early?"
    if expected == answer[: len(expected)]:
        yield "there are more elements than there must be: does the loop stop too late?"
    if answer == expected[::-1]:
        yield "the right elements in the reverse order"
