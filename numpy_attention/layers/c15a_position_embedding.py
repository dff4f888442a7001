"""Chapter 15, continued. Position embedding: a vector for each position

    y_t = x_t + p_t

Without p_t attention would not depend on the order of the tokens (Chapter 8). The p_t are either learned, one row of a
table for each position, or the fixed sines and cosines of Chapter 8. The same p_t is added in every sequence of a
batch, so the gradient of a learned p_t is a sum over the batch:

    dp_t = sum over the batch of dy_t          dx_t = dy_t
"""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_choice, require_cotangent, require_float, require_sizes, shape_error
from numpy_attention.layers.c13_layer import Layer, Parameters, normal
from numpy_attention.ops.c02_embedding import EmbeddingCache, embedding, embedding_backward
from numpy_attention.ops.c08_positions import sinusoidal_positions

KINDS = ("learned", "sinusoidal")


class PositionCache(NamedTuple):
    """What backward needs: the rows that were read, and the shape and dtype of dy."""

    rows: EmbeddingCache
    shape: tuple[int, ...]  # of x, and of y
    dtype: np.dtype


class PositionEmbedding(Layer):
    """y_t = x_t + p_t, with p learned ("learned") or fixed ("sinusoidal").

    Shapes: x (B, T, d_model), positions (T,), or (B, T) to give each sequence its positions (default: 0, ..., T - 1)
    -> y (B, T, d_model).

    Raises: ValueError for an unknown kind; TypeError or ValueError for invalid sizes.
    """

    def __init__(
        self, kind: str, length: int, d_model: int, rng: np.random.Generator | None, dtype: Any = np.float32
    ) -> None:
        require_choice("PositionEmbedding", "kind", kind, KINDS)
        require_sizes("PositionEmbedding", length=length, d_model=d_model)
        self.length = int(length)
        self.table = normal(rng, (length, d_model), 0.02, dtype) if kind == "learned" else None

    def forward(self, x: np.ndarray, positions: np.ndarray | None = None) -> tuple[np.ndarray, PositionCache]:
        _check_vectors(x, positions, self.table)
        if positions is None:
            positions = np.arange(x.shape[-2], like=x)  # (T,)
        table = self.table
        if table is None:
            # not stored on the layer: every array of a layer is a parameter
            table = np.asarray(sinusoidal_positions(self.length, x.shape[-1], x.dtype.type), like=x)
        p, rows = embedding(positions, table)  # (T, d_model), or (B, T, d_model) if positions is (B, T)
        return x + p, PositionCache(rows, x.shape, x.dtype)

    def backward(self, dy: np.ndarray, cache: PositionCache) -> tuple[np.ndarray, Parameters]:
        require_cotangent("PositionEmbedding", "dy", dy, cache.shape, cache.dtype)
        # y = x + p
        if self.table is None:
            return dy, {}
        dp = dy if cache.rows.ids.ndim > 1 else dy.sum(axis=tuple(range(dy.ndim - 2)))  # (T, d_model), a shared p
        # p = table[positions]
        return dy, {"table": embedding_backward(dp, cache.rows)}


def _check_vectors(x: np.ndarray, positions: np.ndarray | None, table: np.ndarray | None) -> None:
    require_float("PositionEmbedding", x=x)
    if x.ndim < 2 or (table is not None and x.shape[-1] != table.shape[1]):
        d_model = "d_model" if table is None else table.shape[1]
        raise shape_error("PositionEmbedding", "x", f"(..., T, {d_model})", x.shape)
    if positions is not None and np.shape(positions) not in ((x.shape[-2],), x.shape[:-1]):
        expected = f"({x.shape[-2]},) or {x.shape[:-1]}, one for each vector of x"
        raise shape_error("PositionEmbedding", "positions", expected, np.shape(positions))
