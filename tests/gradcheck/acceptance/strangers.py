"""Mistakes as in strangers' code, each with the words that the diagnosis must have and, often, words that it must not.

A sentence of the diagnosis must be true of the mistake. So `never` lists what the checker once said about it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from numpy_attention.gradcheck import gradcheck_vjp

Array = np.ndarray
RNG = np.random.default_rng(8)


@dataclass(frozen=True)
class Stranger:
    """A plain function, a wrong vector-Jacobian product, and regular expressions for the diagnosis."""

    name: str
    f: Callable[..., Any]
    wrong: Callable[..., Any]
    inputs: dict[str, Any]
    says: str
    never: str = r"(?!)"  # matches nothing
    argument: str = ""
    kind = "strangers"
    options: dict[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Run the checker, which must raise an error."""
        gradcheck_vjp(self.f, self.wrong, self.inputs, **self.options)

    def names_the_cause(self, diagnosis: str) -> bool:
        return bool(re.search(self.says, diagnosis)) and not re.search(self.never, diagnosis)


STRANGERS: list[Stranger] = []


def drawn(**shapes: tuple[int, ...]) -> dict[str, Array]:
    """Random arrays by name."""
    return {name: RNG.standard_normal(shape) for name, shape in shapes.items()}


def case(
    name: str, f: Any, wrong: Any, inputs: dict[str, Any], says: str, never: str = r"(?!)", **options: Any
) -> None:
    STRANGERS.append(Stranger(name, f, wrong, inputs, says, never, options=options))


def softmax(z: Array) -> Array:
    e = np.exp(z - z.real.max(-1, keepdims=True))
    p: Array = e / e.sum(-1, keepdims=True)  # no np.asarray: it ends the trace of the steps
    return p


def norm(x: Array) -> Array:
    d = x - x.mean(-1, keepdims=True)
    return np.asarray(d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5))


def norm_back(g: Array, x: Array) -> Array:
    d = x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)
    y = d * r
    return np.asarray(r * (g - g.mean(-1, keepdims=True) - y * (g * y).mean(-1, keepdims=True)))


# The backward raises, or returns a wrong shape.

case("a missing [:, None]", lambda x, w: x * w[:, None], lambda g, x, w: (g * w, (g * x).sum(1)),
     drawn(x=(4, 3), w=(4,)), r"\[:, None\]", "transposed")


def without_one(g: Array, *factors: Array) -> Any:
    others = [list(factors) for _ in factors]
    for one, rest in zip(factors, others, strict=True):
        rest.remove(one)
    return tuple(g * np.prod(rest, axis=0) for rest in others)


case("operands filtered by identity", lambda a, b, c: a * b * c, without_one, drawn(a=(4,), b=(4,), c=(4,)),
     "truth value", "transposed")

case("dy of a broadcast argument", lambda x, b: x + b, lambda g, x, b: (g, g), drawn(x=(4, 3), b=(1, 3)),
     r"sum over axes \(0,\)", "right order")

# Factors.

TARGETS = np.array([[0, 2, 1], [3, 3, 0]])


def of_tokens(z: Array) -> Array:
    p = np.take_along_axis(softmax(z), TARGETS[..., None], -1)
    return np.asarray(-np.log(p).mean())


case("no mean over B and T", of_tokens, lambda g, z: g * (softmax(z) - np.eye(4)[TARGETS]), drawn(z=(2, 3, 4)),
     r"division by 6 .*\(0, 1\)")

LABELS = np.array([0, 2, 1, 3, 2])


def weighted(z: Array, w: Array, labels: Array) -> Array:
    return np.asarray(-(w[labels] * np.log(softmax(z)[np.arange(5), labels])).sum())


case("weights per column", weighted,
     lambda g, z, w, labels: (g * w * (softmax(z) - np.eye(4)[labels]),
                              -g * np.bincount(labels, np.log(softmax(z)[np.arange(5), labels]), 4), None),
     {"z": RNG.standard_normal((5, 4)), "w": np.array([0.5, 2.0, 1.5, 0.7]), "labels": LABELS},
     r"w in place of `?w\[labels\]")


def squares(x: Array, w: Array, t: Array) -> Array:
    return np.asarray((((x @ w)[:, None] - t) ** 2).mean())


def squares_back(g: Array, x: Array, w: Array, t: Array) -> Any:
    off = x @ w - t
    return None, x.T @ (2 * g * off.mean(0)), None


case("(4,) - (4, 1)", squares, squares_back, drawn(x=(4, 3), w=(3,), t=(4, 1)), r"\(4,\) and \(4, 1\)",
     no_gradient=["x", "t"])

case("a factor -exp(name)", lambda x, rate: x * np.sin(-np.exp(rate)),
     lambda g, x, rate: (g * np.sin(-np.exp(rate)), (g * x * np.cos(np.exp(rate))).sum(0)), drawn(x=(4, 3), rate=(3,)),
     r"factor -exp\(rate\) is left out")

