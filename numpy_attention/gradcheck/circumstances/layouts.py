"""However arrays lie in memory, their numbers are the same, and so must be the gradients.

A dy seldom comes as one makes it by hand: behind a transpose its axes are swapped, behind a sum it is broadcast, one
number read again and again, and cannot be written to. What goes wrong then: a write into dy or an input, and whatever
counts on the order of the elements in memory. `np.empty_like(x)` keeps the order of x, so `dx.reshape(-1)` may be a
copy, and what is written there is lost; `dy.flatten("A")` gives the elements as they lie.

A forward may refuse a layout by an error, as code in C does; a backward must take the dy it gets. But for negative
strides: not every library has them, and refusing is better than a wrong number.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from numpy_attention.gradcheck.circumstances.answers import Asked, root_of_eps
from numpy_attention.gradcheck.numbers.line import Outputs, largest
from numpy_attention.gradcheck.problems.trees import Arrays

Layout = Callable[[np.ndarray], np.ndarray]
OUTPUT = 1e-5  # of an output's size: round-off of a sum in another order is less


def read_only(x: np.ndarray) -> np.ndarray:
    """A copy that cannot be written to."""
    y = x.copy()
    y.flags.writeable = False
    return y


def fortran(x: np.ndarray) -> np.ndarray:
    """A copy in Fortran order."""
    return x.copy(order="F")


def spaced(x: np.ndarray) -> np.ndarray:
    """The same numbers with gaps between them, and with axes in another order."""
    return _within(x, lambda n: slice(1, None, 2))


def strided(x: np.ndarray) -> np.ndarray:
    """The same, and backwards."""
    return _within(x, lambda n: slice(2 * n - 1, None, -2) if n else slice(0, 0))


def broadcast(x: np.ndarray) -> np.ndarray:
    """The first number, read again and again."""
    return np.broadcast_to(x.reshape(-1)[0], x.shape) if x.size else x


def _within(x: np.ndarray, along: Callable[[int], slice]) -> np.ndarray:
    if not x.ndim:
        return x.copy()
    view = np.empty(tuple(2 * n + 1 for n in x.shape), dtype=x.dtype, order="F")[tuple(along(n) for n in x.shape)]
    view[...] = x
    return view


def laid(value: Any, layout: Layout) -> Any:
    """An array in another layout; whatever is none as it is."""
    return layout(value) if type(value) is np.ndarray else value


LAYOUTS: dict[str, tuple[Layout, str]] = {
    "is read-only": (read_only, "it writes into an array that it was given, and must work on a copy"),
    "is in Fortran order": (fortran, ""),
    "has gaps between its elements": (spaced, ""),
    "has negative strides": (strided, ""),
}
STRIDES = (
    "np.empty_like keeps the order of its argument, and reshape or ravel of such an array is a copy: make results by "
    "np.zeros(x.shape, x.dtype), and count on no strides"
)


def check_layouts(asked: Asked) -> None:
    """Other layouts of the inputs and of dy give the same outputs and gradients.

    Raises: GradientError, which names the array and the layout.
    """
    for together in (lambda x: _frozen(fortran(x)), lambda x: _frozen(spaced(x)), strided):
        arrays = {name: laid(value, together) for name, value in asked.problem.inputs.items()}
        dy = tuple(together(one) for one in asked.dy)
        fault = _fault(asked, arrays, dy, together is strided)
        if fault is None:  # the forward refuses; the backward alone
            fault = _fault(asked, asked.problem.inputs, dy, together is strided)
        if fault:
            raise _named(asked, fault)
    _check_broadcast(asked)


def _check_broadcast(asked: Asked) -> None:
    """A dy of stride 0, as np.broadcast_to makes it, against the same numbers written out."""
    if not any(one.ndim for one in asked.dy):
        return
    _, cache = asked.problem.run(asked.problem.inputs)
    dy = tuple(broadcast(one) for one in asked.dy)
    plain = {name: grad.copy() for name, grad in asked.backward(tuple(one.copy() for one in dy), cache).items()}
    where = "where dy is made by np.broadcast_to, as behind a sum,"
    try:
        name = asked.differing(asked.backward(dy, cache), plain, asked.grads)
    except Exception as error:
        raise asked.error(f"{where} the backward raises {type(error).__name__}: {error}") from error
    if name is not None:
        raise asked.error(f"{where} d{name} holds other numbers; {STRIDES}")


def _named(asked: Asked, fault: str) -> Exception:
    """The error, with the one array and the one layout that bring it about, where one alone does."""
    for arrays, dy, who in _one_by_one(asked):
        for words, (layout, fix) in LAYOUTS.items():
            laid = {**asked.problem.inputs, **{name: layout(asked.problem.inputs[name]) for name in arrays}}
            found = _fault(asked, laid, tuple(layout(one) for one in asked.dy) if dy else asked.dy, layout is strided)
            if found:
                return asked.error(f"where {who} {words}, {found}; {fix or STRIDES}")
    return asked.error(f"where inputs and dy are not contiguous and read-only, {fault}; {STRIDES}")


def _one_by_one(asked: Asked) -> Iterator[tuple[tuple[str, ...], bool, str]]:
    yield (), True, "dy"
    for name, value in asked.problem.inputs.items():
        if type(value) is np.ndarray:
            yield (name,), False, name


def _fault(asked: Asked, arrays: Arrays, dy: Outputs, may_refuse: bool) -> str | None:
    """What goes wrong, in words; "" where nothing does, None where the forward refuses."""
    try:
        y, cache = asked.problem.run(arrays)
    except Exception as error:
        return f"the forward raises {type(error).__name__}: {error}" if "read-only" in str(error) else None
    for one, other in zip(y, asked.outputs, strict=True):
        if one.shape != other.shape or not largest(one - other) <= max(OUTPUT, root_of_eps(other)) * largest(other):
            return "the forward gives other numbers"
    try:
        grads = asked.backward(dy, cache)
    except Exception as error:
        if may_refuse and "read-only" not in str(error):
            return ""
        return f"the backward raises {type(error).__name__}: {error}"
    name = asked.differing(grads, asked.grads)
    return "" if name is None else f"d{name} holds other numbers"


def _frozen(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x
