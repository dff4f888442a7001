"""Wrong linear maps, embeddings, activations, dropouts, rotations, heads and masks."""

from typing import Any

import numpy as np

from numpy_attention.gallery.registry import backward_of, op_of, stands_in_for
from numpy_attention.ops.activations import gelu
from numpy_attention.ops.dropout import DropoutCache, dropout, dropout_backward
from numpy_attention.ops.embedding import EmbeddingCache
from numpy_attention.ops.heads import HeadsCache
from numpy_attention.ops.linear import LinearCache, linear_backward
from numpy_attention.ops.positions import RotaryCache, rotary_backward


@backward_of("linear")
def bias_of_the_last_row(dy: np.ndarray, cache: LinearCache) -> Any:
    """The bias serves every row, but only the last row's gradient is kept.

    Hides: the shape is right, and the bias still learns from one row a batch.
    """
    dx, dw, db = linear_backward(dy, cache)
    return dx, dw, None if db is None else dy.reshape(-1, dy.shape[-1])[-1].copy()


@backward_of("linear")
def bias_summed_over_one_axis(dy: np.ndarray, cache: LinearCache) -> Any:
    """The bias gradient is summed over the batch but not over time.

    Hides: with two-dimensional input there is no time axis, and (T, d) is broadcast into the bias without a word.
    """
    dx, dw, db = linear_backward(dy, cache)
    return dx, dw, db if db is None or dy.ndim < 2 else dy.sum(axis=0)


@backward_of("linear")
def bias_averaged(dy: np.ndarray, cache: LinearCache) -> Any:
    """The loss has already divided by the number of rows; the bias gradient is a mean and divides again.

    Hides: a learning rate that suits it will be found; nothing is wrong with a single row.
    """
    dx, dw, db = linear_backward(dy, cache)
    return dx, dw, None if db is None else dy.reshape(-1, dy.shape[-1]).mean(axis=0)


@backward_of("linear")
def weight_not_transposed(dy: np.ndarray, cache: LinearCache) -> Any:
    """The way back multiplies by w where it must multiply by its transpose.

    Hides: the shapes agree whenever w is square.
    """
    _, dw, db = linear_backward(dy, cache)
    return dy @ cache.w, dw, db


@backward_of("embedding")
def last_id_wins(dy: np.ndarray, cache: EmbeddingCache) -> np.ndarray:
    """A token that stands three times gets the gradient of its last place only: `d[ids] = dy`.

    Hides: right as long as all ids of the batch differ.
    """
    dtable = np.zeros_like(cache.table)
    dtable[cache.ids] = dy
    return dtable


@backward_of("embedding")
def buffered_plus(dy: np.ndarray, cache: EmbeddingCache) -> np.ndarray:
    """`d[ids] += dy` looks like a sum, but NumPy reads d[ids] once, before it writes: repeats are lost.

    Hides: right as long as all ids of the batch differ.
    """
    dtable = np.zeros_like(cache.table)
    dtable[cache.ids] += dy
    return dtable


def _with_x(x: np.ndarray, approximate: str = "tanh") -> Any:
    return gelu(x, approximate)[0], x


@op_of("gelu", lambda dy, x: dy * gelu(x, "none")[1].slope)
def erf_gradient_for_tanh(x: np.ndarray, approximate: str = "tanh") -> Any:
    """The forward is the tanh form, the backward differentiates the erf form.

    Hides: the two slopes are about 1e-3 apart, below most tolerances.
    """
    return _with_x(x, approximate)


@backward_of("dropout")
def dropout_scale_left_out(dy: np.ndarray, cache: DropoutCache) -> np.ndarray:
    """The forward divides by 1 - rate, the gradient does not.

    Hides: it acts like a smaller learning rate, and dropout is off in the test.
    """
    return dy if cache.kept is None else dy * cache.kept


_LAST_MASK: list[DropoutCache] = []


def _of_the_last_mask(dy: np.ndarray, _: DropoutCache) -> np.ndarray:
    last = _LAST_MASK[-1]
    same = last.kept is None or last.kept.shape == dy.shape
    return dropout_backward(dy, last) if same else np.zeros_like(dy)


