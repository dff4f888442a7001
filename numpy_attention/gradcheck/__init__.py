"""Check gradients of this package and of your own functions.

    gradcheck(op, op_backward, {"x": x, "w": w})       # y, cache = op(x, w);  dx, dw = op_backward(dy, cache)
    gradcheck_vjp(f, vjp, (x, w))                      # y = f(x, w);          dx, dw = vjp(dy, x, w)
    gradcheck_layer(layer, {"x": x})                   # every input and every parameter

Each function returns a report or raises GradientError, an AssertionError whose message is the report. The package can
be called like a function: `numpy_attention.gradcheck(...)` calls `numpy_attention.gradcheck.gradcheck(...)`.

A right gradient passes through seven modules, in this order:

    check         all steps of the check: start reading here
    problem       run the forward and the backward: named arrays and their analytic gradients
    trees         take dicts, lists and dataclasses of arrays apart, and put them together again
    derivative    the derivative of sum(dy y): complex steps and differences
    compare       the error that is allowed in each element, and the verdict
    robust        a right gradient stays right in other calls, and with another dy, memory layout or size
    report        the result as text, at most one screen long

The other modules are for special cases and for wrong gradients:

    corners             equal elements and other points without a derivative
    why                 find the likely mistake
    given               gradients that came from elsewhere, without their function
    curvature           the derivative of the backward: the Hessian times a vector
    spec, strategies    random inputs for property tests; axes with the same name get the same length
    pytest_plugin       the check as fixtures and a marker for pytest
    adapters            check functions of PyTorch, JAX, autograd and CuPy
"""

import sys
from types import ModuleType

from numpy_attention.gradcheck.check import gradcheck, gradcheck_layer, gradcheck_model, gradcheck_vjp
from numpy_attention.gradcheck.curvature import hvp, hvp_layer, hvp_vjp
from numpy_attention.gradcheck.report import ArgumentReport, GradientError, Report
from numpy_attention.gradcheck.robust import ROBUSTNESS

__all__ = [
    "ROBUSTNESS", "ArgumentReport", "GradientError", "Report", "gradcheck", "gradcheck_layer", "gradcheck_model",
    "gradcheck_vjp", "hvp", "hvp_layer", "hvp_vjp",
]


class _CallableModule(ModuleType):
    """A package that can be called: it calls the function of the same name."""

    __call__ = staticmethod(gradcheck)


sys.modules[__name__].__class__ = _CallableModule
