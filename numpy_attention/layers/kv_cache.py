"""Chapter 17, appendix. Keys and values kept between the steps of generation

A causal model's keys and values for a token depend on that token and those before it, never on later ones. So what
one step computed the next can use again:

    step t     q_t  looks at  k_1 k_2 ... k_(t-1) | k_t        left of the bar stored, right of it new
                              v_1 v_2 ... v_(t-1) | v_t

The new token is the only query, and a step costs O(T) products with the stored keys where a fresh forward would cost
O(T^2). Of a context, which does not grow, all keys are stored at the first step. Layers call the store `past`: a cache,
in this book, is what a forward leaves to its backward. The class and `use_cache` alone keep the name that is usual.
"""

import numpy as np

from numpy_attention.errors import require_float, require_integers, require_size, shape_error, value_error


class KeyValueCache:
    """The keys and values one attention layer has computed so far, in arrays with room for `capacity` positions.

    Raises: TypeError or ValueError for a capacity that is no integer from 0 on.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = require_size("KeyValueCache", "capacity", capacity, at_least=0)
        self.length = 0
        self.k: np.ndarray | None = None
        self.v: np.ndarray | None = None

    def append(self, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Write new keys (B, H_kv, T_new, d_k) and values after the old; all of them come back, as views.

        Raises: ValueError beyond the capacity, or for another batch or heads than are stored; TypeError for another
        dtype. What is refused changes nothing.
        """
        self._check_new(k, v)
        start, self.length = self.length, self.length + k.shape[-2]
        if self.k is None or self.v is None:
            B, H = k.shape[:2]
            # empty: memory that nobody has written to is not taken yet
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
        """Row i becomes old row rows[i]: beam search drops some hypotheses and continues others twice.

        Raises: TypeError or ValueError for what is no row that is stored.
        """
        if self.k is not None and self.v is not None:
            require_integers("KeyValueCache", "rows", rows, below=len(self.k))
            if rows.ndim != 1:
                raise shape_error("KeyValueCache", "rows", "(B,), an old row for each new one", rows.shape)
            rows = np.asarray(rows, like=self.k)
            self.k, self.v = self.k[rows], self.v[rows]

    def _check_new(self, k: np.ndarray, v: np.ndarray) -> None:
        if self.k is None or self.v is None:
            require_float("KeyValueCache", k=k, v=v)
        else:
            require_float("KeyValueCache", stored=self.k, k=k, v=v)
        if k.ndim != 4 or v.ndim != 4 or v.shape[:3] != k.shape[:3]:
            expected = "(B, H_kv, T_new, d_k) and (B, H_kv, T_new, d_v)"
            raise shape_error("KeyValueCache", "k and v", expected, f"{k.shape} and {v.shape}")
        for name, new, old in (("k", k, self.k), ("v", v, self.v)):
            if old is not None and (*new.shape[:2], new.shape[3]) != (*old.shape[:2], old.shape[3]):
                expected = f"({old.shape[0]}, {old.shape[1]}, T_new, {old.shape[3]}) as what is stored"
                raise shape_error("KeyValueCache", name, expected, new.shape)
        if self.length + k.shape[2] > self.capacity:
            expected = f"no longer than there is room for {self.capacity} positions"
            raise shape_error("KeyValueCache", "k", expected, self.length + k.shape[2])


def stored_length(model: str, past: object, num_layers: int) -> int:
    """How many positions each layer has stored; with cross-attention the first of its pair of stores knows.

    Raises: ValueError when `past` is no list of stores, as many as there are layers and alike: else a layer could
    refuse what those before it have stored.
    """
    own = [one[0] if isinstance(one, tuple) and one else one for one in past] if isinstance(past, list) else []
    if len(own) != num_layers or not all(isinstance(one, KeyValueCache) for one in own):
        raise value_error(model, "past", f"a list of KeyValueCaches, one for each of {num_layers} blocks", past)
    if len(alike := {(one.length, one.capacity) for one in own}) > 1:
        got = " and ".join(f"{length} of {capacity}" for length, capacity in sorted(alike)[:2])
        raise value_error(model, "past", "stores filled alike, with room for as many positions", got, "make them anew")
    return own[0].length
