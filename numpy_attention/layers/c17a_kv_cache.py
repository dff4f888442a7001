"""Chapter 17, appendix. The KV cache: keys and values stored between the steps of generation

In a causal model the keys and values of a token depend on this token and earlier ones, never on later ones. So the next
step can reuse the keys and values of the steps before:

    step t     q_t  looks at  k_1 k_2 ... k_(t-1) | k_t        left of the bar: stored, right of it: new
                              v_1 v_2 ... v_(t-1) | v_t

The new token is the only query. A step costs O(T) products with the stored keys; a forward without the KV cache would
cost O(T^2). In cross-attention, the keys and values come from the output of the encoder. This output does not grow, so
all its keys and values are stored at the first step, and later steps add none (`without_stored`). Layers call the KV
cache `past`, because in this book a cache is what a forward stores for its backward. In "KV cache", `KeyValueCache` and
`use_cache` the word has its usual meaning.
"""

import numpy as np

from numpy_attention.errors import require_float, require_integers, require_size, shape_error, value_error


class KeyValueCache:
    """The keys and values that one attention layer has computed so far, in arrays for `capacity` positions.

    Raises: TypeError or ValueError for a capacity that is not an integer of at least 0.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = require_size("KeyValueCache", "capacity", capacity, at_least=0)
        self.length = 0
        self.k: np.ndarray | None = None
        self.v: np.ndarray | None = None

    def append(self, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Append new keys (B, H_kv, T_new, d_k) and values; return all stored keys and values, as views.

        Raises: ValueError beyond the capacity, or when batch or heads differ from the stored arrays; TypeError for
        another dtype. After an error nothing has changed.
        """
        self._check_new(k, v)
        start, self.length = self.length, self.length + k.shape[-2]
        if self.k is None or self.v is None:
            B, H = k.shape[:2]
            # np.empty: the operating system provides memory only when the array is written
            self.k = np.empty_like(k, shape=(B, H, self.capacity, k.shape[-1]))
            self.v = np.empty_like(v, shape=(B, H, self.capacity, v.shape[-1]))
        self.k[:, :, start : self.length] = k
        self.v[:, :, start : self.length] = v
        return self.k[:, :, : self.length], self.v[:, :, : self.length]

    def filled(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The stored keys and values, or None before the first append."""
        if self.k is None or self.v is None:
            return None
        return self.k[:, :, : self.length], self.v[:, :, : self.length]

    def reorder(self, rows: np.ndarray) -> None:
        """Row i becomes the old row rows[i]. Each row is an unfinished text; beam search drops some and copies others.

        Raises: TypeError or ValueError when rows are not the indices of stored rows.
        """
        if self.k is not None and self.v is not None:
            require_integers("KeyValueCache", "rows", rows, below=len(self.k))
            if rows.ndim != 1:
                raise shape_error("KeyValueCache", "rows", "(B,), an old row for each new one", rows.shape)
            rows = np.asarray(rows, like=self.k)
            self.k, self.v = self.k[rows], self.v[rows]

    def _check_new(self, k: np.ndarray, v: np.ndarray) -> None:
        require_float("KeyValueCache", optional="stored", stored=self.k, k=k, v=v)
        if k.ndim != 4 or v.ndim != 4 or v.shape[:3] != k.shape[:3]:
            expected = "(B, H_kv, T_new, d_k) and (B, H_kv, T_new, d_v)"
            raise shape_error("KeyValueCache", "k and v", expected, f"{k.shape} and {v.shape}")
        for name, new, old in (("k", k, self.k), ("v", v, self.v)):
            if old is not None and (*new.shape[:2], new.shape[3]) != (*old.shape[:2], old.shape[3]):
                expected = f"({old.shape[0]}, {old.shape[1]}, T_new, {old.shape[3]}) as in the stored array"
                raise shape_error("KeyValueCache", name, expected, new.shape)
        if self.length + k.shape[2] > self.capacity:
            expected = f"at most {self.capacity} positions"
            raise shape_error("KeyValueCache", "k", expected, self.length + k.shape[2])


def without_stored(context: np.ndarray, past: KeyValueCache | None) -> np.ndarray:
    """The positions of a context whose keys and values are still to be stored: at the first step all, later none.

    Shapes: context (B, T_k, d_model) -> the same, or (B, 0, d_model)
    """
    return context if past is None or past.filled() is None else context[:, :0]


def stored_length(model: str, past: object, num_layers: int) -> int:
    """The number of stored positions of each layer; with cross-attention, those of the first of its two KV caches.

    Raises: ValueError when `past` is not a list of one KV cache per layer, all of equal length and capacity. Without
    this check a layer could raise an error after earlier layers have stored new keys.
    """
    layers = past if isinstance(past, list) else []
    caches = [layer[0] if isinstance(layer, tuple) and layer else layer for layer in layers]
    if len(caches) != num_layers or not all(isinstance(cache, KeyValueCache) for cache in caches):
        raise value_error(model, "past", f"a list of KeyValueCaches, one for each of {num_layers} blocks", past)
    if len(lengths := {(cache.length, cache.capacity) for cache in caches}) > 1:
        got = " and ".join(f"{length} of {capacity}" for length, capacity in sorted(lengths)[:2])
        raise value_error(model, "past", "KV caches of equal length and capacity", got, "create new ones")
    return caches[0].length
