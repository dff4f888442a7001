"""Refuse an answer that calls the package's own backward, which a student may use by mistake or out of curiosity.

This does not stop a student who wants to cheat: the file runs in the same process as the grader.
"""

import functools
import sys
import types
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

PACKAGE, CHECKER = "numpy_attention", "numpy_attention.gradcheck"
ROOT = str(Path(__file__).parents[1])
CALLS_ANSWERS = str(Path(__file__).with_name("answer.py"))  # every call of a student's function comes from this file
METHODS = ("backward", "step")


class NotOwnWork(AssertionError):
    """An answer that is not the student's own work; the message is shown to the student."""


def guard_answers(answers: Collection[str], parts: Collection[str]) -> None:
    """Guard every backward of the package, and `answers`; the exercise allows `parts`."""
    guards: dict[Any, Callable[..., Any]] = {}  # a function that two modules import has one guard
    for module in [module for name, module in sys.modules.items() if name.split(".")[0] == PACKAGE]:
        for name, made in list(vars(module).items()):
            home = str(getattr(made, "__module__", ""))
            if not home.startswith(PACKAGE) or home.startswith(CHECKER) or name in parts:
                continue
            if isinstance(made, types.FunctionType) and (name.endswith("_backward") or name in answers):
                setattr(module, name, guards.setdefault(made, _guarded(made, name)))
            elif isinstance(made, type) and made.__name__ not in parts:
                for method in METHODS:
                    own = vars(made).get(method)
                    if isinstance(own, types.FunctionType) and own.__code__.co_filename != __file__:  # not guarded yet
                        setattr(made, method, _guarded(own, f"{name}.{method}"))


def _guarded(f: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A backward of the package that only the package can call; a call from a student's file is refused."""

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        file = sys._getframe(1).f_code.co_filename  # the caller's file
        if file == CALLS_ANSWERS or not file.startswith((ROOT, "<")):  # "<...>" is a known mistake or a solution
            raise NotOwnWork(
                f"{name} of the package is not your own answer. Write your own (the hints help); "
                "then compare both functions in another file, which is a good test"
            )
        return f(*args, **kwargs)

    return call
