"""One planted mistake: a function, a wrong backward, the wrong argument, and a pattern for the right diagnosis."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpy_attention.gradcheck import gradcheck, gradcheck_vjp
from tests.gradcheck.acceptance.third_party import THIRD_PARTY, Arrays


@dataclass
class Trial:
    """`wrong(dy, *inputs)` is not the vector-Jacobian product of `f`; or `wrong(dy, cache)` of an op, if `op`."""

    name: str
    kind: str
    inputs: Arrays
    f: Callable[..., Any]
    wrong: Callable[..., Any]
    argument: str  # names of the arguments with a wrong gradient, with commas; "" if no single gradient is wrong
    pattern: str  # a regular expression: a diagnosis that names the cause matches it
    op: bool = False

    def check(self) -> None:
        """Run the checker, which must raise an error."""
        (gradcheck if self.op else gradcheck_vjp)(self.f, self.wrong, tuple(x.copy() for x in self.inputs))

    def names_the_cause(self, diagnosis: str) -> bool:
        return re.search(self.pattern, diagnosis) is not None


def seeded(text: str) -> np.random.Generator:
    """A generator whose seed is this text."""
    return np.random.default_rng(list(text.encode()))


def names(f: Callable[..., Any]) -> list[str]:
    """The names of the arguments of a function."""
    code = f.__code__
    return list(code.co_varnames[: code.co_argcount])


def changed(vjp: Callable[..., Any], which: int, change: Callable[..., Any]) -> Callable[..., Any]:
    """The same gradients, except that number `which` is change(gradient, dy, *inputs)."""

    def wrong(dy: Any, *inputs: np.ndarray) -> Arrays:
        grads = [np.array(grad) for grad in vjp(dy, *inputs)]
        new = change(grads[which], dy, *inputs)
        grads[which] = np.asarray(new, grads[which].dtype)
        return tuple(grads)

    return wrong


def trial(
    kind: str, function: str, which: int, what: str, change: Callable[..., Any], pattern: str, scale: str = "normal",
    inputs: Arrays | None = None,
) -> Trial:
    """A mistake in gradient number `which` of a third-party function."""
    s = THIRD_PARTY[function]
    given = s.draw(seeded(function + what), scale) if inputs is None else inputs
    return Trial(f"{function}: {what}", kind, given, s.f, changed(s.vjp, which, change), names(s.f)[which], pattern)


def at(value: float, index: Any, arrays: Arrays, which: int) -> Arrays:
    """The arrays, with one or several elements of array number `which` set to a value."""
    moved = [x.copy() for x in arrays]
    moved[which][index] = value
    return tuple(moved)


def element(factor: float) -> Callable[..., Any]:
    """Multiplies one element of the gradient, always the same one, by a factor."""

    def change(grad: np.ndarray, *_: Any) -> np.ndarray:
        grad.reshape(-1)[grad.size // 3] *= factor
        return grad

    return change


def named(f: Callable[..., Any], g: Callable[..., Any]) -> Callable[..., Any]:
    """g with the name and the argument names of f."""
    return functools.wraps(f)(g)
