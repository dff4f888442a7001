"""relu, gelu and silu (Chapter 10): both forms of gelu, inputs far from zero, the corner of relu."""

import math
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, op_entry, times
from numpy_attention.catalogue.exercise import Exercise, Try
from numpy_attention.catalogue.mistake import op_of
from numpy_attention.gradcheck.problem import Arrays
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.ops.activations import gelu, silu, silu_backward

CHAPTER = 10


def _far_out(inputs: Arrays, sizes: Sizes) -> Arrays:
    """Makes all elements except the last so large that gelu is x or 0; the last sets the scale of the gradient."""
    inputs["x"].reshape(-1)[:-1] *= 12
    return inputs


def _with_zeros(inputs: Arrays, sizes: Sizes) -> Arrays:
    """Puts some elements exactly on the corner of relu."""
    inputs["x"].reshape(-1)[::3] = 0.0
    return inputs


ENTRIES = (
    op_entry("relu", "x: ... d", wrong="x:int64 x[list]"),
    op_entry("relu", "x: B d", "on the corner", prepare=_with_zeros),
    op_entry("gelu", "x: ... d", "tanh", wrong="x:int64 x[list]"),
    op_entry("gelu", "x: ... d", "erf", options={"approximate": "none"}),
    op_entry("gelu", "x: B d", "far out", prepare=_far_out),
    op_entry("gelu", "x: B d", "erf, far out", options={"approximate": "none"}, prepare=_far_out),
    op_entry("silu", "x: ... d", wrong="x:int64 x[list]"),
    op_entry("silu", "x: B d", "far out", prepare=times("x", 100.0)),
    op_entry("silu", "x: ... d", "alpha", options={"alpha": 1.702}),
)


def plain_gelu(x: Array, approximate: str = "tanh") -> Array:
    """x times the probability that a normal variable is below x, or the tanh form."""

    def probability(t: float) -> float:
        if approximate == "none":
            return math.erfc(-t / math.sqrt(2)) / 2
        return (1 + math.tanh(math.sqrt(2 / math.pi) * (t + 0.044715 * t**3))) / 2

    return np.reshape([t * probability(t) for t in x.reshape(-1).tolist()], x.shape)


def plain_silu(x: Array, alpha: float = 1.0) -> Array:
    """x times the logistic function of alpha x, from a tanh, which does not overflow."""
    return np.asarray(x * (1 + np.tanh(alpha * x / 2)) / 2)


PLAIN = {"gelu": plain_gelu, "silu": plain_silu}


@op_of("gelu", lambda dy, x: dy * gelu(x, "none")[1].slope, diagnosis="the other form of gelu")
def erf_gradient_for_tanh(x: Array, approximate: str = "tanh") -> Any:
    """The forward is the tanh form, but the backward differentiates the erf form.

    Hides: the two slopes differ by about 1e-3, which is below most tolerances.
    """
    return gelu(x, approximate)[0], x


def _gelu_slope(x: Array, du: Array, root: float = math.sqrt(2 / math.pi)) -> Array:
    t = np.tanh(root * (x + 0.044715 * x**3))
    return (1 + t) / 2 + x * (1 - t * t) / 2 * du


@op_of(
    "gelu",
    lambda dy, x: dy * _gelu_slope(x, 0.7978845 * (1 + 3 * 0.044715 * x * x), 0.7978845),
    diagnosis="is a constant rounded to too few digits",
)
def constant_with_seven_digits(x: Array, approximate: str = "tanh") -> Any:
    """The forward uses sqrt(2 / pi), but the backward uses 0.7978845, which is this number with only seven digits.

    Hides: the error is about 2e-8 of the gradient, which is below the tolerance of nearly every test.
    """
    return gelu(x, approximate)[0], x


@op_of("gelu", lambda dy, x: dy * _gelu_slope(x, 1 + 3 * 0.044715 * x * x))
def root_missing_in_du(x: Array) -> Any:
    """u' = 1 + 3 * 0.044715 x^2 has no factor sqrt(2 / pi), but u contains this factor.

    Hides: right at x = 0, and for large |x|, where tanh is flat.
    """
    return gelu(x)[0], x


@op_of("gelu", lambda dy, x: dy * _gelu_slope(x, math.sqrt(2 / math.pi) * (1 + 0.044715 * x * x)))
def three_missing_in_du(x: Array) -> Any:
    """u' contains 0.044715 x^2, but the derivative of 0.044715 x^3 is 3 * 0.044715 x^2: the 3 is missing.

    Hides: nearly right close to x = 0 and for large |x|; elsewhere off by a few hundredths at most.
    """
    return gelu(x)[0], x


@op_of("silu", lambda dy, caches: silu_backward(dy, caches[1]), diagnosis="right without the option alpha")
def alpha_missing_in_the_slope(x: Array, alpha: float = 1.0) -> Any:
    """The forward uses alpha, but the backward is the backward for alpha = 1.

    Hides: alpha is 1 in most models.
    """
    return silu(x, alpha)[0], silu(x)


@op_of("silu", diagnosis="right when x is positive")
def slope_of_the_absolute_value(x: Array, alpha: float = 1.0) -> Any:
    """The slope is computed at |x|, so that exp(-alpha |x|) cannot overflow, but a negative x needs 1 - s.

    Hides: right for positive x.
    """
    return silu(x, alpha)[0], silu(np.abs(x), alpha)[1]


EXERCISES = (Exercise("gelu", 8, (Try("gelu", "x: ... d"), Try("gelu", "x: B d", "a matrix"))),)
