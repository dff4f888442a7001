"""The proof: gradient checks for our ops, and for anyone's.

    gradcheck(op, op_backward, {"x": x, "w": w})       # y, cache = op(x, w);  dx, dw = op_backward(dy, cache)
    gradcheck_vjp(f, vjp, (x, w))                      # y = f(x, w);          dx, dw = vjp(dy, x, w)
    gradcheck_layer(layer, {"x": x})                   # every input and every parameter

Each returns a report or raises GradientError, an AssertionError whose message is the report.
The package can itself be called: `numpy_attention.gradcheck(...)` is `numpy_attention.gradcheck.gradcheck(...)`.

How it works, file by file:

    problem       op, function or layer in one form: a function of named arrays, and the gradients it claims
    claims        the backward is asked with a random dy, and the round-off in its answer is measured
    line          L = sum(dy y), a single number, along a line through one of the arrays
    differences   the derivative of L along that line, with its own error bar
    elements      small arrays: each element by its own differences
    directions    large arrays: random directions, then bisection down to the element
    report        what was found, in words
    check         all of this in turn

    evidence      what is known once something is wrong, and two ways to ask further
    relations     how the wrong gradient relates to the right one: a sign, a factor, a transpose, a term
    experiments   when does the backward become right? With nothing masked, with gamma all ones, ...
    paths         which part of dy reaches which part of a gradient?
    diagnosis     the likely mistake, from all of these

    spec, strategies      inputs for property tests: arrays whose sizes agree by name
"""

import sys
from types import ModuleType

from numpy_attention.gradcheck.check import gradcheck, gradcheck_layer, gradcheck_model, gradcheck_vjp
from numpy_attention.gradcheck.report import ArgumentReport, GradientError, Report

__all__ = [
    "ArgumentReport", "GradientError", "Report", "gradcheck", "gradcheck_layer", "gradcheck_model", "gradcheck_vjp",
]


class _CallableModule(ModuleType):
    """A package and a function of one name: calling the package calls the function."""

    __call__ = staticmethod(gradcheck)


sys.modules[__name__].__class__ = _CallableModule
