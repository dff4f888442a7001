"""Chapter 23, appendix. Choosing the next token

Temperature divides the logits: below 1 the likely tokens grow likelier, and at 0 the likeliest is taken (greedy).
Top-k keeps the k likeliest tokens. Top-p ("nucleus") then keeps the fewest of them whose probabilities sum to p.
Among the kept, the token is drawn by inverting the cumulative distribution: the first one where the sum passes a
uniform random number.

Source: Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020 (top-p).
"""

from __future__ import annotations

import numpy as np


def check_sampling(
    rng: np.random.Generator | None, temperature: float, top_k: int | None, top_p: float | None
) -> None:
    """Refuse settings that no sampler can follow."""
    if not temperature >= 0.0:  # a NaN is refused too
        raise ValueError(f"generate: temperature must be at least 0, got {temperature}; 0 takes the likeliest token")
    if top_k is not None and top_k < 1:
        raise ValueError(f"generate: top_k must be at least 1, got {top_k}")
    if top_p is not None and not 0.0 < top_p <= 1.0:
        raise ValueError(f"generate: top_p must be in (0, 1], got {top_p}")
    if temperature > 0.0 and rng is None:
        raise ValueError("generate: rng must be a np.random.Generator when temperature > 0; or take temperature=0")


def sample(
    logits: np.ndarray,
    rng: np.random.Generator | None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> np.ndarray:
    """One token for each row of logits.

    Shapes: logits (B, V) -> tokens (B,) integers.
    """
    if temperature == 0.0 or rng is None:
        greedy: np.ndarray = np.argmax(logits, axis=-1)
        return greedy
    logits = logits.astype(np.float64) / temperature
    order = np.argsort(-logits, axis=-1, kind="stable")  # (B, V), the likeliest token first
    if top_k is not None:
        order = order[:, :top_k]  # (B, k)
    logits = np.take_along_axis(logits, order, axis=-1)
    p = np.exp(logits - logits[:, :1])
    p /= p.sum(axis=-1, keepdims=True)
    if top_p is not None:
        before = np.cumsum(p, axis=-1) - p  # the sum of all likelier tokens
        before[:, 0] = 0.0  # exactly: the first one always stays
        p = np.where(before < top_p, p, 0.0)
    cumulative = np.cumsum(p, axis=-1)
    u = rng.random((len(p), 1)) * cumulative[:, -1:]  # uniform in [0, total)
    chosen = (cumulative <= u).sum(axis=-1, keepdims=True)  # the first place where the sum passes u
    return np.take_along_axis(order, chosen, axis=-1)[:, 0]
