"""Chapter 39. Heads: what they look at, and what they copy

A text that repeats itself can be gone on with by two heads, one above the other (Olsson et al.):

    ... A B ... A        block 0: at B, the previous-token head looks at A, and notes there "after an A"
        ^   ^   ^        block 1: at the later A, the induction head looks for "after an A", finds B, and says B

Each part of this is a number from the weights or the parameters of a head. Who looks at the token before: the mean of
weights[t, t - 1]. Who finds what came next last time: let ids be N tokens and the same N again; then token t was last
seen at t - N, and what came next stands at t - N + 1, so the score is the mean of weights[t, t - N + 1] for t >= N.

Who says what it sees: a head that looks at a token adds to the logits of all tokens. With E the table of embeddings, U
that of the unembedding (the same one where weights are tied), and C the matrix that takes the mean of a vector away
(the norms divide as well, but by a positive number, which turns no sign),

    M = E C diag(gamma_1) w_v w_o C diag(gamma) U^T               (V, V): the token looked at -> the logits

RMS norm has no C. To copy is to raise the logit of the very token that is looked at, so that M has positive
eigenvalues: sum(eig) / sum(|eig|) is 1 if all are positive, 0 if they are balanced, -1 if all are negative. It says
something of heads whose answer goes straight to the logits, not of those that later blocks read first.

M is V by V. But M = A B with A = E C diag(gamma_1) w_v, (V, d_v), and B the rest, (d_v, V), and eig(A B) = eig(B A) but
for zeros: from A B x = s x follows B A (B x) = s (B x). So d_v by d_v numbers are enough, and the zeros add nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from numpy_attention.backend import to_host
from numpy_attention.errors import dtype_error, require_integers, shape_error, value_error
from numpy_attention.inside.places import require_unedited
from numpy_attention.layers.layer import Layer
from numpy_attention.layers.linear import Matrix, project
from numpy_attention.layers.normalization import LayerNorm, Norm
from numpy_attention.models.gpt import GPT
from numpy_attention.models.head import Head


def prefix_matching_scores(model: GPT, ids: np.ndarray) -> dict[str, np.ndarray]:
    """How much each head looks at what came next when the same token stood there one period ago.

    Formula: score = mean of weights[t, t - N + 1] over the batch and t = N, ..., 2N - 1

    Shapes: ids (B, 2N), the second half like the first -> {"blocks.0.attention": (H,), ...}, from 0 to 1

    Raises: TypeError for what is no GPT, or no ids; ValueError for ids whose second half is not their first again.

    Source: Olsson et al., In-context Learning and Induction Heads (2022).
    """
    op = "prefix_matching_scores"
    _check_ids(op, model, ids)
    N = ids.shape[1] // 2
    fix = "np.tile(piece, 2) makes such ids"
    if ids.shape[1] % 2:
        raise shape_error(op, "ids", "(B, 2N), N tokens and the same N again", ids.shape, fix)
    if not (ids[:, :N] == ids[:, N:]).all():
        raise value_error(op, "ids", "N tokens and the same N again in each row", "another second half", fix)
    t = np.arange(N, 2 * N)
    return _mean_weights(model, ids, t, t - N + 1)


def previous_token_scores(model: GPT, ids: np.ndarray) -> dict[str, np.ndarray]:
    """How much each head looks at the token before.

    Formula: score = mean of weights[t, t - 1] over the batch and t = 1, ..., T - 1

    Shapes: ids (B, T) with T at least 2 -> {"blocks.0.attention": (H,), ...}, from 0 to 1

    Raises: TypeError for what is no GPT, or no ids; ValueError for ids of another shape.

    Source: Olsson et al., In-context Learning and Induction Heads (2022).
    """
    _check_ids("previous_token_scores", model, ids)
    t = np.arange(1, ids.shape[1])
    return _mean_weights(model, ids, t, t - 1)


def copying_scores(model: GPT) -> dict[str, np.ndarray]:
    """How much each head raises the logit of the very token it looks at, from the parameters alone.

    Formula: score = sum(eig(M)) / sum(|eig(M)|), M = E C diag(gamma_1) w_v w_o C diag(gamma) U^T

    Shapes: -> {"blocks.0.attention": (H,), ...}, from -1 to 1; 0 for a head that says nothing, NaN where M overflows

    Raises: TypeError for what is no GPT; ValueError for one that has its norms behind its layers, or edits.

    Source: Elhage et al., A Mathematical Framework for Transformer Circuits (2021).
    """
    require_gpt("copying_scores", model)
    require_unedited("copying_scores", model.blocks)
    if not model.config.pre_norm:
        raise value_error("copying_scores", "model", "a GPT with pre_norm", "one without")
    E = _wide(model.token_embedding.table)  # (V, d_model)
    U = _wide(Head(model.token_embedding, model.head).vectors())  # (V, d_model)
    B = _without_mean(U * _wide(model.norm.gamma), model.norm).T  # (d_model, V)
    through = B @ E  # (d_model, d_model): the sum over all tokens, which is the same for every head
    scores = {}
    for i, block in enumerate(model.blocks):
        A = _without_mean(through, block.norm_1) * _wide(block.norm_1.gamma)  # (d_model, d_model)
        w_v, w_o = _wide(matrix_of(block.attention.w_v)), _wide(matrix_of(block.attention.w_o))
        H = block.attention.num_heads
        v = np.split(A @ w_v, block.attention.num_kv_heads, axis=1)  # H_kv times (d_model, d_v)
        o = np.split(w_o, H)  # H times (d_v, d_model)
        scores[f"blocks.{i}.attention"] = np.array([_sign(o[h] @ v[h * len(v) // H]) for h in range(H)])
    return scores


def require_gpt(op: str, model: object) -> None:
    """Refuse every other model.

    Raises: TypeError for what is no GPT.
    """
    if not isinstance(model, GPT):
        raise dtype_error(op, "model", "a GPT", type(model).__name__)


def _mean_weights(model: GPT, ids: np.ndarray, queries: np.ndarray, keys: np.ndarray) -> dict[str, np.ndarray]:
    """The mean of weights[t, s] over the batch and the pairs (t, s), head by head."""
    weights = model.attention_weights(ids)  # (B, H, T, T)
    return {name: _wide(to_host(w)[:, :, queries, keys]).mean(axis=(0, 2)) for name, w in weights.items()}


def _without_mean(x: np.ndarray, norm: Norm) -> np.ndarray:
    """x C: each row without its mean, where the norm takes it away."""
    return x - x.mean(axis=1, keepdims=True) if isinstance(norm, LayerNorm) else x


def matrix_of(w: Matrix) -> np.ndarray:
    """A matrix, or what the layer in its place (Chapter 37) multiplies by."""
    if not isinstance(w, Layer):
        return w
    inner: Any = w
    y, _ = project(np.asarray(np.eye(len(inner.w), dtype=inner.w.dtype), like=inner.w), w)
    return y


def _wide(array: np.ndarray) -> np.ndarray:
    """In this computer's memory, in float64: eigenvalues are sensitive, and the matrices small."""
    return to_host(array).astype(np.float64)


def _sign(product: np.ndarray) -> float:
    """sum(eig) / sum(|eig|), real since complex ones come in pairs."""
    if not np.isfinite(product).all():
        return math.nan
    eigenvalues = np.linalg.eigvals(product)  # (d_v,)
    total = float(np.abs(eigenvalues).sum())
    return float(eigenvalues.sum().real) / total if total else 0.0


def _check_ids(op: str, model: object, ids: np.ndarray) -> None:
    require_gpt(op, model)
    require_integers(op, "ids", ids)
    if ids.ndim != 2 or 0 in ids.shape or ids.shape[1] < 2:
        raise shape_error(op, "ids", "(B, T) with T at least 2", ids.shape)
