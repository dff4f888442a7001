"""Refuse answers that are not the student's own work (gradients of libraries, our backwards, differences), and other
processes.

    imports     libraries that differentiate by themselves, and the answers in this package, cannot be imported
    answers     the package's backwards raise NotOwnWork if code outside the package calls them; an exercise allows
                its `parts`
    forwards    calls are counted while a backward runs: a backward with many calls of its forward computes differences
    complex     complex numbers are refused: only the complex step needs them, no exercise does
    processes   Python's usual functions that start a process, or send a signal to one, raise PermissionError, because
                the limits of memory and time hold for one process, and another process could outlive the grading

Without the guard a student might use somebody else's answer by mistake or out of curiosity. The guard runs in the
process of the student's file, where code can disable it on purpose (C code starts a process without Python); but even
then a wrong gradient does not pass.
"""

import ast
import contextlib
import importlib.abc
import os
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
AUTODIFF = frozenset({
    "aesara", "autograd", "casadi", "chainer", "flax", "jax", "keras", "mlx", "mxnet", "mygrad", "numdifftools",
    "paddle", "pytensor", "tensorflow", "theano", "tinygrad", "torch",
})
ANSWERS = (f"{PACKAGE}.grade.", f"{PACKAGE}.catalogue.")
METHODS = ("backward", "step")
PROCESSES = frozenset({  # names of audit events
    "_winapi.CreateProcess", "os.exec", "os.fork", "os.forkpty", "os.killpg", "os.posix_spawn", "os.spawn",
    "os.startfile", "os.system", "resource.prlimit", "subprocess.Popen",
})
MAX_CALLS = 2  # a backward may compute its forward again; differences need two calls for each element


class NotOwnWork(AssertionError):
    """An answer that is not the student's own work; the message is shown to the student."""


class _RefusedImport(NotOwnWork, ImportError):
    """A refused import; a file that catches ImportError can continue without the module."""


class RefuseImports(importlib.abc.MetaPathFinder):
    """The first finder in `sys.meta_path`: Python calls it for every module that is not yet imported."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        """Refuse a module that would give the answer; for other modules None lets Python call the next finder."""
        if fullname.partition(".")[0] in AUTODIFF:
            raise _RefusedImport(
                f"{fullname} computes gradients by itself, but this gradient is your exercise: use NumPy only. "
                "When your gradient is right, you can compare both in another file"
            )
        if fullname.startswith(ANSWERS):
            raise _RefusedImport(f"{fullname} contains the answers; remove this import")
        return None


def guarded(f: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A backward of the package that only the package can call; a call from a student's file is refused."""

    def call(*args: Any, **kwargs: Any) -> Any:
        file = sys._getframe(1).f_code.co_filename  # the caller's file
        if not file.startswith(ROOT) or file.startswith(HERE):
            raise NotOwnWork(
                f"{name} of the package is not your own answer. Write your own (the hints help); "
                "then compare both functions in another file, which is a good test"
            )
        return f(*args, **kwargs)

    call.__name__, call.__doc__ = name, f.__doc__
    return call


def guard_answers(answers: Collection[str], parts: Collection[str]) -> None:
    """Guard every backward of the package, and `answers`; the exercise allows `parts`."""
    guards: dict[Any, Callable[..., Any]] = {}  # a function that two modules import has one guard
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


def refuse_processes() -> None:
    """From now on, refuse to start another process or to send a signal to one."""
    sys.addaudithook(_refuse_process)  # Python has no function that removes it
    with contextlib.suppress(ImportError):  # not on Windows; multiprocessing calls it without an audit event
        vars(importlib.import_module("_posixsubprocess"))["fork_exec"] = lambda *_: _refuse_process("os.exec", ())


def _refuse_process(event: str, arguments: tuple[Any, ...]) -> None:
    if event in PROCESSES or (event == "os.kill" and arguments[0] != os.getpid()):
        # an OSError, because a library that looks for a program expects one and continues without the program
        raise PermissionError(f"{event} is refused: an answer needs no other process; remove this call")


class Calls:
    """Counts the calls of a forward while its backward runs; `refusal` is a message, or ""."""

    def __init__(self) -> None:
        self.backward, self.count, self.refusal = "", 0, ""

    def during(self, backward: str, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call f; if `backward` is not "", count the calls of forwards in it.

        Raises: NotOwnWork if there were too many calls, even if the file itself has caught this exception.
        """
        self.backward, self.count, self.refusal = backward, 0, ""
        try:
            with np.errstate(all="ignore"):
                answer = f(*args, **kwargs)
        finally:
            self.backward = ""
        if self.refusal:
            raise NotOwnWork(self.refusal)
        return answer

    def counted(self, forward: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The forward, but its calls are counted."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.backward:
                self.count += 1
                self.check_call(name, [*args, *kwargs.values()])
            return forward(*args, **kwargs)

        call.__name__ = call.__qualname__ = name
        return call

    def check_call(self, name: str, arguments: list[Any]) -> None:
        """Raise NotOwnWork if there are too many calls, or for a call with complex numbers."""
        if any(isinstance(one, np.ndarray) and one.dtype.kind == "c" for one in arguments):
            self.refusal = f"{self.backward} calls {name} with complex numbers, which is the complex step"
        elif self.count > MAX_CALLS:
            self.refusal = f"{self.backward} calls {name} many times, as numerical differences do"
        if self.refusal:
            self.refusal += (
                ". The grader checks gradients in this way; your backward must use a formula that contains dy and the "
                "cache"
            )
            raise NotOwnWork(self.refusal)


def refuse_complex_numbers(text: str) -> None:
    """Refuse a source that computes with complex numbers; ignore a source that Python cannot parse: its import fails.

    Raises: NotOwnWork, with the number of the line.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        number = isinstance(node, ast.Constant) and isinstance(node.value, complex)
        if number or (isinstance(node, ast.Attribute) and node.attr == "imag"):
            line = getattr(node, "lineno", 0)
            raise NotOwnWork(
                f"line {line} computes with complex numbers: the grader checks gradients in this way (the complex "
                "step), but no formula of this exercise needs them. Use a formula that contains dy and the cache"
            )
