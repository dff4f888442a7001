"""Slips in rotary positions, dropout, RMS norm and a tied table, forward and backward."""

from typing import Any

import numpy as np

from numpy_attention.grade import references
from numpy_attention.grade.slips.registry import slip
from numpy_attention.ops.dropout import DropoutCache
from numpy_attention.ops.normalization import NormCache, rms_norm, rms_norm_backward
from numpy_attention.ops.positions import rotary, rotary_backward

Array = np.ndarray


@slip("rotary", "op", op_backward=rotary_backward)
def neighbours_paired(x: Array, positions: Array, base: float = 10000.0) -> Any:
    """Columns 2i and 2i + 1 are turned together, where this exercise pairs i with i + d_k/2.

    Hides: lengths agree, scores depend on distances alone, and at d_k = 2 it is the same; some models do it so.
    """
    return rotary(x, positions, base, "interleaved")


@slip("rotary", "op", op_backward=rotary_backward)
def turned_the_other_way(x: Array, positions: Array, base: float = 10000.0) -> Any:
    """The sign of the sine is flipped: every vector is turned by -t f where it must be turned by t f.

    Hides: lengths agree, and all scores of a model that turns queries and keys alike.
    """
    return rotary(x, -positions, base)


@slip("rotary", "op", op_backward=rotary_backward)
def two_missing_in_the_frequency(x: Array, positions: Array, base: float = 10000.0) -> Any:
    """The frequencies are base^(-i / d_k), where the exponent must be -2i / d_k: the slowest stay too fast.

    Hides: lengths agree, the first pair is right, and at d_k = 2 all is.
    """
    return rotary(x, positions, base**0.5)


def _share(dy: Array, cache: DropoutCache) -> Array:
    return dy if cache.kept is None else np.asarray(dy * cache.kept * np.asarray(cache.scale, dy.dtype))


def _dropout(x: Array, rate: float, rng: np.random.Generator | None, kept_share: bool, scale: float) -> Any:
    if rng is None:
        return x, DropoutCache(None, 1.0, x.shape, x.dtype)
    kept = (rng.random(x.shape, dtype=np.float32) >= rate) ^ kept_share
    cache = DropoutCache(kept, scale, x.shape, x.dtype)
    return _share(x, cache), cache


@slip("dropout", "op", op_backward=_share)
def kept_not_scaled_up(x: Array, rate: float, rng: np.random.Generator | None) -> Any:
    """What is kept must be divided by 1 - rate, or the sums of training are smaller than those of use.

    Hides: forward and backward fit each other, so every check of gradients passes.
    """
    return _dropout(x, rate, rng, False, 1.0)


@slip("dropout", "op", op_backward=_share)
def rate_taken_for_the_share_kept(x: Array, rate: float, rng: np.random.Generator | None) -> Any:
    """rate is the share that is dropped; here it is kept, and what is kept is divided by rate.

    Hides: at a rate of one half both are alike; forward and backward fit each other.
    """
    return _dropout(x, rate, rng, True, 1 / rate)


@slip("rms_norm")
def mean_square_path_forgotten(dy: Array, cache: NormCache) -> Any:
    """dx = r gamma dy: as if moving x did not change the mean square by which all of its row are divided.

    Hides: dgamma is right, and the loss still falls.
    """
    _, r, gamma = cache
    dx = np.asarray(dy * gamma * r).astype(dy.dtype)
    return dx, rms_norm_backward(dy, cache)[1]


@slip("rms_norm", "op", op_backward=rms_norm_backward)
def sum_in_place_of_the_mean(x: Array, gamma: Array, eps: float = 1e-6) -> Any:
    """It divides by the root of the sum of squares, where the root of their mean belongs: sqrt(d) too small.

    Hides: forward and backward fit each other, and gamma can learn the factor.
    """
    d = x.shape[-1]
    y, cache = rms_norm(x, gamma, eps / d)
    root = np.asarray(d**0.5, x.dtype)
    return y / root, cache._replace(x_hat=cache.x_hat / root, r=cache.r / root)


@slip("rms_norm", "op", op_backward=rms_norm_backward)
def eps_beside_the_root(x: Array, gamma: Array, eps: float = 1e-6) -> Any:
    """It divides by sqrt(mean(x^2)) + eps, where eps belongs under the root.

    Hides: the same but for a small share while rows are not near zero.
    """
    r = 1 / (np.sqrt((x * x).mean(axis=-1, keepdims=True)) + np.asarray(eps, x.dtype))
    return gamma * (x * r), NormCache(x * r, r, gamma)


@slip("tied_table")
def only_the_rows_read(dlogits: Array, cache: Any) -> Any:
    """The gradient through the lookup alone; the table made the logits, too, and that gradient must be added.

    Hides: the loss falls; rows that are never read do not learn at all.
    """
    *_, h = cache
    whole, dw = references.tied_table_backward(dlogits, cache)
    return whole - references.rows_together(dlogits, h), dw


@slip("tied_table")
def only_the_logits(dlogits: Array, cache: Any) -> Any:
    """The gradient through the logits alone; the table was read at the start, too, and that gradient must be added.

    Hides: the loss falls, and every row learns.
    """
    return references.rows_together(dlogits, cache[-1]), references.tied_table_backward(dlogits, cache)[1]


@slip("tied_table")
def repeats_lost_in_the_tied_table(dlogits: Array, cache: Any) -> Any:
    """dtable[ids] += ... reads dtable[ids] once, before it writes: of an id that stands twice one gradient is lost.

    Hides: right as long as all ids differ.
    """
    ids, table, w, _, h = cache
    dtable = references.rows_together(dlogits, h)
    dtable[ids] += dlogits @ table @ w.T
    return dtable, references.tied_table_backward(dlogits, cache)[1]


@slip("tied_table")
def two_gradients_averaged(dlogits: Array, cache: Any) -> Any:
    """The two gradients of the table are averaged, where both effects of one table add up.

    Hides: the direction is right, and the learning rate absorbs the half.
    """
    dtable, dw = references.tied_table_backward(dlogits, cache)
    return dtable / 2, dw