case("scale in place of 1 + scale", lambda x, scale: norm(x) * (1 + scale[:, None]),
     lambda g, x, scale: (norm_back(g * scale[:, None], x), (g * norm(x)).sum(1)), drawn(x=(2, 3, 5), scale=(2, 5)),
     r"`1 \+ scale\[:, None\]` - 1")

# Losses.

Y = np.eye(4)[LABELS]

case("1e-7 in the logarithm", lambda p: -(Y * np.log(p + 1e-7)).sum(), lambda g, p: -g * Y / p,
     {"p": softmax(5 * RNG.standard_normal((5, 4)))}, "derivative is taken at p|small constant", "wrong length")

case("not a probability", lambda x, w: (w * (x - Y) ** 2).sum() / 2,
     lambda g, x, w: (g * (x - Y), g * (x - Y) ** 2 / 2),
     {"x": RNG.uniform(0.1, 0.9, (5, 4)), "w": RNG.uniform(1, 2, (5, 4))}, "factor w is left out", "logits")

BITS = np.array([[0, 1, 1], [1, 0, 1], [0, 0, 1]])

case("logits of a binary loss", lambda p: -(BITS * np.log(p) + (1 - BITS) * np.log(1 - p)).sum(),
     lambda g, p: g * (p - BITS), {"p": RNG.uniform(0.1, 0.9, (3, 3))}, "p - y is the gradient with respect to logits",
     "softmax")

case("sigmoid in place of softmax", lambda z: -np.log(softmax(z)[np.arange(5), LABELS]).sum(),
     lambda g, z: g * (1 / (1 + np.exp(-z)) - Y), drawn(z=(5, 4)), "sigmoid", "with respect to the probability")


def alignment(z: Array, w: Array) -> Array:
    """The weighted occupancies of all monotonic paths."""
    logp = np.log(softmax(z))
    alpha = [logp[0] + np.array([0.0, -1e30, -1e30])]
    for one in logp[1:]:
        alpha.append(np.logaddexp(alpha[-1], np.concatenate([[-1e30], alpha[-1][:-1]])) + one)
    beta = [np.array([-1e30, -1e30, 0.0])]
    for one in logp[:0:-1]:
        after = beta[0] + one
        beta.insert(0, np.logaddexp(after, np.concatenate([after[1:], [-1e30]])))
    log_gamma = np.stack(alpha) + np.stack(beta)
    gamma = np.exp(log_gamma - alpha[-1][-1])
    return np.asarray(-(w * gamma * logp).sum())


def alignment_back(g: Array, z: Array, w: Array) -> Any:
    logp = np.log(softmax(z))
    units = np.eye(z.size).reshape(-1, *z.shape)
    gamma = np.array([-alignment(z, unit) for unit in units]).reshape(z.shape) / logp
    d = -g * w * gamma
    return d - softmax(z) * d.sum(-1, keepdims=True), -g * gamma * logp


case("occupancies held constant", alignment, alignment_back, drawn(z=(5, 3), w=(5, 3)),
     "path through .*gamma.* missing")

# Masks, maxima, corners.


def pooled(x: Array) -> Array:
    return np.asarray(x.reshape(3, 2, 4).max(-1))


def whole_rows(g: Array, x: Array) -> Array:
    return np.repeat(g, 4, axis=1) * (np.repeat(pooled(x), 4, axis=1) >= x)


case("max pooling of whole rows", pooled, whole_rows, drawn(x=(3, 8)), r"does not depend.* max\b", "hides")

MASK = np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]], bool)


def masked_deviation(x: Array, mask: Array) -> Array:
    n = mask.sum(1, keepdims=True)
    off = x - (x * mask).sum(1, keepdims=True) / n
    return np.asarray((off * off * mask).sum(1))


def mean_of_all(g: Array, x: Array, mask: Array) -> Any:
    return 2 * (x - x.mean(1, keepdims=True)) * mask * g[:, None], None


case("a mean over hidden places", masked_deviation, mean_of_all, {"x": RNG.standard_normal((2, 5)), "mask": MASK},
     "counts the elements that mask hides", "leaks")

case("another threshold", lambda x: np.maximum(np.sin(x), 0), lambda g, x: g * np.cos(x) * (x > 1e-3),
     {"x": np.array([[-1.0, 2.0, 1e-4], [0.5, -0.3, 1.5]])}, "corner", "indexing")

case("straight through", lambda x: np.round(x, 0), lambda g, x: g, drawn(x=(3, 4)), "constant here", "hidden")


def symmetric(a: Array) -> Array:
    if np.any(a != a.T):
        raise ValueError("a must be symmetric")
    return a @ a


case("a forward that refuses other values", symmetric, lambda g, a: g @ a, {"a": np.array([[1.0, 2.0], [2.0, 3.0]])},
     "the forward raises ValueError: a must be symmetric")

# One step of the forward.


def dense(x: Array, w: Array) -> Array:
    return np.asarray(np.tanh(x @ w) + w.sum(0) ** 2)


def dense_back(g: Array, x: Array, w: Array) -> Any:
    d = g * (1 - np.tanh(x @ w) ** 2)
    return d @ w.T, x.T @ d + 2 * w.sum(0) * g.sum(0)


