"""A wrong result of a function without a gradient: what changes the right result into it?"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from numpy_attention.tutor.outputs import likely_mistake


def scaled(x: np.ndarray, gamma: np.ndarray, n: int = 2, rate: float = 0.25) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) * gamma / n**2 / (1 - rate)


Change = Callable[..., Any]


@pytest.mark.parametrize(("words", "wrong"), [
    ("right for gamma of ones: is the factor gamma left out?", lambda x, gamma: scaled(x, np.ones_like(gamma))),
    ("right for n + 1: is an index or a limit off by one?", lambda x, gamma: scaled(x, gamma, 3)),
    ("right for rate = 0: is rate left out?", lambda x, gamma: scaled(x, gamma, rate=0.0)),
    ("the right numbers in the reverse order along axis 0", lambda x, gamma: scaled(x[::-1], gamma)),
    ("right for -x: is a sign wrong?", lambda x, gamma: -scaled(x, gamma)),
    ("every number is 3 times the right one", lambda x, gamma: 3 * scaled(x, gamma)),
    ("(1 - rate) / rate", lambda x, gamma: 3 * scaled(x, gamma)),
    ("every number is the right one +0.5", lambda x, gamma: scaled(x, gamma) + 0.5),
    ("in the order [1, 3, 0, 2]", lambda x, gamma: scaled(x, gamma)[[1, 3, 0, 2]]),
    ("the right numbers in the wrong places", lambda x, gamma: scaled(x, gamma).T.reshape(4, 5)),
    ("each row along axis 1 is the right row times a number",
     lambda x, gamma: scaled(x, gamma) * np.arange(1, 5)[:, None]),
    ("each row along axis 1 is the right row plus a number",
     lambda x, gamma: scaled(x, gamma) + np.arange(4)[:, None]),
    ("wrong only the last place along axis 0", lambda x, gamma: np.r_[scaled(x, gamma)[:-1], np.ones((1, 5))]),
    ("all numbers are zero", lambda x, gamma: np.zeros_like(x)),
    ("", lambda x, gamma: np.cos(scaled(x, gamma))),
])
def test_relation_is_found(rng: np.random.Generator, words: str, wrong: Change) -> None:
    arguments = {"x": rng.standard_normal((4, 5)), "gamma": rng.standard_normal(5), "n": 2, "rate": 0.25}
    answer = wrong(arguments["x"], arguments["gamma"])
    found = likely_mistake(scaled, (arguments, answer, scaled(**arguments)))
    assert words in found
    assert bool(words) == bool(found)


@pytest.mark.parametrize(("answer", "words"), [
    ([1, 2, 3], "the end is missing"), ([1, 2, 3, 4, 5], "more elements than there must be"),
    ([4, 3, 2, 1], "reverse order"), (True, ""), ([1, 2, 9, 4], ""),
])
def test_lists_are_compared(answer: Any, words: str) -> None:
    assert words in likely_mistake(lambda: [1, 2, 3, 4], ({}, answer, [1, 2, 3, 4]))
