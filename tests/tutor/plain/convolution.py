"""The plain form of the causal convolution."""

import numpy as np

from numpy_attention.tutor.entry import Array


def plain_causal_convolution(x: Array, w: Array, b: Array | None = None, state: Array | None = None) -> Array:
    """The formula, one token after the other; tokens before the text come from the state, if there is one."""
    n, y = w.shape[1], np.zeros(x.shape) + (0 if b is None else b)
    for t, back in np.ndindex(x.shape[-2], n):
        before = x if t >= back else state
        if before is not None:
            y[..., t, :] += w[:, n - 1 - back] * before[..., t - back, :]
    return y


PLAIN = {"causal_convolution": plain_causal_convolution}
