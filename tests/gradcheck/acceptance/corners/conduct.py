"""Sizes that do not fit when an axis is cut, inputs that cannot be used, backwards that raise errors, words."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tests.gradcheck.acceptance.corners.corner import Array, Corner, times


def embedding_bag(table: Array, ids: Array, offsets: Array) -> Array:
    """The sum of the rows of each bag: bag i holds ids[offsets[i]:offsets[i + 1]]."""
    ends = [*offsets[1:], len(ids)]
    return np.stack([table[ids[first:end]].sum(0) for first, end in zip(offsets, ends)])


def embedding_bag_vjp(dy: Array, table: Array, ids: Array, offsets: Array) -> Array:
    dtable = np.zeros_like(table)
    np.add.at(dtable, ids, np.repeat(dy, np.diff(offsets, append=len(ids)), axis=0))
    return dtable


def qr(a: Array) -> Any:
    return tuple(np.linalg.qr(a))


def qr_vjp(dy: Any, a: Array) -> Array:
    """For matrices with at least as many rows as columns."""
    (q, r), (dq, dr) = np.linalg.qr(a), dy
    m = r @ dr.T - dq.T @ q
    return (dq + q @ (np.tril(m) + np.tril(m, -1).T)) @ np.linalg.inv(r).T


def masked_softmax(s: Array, m: Array) -> Array:
    z = s + m
    e = np.exp(z - z.real.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def masked_softmax_vjp(dy: Array, s: Array, m: Array) -> Any:
    p = masked_softmax(s, m)
    ds = p * (dy - (dy * p).sum(-1, keepdims=True))
    return ds, ds.copy()


def square(x: Array) -> Array:
    return x * x


def square_vjp(dy: Array, x: Array) -> Array:
    return 2 * dy * x


def raises_key_error(dy: Array, x: Array) -> Array:
    saved = {"x": x}
    return 2 * dy * saved["input"]


def raises_type_error(dy: Array, x: Array) -> Array:
    saved: Any = None
    return 2 * dy * saved[0]


def raises_attribute_error(dy: Array, x: Array) -> Array:
    saved: Any = x
    return 2 * dy * saved.inputs


def raises_value_error(dy: Array, x: Array) -> Array:
    return 2 * dy @ np.ones((len(x) + 1, 2))


def product(x: Array, y: Array) -> Array:
    return x * y


def product_changes_dy(dy: Array, x: Array, y: Array) -> Any:
    dy *= 2
    return dy * y / 2, dy * x / 2


def product_without_x(dy: Array, x: Array, y: Array) -> Any:
    return dy * y, dy.copy()


def conduct() -> Iterator[Corner]:
    rng = np.random.default_rng(7)
    case = partial(Corner, "robustness cuts sizes that do not fit")
    bags = {"table": rng.standard_normal((7, 2)), "ids": np.array([1, 2, 6, 2, 0, 3]), "offsets": np.array([0, 4, 5])}
    yield case("offsets [0, 4, 5] with 6 ids", embedding_bag, embedding_bag_vjp, bags, "right")
    yield case("qr of (4, 3)", qr, qr_vjp, (rng.standard_normal((4, 3)),), "right", draws=4)

    case = partial(Corner, "an additive mask with -inf")
    scores, mask = rng.standard_normal((3, 4)), np.where(np.tri(3, 4, 1) == 1, 0.0, -np.inf)
    hidden = {"s": scores, "m": mask}
    yield case("no_gradient", masked_softmax, masked_softmax_vjp, hidden, "right", options={"no_gradient": ["m"]})
    yield case("skip", masked_softmax, masked_softmax_vjp, hidden, "right", options={"skip": {"m": np.isinf(mask)}})
    yield case("neither: the message says how", masked_softmax, masked_softmax_vjp, hidden, "wrong or refused",
               "no_gradient(.|\n)*skip|skip(.|\n)*no_gradient")
    yield case("no_gradient, ds halved", masked_softmax, times(0.5, masked_softmax_vjp), hidden, "wrong", "ds wrong",
               options={"no_gradient": ["m"]})

    masked: Any = np.ma.masked_array(scores, scores < 0)
    yield Corner("a masked array", "np.ma", square, square_vjp, (masked,), "refused", r"\A.*masked.*\Z")

    case, x = partial(Corner, "a backward that raises"), rng.standard_normal(3)
    for kind, vjp in [
        ("KeyError", raises_key_error), ("TypeError", raises_type_error), ("AttributeError", raises_attribute_error),
        ("ValueError", raises_value_error),
    ]:  # the report names the line
        yield case(kind, square, vjp, (x,), "wrong", rf"the backward raised {kind}(.|\n)*\.py:\d+: ")

    case, pair = partial(Corner, "an argument called y"), (x, rng.standard_normal(3))
    yield case("dy is changed in place", product, product_changes_dy, pair, "wrong", "upstream")
    yield case("the factor x is missing in the gradient of y", product, product_without_x, pair, "wrong",
               r"likely mistake: d\(argument y\): .*factor.*\bx\b")

    yield Corner("everything wrong in a large array", "half the gradient of 10,000,000 squares", square,
                 times(0.5, square_vjp), lambda rng: (rng.standard_normal(10_000_000),), "wrong", slow=True)
