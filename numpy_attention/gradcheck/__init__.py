"""The proof: gradient checks for our ops, and for anyone's.

    gradcheck(op, op_backward, {"x": x, "w": w})       # y, cache = op(x, w);  dx, dw = op_backward(dy, cache)
    gradcheck_vjp(f, vjp, (x, w))                      # y = f(x, w);          dx, dw = vjp(dy, x, w)
    gradcheck_layer(layer, {"x": x})                   # every input and every parameter

Each returns a report or raises `GradientError`, an `AssertionError` whose message is the report.
The package can itself be called: `numpy_attention.gradcheck(...)` is `numpy_attention.gradcheck.gradcheck(...)`.
To a type checker `numpy_attention.gradcheck` is the function; import the parts from `numpy_attention.gradcheck`.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy_attention.gradcheck.check import gradcheck, gradcheck_layer, gradcheck_model, gradcheck_vjp
    from numpy_attention.gradcheck.report import ArgumentReport, GradientError, Report

__all__ = [
    "ArgumentReport", "GradientError", "Report", "gradcheck", "gradcheck_layer", "gradcheck_model", "gradcheck_vjp",
]


class _CallableModule(ModuleType):
    """A package and a function of one name: calling the package calls the function. Its parts come with first use."""

    def __getattr__(self, name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from numpy_attention.gradcheck import check, report

        return getattr(report if name in ("ArgumentReport", "GradientError", "Report") else check, name)

    def __call__(self, *args: Any, **options: Any) -> "Report":
        from numpy_attention.gradcheck.check import gradcheck

        return gradcheck(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
