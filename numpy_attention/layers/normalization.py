"""Chapter 16. Normalization with learned scale and shift

    LayerNorm   y = (x - mean) / sqrt(var + eps) * gamma + beta
    RMSNorm     y = x / sqrt(mean(x²) + eps) * gamma

Both start as the plain normalization (gamma one, beta zero) and may learn to undo it feature by feature.
RMSNorm leaves out the mean and the shift: a third fewer passes over x, and in deep models hardly a difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numpy_attention.layers.layer import Layer, Parameters
from numpy_attention.ops.normalization import layer_norm, layer_norm_backward, rms_norm, rms_norm_backward


class LayerNorm(Layer):
    """y = (x - mean) / sqrt(var + eps) * gamma + beta, each vector by its own mean and variance.

    Shapes: x (..., d_model) -> y (..., d_model).
    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.
    """

    def __init__(self, d_model: int, eps: float = 1e-5, dtype: Any = np.float32) -> None:
        self.eps = eps
        self.gamma = np.ones(d_model, dtype)
        self.beta = np.zeros(d_model, dtype)

    def forward(
        self, x: np.ndarray, training: bool = False, rng: np.random.Generator | None = None
    ) -> tuple[np.ndarray, Any]:
        return layer_norm(x, self.gamma, self.beta, self.eps)

    def backward(self, dy: np.ndarray, cache: Any) -> tuple[np.ndarray, Parameters]:
        dx, dgamma, dbeta = layer_norm_backward(dy, cache)
        return dx, {"gamma": dgamma, "beta": dbeta}


class RMSNorm(Layer):
    """y = x / sqrt(mean(x²) + eps) * gamma.

    Shapes: x (..., d_model) -> y (..., d_model).
    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, eq. 4.
    """

    def __init__(self, d_model: int, eps: float = 1e-6, dtype: Any = np.float32) -> None:
        self.eps = eps
        self.gamma = np.ones(d_model, dtype)

    def forward(
        self, x: np.ndarray, training: bool = False, rng: np.random.Generator | None = None
    ) -> tuple[np.ndarray, Any]:
        return rms_norm(x, self.gamma, self.eps)

    def backward(self, dy: np.ndarray, cache: Any) -> tuple[np.ndarray, Parameters]:
        dx, dgamma = rms_norm_backward(dy, cache)
        return dx, {"gamma": dgamma}


def norm_layer(norm: str, d_model: int, eps: float | None = None, dtype: Any = np.float32) -> LayerNorm | RMSNorm:
    """The norm of that name, "layer_norm" or "rms_norm", each with its usual eps unless one is given."""
    if norm == "layer_norm":
        return LayerNorm(d_model, 1e-5 if eps is None else eps, dtype)
    if norm == "rms_norm":
        return RMSNorm(d_model, 1e-6 if eps is None else eps, dtype)
    raise ValueError(f'norm must be "layer_norm" or "rms_norm", got {norm!r}')
