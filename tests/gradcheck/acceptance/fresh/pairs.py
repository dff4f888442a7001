"""Right functions and wrong backwards, made without a look into the checker: a blind test of its diagnoses.

Each right function has a forward `y, cache = f(...)`, a backward and a way to draw its inputs. Each mistake is an
edit of the source of the right backward, so the reader sees exactly what went wrong. Its cause, one sentence, and the
patterns of a diagnosis that names this cause were written before the first run of the checker.
"""

import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from numpy_attention.gradcheck import gradcheck

Op = Callable[..., Any]


@dataclass(frozen=True)
class Right:
    """A right function, its right backward, and a function that draws its inputs."""

    name: str
    forward: Op
    backward: Op
    draw: Callable[[np.random.Generator], dict[str, Any]]
    options: dict[str, Any]

    def check(self) -> None:
        """Run the checker, which must find nothing."""
        gradcheck(self.forward, self.backward, self.draw(np.random.default_rng(5)), **self.options)


@dataclass(frozen=True)
class Wrong:
    """A mistake: the cause in one sentence, and patterns (regular expressions) of a diagnosis that names it."""

    name: str
    right: Right
    forward: Op
    backward: Op
    cause: str
    patterns: tuple[str, ...]
    kind = "fresh"
    argument = ""

    def check(self) -> None:
        """Run the checker, which must raise an error."""
        replace(self.right, forward=self.forward, backward=self.backward).check()

    def names_the_cause(self, diagnosis: str) -> bool:
        return any(re.search(pattern, diagnosis, re.IGNORECASE) for pattern in self.patterns)


@dataclass
class Pairs:
    """The right functions and the mistakes of one field."""

    rights: list[Right] = field(default_factory=list)
    wrongs: list[Wrong] = field(default_factory=list)

    def right(self, forward: Op, backward: Op, draw: Callable[..., Any], **options: Any) -> Right:
        self.rights.append(Right(forward.__name__, forward, backward, draw, options))
        return self.rights[-1]

    def wrong(self, right: Right, name: str, edits: dict[str, str], cause: str, *patterns: str) -> None:
        """A mistake made by edits of the right backward, or, if the text is not in it, of the right forward."""
        backward, forward = source(right.backward), source(right.forward)
        for old, new in edits.items():
            where = backward if old in backward else forward
            assert where.count(old) == 1, f"{right.name}, {name}: {old!r} occurs {where.count(old)} times"
            if where is backward:
                backward = backward.replace(old, new)
            else:
                forward = forward.replace(old, new)
        functions = [
            compiled(text, f) if text != source(f) else f
            for text, f in ((forward, right.forward), (backward, right.backward))
        ]
        self.wrongs.append(Wrong(f"{right.name}: {name}", right, *functions, cause, patterns))


def source(f: Op) -> str:
    return textwrap.dedent(inspect.getsource(f))


def compiled(text: str, f: Op) -> Op:
    """The function of a changed source text, with the globals of f."""
    names = f.__globals__.copy()
    exec(text, names)
    return names[f.__name__]
