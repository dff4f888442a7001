"""Check gradients of this package and of your own functions.

    gradcheck(op, op_backward, {"x": x, "w": w})       # y, cache = op(x, w);  dx, dw = op_backward(dy, cache)
    gradcheck_vjp(f, vjp, (x, w))                      # y = f(x, w);          dx, dw = vjp(dy, x, w)
    gradcheck_layer(layer, {"x": x})                   # every input and every parameter

Each function returns a report or raises GradientError, an AssertionError whose message is the report. The package can
be called like a function: `numpy_attention.gradcheck(...)` calls `numpy_attention.gradcheck.gradcheck(...)`.

A right gradient passes through these modules, in this order:

    check           all steps of the check: start reading here
    problem         one interface for ops, functions and layers: named arrays and their analytic gradients
    trees           take dicts, lists and dataclasses of arrays apart, and put them together again
    tolerance       the analytic gradients, their round-off, and the error that is allowed in each element
    line            the number L = sum(dy y) along a line through the arrays, and its derivative by differences
    complex_step    the derivative to the last digit, from a step into the complex plane; compare each element
    robustness      the gradient must not depend on memory layout or on other calls, and must be linear in dy
    lengths         the gradient must also be right for axes of length 1
    report          the result as text, at most one screen long

The other modules are for special cases and for wrong gradients:

    elements        functions without a complex step, corners, ties, large arrays: compare by differences
    diagnosis       find the likely mistake from `evidence`: `terms` of the formula, `places`, `experiments`,
                    `paths` through the `steps` of the forward, `simpler` arrays
    curvature       the derivative of the backward: the Hessian times a vector
    spec, strategies    random inputs for property tests; axes with the same name get the same length
    pytest_plugin       the check as fixtures and a marker for pytest
    adapters            check functions of PyTorch, JAX, autograd and CuPy
"""

import sys
from types import ModuleType

from numpy_attention.gradcheck.check import gradcheck, gradcheck_layer, gradcheck_model, gradcheck_vjp
from numpy_attention.gradcheck.curvature import hvp, hvp_layer, hvp_vjp
from numpy_attention.gradcheck.report import ArgumentReport, GradientError, Report
from numpy_attention.gradcheck.robustness import ROBUSTNESS

__all__ = [
    "ROBUSTNESS", "ArgumentReport", "GradientError", "Report", "gradcheck", "gradcheck_layer", "gradcheck_model",
    "gradcheck_vjp", "hvp", "hvp_layer", "hvp_vjp",
]


class _CallableModule(ModuleType):
    """A package that can be called: it calls the function of the same name."""

    __call__ = staticmethod(gradcheck)


sys.modules[__name__].__class__ = _CallableModule
