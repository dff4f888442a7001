"""Refuses what is not the student's own work: other programs' gradients, the package's backwards, differences.

    imports     of programs that differentiate by themselves, and of the answers in this package, are refused
    answers     the package's backwards raise NotYours if code outside the package calls them; `parts` of an exercise
                are free
    forwards    are counted while a backward runs: a backward that calls its forward many times takes differences
    complex     no exercise needs complex numbers, but the complex step does

A student may otherwise hand in somebody else's work by mistake or out of curiosity. The guard runs in the process of
the student's file, where code can disable it on purpose; it still cannot make a wrong gradient right.
"""

import ast
import importlib.abc
import sys
import types
from collections.abc import Callable, Collection, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np

PACKAGE = "numpy_attention"
ROOT = str(Path(__file__).parents[1])
HERE = str(Path(__file__).parent)
DERIVE = frozenset({
    "aesara", "autograd", "casadi", "chainer", "flax", "jax", "keras", "mlx", "mxnet", "mygrad", "numdifftools",
    "paddle", "pytensor", "tensorflow", "theano", "tinygrad", "torch",
})
ANSWERS = (f"{PACKAGE}.grade.", f"{PACKAGE}.catalogue.")
METHODS = ("backward", "step")
FEW = 2  # a backward may compute its forward anew; differences take two calls an element


class NotYours(AssertionError):
    """An answer that is not the student's own work; the student reads the message."""


class _NoImport(NotYours, ImportError):
    """An import that is refused; a file that catches ImportError goes on without the module."""


class RefuseImports(importlib.abc.MetaPathFinder):
    """Stands first in `sys.meta_path`, so Python asks it for every module that is not yet imported."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        """Refuse what would give the answer; None leaves any other module to the finders behind this one."""
        if fullname.partition(".")[0] in DERIVE:
            raise _NoImport(
                f"{fullname} finds gradients by itself, and to find this one is the exercise: NumPy is all it needs. "
                "Once yours is right, compare the two in a file of its own"
            )
        if fullname.startswith(ANSWERS):
            raise _NoImport(f"{fullname} holds the answers; leave that import out")
        return None


def guarded(f: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A backward of the package that works for the package, and refuses the student."""

    def call(*args: Any, **kwargs: Any) -> Any:
        file = sys._getframe(1).f_code.co_filename  # of the caller
        if not file.startswith(ROOT) or file.startswith(HERE):
            raise NotYours(
                f"{name} of the package is somebody else's answer. Derive this one yourself (the hints help), "
                "and then compare the two: that is a good test"
            )
        return f(*args, **kwargs)

    call.__name__, call.__doc__ = name, f.__doc__
    return call


def guard_answers(answers: Collection[str], parts: Collection[str]) -> None:
    """Guard every backward of the package, and `answers`; `parts` are given in this exercise."""
    guards: dict[Any, Callable[..., Any]] = {}  # a function that two modules name has one guard
    for module in [module for name, module in sys.modules.items() if name.split(".")[0] == PACKAGE]:
        for name, made in list(vars(module).items()):
            if not str(getattr(made, "__module__", "")).startswith(PACKAGE) or name in parts:
                continue
            if isinstance(made, types.FunctionType) and (name.endswith("_backward") or name in answers):
                setattr(module, name, guards.setdefault(made, guarded(made, name)))
            elif isinstance(made, type) and made.__name__ not in parts:
                for method in METHODS:
                    own = vars(made).get(method)
                    if isinstance(own, types.FunctionType) and own.__module__ != __name__:  # not guarded yet
                        setattr(made, method, guarded(own, f"{name}.{method}"))


class Calls:
    """Counts the calls of a forward while its backward runs; `said` is the refusal, or ""."""

    def __init__(self) -> None:
        self.backward, self.count, self.said = "", 0, ""

    def during(self, backward: str, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call f; count calls of forwards during it, if `backward` is a name and not "".

        Raises: NotYours where there were too many, even if the file itself has caught that.
        """
        self.backward, self.count, self.said = backward, 0, ""
        try:
            with np.errstate(all="ignore"):
                answer = f(*args, **kwargs)
        finally:
            self.backward = ""
        if self.said:
            raise NotYours(self.said)
        return answer

    def counted(self, forward: Callable[..., Any], name: str) -> Callable[..., Any]:
        """A forward that does the same, and counts its calls."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.backward:
                self.count += 1
                self.look(name, [*args, *kwargs.values()])
            return forward(*args, **kwargs)

        call.__name__ = call.__qualname__ = name
        return call

    def look(self, name: str, arguments: list[Any]) -> None:
        """Raise NotYours at one call too many, or a call with complex numbers."""
        if any(isinstance(one, np.ndarray) and one.dtype.kind == "c" for one in arguments):
            self.said = f"{self.backward} calls {name} with complex numbers, which is the complex step"
        elif self.count > FEW:
            self.said = f"{self.backward} calls {name} again and again, as one does to take differences"
        if self.said:
            self.said += (
                ". That is how the grader checks a gradient; yours is to come from a formula, out of dy and the cache"
            )
            raise NotYours(self.said)


def look_for_complex_numbers(text: str) -> None:
    """Refuse a source that computes with complex numbers; a source that Python cannot read passes, its import fails.

    Raises: NotYours, with the line.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        number = isinstance(node, ast.Constant) and isinstance(node.value, complex)
        if number or (isinstance(node, ast.Attribute) and node.attr == "imag"):
            line = getattr(node, "lineno", 0)
            raise NotYours(
                f"line {line} computes with complex numbers: the complex step is how the grader checks a gradient, and "
                "no formula of this exercise needs them. Yours is to come from one, out of dy and the cache"
            )
