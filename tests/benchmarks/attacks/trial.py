"""One planted error: a function, a backward that is wrong, what is wrong with it, and the words that would say so."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.benchmarks.strangers import STRANGERS, Arrays


@dataclass
class Trial:
    """`wrong(dy, *inputs)` is not the vector-Jacobian product of `f`; or `wrong(dy, cache)` of an op, if `op`."""

    name: str
    kind: str
    inputs: Arrays
    f: Callable[..., Any]
    wrong: Callable[..., Any]
    argument: str  # the names of those whose gradient is wrong, with commas; "" where nothing but the whole is
    words: str  # a regular expression: some of this stands in a diagnosis that is right
    op: bool = False


def seeded(text: str) -> np.random.Generator:
    """A generator of this name's own."""
    return np.random.default_rng(list(text.encode()))


def names(f: Callable[..., Any]) -> list[str]:
    """The arguments of a function."""
    code = f.__code__
    return list(code.co_varnames[: code.co_argcount])


def changed(vjp: Callable[..., Any], which: int, change: Callable[..., Any]) -> Callable[..., Any]:
    """The same gradients, but for number `which`, which is change(gradient, dy, *inputs)."""

    def wrong(dy: Any, *inputs: np.ndarray) -> Arrays:
        grads = [np.array(grad) for grad in vjp(dy, *inputs)]
        new = change(grads[which], dy, *inputs)
        grads[which] = np.asarray(new, grads[which].dtype)
        return tuple(grads)

    return wrong


def trial(
    kind: str, stranger: str, which: int, what: str, change: Callable[..., Any], words: str, scale: str = "normal",
    inputs: Arrays | None = None,
) -> Trial:
    """An error in gradient number `which` of a stranger."""
    s = STRANGERS[stranger]
    given = s.draw(seeded(stranger + what), scale) if inputs is None else inputs
    return Trial(f"{stranger}: {what}", kind, given, s.f, changed(s.vjp, which, change), names(s.f)[which], words)


def at(value: float, index: Any, arrays: Arrays, which: int) -> Arrays:
    """The arrays with one element, or several, of number `which` set."""
    moved = [x.copy() for x in arrays]
    moved[which][index] = value
    return tuple(moved)


def element(factor: float) -> Callable[..., Any]:
    """One element of the gradient times a factor, always the same one."""

    def change(grad: np.ndarray, *_: Any) -> np.ndarray:
        grad.reshape(-1)[grad.size // 3] *= factor
        return grad

    return change


def named(f: Callable[..., Any], g: Callable[..., Any]) -> Callable[..., Any]:
    """g under the name and with the arguments of f."""
    return functools.wraps(f)(g)
