"""One hard corner: a call of `gradcheck_vjp` and the verdicts that a user may expect of it."""

import functools
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from numpy_attention.gradcheck import Report, gradcheck_vjp
from tests.gradcheck.acceptance.verdict import Verdict, verdict

Array = np.ndarray
Function = Callable[..., Any]

# No method knows the derivative to four digits: the checker may say so, but must not accuse a right gradient,
NOT_WRONG = "right or unresolved"
# and must not call a mistake right.
NOT_RIGHT = "wrong or unresolved"


@dataclass(frozen=True)
class Corner:
    """`vjp(dy, *inputs)` for `f(*inputs)`: right or with a mistake."""

    row: str  # what several cases have in common
    name: str
    f: Function
    vjp: Function
    inputs: Any  # a tuple, a dict by argument name, or a function of a generator that draws one of these
    expected: str  # a verdict, or several with "or" between them
    says: str = ""  # a regular expression: what the message must contain
    options: dict[str, Any] = field(default_factory=dict)
    draws: int = 1  # the number of seeds: for dy, and for inputs that are drawn
    most_calls: float = float("inf")
    loud: bool = False  # a RuntimeWarning of the checker is a crash
    slow: bool = False

    def check(self, seed: int) -> Report:
        """Run the checker."""
        inputs = self.inputs(np.random.default_rng(seed)) if callable(self.inputs) else self.inputs
        return gradcheck_vjp(self.f, self.vjp, inputs, seed=seed, **self.options)

    def verdicts(self, draws: int) -> list[Verdict]:
        """The verdicts for the first seeds."""
        return [verdict(functools.partial(self.check, seed), self.loud) for seed in range(draws)]

    def failure(self, found: list[Verdict]) -> str:
        """The first verdict that is not as expected, and why; empty if all are as expected."""
        for one in found:
            if one.state not in self.expected.split(" or "):
                return f"{one.state}, expected {self.expected}: {one.message}"
            if not re.search(self.says, one.message):
                return f"{one.state}, but the message must contain {self.says!r}: {one.message}"
            if one.calls > self.most_calls:
                return f"{one.state}, but after {one.calls:,} calls, more than {self.most_calls:,}"
        return ""


def counted(found: list[Verdict]) -> str:
    """The verdicts of several seeds: "right 38, wrong 2"."""
    states = Counter(one.state for one in found)
    return ", ".join(f"{state} {count}" if len(found) > 1 else state for state, count in states.items())


def times(factor: float, vjp: Function, which: int = 0, where: Callable[..., Any] = lambda *inputs: True) -> Function:
    """The mistake: gradient number `which` is multiplied by a factor, in all elements or where `where(*inputs)`."""

    def wrong(dy: Any, *inputs: Array) -> Any:
        grads = vjp(dy, *inputs)
        several = isinstance(grads, tuple)
        each = list(grads) if several else [grads]
        each[which] = np.where(where(*inputs), factor * each[which], each[which])
        return tuple(each) if several else each[0]

    return wrong


def in_a_buffer(f: Function) -> Function:
    """The same function, but it writes its result into an array of floats, so it has no complex step."""

    @functools.wraps(f)
    def buffered(*inputs: Array) -> Array:
        result = f(*inputs)
        y = np.empty(np.shape(result))
        y[...] = result
        return y

    return buffered


def array(*numbers: float) -> Array:
    """Numbers in float64."""
    return np.array(numbers, dtype=np.float64)
