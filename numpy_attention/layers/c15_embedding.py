"""Chapter 15. Embedding: the table of word vectors

    ids (B, T)  -->  the rows of table (V, d_model)  -->  y (B, T, d_model)

Row i is the vector of token i. Ids are integers and cannot change by a small amount, so they have no gradient. The
gradient of the table is derived in Chapter 2: the gradient of row i is the sum of dy over all positions with token i.
"""

from typing import Any

import numpy as np

from numpy_attention.errors import require_number, require_sizes
from numpy_attention.layers.c13_layer import Layer, Parameters, normal
from numpy_attention.ops.c02_embedding import EmbeddingCache, embedding, embedding_backward


class Embedding(Layer):
    """One learned vector for each id.

    Shapes: ids (...) integers in [0, V) -> y (..., d_model).

    Raises: TypeError or ValueError for invalid sizes, or a negative or non-finite scale.
    """

    def __init__(
        self, vocab_size: int, d_model: int, rng: np.random.Generator | None, scale: float = 0.02,
        dtype: Any = np.float32,
    ) -> None:
        require_sizes("Embedding", vocab_size=vocab_size, d_model=d_model)
        require_number("Embedding", "scale", scale, at_least=0)
        self.table = normal(rng, (vocab_size, d_model), scale, dtype)

    def forward(self, ids: np.ndarray) -> tuple[np.ndarray, EmbeddingCache]:
        return embedding(ids, self.table)

    def backward(self, dy: np.ndarray, cache: EmbeddingCache) -> tuple[None, Parameters]:
        return None, {"table": embedding_backward(dy, cache)}  # no dx: ids have no gradient
