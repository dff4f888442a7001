"""Gradients that are right nearly everywhere, or nearly right.

    one point       wrong where x is exactly 0, exactly 1, or equal to another input
    ties            all of dy for each of several equal numbers
    float32         one element of many
    relative        1e-7, 1e-10, 1e-12 of the gradient
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.gradcheck.acceptance.mistakes.trial import Trial, at, element, seeded, trial
from tests.gradcheck.acceptance.third_party import THIRD_PARTY

POINT = r"exactly|where .*(is|==|=) ?-?[01]\b|at (zero|one|0|1)\b|== ?[01]|equal"


def one_point() -> Iterator[Trial]:
    """Wrong where x is exactly 0 or 1, or equal to another input: by 1000, by 1, by 0.001."""

    def where_equal(which: int, value: float, amount: float) -> Callable[..., Any]:
        return lambda g, dy, *arrays: g + np.where(arrays[which] == value, amount, 0.0)

    for function, which, value, amount in [
        ("softplus", 0, 0.0, 1000.0), ("gelu_by_tanh", 0, 0.0, 1.0), ("glu", 0, 0.0, 1.0), ("logsumexp", 0, 0.0, 1e-3),
        ("conv1d", 0, 0.0, 1.0), ("power_spectrum", 0, 1.0, 1.0), ("cumulative_product", 0, 0.0, 1.0),
        ("polynomial", 1, 1.0, 1.0), ("oscillator", 1, 0.0, 1e-3), ("masked_mean", 0, 1.0, 1000.0),
        ("cross_entropy", 0, 0.0, 1.0), ("batch_norm", 0, 0.0, 1.0),
    ]:
        s = THIRD_PARTY[function]
        arrays = at(value, (-1,) * len(s.kinds[which][1]), s.draw(seeded(function)), which)
        yield trial("one point", function, which, f"off by {amount:g} where x == {value:g}",
                    where_equal(which, value, amount),
                    POINT, inputs=arrays)

    for function, value, amount in [("softplus", 0.0, 1000.0), ("gelu_by_tanh", 1.0, 1e-3), ("prelu", 0.0, 3.0)]:
        s = THIRD_PARTY[function]
        shapes = [(50, 60), (60,)][: len(s.kinds)]
        arrays = tuple(seeded(function + "large").standard_normal(shape) for shape in shapes)
        yield trial("one point", function, 0, f"one of 3,000 off by {amount:g} where x == {value:g}",
                    where_equal(0, value, amount), POINT, inputs=at(value, (7, 8), arrays, 0))

    def where_the_two_agree(g: np.ndarray, dy: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(x == y, g + 1, g)

    for function in ("huber", "gaussian_likelihood", "kl_divergence", "cosine_similarity"):
        s = THIRD_PARTY[function]
        a = s.draw(seeded(function))
        a = (a[0], np.where(np.arange(a[0].shape[-1]) == 1, a[0], a[1]), *a[2:])
        yield trial("one point", function, 0, "off by 1 where two inputs are equal",
                    lambda g, dy, x, y, *_: where_the_two_agree(g, dy, x, y), r"equal|exactly|coincid|same", inputs=a)

    def cube(x: np.ndarray) -> np.ndarray:
        return x**3

    yield Trial("cube: off by 1000 where x == 0", "one point", (np.array([0.0, 1.0, 2.0]),), cube,
                lambda dy, x: dy * np.where(x == 0, 1000.0, 3 * x * x), "x", r"exactly|zero|== ?0|is 0|at 0")


def largest(x: np.ndarray) -> np.ndarray:
    return x.max(-1)


def larger(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.maximum(x, y)


def spread(x: np.ndarray) -> np.ndarray:
    return x.max(-1) - x.min(-1)


def ties() -> Iterator[Trial]:
    """All of dy for each of several equal numbers, though the derivative for moving them together exists."""
    words = r"tie|tied|equal"
    x = np.array([[1.0, 3.0, 3.0, -1.0], [2.0, 0.5, 1.5, 0.0]])
    yield Trial("largest: dy to both tied elements", "ties", (x,), largest,
                lambda dy, x: dy[:, None] * (x == x.max(-1, keepdims=True)), "x", words)
    three = np.array([[0.0, 0.0, 0.0, -1.0, -2.0]])
    yield Trial("largest: dy to each of three tied zeros", "ties", (three,), largest,
                lambda dy, x: dy[:, None] * (x == x.max(-1, keepdims=True)), "x", words)
    yield Trial("spread: dy to both tied elements", "ties", (x,), spread,
                lambda dy, x: dy[:, None] * (1.0 * (x == x.max(-1, keepdims=True)) - (x == x.min(-1, keepdims=True))),
                "x", words)
    a = np.array([0.3, 1.0, -2.0, 0.7])
    yield Trial("larger: dy to both tied arguments", "ties", (a, np.array([0.1, 1.0, 5.0, 0.7])), larger,
                lambda dy, x, y: (dy * (x >= y), dy * (y >= x)), "x,y", words)
    yield Trial("larger: dy to neither tied argument", "ties", (a, np.array([0.1, 1.0, 5.0, 0.7])), larger,
                lambda dy, x, y: (dy * (x > y), dy * (y > x)), "x,y", words)
    pooled = np.round(2 * seeded("pool").standard_normal((2, 4, 6))) / 2
    pooled[0, :2, :2] = 4.0

    def to_all(g: Any, dy: Any, x: Any) -> Any:
        spread_dy, top = (np.repeat(np.repeat(one, 2, 1), 2, 2) for one in (dy, THIRD_PARTY["max_pool"].f(x)))
        return spread_dy * (x == top)

    yield trial("ties", "max_pool", 0, "dy to all largest elements", to_all, words, inputs=(pooled,))
    many = np.round(seeded("many").standard_normal((300, 10)), 1)
    yield Trial("largest: dy to all tied elements of 3,000", "ties", (many,), largest,
                lambda dy, x: dy[:, None] * (x == x.max(-1, keepdims=True)), "x", words)
    middle = np.array([[1.0, 1.0, 0.0, 2.0, 3.0], [0.5, 0.5, 0.5, 2.0, -3.0], [4.0, 2.0, 2.0, 1.0, 0.0]])
    yield trial("ties", "median", 0, "dy to all elements equal to the median",
                lambda g, dy, x: dy[:, None] * (x == np.median(x, -1, keepdims=True)), words, inputs=(middle,))
    rows = np.array([[1.0, 3.0, 3.0, 0.0, 2.0], [1.0, 5.0, 4.0, 0.0, 2.0], [7.0, 7.0, 1.0, 2.0, 3.0]])
    yield trial("ties", "top_k", 0, "dy to all elements equal to one of the two largest",
                lambda g, dy, x: dy[:, :1] * (x == x.max(-1, keepdims=True)) + dy[:, 1:] * (x == np.sort(x)[:, -2:-1]),
                words, inputs=(rows,))
    yield trial("ties", "sort", 0, "the same dy for both tied elements",
                lambda g, dy, x: np.take_along_axis(dy, (x[:, :, None] > x[:, None, :]).sum(-1), -1), words,
                inputs=(rows,))


def float32() -> Iterator[Trial]:
    """One element of many, wrong by 0.1 % or 1 %; and whole gradients wrong by 0.05 % or 0.1 %."""
    for function, which, shapes, factor in [
        ("softplus", 0, ((40, 50),), 1.001), ("pairwise_distances", 0, ((500, 4), (3, 4)), 1.001),
        ("cumulative_sum", 0, ((20, 100),), 1.001), ("conv1d", 0, ((4, 5, 100), (3, 5, 2)), 1.001),
        ("gelu_by_tanh", 0, ((250, 400),), 1.01), ("embedding_bag", 0, ((5, 20_000),), 1.01),
        ("glu", 0, ((250, 400),), 1.01), ("batch_norm", 0, ((100, 20), (20,), (20,)), 1.001),
    ]:
        arrays = tuple(seeded(function).standard_normal(shape).astype(np.float32) for shape in shapes)
        count = arrays[which].size
        yield trial("float32", function, which, f"one element of {count:,} off by {factor - 1:.1g}",
                    element(factor), r"single|one element|element \[|only", inputs=arrays)
    for function, factor in [("highway", 1.0005), ("fft_filter", 1.001), ("inverse", 1.001)]:
        yield trial("float32", function, 0, f"off by {factor - 1:.1g}", lambda g, *_, factor=factor: factor * g,
                    r"factor of 1|one factor|same factor|1 ?\+", "float32")


def relative() -> Iterator[Trial]:
    """The whole gradient times 1 + 1e-7, 1 + 1e-10 or 1 + 1e-12; and one element off by 1e-10."""
    for size, functions in [
        (1e-7, ("sort", "softplus", "solve", "fft_filter", "cholesky", "lstm_cell", "huber", "ctc", "batch_norm")),
        (1e-10, ("conv2d", "gelu_by_tanh", "inverse", "autocorrelation", "logsumexp", "polynomial", "rnn", "bilinear")),
        (1e-12, ("average_pool", "embedding_bag", "cumulative_sum", "glu", "pairwise_distances", "interpolate",
                 "masked_mean", "kronecker")),
    ]:
        for function in functions:
            yield trial("relative", function, 0, f"off by {size:g}", lambda g, *_, size=size: g * (1 + size),
                        r"factor of 1|one factor|same factor|1 ?\+")
    for function in ("conv1d", "glu", "quadratic_form", "spline"):
        yield trial("relative", function, 0, "one element off by 1e-10", element(1 + 1e-10),
                    r"single|one element|element \[|only")
