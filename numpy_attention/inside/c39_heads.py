"""Chapter 39. Heads: what they look at, and what they copy

Two heads in different blocks can continue a text that repeats itself (Olsson et al.):

    ... A B ... A        block 0: at B, the previous-token head looks at A and stores a note: "after an A"
        ^   ^   ^        block 1: at the later A, the induction head looks for this note, finds B, and copies B

Three scores find such heads. The previous-token score of a head is the mean of weights[t, t - 1].

The prefix-matching score is the mean weight on the token after the earlier copy of the query's token. Let ids be N
tokens, then the same N tokens again. The earlier copy of token t is at t - N, and the token after this copy is at
t - N + 1. So the score is the mean of weights[t, t - N + 1] for t >= N.

The copying score uses only parameters. A head that looks at a token changes the logits of all tokens. Let E be the
table of embeddings, U the unembedding (equal to E if weights are tied), and C the matrix that subtracts the mean of a
vector:

    M = E C diag(gamma_1) w_v w_o C diag(gamma) U^T               (V, V): token that the head looks at -> logits

An RMS norm has no C. The norms also divide by a positive number. This division changes no sign, so M leaves it out. A
head copies if it raises the logit of the token that it looks at; then M has positive eigenvalues. The score is
sum(eig) / sum(|eig|). It is 1 if all eigenvalues are positive, 0 if their sum is zero, and -1 if all are negative. The
score has a clear meaning only for heads of the last block, because later blocks read and change what earlier heads
write.

M is a large matrix, V by V. But M = A B, where A = E C diag(gamma_1) w_v is (V, d_v), and B, the product of the other
factors, is (d_v, V). The products A B and B A have the same eigenvalues, except zeros: if A B x = s x, then
B A (B x) = s (B x). So the eigenvalues of the d_v by d_v matrix B A are enough; zeros add nothing to the sums.
"""

import math
import re
from typing import Any

import numpy as np

from numpy_attention.backend import to_host
from numpy_attention.errors import dtype_error, require_integers, shape_error, value_error
from numpy_attention.inside.c38a_places import require_unedited
from numpy_attention.layers.c13_layer import Layer
from numpy_attention.layers.c14a_project import Matrix, project
from numpy_attention.layers.c16_normalization import LayerNorm, Norm
from numpy_attention.models.c23_gpt import GPT


def prefix_matching_scores(model: GPT, ids: np.ndarray) -> dict[str, np.ndarray]:
    """How much each head looks at the token after the earlier copy of the query's token.

    Formula: score = mean of weights[t, t - N + 1] over the batch and t = N, ..., 2N - 1

    Shapes: ids (B, 2N), the second half equal to the first -> {"blocks.0.attention": (H,), ...}, from 0 to 1

    Raises: TypeError if model is not a GPT, or ids are not integers; ValueError if the halves of ids are not equal.

    Source: Olsson et al., In-context Learning and Induction Heads (2022).
    """
    op = "prefix_matching_scores"
    _check_ids(op, model, ids)
    N = ids.shape[1] // 2
    fix = "np.tile(piece, 2) makes such ids"
    if ids.shape[1] % 2:
        raise shape_error(op, "ids", "(B, 2N), N tokens and the same N again", ids.shape, fix)
    if not (ids[:, :N] == ids[:, N:]).all():
        raise value_error(op, "ids", "N tokens and the same N again in each row", "a second half that differs", fix)
    t = np.arange(N, 2 * N)
    return _mean_weights(model, ids, t, t - N + 1)


def previous_token_scores(model: GPT, ids: np.ndarray) -> dict[str, np.ndarray]:
    """How much each head looks at the previous token.

    Formula: score = mean of weights[t, t - 1] over the batch and t = 1, ..., T - 1

    Shapes: ids (B, T) with T at least 2 -> {"blocks.0.attention": (H,), ...}, from 0 to 1

    Raises: TypeError if model is not a GPT, or ids are not integers; ValueError for ids of another shape.

    Source: Olsson et al., In-context Learning and Induction Heads (2022).
    """
    _check_ids("previous_token_scores", model, ids)
    t = np.arange(1, ids.shape[1])
    return _mean_weights(model, ids, t, t - 1)


