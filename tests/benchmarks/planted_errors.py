"""Twelve mistakes, each planted in a right gradient, for the comparison of the checkers."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import numpy_attention as na

Arrays = tuple[np.ndarray, ...]


@dataclass
class Planted:
    """A function of arrays of floats, its right gradient, and a wrong one."""

    name: str
    inputs: Arrays
    f: Callable[..., np.ndarray]
    right: Callable[..., Arrays]  # (dy, *inputs) -> gradients
    wrong: Callable[..., Arrays]
    wrong_f: Callable[..., np.ndarray] | None = None  # the forward used with `wrong`, if it differs too


def by_cache(op: Any, op_backward: Any, **options: Any) -> tuple[Callable[..., np.ndarray], Callable[..., Arrays]]:
    """An op of this package as a plain function and its vector-Jacobian product."""

    @functools.wraps(op)  # keeps the name and argument names of the op
    def f(*arrays: np.ndarray) -> np.ndarray:
        return op(*arrays, **options)[0]

    def vjp(dy: np.ndarray, *arrays: np.ndarray) -> Arrays:
        grads = op_backward(dy, op(*arrays, **options)[1])
        return tuple(grad for grad in grads if grad is not None) if isinstance(grads, tuple) else (grads,)

    return f, vjp


def with_mistake(vjp: Callable[..., Arrays], change: Callable[..., Any], which: int = 0) -> Callable[..., Arrays]:
    """The same gradients, except that change(gradient, *inputs) changes number `which`."""

    def wrong(dy: np.ndarray, *arrays: np.ndarray) -> Arrays:
        grads = [np.array(grad) for grad in vjp(dy, *arrays)]
        new = change(grads[which], *arrays)
        grads[which] = grads[which] if new is None else new
        return tuple(grads)

    return wrong


def scaled(factor: float, index: Any) -> Callable[..., None]:
    """Multiplies the elements at an index by a factor."""

    def change(grad: np.ndarray, *_: np.ndarray) -> None:
        grad[index] *= factor

    return change


def planted() -> Iterator[Planted]:
    """The twelve mistakes."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal

    f, vjp = by_cache(na.gelu, na.gelu_backward)
    yield Planted("one element of 1,000,000 off by 1 %", (normal((1000, 1000)),), f, vjp,
                  with_mistake(vjp, scaled(1.01, (617, 250))))
    f, vjp = by_cache(na.softmax, na.softmax_backward)
    yield Planted("one of twelve softmax elements off by 1 %", (normal((3, 4)),), f, vjp,
                  with_mistake(vjp, scaled(1.01, (1, 2))))
    f, vjp = by_cache(na.silu, na.silu_backward)
    yield Planted("wrong sign", (normal((3, 4)),), f, vjp, with_mistake(vjp, lambda grad, *_: -grad))
    f, vjp = by_cache(na.linear, na.linear_backward)
    yield Planted("square matrix transposed", (normal((3, 4)), normal((4, 4))), f, vjp,
                  with_mistake(vjp, lambda grad, *_: grad.T.copy(), 1))
    yield Planted("factor 2", (normal((3, 4)), normal((4, 5))), f, vjp, with_mistake(vjp, scaled(2.0, ...), 1))
    yield Planted("sum over the batch missing", (normal((3, 4)), normal((4, 5)), normal(5)), f, vjp,
                  lambda dy, *arrays, vjp=vjp: (*vjp(dy, *arrays)[:2], dy[-1].copy()))
    mask = np.array([[True, False, True], [False, True, True], [True, True, False], [True, False, False]])
    qkv = (normal((4, 2)), normal((3, 2)), normal((3, 5)))
    f, vjp = by_cache(na.scaled_dot_product_attention, na.scaled_dot_product_attention_backward, mask=mask)
    _, unmasked = by_cache(na.scaled_dot_product_attention, na.scaled_dot_product_attention_backward)
    yield Planted("mask left out of the backward", qkv, f, vjp, unmasked)
    norm = (normal((3, 4)), normal(4), normal(4))
    f, vjp = by_cache(na.layer_norm, na.layer_norm_backward)
    yield Planted("right only at gamma = 1", norm, f, vjp, lambda dy, x, gamma, beta, vjp=vjp: (
        vjp(dy, x, np.ones_like(gamma), beta)[0], *vjp(dy, x, gamma, beta)[1:]))
    yield Planted("wrong only in the last row", norm, f, vjp, with_mistake(vjp, scaled(1.05, -1)))
    ids = np.array([2, 0, 2, 4])

    def lookup(table: np.ndarray) -> np.ndarray:
        return table[ids]

    yield Planted("wrong only for repeated ids", (normal((5, 3)),), lookup,
                  lambda dy, table: (na.embedding_backward(dy, na.embedding(ids, table)[1]),),
                  lambda dy, table: (_buffered(table, ids, dy),))
    f, vjp = by_cache(na.linear, na.linear_backward)
    single = (normal((3, 4)).astype(np.float32), normal((4, 5)).astype(np.float32))
    yield Planted("float32, off by 1e-3", single, f, vjp, with_mistake(vjp, scaled(1.001, ...), 1))
    f, vjp = by_cache(na.gelu, na.gelu_backward)
    yield Planted("a NaN", (normal((3, 4)),), f, vjp, with_mistake(vjp, scaled(np.nan, (2, 1))))


def _buffered(table: np.ndarray, ids: np.ndarray, dy: np.ndarray) -> np.ndarray:
    dtable = np.zeros_like(table)
    dtable[ids] += dy
    return dtable
