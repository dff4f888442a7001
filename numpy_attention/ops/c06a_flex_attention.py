"""Chapter 6, continued. Attention with a function of the scores

A mask, a bias, a softcap, dropout: many variants of attention apply a function f to the scores before the softmax, or a
function g to the weights after it. Here the caller passes these functions, as ops: score_mod = (f, f_backward) and
prob_mod = (g, g_backward).

The first column is the forward, from its last line to its first. The other columns are the backward, from the first
line to the last. The lines with f and g call the backward of the caller, with the cache of the caller's forward:

    y = used v                       dused = dy v^T                           dv = used^T dy
    used = g(weights)                dweights = g_backward(dused, cache of g)
    weights = softmax(modified)      dmodified = weights * (dweights - rowsum(dweights * weights))
    modified = f(scores)             dscores = f_backward(dmodified, cache of f)
    scores = scale q k^T             dq = scale dscores k                     dk = scale dscores^T q

Three things that are easy to get wrong. dv uses the weights after g, but the line of the softmax uses the weights
before g. The rows of g(weights) need not sum to one. A mask is a function f that writes -inf at hidden pairs: the
weights there are 0, so dmodified is 0 too, and f_backward may return dmodified unchanged.

If f or g has parameters, for example a learned bias, its backward returns a tuple: first the gradient of its input,
then those of its parameters. The backward of attention returns them after dv.

In PyTorch's FlexAttention, f computes one score from its indices, and a compiler turns f into a fast program. Here f
gets all scores, (..., H_q, T_q, T_k), and computes the indices from the shape.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import dtype_error, require_cotangent
from numpy_attention.ops.c03_softmax import SoftmaxCache, softmax, softmax_backward
from numpy_attention.ops.c06_attention import check_attention_arguments
from numpy_attention.ops.c06b_shared_heads import product, transposed_product

Backward = Callable[[np.ndarray, Any], Any]  # gives the gradient of the input, or a tuple that begins with it
Modifier = tuple[Callable[[np.ndarray], tuple[np.ndarray, Any]], Backward]
UNCHANGED: Modifier = (lambda x: (x, None), lambda dy, cache: dy)


class FlexAttentionCache(NamedTuple):
    """Everything the backward needs: the arrays of attention, and for each modifier its backward and its cache."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    weights: np.ndarray  # (..., H_q, T_q, T_k), before prob_mod
    used: np.ndarray  # after prob_mod
    score_mod: tuple[Backward, Any]
    prob_mod: tuple[Backward, Any]
    scale: float


def flex_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, score_mod: Modifier | None = None, prob_mod: Modifier | None = None,
    scale: float | None = None,
) -> tuple[np.ndarray, FlexAttentionCache]:
    """Attention in which the caller's ops change the scores and the weights.

    Formula: y = g(softmax(f(scale q k^T))) v with scale = 1 / sqrt(d_k) unless given

    Shapes: q (..., H_q, T_q, d_k), k (..., H_kv, T_k, d_k), v (..., H_kv, T_k, d_v) -> y (..., H_q, T_q, d_v).
    f and g: (..., H_q, T_q, T_k) -> the same shape, in the same dtype; H_kv may be a divisor of H_q, as in Chapter 6.

    Raises: ValueError when shapes do not fit; TypeError for dtypes that differ, or a modifier that is not a pair.

    Source: Dong et al., Flex Attention (2024); prob_mod: the operator FlexAttention of the ONNX standard.

    >>> q, k, v = np.ones((2, 1)), np.array([[1.0], [3.0]]), np.array([[0.0], [1.0]])
    >>> bias = np.array([[0.0, -np.inf], [0.0, 0.0]])
    >>> causal = lambda x: (x + bias, None), lambda dy, cache: dy
    >>> flex_attention(q, k, v, score_mod=causal)[0].round(4).tolist()
    [[0.0], [0.8808]]

    A learned scalar, of which score_mod also returns the gradient:

    >>> s = np.array(0.5)
    >>> scaled = lambda x: (x * s, x), lambda dy, x: (dy * s, np.sum(dy * x))
    >>> y, cache = flex_attention(q, k, v, score_mod=scaled)
    >>> dq, dk, dv, ds = flex_attention_backward(np.ones((2, 1)), cache)
    >>> float(ds.round(4))
    0.7864
    """
    check_attention_arguments("flex_attention", q, k, v, scale=scale)
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    f, f_backward = _checked("score_mod", score_mod)
    g, g_backward = _checked("prob_mod", prob_mod)
    scores = product(q * scale, k.swapaxes(-1, -2))  # (..., H_q, T_q, T_k)
    modified, f_cache = f(scores)
    require_cotangent("flex_attention", "the result of score_mod", modified, scores.shape, scores.dtype)
    weights, _ = softmax(modified)
    used, g_cache = g(weights)
    require_cotangent("flex_attention", "the result of prob_mod", used, scores.shape, scores.dtype)
    y = product(used, v)  # (..., H_q, T_q, d_v)
    cache = FlexAttentionCache(q, k, v, weights, used, (f_backward, f_cache), (g_backward, g_cache), scale)
    return y, cache


def flex_attention_backward(dy: np.ndarray, cache: FlexAttentionCache) -> tuple[np.ndarray, ...]:
    """Gradients of `flex_attention`; the derivation is at the top of this file.

    Shapes: dy as y -> dq, dk, dv with the shapes of q, k and v; then the gradients of the parameters of score_mod, and
    of those of prob_mod, if their backwards return any
    """
    q, k, v, weights, used, (f_backward, f_cache), (g_backward, g_cache), scale = cache
    require_cotangent("flex_attention_backward", "dy", dy, (*q.shape[:-1], v.shape[-1]), q.dtype)
    # y = used @ v
    dv = transposed_product(used, dy, k)  # (..., H_kv, T_k, d_v)
    dused = product(dy, v.swapaxes(-1, -2))  # (..., H_q, T_q, T_k)
    # used = g(weights)
    dweights, *of_g = _as_tuple(g_backward(dused, g_cache))
    # weights = softmax(modified)
    dmodified = softmax_backward(dweights, SoftmaxCache(weights, axis=-1))
    # modified = f(scores)
    dscores, *of_f = _as_tuple(f_backward(dmodified, f_cache))
    # scores = scale * q @ k^T
    dq = scale * product(dscores, k)  # (..., H_q, T_q, d_k)
    dk = scale * transposed_product(dscores, q, k)  # (..., H_kv, T_k, d_k)
    return dq, dk, dv, *of_f, *of_g


def _as_tuple(gradients: Any) -> tuple[np.ndarray, ...]:
    return gradients if isinstance(gradients, tuple) else (gradients,)


def _checked(argument: str, modifier: Modifier | None) -> Modifier:
    if modifier is None:
        return UNCHANGED
    if not isinstance(modifier, (tuple, list)) or len(modifier) != 2 or not all(map(callable, modifier)):
        fix = "for example (na.relu, na.relu_backward)"
        raise dtype_error("flex_attention", argument, "a pair (f, f_backward)", type(modifier).__name__, fix)
    return modifier
