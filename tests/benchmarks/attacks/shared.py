"""Checks for all checkers: 28 planted mistakes, each with the right gradient, and 30 more right gradients."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.benchmarks.attacks.places import larger, largest
from tests.benchmarks.attacks.trial import at, changed, element, named, seeded
from tests.benchmarks.planted_errors import Planted, planted
from tests.benchmarks.third_party import THIRD_PARTY, Arrays

RIGHT = [  # function, scale
    ("conv1d", "float32"), ("conv2d", "normal"), ("max_pool", "ties"), ("batch_norm", "normal"),
    ("batch_norm", "float32"), ("group_norm", "small"), ("gru_cell", "normal"), ("rnn", "normal"),
    ("embedding_bag", "large"), ("prelu", "zeros"), ("solve", "normal"), ("solve", "condition 1e6"),
    ("inverse", "condition 1e6"), ("cholesky", "normal"), ("log_determinant", "small"), ("eigenvalues", "normal"),
    ("least_squares", "normal"), ("cosine_similarity", "mixed"), ("power_spectrum", "large"),
    ("cumulative_product", "mixed"), ("logsumexp", "large"), ("polynomial", "small"), ("elu", "zeros"),
    ("unit", "small"), ("sort", "ties"), ("huber", "normal"), ("quantile_loss", "large"), ("kl_divergence", "normal"),
    ("hidden_markov", "normal"), ("ctc", "normal"),
]


def right_checks() -> Iterator[tuple[str, Planted]]:
    """The 30 right gradients, by name."""
    for function, scale in RIGHT:
        s = THIRD_PARTY[function]
        yield f"{function}, {scale}", Planted(function, s.draw(seeded(function + scale), scale), s.f, s.vjp, s.vjp)


def _case(name: str, function: str, change: Any, inputs: Arrays | None = None, which: int = 0) -> Planted:
    s = THIRD_PARTY[function]
    arrays = s.draw(seeded(name)) if inputs is None else inputs
    return Planted(name, arrays, s.f, s.vjp, changed(s.vjp, which, change))


def shared() -> Iterator[Planted]:
    """The twelve of the first table and sixteen more."""
    yield from planted()
    gelu, masked, huber = (THIRD_PARTY[name] for name in ("gelu_by_tanh", "masked_mean", "huber"))
    yield _case("wrong by 1 where x == 0", "gelu_by_tanh", lambda g, dy, x: g + (x == 0),
                  at(0.0, (1, 2), gelu.draw(seeded("zero")), 0))
    a, b = huber.draw(seeded("equal"))
    yield _case("wrong by 1 where two inputs are equal", "huber", lambda g, dy, x, t: g + (x == t),
                  at(a[1, 2], (1, 2), (a, b), 1))
    yield _case("wrong by 1000 where x == 1", "masked_mean", lambda g, dy, x: g + 1000 * (x == 1),
                  at(1.0, (1, 2), masked.draw(seeded("one")), 0))

    def nothing(dy: Any, *arrays: np.ndarray) -> Any:
        return None, THIRD_PARTY["solve"].vjp(dy, *arrays)[1]

    s = THIRD_PARTY["solve"]
    yield Planted("None instead of a gradient", s.draw(seeded("none")), s.f, s.vjp, nothing)
    s = THIRD_PARTY["softplus"]
    yield Planted("complex gradient of real inputs", s.draw(seeded("complex")), s.f, s.vjp,
                  lambda dy, x: (THIRD_PARTY["softplus"].vjp(dy, x)[0] + 1j,))
    rng = np.random.default_rng(0)

    def noisy(x: np.ndarray) -> np.ndarray:
        y = THIRD_PARTY["softplus"].f(x)
        return y + 0.1 * rng.standard_normal(y.shape)

    yield Planted("noise of 0.1, gradient of zeros", s.draw(seeded("noise")), s.f, s.vjp,
                  lambda dy, x: (np.zeros_like(x),), named(s.f, noisy))

    def to_the_first(dy: np.ndarray, x: np.ndarray) -> Arrays:
        return (dy[:, None] * np.eye(x.shape[-1])[x.argmax(-1)],)

    two = np.array([[1.0, 3.0, 3.0, -1.0], [2.0, 0.5, 1.5, 0.0]])
    yield Planted("dy to both of two tied elements", (two,), largest, to_the_first,
                  lambda dy, x: (dy[:, None] * (x == x.max(-1, keepdims=True)),))
    tied = (np.array([0.3, 1.0, -2.0, 0.7]), np.array([0.1, 1.0, 5.0, 0.7]))
    yield Planted("dy to both tied arguments", tied, larger, lambda dy, x, y: (dy * (x >= y), dy * (y > x)),
                  lambda dy, x, y: (dy * (x >= y), dy * (y >= x)))
    for function, shape, factor in (("gelu_by_tanh", (40, 50), 1.001), ("glu", (250, 400), 1.01)):
        x = seeded(function).standard_normal(shape).astype(np.float32)
        yield _case(f"float32, one element of {x.size:,} off by {factor - 1:.1g}", function, element(factor), (x,))
    for function, size in (("solve", 1e-7), ("conv2d", 1e-10), ("average_pool", 1e-12)):
        yield _case(f"all off by {size:g}", function, lambda g, *_, size=size: g * (1 + size))
    s = THIRD_PARTY["fft_filter"]

    def doubles_dy(dy: np.ndarray, *arrays: np.ndarray) -> Any:
        grads = THIRD_PARTY["fft_filter"].vjp(dy, *arrays)
        dy *= 2
        return grads

    yield Planted("dy changed in place", s.draw(seeded("dy")), s.f, s.vjp, doubles_dy)

    def in_memory_order(dy: np.ndarray, *arrays: np.ndarray) -> Any:
        return THIRD_PARTY["fft_filter"].vjp(dy.ravel(order="K").reshape(dy.shape), *arrays)

    yield Planted("dy read in memory order", s.draw(seeded("memory")), s.f, s.vjp, in_memory_order)
    yield _case("running sum not reversed", "cumulative_sum", lambda g, dy, x: np.cumsum(dy, -1))