@op_of("dropout", _of_the_last_mask)
def one_mask_for_two_uses(x: np.ndarray, rate: float, rng: np.random.Generator | None) -> Any:
    """The mask is kept on the dropout object, so a second use overwrites what the first backward needs.

    Hides: one use in the test, or rate 0.
    """
    y, cache = dropout(x, rate, rng)
    _LAST_MASK[:] = [cache]
    return y, cache


@op_of("dropout")
def evaluation_rescales(x: np.ndarray, rate: float, rng: np.random.Generator | None) -> Any:
    """Inverted dropout has its 1/(1 - rate) in training; this one multiplies by 1 - rate in evaluation too.

    Hides: a test at rate 0, or always with an rng, never sees it.
    """
    if rng is None:
        return x * (1.0 - rate), DropoutCache(np.ones(x.shape, bool), 1.0 - rate, x.shape, x.dtype)
    return dropout(x, rate, rng)


@backward_of("rotary")
def turned_forward_again(dy: np.ndarray, cache: RotaryCache) -> np.ndarray:
    """The gradient is turned by the angle once more, where it must be turned back.

    Hides: norms agree, and so does position 0.
    """
    return rotary_backward(dy, cache._replace(sin=-cache.sin))


@backward_of("rotary")
def pairings_mixed(dy: np.ndarray, cache: RotaryCache) -> np.ndarray:
    """One pairing of coordinates forward, the other one back.

    Hides: norms agree, and at d_k = 2 the pairings are the same.
    """
    other = "interleaved" if cache.pairing == "half" else "half"
    return rotary_backward(dy, cache._replace(pairing=other))


@op_of("concat_heads", lambda dy, shape: dy.reshape(shape))
def concat_by_reshape(x: np.ndarray) -> Any:
    """(B, H, T, d) is reshaped to (B, T, H d) without swapping H and T: positions are mixed with heads.

    Hides: the shapes agree, and the backward fits the forward, so no gradient check can tell.
    """
    *lead, H, T, d = x.shape
    return x.reshape(*lead, T, H * d), x.shape


@backward_of("concat_heads")
def concat_backward_by_reshape(dy: np.ndarray, cache: HeadsCache) -> np.ndarray:
    """The way back cuts the heads by a reshape alone, without the swap of H and T.

    Hides: the shapes agree; right for a single head or a single position.
    """
    return dy.reshape(cache.shape)


@backward_of("split_heads")
def split_backward_by_reshape(dy: np.ndarray, cache: HeadsCache) -> np.ndarray:
    """The heads are laid side by side again by a reshape alone, without the swap of H and T.

    Hides: the shapes agree; right for a single head or a single position.
    """
    *lead, H, T, d_k = cache.shape
    return dy.reshape(*lead, T, H * d_k)


@stands_in_for("causal_mask")
def other_side(T_q: int, T_k: int | None = None) -> np.ndarray:
    """Every position sees what comes after it, and not what came before.

    Hides: the loss falls faster than it should: the model reads the answer.
    """
    T_k = T_q if T_k is None else T_k
    return np.arange(T_k) >= np.arange(T_q)[:, None] + (T_k - T_q)


@stands_in_for("causal_mask")
def one_too_far(T_q: int, T_k: int | None = None) -> np.ndarray:
    """Every position sees one key too many: the very token it has to predict.

    Hides: almost all of the triangle is right, and the loss falls faster than it should.
    """
    T_k = T_q if T_k is None else T_k
    return np.arange(T_k) <= np.arange(T_q)[:, None] + (T_k - T_q) + 1


@stands_in_for("causal_mask")
def aligned_at_the_start(T_q: int, T_k: int | None = None) -> np.ndarray:
    """Query i sees keys 0 to i, though the queries are the last T_q of T_k positions.

    Hides: right whenever T_q = T_k, which is always so in training and never with stored keys.
    """
    T_k = T_q if T_k is None else T_k
    return np.arange(T_k) <= np.arange(T_q)[:, None]
