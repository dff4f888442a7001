"""Mistakes of public code in functions with other names and layouts: the diagnosis finds the cause from simpler arrays.

The weights are zero, or identity matrices; all places but one are zero; or one element of an argument moves alone.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, gradcheck_vjp
from tests.gradcheck.planted import diagnosis_of

Array = np.ndarray


def softmax(z: Array, axis: int = -1) -> Array:
    e = np.exp(z - z.real.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


def whole(dw: Array, w: Array) -> Array:
    """The backward of the softmax."""
    return np.asarray(w * (dw - (dw * w).sum(-1, keepdims=True)))


def diagonal(dw: Array, w: Array) -> Array:
    return w * (1 - w) * dw


def sum_left_out(dw: Array, w: Array) -> Array:
    return w * dw


def attend(Q: Array, K: Array, V: Array) -> Array:
    return np.asarray(softmax(Q @ K.swapaxes(-1, -2)) @ V)


def attend_back(g: Array, Q: Array, K: Array, V: Array, of_softmax: Any = whole) -> tuple[Array, Array, Array]:
    w = softmax(Q @ K.swapaxes(-1, -2))
    ds = of_softmax(g @ V.swapaxes(-1, -2), w)
    return ds @ K, ds.swapaxes(-1, -2) @ Q, w.swapaxes(-1, -2) @ g


def in_projections(core: Callable[..., Array], core_back: Callable[..., Any], left_out: bool = False) -> Any:
    """A function of x and three weights, (out, in) as in torch, and its backward."""

    def f(x: Array, A: Array, B: Array, C: Array) -> Array:
        return core(x @ A.T, x @ B.T, x @ C.T)

    def back(g: Array, x: Array, *weights: Array) -> Any:
        parts = core_back(g, *(x @ w.T for w in weights))
        dx = sum(one if left_out else one @ w for one, w in zip(parts, weights))
        return dx, *(flat(one).T @ flat(x) for one in parts)

    return f, back


def flat(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def drawn(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[Array]:
    return [rng.standard_normal(shape) for shape in shapes]


def test_the_diagonal_of_a_softmax_at_the_output(rng: np.random.Generator) -> None:
    def rows(X: Array, W: Array, c: Array) -> Array:
        return softmax(X @ W + c)

    def rows_back(g: Array, X: Array, W: Array, c: Array) -> Any:
        d = diagonal(g, rows(X, W, c))
        return d @ W.T, X.T @ d, d.sum(0)

    def columns(X: Array, W: Array) -> Array:
        return softmax(W @ X, 0)

    def columns_back(g: Array, X: Array, W: Array) -> Any:
        d = diagonal(g, columns(X, W))
        return W.T @ d, d @ X.T

    text = diagnosis_of(rows, rows_back, *drawn(rng, (7, 4), (4, 3), (3,)))
    assert "dX and dW and dc: in `e / e.sum(axis, keepdims=True)`" in text
    assert "has only the diagonal of the Jacobian" in text
    text = diagnosis_of(columns, columns_back, *drawn(rng, (4, 7), (3, 4)))
    assert "has only the diagonal of the Jacobian" in text


def test_the_diagonal_of_a_softmax_inside_attention(rng: np.random.Generator) -> None:
    def back(g: Array, *qkv: Array) -> Any:
        return attend_back(g, *qkv, of_softmax=diagonal)

    for shapes in (((4, 3), (5, 3), (5, 2)), ((2, 4, 3), (2, 4, 3), (2, 4, 3))):
        assert "dK: in `e / e.sum(axis, keepdims=True)`" in diagnosis_of(attend, back, *drawn(rng, *shapes))
    text = diagnosis_of(*in_projections(attend, back), *drawn(rng, (2, 4, 3), (3, 3), (3, 3), (3, 3)))
    assert "dx and dA and dB: in `e / e.sum(axis, keepdims=True)`" in text
    assert "only the diagonal of the Jacobian" in text


def test_a_softmax_without_its_sum_is_not_called_a_diagonal(rng: np.random.Generator) -> None:
    text = diagnosis_of(
        attend, lambda g, *qkv: attend_back(g, *qkv, of_softmax=sum_left_out), *drawn(rng, (4, 3), (5, 3), (5, 2))
    )
    assert "the path through `e.sum(axis, keepdims=True)` is missing" in text
    assert "diagonal" not in text


def rms(x: Array) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6))


def rms_back(g: Array, x: Array) -> Array:
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    return np.asarray(r * (g - x * r * r * (g * x).mean(-1, keepdims=True)))


def test_the_residual_path_of_a_pre_norm_block(rng: np.random.Generator) -> None:
    def block(tokens: Array, A: Array, B: Array) -> Array:
        return np.asarray(tokens + np.tanh(rms(tokens) @ A) @ B)

    def back(g: Array, tokens: Array, A: Array, B: Array) -> Any:
        n = rms(tokens)
        h = np.tanh(n @ A)
        dh = (g @ B.T) * (1 - h * h)
        return rms_back(dh @ A.T + g, tokens), n.T @ dh, h.T @ g

    text = diagnosis_of(block, back, *drawn(rng, (6, 4), (4, 7), (7, 4)))
    assert "the residual path from tokens to the output goes through the backward of the norm" in text


@pytest.mark.parametrize(("added", "words"), [
    (1, "the residual path from x to the output does not go through the backward of the norm"),
    (0, "the path through `x` is missing"),
])
def test_the_residual_path_of_a_post_norm_block(added: int, words: str, rng: np.random.Generator) -> None:
    def back(g: Array, x: Array, W: Array) -> Any:
        h = np.tanh(x @ W)
        d = rms_back(g, x + h) * (1 - h * h)
        return d @ W.T + added * g, x.T @ d

    text = diagnosis_of(lambda x, W: rms(x + np.tanh(x @ W)), back, *drawn(rng, (6, 4), (4, 4)))
    assert words in text


def dropped(Q: Array, K: Array, V: Array) -> Array:
    return np.asarray((softmax(Q @ K.swapaxes(-1, -2)) * kept(Q, K)) @ V)


def kept(Q: Array, K: Array) -> Array:
    """A dropout mask that is hidden in the function."""
    return (np.random.default_rng(3).random((Q.shape[-2], K.shape[-2])) < 0.7) / 0.7


def dropped_back(g: Array, Q: Array, K: Array, V: Array) -> Any:
    w = softmax(Q @ K.T)
    ds = whole(g @ V.T * kept(Q, K), w)
    return ds @ K, ds.T @ Q, w.T @ g


def test_weights_before_a_hidden_dropout(rng: np.random.Generator) -> None:
    text = diagnosis_of(dropped, dropped_back, *drawn(rng, (5, 3), (5, 3), (5, 2)))
    assert "dV: in `(softmax(Q @ K.swapaxes(-1, -2)) * kept(Q, K)) @ V`" in text
    assert "in place of `softmax(Q @ K.swapaxes(-1, -2)) * kept(Q, K)`" in text
    text = diagnosis_of(*in_projections(dropped, dropped_back), *drawn(rng, (5, 3), (3, 3), (3, 3), (3, 3)))
    assert "in place of `softmax(Q @ K.swapaxes(-1, -2)) * kept(Q, K)`" in text


def test_a_gradient_before_the_projections(rng: np.random.Generator) -> None:
    shapes = (2, 4, 3), (3, 3), (3, 3), (3, 3)
    text = diagnosis_of(*in_projections(attend, attend_back, left_out=True), *drawn(rng, *shapes))
    assert "dx is right with identity matrices for A, B, C, else wrong: the gradient of a projection is not" in text


def test_a_matrix_without_its_transpose(rng: np.random.Generator) -> None:
    def back(g: Array, x: Array, W: Array) -> Any:
        d = g * (1 - np.tanh(x @ W) ** 2)
        return d @ W, x.T @ d

    text = diagnosis_of(lambda x, W: np.tanh(x @ W), back, *drawn(rng, (5, 3), (3, 3)))
    assert "the gradient fits `W` transposed (axes 0 and 1): is a transpose missing?" in text


def heads(z: Array) -> Array:
    return z.reshape(*z.shape[:2], 2, -1).transpose(0, 2, 1, 3)


def joined(z: Array) -> Array:
    return z.transpose(0, 2, 1, 3).reshape(z.shape[0], z.shape[2], -1)


def of_heads(Q: Array, K: Array, V: Array) -> Array:
    return joined(attend(heads(Q), heads(K), heads(V)))


def of_heads_back(split: Callable[[Array], Array], join: Callable[[Array], Array]) -> Any:
    return lambda g, Q, K, V: tuple(map(join, attend_back(split(g), heads(Q), heads(K), heads(V))))


QKV = (3, 4, 6), (3, 4, 6), (3, 4, 6)


@pytest.mark.parametrize("split", [
    lambda g: g.reshape(3, 2, 4, 3), lambda g: g.reshape(4, 3, 2, 3).transpose(1, 2, 0, 3)
], ids=["rows and heads mixed", "batch mixed"])
def test_dy_in_another_order(split: Any, rng: np.random.Generator) -> None:
    text = diagnosis_of(of_heads, of_heads_back(split, joined), *drawn(rng, *QKV))
    assert "dQ is right for a dy whose numbers are in another order" in text
    assert "a reshape without its transpose?" in text


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (2, 0, 1, 3), (1, 2, 0, 3)])
def test_heads_joined_in_another_order(axes: Any, rng: np.random.Generator) -> None:
    def join(z: Array) -> Array:
        return z.transpose(axes).reshape(z.shape[0], z.shape[2], -1)

    back = of_heads_back(heads, join)
    assert "the right numbers are in the wrong places" in diagnosis_of(of_heads, back, *drawn(rng, *QKV))
    text = diagnosis_of(*in_projections(of_heads, back), *drawn(rng, (3, 4, 6), (6, 6), (6, 6), (6, 6)))
    assert "with identity matrices for A, B, C, dx holds the right numbers in the wrong places" in text


def test_a_causal_mask_in_the_forward_only(rng: np.random.Generator) -> None:
    def causal(Q: Array, K: Array, V: Array) -> Array:
        return np.asarray(softmax(np.where(np.tri(len(Q), dtype=bool), Q @ K.T, -1e30)) @ V)

    def back(g: Array, Q: Array, K: Array, V: Array) -> Any:
        dQ, dK, _ = attend_back(g, Q, K, V)
        return dQ, dK, softmax(np.where(np.tri(len(Q), dtype=bool), Q @ K.T, -1e30)).T @ g

    text = diagnosis_of(causal, back, *drawn(rng, (4, 3), (4, 3), (4, 2)))
    assert "the backward mixes the places along axis 0 of K in both directions, the forward in one" in text
    assert "is a causal mask missing" in text


TARGETS = np.array([0, 2, 1, 3, 2])


def losses() -> list[tuple[str, Any, Any, str]]:
    """Losses of scores or probabilities, each with a wrong gradient."""
    places, y = np.arange(5), np.eye(4)[TARGETS]

    def of_scores(z: Array) -> Array:
        return np.asarray(-np.log(softmax(z)[places, TARGETS]).mean())

    def of_p(z: Array) -> Array:
        return np.asarray(-(y * np.log(z)).sum())

    def guarded(z: Array) -> Array:
        return np.asarray(-np.log(z[places, TARGETS] + 1e-10).mean())

    def binary(p: Array) -> Array:
        return (p - y) / (p * (1 - p))

    return [
        ("scores", of_scores, lambda g, z: g * binary(softmax(z)) / 5, "is the gradient of a binary loss"),
        ("probabilities", of_p, lambda g, z: g * binary(z), "is the gradient of a binary loss"),
        ("p - y", of_p, lambda g, z: g * (z - y), "p - y is the gradient with respect to logits, but z holds"),
        ("1e-10", guarded, lambda g, z: -g * y / z / 5, "does only one of forward and backward have a small constant"),
    ]


@pytest.mark.parametrize(("name", "f", "back", "words"), losses(), ids=[name for name, *_ in losses()])
def test_wrong_gradients_of_a_loss(name: str, f: Any, back: Any, words: str, rng: np.random.Generator) -> None:
    text = diagnosis_of(f, back, softmax(rng.standard_normal((5, 4))))
    assert words in text
    assert "mean" not in text
    assert "noise" not in text


@pytest.mark.parametrize("root", [0.797885, 0.7978845, 0.79788456])
def test_a_constant_of_gelu_with_too_few_digits(root: float, rng: np.random.Generator) -> None:
    def gelu(x: Array) -> Array:
        return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))

    def back(g: Array, x: Array) -> Array:
        t = np.tanh(root * (x + 0.044715 * x**3))
        return g * 0.5 * (1 + t + x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x))

    text = diagnosis_of(gelu, back, rng.standard_normal((4, 5)))
    assert "is a constant rounded to too few digits?" in text
    assert "noise" not in text


def test_gamma_of_a_column_is_applied_at_the_wrong_place(rng: np.random.Generator) -> None:
    def norm(X: Array, g: Array) -> Array:
        return rms(X.T).T * g

    def back(dY: Array, X: Array, g: Array) -> Any:
        return rms_back(dY.T, X.T).T * g, (dY * rms(X.T).T).sum(1, keepdims=True)

    text = diagnosis_of(norm, back, rng.standard_normal((5, 3)), rng.standard_normal((5, 1)))
    assert "right when g has one value everywhere, else wrong: g is applied at the wrong place" in text


def test_an_error_in_one_experiment_does_not_stop_the_others(rng: np.random.Generator) -> None:
    def f(x: Array, a: Array) -> Array:
        if not np.any(a):
            raise RuntimeError("a is zero")
        return np.asarray(np.cumsum(np.sin(x), axis=1) + a)

    with pytest.raises(GradientError, match="runs in the wrong direction along axis 1 of x"):
        gradcheck_vjp(f, lambda dy, x, a: (np.cumsum(dy, axis=1) * np.cos(x), dy), drawn(rng, (3, 6), (3, 6)))


def test_an_option_that_must_be_given(rng: np.random.Generator) -> None:
    def inverse(x: Array, eps: float) -> Array:
        return np.asarray(1 / (x * x + eps))

    with pytest.raises(GradientError, match=r"right without the option eps: does the backward ignore eps=1\.0"):
        gradcheck_vjp(inverse, lambda dy, x, eps: -2 * dy / x**3, (1 + rng.random((3, 4)),), eps=1.0)