def copying_scores(model: GPT) -> dict[str, np.ndarray]:
    """How much each head raises the logit of the token that it looks at, from the parameters alone.

    Formula: score = sum(eig(M)) / sum(|eig(M)|), M = E C diag(gamma_1) w_v w_o C diag(gamma) U^T

    Shapes: -> {"blocks.0.attention": (H,), ...}, from -1 to 1; 0 for a head whose output is zero, NaN if M overflows

    Raises: TypeError if model is not a GPT; ValueError if it is a post-norm model, or has branch norms or edits.

    Source: Elhage et al., A Mathematical Framework for Transformer Circuits (2021).
    """
    require_gpt("copying_scores", model)
    require_unedited("copying_scores", model.blocks)
    branch_norm = getattr(model.config, "branch_norm", False)  # an option of RecentGPT
    if not model.config.pre_norm or branch_norm:
        got = f"pre_norm={model.config.pre_norm}, branch_norm={branch_norm}"
        raise value_error("copying_scores", "model", "a GPT with pre_norm and without branch_norm", got)
    E = _float64_on_host(model.token_embedding.table)  # (V, d_model)
    U = _float64_on_host(model.output_head().vectors)  # (V, d_model)
    B = _without_mean(U * _float64_on_host(model.norm.gamma), model.norm).T  # (d_model, V)
    through = B @ E  # (d_model, d_model): the sum over all tokens, equal for all heads
    scores = {}
    for i, block in enumerate(model.blocks):
        norm_1: Any = block.norm_1  # not None in a pre-norm model
        A = _without_mean(through, norm_1) * _float64_on_host(norm_1.gamma)  # (d_model, d_model)
        w_v, w_o = _float64_on_host(matrix_of(block.attention.w_v)), _float64_on_host(matrix_of(block.attention.w_o))
        H = block.attention.num_heads
        v = np.split(A @ w_v, block.attention.num_kv_heads, axis=1)  # H_kv times (d_model, d_v)
        o = np.split(w_o, H)  # H times (d_v, d_model)
        scores[f"blocks.{i}.attention"] = np.array([_eigenvalue_score(o[h] @ v[h * len(v) // H]) for h in range(H)])
    return scores


def require_gpt(op: str, model: object) -> None:
    """Refuse a model that is not a GPT."""
    if not isinstance(model, GPT):
        raise dtype_error(op, "model", "a GPT", type(model).__name__)


def _mean_weights(model: GPT, ids: np.ndarray, queries: np.ndarray, keys: np.ndarray) -> dict[str, np.ndarray]:
    """For each head, the mean of weights[t, s] over the batch and the pairs (t, s)."""
    weights = model.attention_weights(ids)  # (B, H, T, T)
    return {name: _float64_on_host(to_host(w)[:, :, queries, keys]).mean(axis=(0, 2)) for name, w in weights.items()}


def _without_mean(x: np.ndarray, norm: Norm) -> np.ndarray:
    """x C: each row minus its mean, if the norm subtracts the mean."""
    return x - x.mean(axis=1, keepdims=True) if isinstance(norm, LayerNorm) else x


def matrix_of(w: Matrix) -> np.ndarray:
    """The matrix w; for a layer that replaces a matrix (Chapter 37), the matrix with the same result."""
    if not isinstance(w, Layer):
        return w
    inner: Any = w
    y, _ = project(np.asarray(np.eye(len(inner.w), dtype=inner.w.dtype), like=inner.w), w)
    return y


def _float64_on_host(array: np.ndarray) -> np.ndarray:
    """A copy on the host in float64: eigenvalues are sensitive to round-off, and the matrices are small."""
    return to_host(array).astype(np.float64)


def _eigenvalue_score(product: np.ndarray) -> float:
    """sum(eig) / sum(|eig|); it is real, since complex eigenvalues come in conjugate pairs."""
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


def head_name(head: str) -> str:
    """A readable name for a head: `blocks.1.attention.3` is "block 1, head 3"."""
    found = re.fullmatch(r"(?:(\w+)\.)?blocks\.(\d+)\.(attention|cross_attention)\.(\d+)", head)
    if found is None:
        return head
    parts = [found[1], f"block {found[2]}", f"{'cross ' * (found[3] != 'attention')}head {found[4]}"]
    return ", ".join(part for part in parts if part)
