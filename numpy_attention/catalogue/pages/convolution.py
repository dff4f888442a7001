"""The causal convolution (Chapter 44), with and without a state, for long texts and for one token."""

from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, op_entry
from numpy_attention.catalogue.mistake import backward_of
from numpy_attention.recent.convolution import CausalConvolutionCache, causal_convolution, causal_convolution_backward

CHAPTER = 44

_entry = partial(op_entry, "causal_convolution")
ENTRIES = (
    _entry("x: B T C, w: C n", wrong="w+0 w.T w:float32 x:int64 x[list]"),
    _entry("x: B T C, w: C n, b: C", "bias", wrong="b+0"),
    _entry("x: B T C, w: C m+1, b: C, state: B m C", "bias and state", wrong="state+0 state+1 state:float32"),
    _entry("x: B T C, w: C m+1, state: B m C", "fewer tokens than weights", at_least={"m": 3}, fixed={"T": 1}),
    _entry("x: T C, w: C n, b: C", "one weight, no leading axes", fixed={"n": 1}),
)


def plain_causal_convolution(x: Array, w: Array, b: Array | None = None, state: Array | None = None) -> Array:
    """The formula, one token after the other; tokens before the text come from the state, if there is one."""
    n, y = w.shape[1], np.zeros(x.shape) + (0 if b is None else b)
    for t, back in np.ndindex(x.shape[-2], n):
        before = x if t >= back else state
        if before is not None:
            y[..., t, :] += w[:, n - 1 - back] * before[..., t - back, :]
    return y


PLAIN = {"causal_convolution": plain_causal_convolution}


@backward_of("causal_convolution", diagnosis="is the Jacobian itself applied to dy, not its transpose")
def gradient_looks_back(dy: Array, cache: CausalConvolutionCache) -> Any:
    """dx is the forward applied to dy, so it looks back, but each token gets its gradient from later outputs.

    Hides: right for one weight or one token; dw, db and all shapes are right.
    """
    _, dw, db, dstate = causal_convolution_backward(dy, cache)
    return causal_convolution(dy, cache.w)[0], dw, db, dstate


@backward_of("causal_convolution", diagnosis="the backward returns zero")
def state_without_a_gradient(dy: Array, cache: CausalConvolutionCache) -> Any:
    """The state gets a gradient of zero, as if it were a constant, but the text before computed it.

    Hides: right for the first part of a text; dx, dw and db are right.
    """
    dx, dw, db, dstate = causal_convolution_backward(dy, cache)
    return dx, dw, db, None if dstate is None else np.zeros_like(dstate)