def twice(x: Array, z: Array, w: Array) -> Array:
    first = dense(x, w)
    second = dense(z, w)
    return np.asarray(first * second)


def twice_back(g: Array, x: Array, z: Array, w: Array) -> Any:
    dx, dw = dense_back(g * dense(z, w), x, w)
    dz, _ = dense_back(g * dense(x, w), z, w)
    return dx, dz, dw


case("one of two call sites", twice, twice_back, drawn(x=(4, 3), z=(4, 3), w=(3, 2)),
     r"`dense\(z, w\)`.*(missing|left out)")

case("tanh at its input", lambda x, w: np.tanh(x @ w),
     lambda g, x, w: ((g * (1 - (x @ w) ** 2)) @ w.T, x.T @ (g * (1 - (x @ w) ** 2))), drawn(x=(4, 3), w=(3, 2)),
     r"1 - x\*\*2 of the input")

case("sigmoid at its input", lambda x, w: 1 / (1 + np.exp(-(x @ w))),
     lambda g, x, w: ((d := g * (x @ w) * (1 - x @ w)) @ w.T, x.T @ d), drawn(x=(4, 3), w=(3, 2)),
     r"x \(1 - x\) of the input")


def one_number(x: Array, s: Array) -> Array:
    return np.asarray(np.sum(np.exp(s * x) * np.sin(s + x)))


case("one number", one_number, lambda g, x, s: (None, g * np.sum(np.cos(s + x) * x).reshape(s.shape)),
     {"x": RNG.standard_normal(4), "s": np.array([0.7])}, "", r"has the factor", no_gradient=["x"])


def ratio_loss(x: Array, ratio: Array) -> Array:
    flat = 0 * ratio
    return np.asarray(np.exp(x) * ratio + flat)


case("at a constant", ratio_loss, lambda g, x, ratio: (g * ratio, g * np.exp(x)), drawn(x=(5,), ratio=(5,)),
     "left out", r"0 \* ratio|flat")


def windows(x: Array, w: Array) -> Array:
    return np.stack([x[t:t + 3] @ w for t in range(len(x) - 2)])


def windows_back(g: Array, x: Array, w: Array) -> Any:
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    for t in range(len(x) - 2):
        dx[t:t + 3] = g[t] * w
        dw += g[t] * x[t:t + 3]
    return dx, dw


case("windows in a loop", windows, windows_back, drawn(x=(7,), w=(3,)), "overlap|only the last of several")


def sliding(x: Array, w: Array) -> Array:
    return np.asarray(np.sin(np.lib.stride_tricks.sliding_window_view(x, 3, axis=-1) @ w))


def sliding_back(g: Array, x: Array, w: Array) -> Any:
    view = np.lib.stride_tricks.sliding_window_view(x, 3, axis=-1)
    d = g * np.cos(view @ w)
    dx = np.zeros_like(x)
    for t in range(d.shape[-1]):
        dx[:, t:t + 3] = d[:, t, None] * w
    return dx, np.einsum("bt,btk->k", d, view)


case("a view of windows", sliding, sliding_back, drawn(x=(2, 7), w=(3,)), "overlap|only the last of several")

# Arguments with a structure of their own.

case("positions behind a norm", lambda x, positions: norm(x + positions),
     lambda g, x, positions: (norm_back(g, x + positions), g.sum(0)), drawn(x=(3, 4, 5), positions=(4, 5)),
     "norm", "every softmax|softmax left")

IDS = np.array([[0, 2, 4], [4, 1, 0]])


def looked_up(table: Array) -> Array:
    return norm(table[IDS])


def looked_up_back(g: Array, table: Array) -> Array:
    d = np.zeros_like(table)
    np.add.at(d, IDS, g)
    return d


case("a table behind a norm", looked_up, looked_up_back, drawn(table=(5, 4)), "norm", "every softmax|softmax left")

Z = RNG.standard_normal(4) + 1j * RNG.standard_normal(4)

case("conj left out", lambda z, w: np.sin(z) * w, lambda g, z, w: (g * np.cos(z) * w, g * np.conj(np.sin(z))),
     {"z": Z, "w": Z[::-1] * 1j}, "conj")

case("an argument called y", lambda x, y: x + y, lambda g, x, y: (g, g[-1]), drawn(x=(3, 4), y=(4,)),
     "dy uses only the last row of the upstream gradient")


def carried(x: Array, start: Array) -> Array:
    states = [start]
    for one in x:
        states.append(np.tanh(states[-1] + one))
    return np.stack(states[1:])


def not_carried(g: Array, x: Array, start: Array) -> Any:
    y, dx = carried(x, start), np.zeros_like(x)
    d = 0 * start
    for t in range(len(x) - 1, -1, -1):
        dx[t] = (g[t] + d * (t > 0)) * (1 - y[t] ** 2)
        d = dx[t]
    return dx, d


case("the state is not carried to the start", carried, not_carried, drawn(x=(5, 3), start=(3,)),
     "counts only the first time", "place (late|early)")
