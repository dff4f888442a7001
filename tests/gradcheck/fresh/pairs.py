"""Right functions and wrong backwards, made without a look into the checker: a blind test of its diagnoses.

Each right function has a forward `y, cache = f(...)`, a backward and a way to draw its inputs. Each mistake is an
edit of the source of the right backward, so the reader sees exactly what went wrong. Its cause, one sentence, and the
patterns of a diagnosis that names this cause were written before the first run of the checker.
"""

import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from numpy_attention.gradcheck import GradientError, gradcheck

Op = Callable[..., Any]


@dataclass(frozen=True)
class Right:
    """A right function, its right backward, and a function that draws its inputs."""

    name: str
    forward: Op
    backward: Op
    draw: Callable[[np.random.Generator], dict[str, Any]]
    options: dict[str, Any]

    def inputs(self) -> dict[str, Any]:
        return self.draw(np.random.default_rng(5))


@dataclass(frozen=True)
class Wrong:
    """A mistake: the cause in one sentence, and patterns (regular expressions) of a diagnosis that names it."""

    name: str
    right: Right
    forward: Op
    backward: Op
    cause: str
    patterns: tuple[str, ...]

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


def run(right: Right, forward: Op, backward: Op) -> str | None:
    """The diagnosis of the checker, or None if the check passes."""
    try:
        gradcheck(forward, backward, right.inputs(), **right.options)
    except GradientError as error:
        if error.report is None:
            return str(error)
        return error.report.diagnosis or f"(no diagnosis) {error.report.why_not or ''}".strip()
    return None


def differences(right: Right, backward: Op) -> float:
    """The largest error of a backward, relative to the largest derivative, by differences of fourth order."""
    inputs = right.inputs()
    options = {key: value for key, value in right.options.items() if key != "no_gradient"}
    skipped = right.options.get("no_gradient", ())
    y, cache = right.forward(**inputs, **options)
    several = isinstance(y, tuple)
    rng = np.random.default_rng(6)
    dys = [np.asarray(rng.standard_normal(np.shape(part))) for part in (y if several else (y,))]
    grads = backward(tuple(dys) if several else dys[0], cache)
    grads = grads if isinstance(grads, tuple) else (grads,)
    checked = [name for name, value in inputs.items() if np.asarray(value).dtype == np.float64]

    def loss(name: str, i: int, h: float) -> float:
        moved = {key: np.array(value) if key == name else value for key, value in inputs.items()}
        moved[name].reshape(-1)[i] += h
        y, _ = right.forward(**moved, **options)
        return sum(float((dy * part).sum()) for dy, part in zip(dys, y if several else (y,), strict=True))

    worst = 0.0
    for name, grad in zip(checked, grads, strict=True):
        if name in skipped:
            continue
        h, size = 1e-3, np.asarray(inputs[name]).size
        steps = [[loss(name, i, k * h) for k in (-2, -1, 1, 2)] for i in range(size)]
        expected = np.array(steps).reshape(size, 4) @ [1, -8, 8, -1] / (12 * h)
        error = np.abs(np.reshape(grad, -1) - expected).max() if np.size(grad) == size else np.inf
        worst = max(worst, error / max(1e-3, np.abs(expected).max()))
    return worst
