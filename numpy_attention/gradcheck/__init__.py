"""Checking: gradients of our ops and of anyone's.

    gradcheck(op, op_backward, {"x": x, "w": w})       # y, cache = op(x, w);  dx, dw = op_backward(dy, cache)
    gradcheck_vjp(f, vjp, (x, w))                      # y = f(x, w);          dx, dw = vjp(dy, x, w)
    gradcheck_layer(layer, {"x": x})                   # every input and every parameter

Each returns a report or raises GradientError, an AssertionError whose message is the report.
The package can itself be called: `numpy_attention.gradcheck(...)` is `numpy_attention.gradcheck.gradcheck(...)`.

A right gradient passes through these, in this order:

    check           the whole check in turn: begin here
    problem         an op, a function or a layer in one form: a function of named arrays, and its analytic gradients
    trees           dicts, lists and dataclasses of arrays, taken apart and put together
    tolerance       the analytic gradients, the round-off in them, and how far each may be off
    line            L = sum(dy y), a single number, along a line through the arrays; its derivative by differences
    complex_step    the derivative to the last digit, by a step into the complex plane; each element is compared
    robustness      the same gradient in any memory layout, with any dy, after any other call
    report          the result, on a screen

The others are read when something is out of the ordinary:

    elements        no complex step, corners and ties, large arrays: each element, or directions, by differences
    diagnosis       the likely mistake, from `evidence`: `terms` of the formula, `places`, `experiments`
    curvature       the backward's own derivative: the Hessian times a vector
    spec, strategies    inputs for property tests: arrays whose sizes agree by name
    pytest_plugin       the same as fixtures and a marker of pytest
    adapters            functions of PyTorch, JAX, autograd and CuPy
"""

import sys
from types import ModuleType

from numpy_attention.gradcheck.check import gradcheck, gradcheck_layer, gradcheck_model, gradcheck_vjp
from numpy_attention.gradcheck.curvature import hvp, hvp_layer, hvp_vjp
from numpy_attention.gradcheck.report import ArgumentReport, GradientError, Report

__all__ = [
    "ArgumentReport", "GradientError", "Report", "gradcheck", "gradcheck_layer", "gradcheck_model", "gradcheck_vjp",
    "hvp", "hvp_layer", "hvp_vjp",
]


class _CallableModule(ModuleType):
    """A package and a function of one name: calling the package calls the function."""

    __call__ = staticmethod(gradcheck)


sys.modules[__name__].__class__ = _CallableModule
