"""What is no answer: the package's own backward, a program that derives, and differences of the forward.

    imports     of programs that differentiate by themselves, and of the answers in this package: refused
    answers     the backwards of the package refuse whoever calls them from outside it, but for the parts of an exercise
    forwards    are counted while a backward runs: one that calls its forward again and again takes differences
    complex     no exercise needs complex numbers, a complex step does

This keeps a reader from having somebody else's work graded by mistake, or out of curiosity. It runs in the process of
the student's file, where whoever sets out to can undo it; what that cannot do is to make a wrong gradient right.
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
    """An answer that is not the student's work; the message is what a tutor says to that."""


class _NoImport(NotYours, ImportError):
    """The same where a module is asked for: whoever can do without it may go on."""


class RefuseImports(importlib.abc.MetaPathFinder):
    """The first to be asked for a module that is not yet imported."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        """Refuse what would give the answer; of all else nothing is known here."""
        if fullname.partition(".")[0] in DERIVE:
            raise _NoImport(
                f"{fullname} finds gradients by itself, and to find this one is the exercise: NumPy is all it needs. "
                "Once yours is right, compare the two in a file of its own"
            )
        if fullname.startswith(ANSWERS):
            raise _NoImport(f"{fullname} holds the answers; leave that import out")
        return None


class Guarded:
    """A backward of the package: it works for the package, and refuses the student."""

    def __init__(self, f: Callable[..., Any], name: str) -> None:
        self.__name__, self.__doc__ = name, f.__doc__
        self._call = f

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method of a layer."""
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Look who calls."""
        file = sys._getframe(1).f_code.co_filename
        if not file.startswith(ROOT) or file.startswith(HERE):
            raise NotYours(
                f"{self.__name__} of the package is somebody else's answer. Derive this one yourself (the hints help), "
                "and then compare the two: that is a good test"
            )
        return self._call(*args, **kwargs)


def guard_answers(answers: Collection[str], parts: Collection[str]) -> None:
    """Put a guard before every backward of the package, and before `answers`; `parts` are given in this exercise."""
    guards: dict[Any, Guarded] = {}
    for module in [module for name, module in sys.modules.items() if name.split(".")[0] == PACKAGE]:
        for name, made in list(vars(module).items()):
            if not str(getattr(made, "__module__", "")).startswith(PACKAGE) or name in parts:
                continue
            if isinstance(made, types.FunctionType) and (name.endswith("_backward") or name in answers):
                setattr(module, name, guards.setdefault(made, Guarded(made, name)))
            elif isinstance(made, type) and made.__name__ not in parts:
                for method in METHODS:
                    own = vars(made).get(method)
                    if isinstance(own, types.FunctionType):
                        setattr(made, method, Guarded(own, f"{name}.{method}"))


class Calls:
    """Counts the calls of a forward while its backward runs; `said` is what there is to say about them."""

    def __init__(self) -> None:
        self.backward, self.count, self.said = "", 0, ""

    def during(self, backward: str, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call f, and count for as long as it takes if it is a backward: the name of one, or "".

        Raises: NotYours for what was noticed, even where the file itself has caught that.
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
        """The forward, in whose place this stands."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.backward:
                self.count += 1
                self.look(name, [*args, *kwargs.values()])
            return forward(*args, **kwargs)

        call.__name__ = call.__qualname__ = name
        return call

    def look(self, name: str, arguments: list[Any]) -> None:
        """Raise where there are too many of them, or one with complex numbers."""
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
    """Refuse a source that computes with complex numbers; one that cannot be read is another's matter.

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
