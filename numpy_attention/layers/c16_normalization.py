"""Chapter 16. Normalization with learned scale and shift

    x --> normalized by Chapter 9 --> * gamma --> + beta --> y          RMSNorm: without mean and beta

The functions and their gradients are those of Chapter 9; the layers own gamma and beta. At the start gamma is one
and beta is zero, so they do not change the result. Training can then give each feature its own scale and shift.
"""

from typing import Any

import numpy as np

from numpy_attention.errors import require_number, require_sizes, value_error
from numpy_attention.layers.c13_layer import Layer, Parameters
from numpy_attention.ops.c09_normalization import (
    NormCache,
    layer_norm,
    layer_norm_backward,
    rms_norm,
    rms_norm_backward,
)


class LayerNorm(Layer):
    """Normalize each vector by its own mean and variance, then scale and shift it.

    Shapes: x (..., d_model) -> y (..., d_model).

    Raises: TypeError or ValueError for a d_model below 1, or an eps that is not above 0.

    Source: Ba, Kiros, Hinton, Layer Normalization (2016), section 3.
    """

    def __init__(self, d_model: int, eps: float = 1e-5, dtype: Any = np.float32) -> None:
        require_sizes("LayerNorm", d_model=d_model)
        self.eps = require_number("LayerNorm", "eps", eps, above=0)
        self.gamma = np.ones(d_model, dtype)
        self.beta = np.zeros(d_model, dtype)

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, NormCache]:
        return layer_norm(x, self.gamma, self.beta, self.eps)

    def backward(self, dy: np.ndarray, cache: NormCache) -> tuple[np.ndarray, Parameters]:
        dx, dgamma, dbeta = layer_norm_backward(dy, cache)
        return dx, {"gamma": dgamma, "beta": dbeta}


class RMSNorm(Layer):
    """Divide each vector by its root mean square, then scale it.

    Shapes: x (..., d_model) -> y (..., d_model).

    Raises: TypeError or ValueError for a d_model below 1, or an eps that is not above 0.

    Source: Zhang, Sennrich, Root Mean Square Layer Normalization (2019), equation 4.
    """

    def __init__(self, d_model: int, eps: float = 1e-6, dtype: Any = np.float32) -> None:
        require_sizes("RMSNorm", d_model=d_model)
        self.eps = require_number("RMSNorm", "eps", eps, above=0)
        self.gamma = np.ones(d_model, dtype)

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, NormCache]:
        return rms_norm(x, self.gamma, self.eps)

    def backward(self, dy: np.ndarray, cache: NormCache) -> tuple[np.ndarray, Parameters]:
        dx, dgamma = rms_norm_backward(dy, cache)
        return dx, {"gamma": dgamma}


Norm = LayerNorm | RMSNorm


def norm_layer(norm: str, d_model: int, eps: float | None = None, dtype: Any = np.float32) -> Norm:
    """The norm layer with the name `norm`, "layer_norm" or "rms_norm". If eps is None, the layer has its usual eps.

    Raises: ValueError for an unknown name.
    """
    if norm == "layer_norm":
        return LayerNorm(d_model, 1e-5 if eps is None else eps, dtype)
    if norm == "rms_norm":
        return RMSNorm(d_model, 1e-6 if eps is None else eps, dtype)
    raise value_error("norm_layer", "norm", '"layer_norm" or "rms_norm"', repr(norm))
