"""Chapter 6, continued: attention in which the ops of the caller change the scores and the weights."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.ops.c01a_sums import sum_to_shape
from numpy_attention.tutor.pages.flex_attention import CAUSAL, SQUARE


def drawn(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """q, k and v with four heads of q, two of k and v, and d_v = 6."""
    return tuple(rng.standard_normal(shape) for shape in ((2, 4, 5, 3), (2, 2, 7, 3), (2, 2, 7, 6)))


def both(found: Any, right: Any, dy: np.ndarray) -> tuple[Any, Any]:
    """Output and gradients dq, dk, dv of both forms."""
    (y, cache), (y_right, cache_right) = found, right
    gradients = na.scaled_dot_product_attention_backward(dy, cache_right)[:3]
    return (y, *na.flex_attention_backward(dy, cache)), (y_right, *gradients)


@pytest.mark.parametrize("name", ["nothing", "scale", "causal", "bias", "dropout"])
def test_usual_variants_of_attention_are_modifiers(rng: np.random.Generator, name: str) -> None:
    q, k, v = drawn(rng)
    bias, dy = rng.standard_normal((4, 5, 7)), rng.standard_normal((2, 4, 5, 6))
    drop = partial(na.dropout, rate=0.3, rng=np.random.default_rng(1)), na.dropout_backward
    flex, usual = {
        "nothing": ({}, {}),
        "scale": ({"scale": 0.2}, {"scale": 0.2}),
        "causal": ({"score_mod": CAUSAL}, {"mask": na.causal_mask(5, 7)}),
        "bias": ({"score_mod": (lambda x: (x + bias, None), lambda dy, cache: dy)}, {"bias": bias}),
        "dropout": ({"prob_mod": drop}, {"dropout": 0.3, "rng": np.random.default_rng(1)}),
    }[name]
    usual_form = na.scaled_dot_product_attention(q, k, v, **usual)
    for found, right in zip(*both(na.flex_attention(q, k, v, **flex), usual_form, dy), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-14)


def test_query_whose_keys_are_all_hidden_gets_zeros_and_passes_no_gradient(rng: np.random.Generator) -> None:
    q, k, v = drawn(rng)
    y, cache = na.flex_attention(q, k[..., :3, :], v[..., :3, :], score_mod=CAUSAL)  # the first two queries see no key
    assert not y[..., :2, :].any()
    dy = rng.standard_normal(y.shape)
    dq, dk, dv = na.flex_attention_backward(dy, cache)
    assert not dq[..., :2, :].any()
    dy[..., :2, :] = 7.0
    for found, right in zip(na.flex_attention_backward(dy, cache), (dq, dk, dv), strict=True):
        np.testing.assert_array_equal(found, right)


def test_parameters_of_the_modifiers_get_their_gradients(rng: np.random.Generator) -> None:
    """A learned bias, as in Chapter 6, and a learned scalar that multiplies the weights, by central differences."""
    q, k, v = drawn(rng)
    bias, s = rng.standard_normal((4, 1, 7)), np.array(1.7)

    def run(bias: np.ndarray, s: np.ndarray) -> tuple[Any, Any]:
        biased = (lambda x: (x + bias, None), lambda dy, _: (dy, sum_to_shape(dy, bias.shape)))
        scaled = (lambda w: (w * s, w), lambda dy, w: (dy * s, np.sum(dy * w)))
        return na.flex_attention(q, k, v, score_mod=biased, prob_mod=scaled)

    y, cache = run(bias, s)
    dy = rng.standard_normal(y.shape)
    dq, dk, dv, dbias, ds = na.flex_attention_backward(dy, cache)
    expected, of_chapter_6 = na.scaled_dot_product_attention(q, k, v, bias=bias)
    np.testing.assert_allclose(y, s * expected, rtol=1e-12)
    usual = na.scaled_dot_product_attention_backward(s * dy, of_chapter_6)
    for found, right in zip((dq, dk, dv, dbias), usual, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-11, atol=1e-13)
    step = 1e-5
    slope = (np.sum(dy * run(bias, s + step)[0]) - np.sum(dy * run(bias, s - step)[0])) / (2 * step)
    assert ds == pytest.approx(slope, rel=1e-8)


def test_weights_after_prob_mod_need_not_sum_to_one(rng: np.random.Generator) -> None:
    q, k, _ = drawn(rng)
    y, cache = na.flex_attention(q, k, np.ones((2, 2, 7, 6)), prob_mod=SQUARE)
    np.testing.assert_allclose(y[..., 0], (cache.weights**2).sum(axis=-1))
    np.testing.assert_allclose(cache.weights.sum(axis=-1), 1.0)


def test_modifier_gets_all_scores_in_the_dtype_of_q(rng: np.random.Generator) -> None:
    seen = []

    def look(x: np.ndarray) -> tuple[np.ndarray, None]:
        seen.append((x.shape, x.dtype))
        return x, None

    q, k, v = (x.astype(np.float32) for x in drawn(rng))
    modifier = look, lambda dy, cache: dy
    y, _ = na.flex_attention(q, k, v, score_mod=modifier, prob_mod=modifier)
    assert seen == [((2, 4, 5, 7), np.float32)] * 2
    assert y.dtype == np.float32


@pytest.mark.parametrize("argument", ["score_mod", "prob_mod"])
@pytest.mark.parametrize(("modifier", "error", "message"), [
    (na.relu, TypeError, r"must be a pair \(f, f_backward\), got function; for example"),
    ((na.relu,), TypeError, r"must be a pair \(f, f_backward\), got tuple"),
    ((na.relu, None), TypeError, r"must be a pair \(f, f_backward\), got tuple"),
    ((), TypeError, r"must be a pair \(f, f_backward\), got tuple"),
    ((lambda x: (x[..., 0], None), na.relu_backward), ValueError, r"must be \(2, 4, 5, 7\), the shape of the forward"),
    ((lambda x: (x.astype(np.float32), None), na.relu_backward), TypeError, "must be float64"),
    ((lambda x: (x.tolist(), None), na.relu_backward), TypeError, "must be an array"),
], ids=["a function", "one function", "None", "empty", "shape", "dtype", "list"])
def test_refuses_what_is_not_a_modifier(
    rng: np.random.Generator, argument: str, modifier: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"flex_attention: .*{argument} {message}"):
        na.flex_attention(*drawn(rng), **{argument: modifier})
