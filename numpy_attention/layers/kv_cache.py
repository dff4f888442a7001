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

from numpy_attention.errors import require_float, require_size, shape_error


class KeyValueCache:
    """The keys and values one attention layer has computed so far, in arrays with room for `capacity` positions."""

    def __init__(self, capacity: int) -> None:
        require_size("KeyValueCache", "capacity", capacity, at_least=0)
        self.capacity = capacity
        self.length = 0
        self.k: np.ndarray | None = None
        self.v: np.ndarray | None = None

    def append(self, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Write new keys (B, H_kv, T_new, d_k) and values after the old; all of them come back, as views.

        Raises: ValueError beyond the capacity, and for keys and values that do not fit those before; TypeError.
        """
        self._check(k, v)
        start, self.length = self.length, self.length + k.shape[-2]
        if self.k is None or self.v is None:
            B, H = k.shape[:2]
            # empty: memory that nobody has written to is not taken yet
            self.k = np.empty_like(k, shape=(B, H, self.capacity, k.shape[-1]))
            self.v = np.empty_like(v, shape=(B, H, self.capacity, v.shape[-1]))
        self.k[:, :, start : self.length] = k
        self.v[:, :, start : self.length] = v
        return self.k[:, :, : self.length], self.v[:, :, : self.length]

    def _check(self, k: np.ndarray, v: np.ndarray) -> None:
        require_float("KeyValueCache", k=k, v=v)
        if k.ndim != 4 or v.shape[:-1] != k.shape[:-1]:
            got = f"{k.shape} and {v.shape}"
            raise shape_error("KeyValueCache", "k and v", "(B, H_kv, T_new, d), alike up to d", got)
        if self.length + k.shape[-2] > self.capacity:
            raise ValueError(f"KeyValueCache: room for {self.capacity} positions, got {self.length + k.shape[-2]}")
        for name, new, old in zip("kv", (k, v), self.filled() or (k, v)):
            if (*new.shape[:2], new.shape[-1]) != (*old.shape[:2], old.shape[-1]):
                B, H, _, d = old.shape
                raise shape_error("KeyValueCache", name, f"({B}, {H}, T_new, {d}) as before", new.shape)

    def filled(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The stored keys and values, or None before the first append."""
        if self.k is None or self.v is None:
            return None
        return self.k[:, :, : self.length], self.v[:, :, : self.length]

    def reorder(self, rows: np.ndarray) -> None:
        """Row i becomes old row rows[i]: beam search drops some hypotheses and continues others twice."""
        if self.k is not None and self.v is not None:
            rows = np.asarray(rows, like=self.k)
            self.k, self.v = self.k[rows], self.v[rows]
