"""A function whose results are compared, since it has no gradient: what it is asked, and who knows the answer.

    Quiz(right, ask)       ask(rng) yields questions: what is asked, in words, and the arguments
    quiz.trials            each question by its words; trial(f, seed) tells in numbers of another answer
    quiz.imprint(f)        all its answers, to be compared with those of known mistakes
"""

import copy
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue.properties import same

Questions = Iterator[tuple[str, tuple[Any, ...]]]
SHOWN = 24  # an array of more numbers is shown by its shape
SEEDS = (0, 1, 2)
OF_DTYPE = " must be of "
WIDENED = (
    "np.zeros makes float64: use np.zeros_like(...), or np.zeros(..., dtype=...dtype). np.sqrt of a whole number is of "
    "float64, too, and widens float32; math.sqrt does not."
)


@dataclass(frozen=True)
class Quiz:
    """Questions, from the plainest to the oddest, and the function that knows the answers."""

    right: Callable[..., Any]
    ask: Callable[[np.random.Generator], Questions]
    returns: tuple[str, ...] = ()  # the names of what it returns, where that is a tuple

    @property
    def trials(self) -> dict[str, Callable[[Any, int], None]]:
        """Each question in words, with what puts it: the same words for every seed, and other arguments."""
        return {words: partial(self.put, words) for words, _ in self.ask(np.random.default_rng(0))}

    def put(self, question: str, made: Callable[..., Any], seed: int) -> None:
        """Put one question of a seed.

        Raises: AssertionError at a wrong answer, with the arguments and both answers.
        """
        for words, arguments in self.ask(np.random.default_rng(seed)):
            if words != question:
                continue
            given, expected = copy.deepcopy(arguments), self.right(*copy.deepcopy(arguments))
            with np.errstate(all="ignore"):
                answer = made(*given)
            complaint = difference(answer, expected, names=self.returns)
            if complaint or not same(arguments, given):
                names = list(inspect.signature(self.right).parameters)
                numbers = [
                    *(f"  {name} = {shown(one)}" for name, one in zip(names, arguments)),
                    f"  yours: {shown(answer)}", f"  right: {shown(expected)}",
                ]
                raise AssertionError("\n".join([
                    complaint or "the arguments were changed in place; they belong to the caller",
                    *([] if OF_DTYPE in complaint else numbers),  # in which no dtype could be seen
                ]))

    def imprint(self, made: Callable[..., Any]) -> list[Any]:
        """Question by question the answers of some seeds; None where it stops."""

        def ask(seed: int) -> list[Any]:
            return [_or_none(made, arguments) for _, arguments in self.ask(np.random.default_rng(seed))]

        return [list(answers) for answers in zip(*map(ask, SEEDS))]


def _or_none(made: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        with np.errstate(all="ignore"):
            return made(*copy.deepcopy(arguments))
    except Exception:  # an answer may stop in any way
        return None


def difference(answer: Any, expected: Any, what: str = "what it returns", names: tuple[str, ...] = ()) -> str:
    """How an answer differs from what is right, in words; "" if it does not. `names` are those of a tuple's parts."""
    if answer is None:
        return f"{what} is None; is there a `return` at its end?"
    if isinstance(expected, tuple | list):
        if not isinstance(answer, tuple | list):
            return f"{what} must be a {type(expected).__name__} of {len(expected)}, got {type(answer).__name__}"
        if len(answer) != len(expected):
            return f"{what} must hold {len(expected)}, and holds {len(answer)}"
        parts = names or tuple(f"number {i} of {what}" for i in range(len(expected)))
        found = (difference(*three) for three in zip(answer, expected, parts))
        return next(filter(None, found), "")
    if isinstance(expected, dict):
        if not isinstance(answer, dict) or answer.keys() != expected.keys():
            return f"{what} must be a dict with {', '.join(expected)}"
        return next(filter(None, (difference(answer[name], expected[name], name) for name in expected)), "")
    if isinstance(expected, np.ndarray):
        return _difference_of_arrays(answer, expected, what)
    if not isinstance(answer, int | np.integer) or isinstance(answer, bool):
        return f"{what} must be an int, got {type(answer).__name__}"
    return "" if answer == expected else f"{what} is {answer}, and must be {expected}"


def _difference_of_arrays(answer: Any, expected: np.ndarray, what: str) -> str:
    if not isinstance(answer, np.ndarray):
        return f"{what} must be an array of shape {expected.shape}, got {type(answer).__name__}"
    if answer.shape != expected.shape:
        return f"{what} must have the shape {expected.shape}, and has {answer.shape}"
    if answer.dtype != expected.dtype:
        cure = f"\n{WIDENED}" if answer.dtype == np.float64 else ""
        return f"{what}{OF_DTYPE}{expected.dtype}, and is of {answer.dtype}{cure}"
    off = ~np.isclose(answer, expected, rtol=1e-6 if expected.dtype == np.float64 else 1e-4, atol=1e-9)
    if not off.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(off)[0])
    place = f" at [{', '.join(map(str, at))}]" if at else ""
    return f"{what}{place} is {answer[at]:.6g}, and must be {expected[at]:.6g}"


def shown(value: Any, digits: int = 4) -> str:
    """A value in numbers, where there are few enough to be read."""
    if isinstance(value, np.ndarray):
        if value.size > SHOWN:
            return f"an array {value.shape}"
        text = np.array2string(value, precision=digits, suppress_small=True, separator=", ", max_line_width=10_000)
        return text.replace("\n", "")
    if isinstance(value, tuple | list) and any(isinstance(one, np.ndarray | dict) for one in value):
        return ", ".join(shown(one, digits) for one in value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {shown(one, digits)}" for name, one in value.items()) + "}"
    return repr(value)[:200]
