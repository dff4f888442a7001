"""What the wrong gradient is made of, element by element: which factor is missing, which stands there in its place?

    c = g z^p          z an argument, the output, a length: a factor that was left out, or stands there once too often
    c = dy f(z)        beside g = dy f'(z'): 1 - y where 1 - y**2 belongs, x where y belongs

All of it on any part of a gradient: on all, or only where it is wrong. Two numbers are always related by some factor,
so a relation needs several elements, and must explain the error in each of them.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from numpy_attention.gradcheck.numbers.line import largest
from numpy_attention.gradcheck.problems.problem import Arrays, is_float
from numpy_attention.gradcheck.report import ArgumentReport

ENOUGH = 3  # different values that a relation with a free constant must explain


class Term(NamedTuple):
    """A quantity of the formula, spread to the shape of a gradient."""

    name: str
    value: np.ndarray


# The functions of one number that derivatives are made of.
FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "1": np.ones_like,
    "{u}": lambda u: u,
    "{u}**2": lambda u: u * u,
    "(1 - {u})": lambda u: 1 - u,
    "(1 + {u})": lambda u: 1 + u,
    "(1 - {u}**2)": lambda u: 1 - u * u,
    "(1 + {u}**2)": lambda u: 1 + u * u,
    "{u} (1 - {u})": lambda u: u * (1 - u),
    "{u}**3": lambda u: u**3,
    "|{u}|": np.abs,
    "{u} |{u}|": lambda u: u * np.abs(u),
    "1 / {u}": lambda u: 1 / u,
    "1 / {u}**2": lambda u: 1 / (u * u),
    "1 / (1 + {u}**2)": lambda u: 1 / (1 + u * u),
    "1 / sqrt({u})": lambda u: 1 / np.sqrt(u),
    "sqrt({u})": np.sqrt,
    "exp({u})": np.exp,
    "exp(-{u})": lambda u: np.exp(-u),
    "(exp({u}) - 1)": np.expm1,
    "(1 - exp(-{u}))": lambda u: -np.expm1(-u),
    "sigmoid({u})": lambda u: 1 / (1 + np.exp(-u)),
    "sigmoid(-{u})": lambda u: 1 / (1 + np.exp(u)),
    "sin({u})": np.sin,
    "cos({u})": np.cos,
    "log({u})": np.log,
    "(log({u}) + 1)": lambda u: np.log(u) + 1,
}
POWERS = {1.0: "{z}", -1.0: "1 / {z}", 2.0: "{z}**2", -2.0: "1 / {z}**2", 0.5: "sqrt({z})", -0.5: "1 / sqrt({z})"}


def terms_of(report: ArgumentReport, arrays: Arrays, outputs: tuple[np.ndarray, ...]) -> list[Term]:
    """What may stand as a factor in the gradient of one argument, its own value first."""
    shape, own = report.shape, report.name
    names = sorted((name for name, value in arrays.items() if is_float(value)), key=lambda name: name != own)
    known = [(name, arrays[name]) for name in names]
    known += [("y" if len(outputs) == 1 else f"y[{i}]", y) for i, y in enumerate(outputs)]
    found = [Term(name, value) for name, array in known for value in spread(array, shape)]
    for name, array in known:
        if array.shape == shape:
            for axis in range(array.ndim if array.ndim > 1 else 0):
                found += [Term(words, value) for words, value in _along(name, array, axis)]
    return found


def _along(name: str, x: np.ndarray, axis: int) -> Iterator[tuple[str, np.ndarray]]:
    """Lengths and sums along an axis."""
    size = np.abs(x).sum(axis, keepdims=True)
    for words, value in (
        (f"the length of {name} along axis {axis}", np.sqrt((x * x).sum(axis, keepdims=True))),
        (f"the standard deviation of {name} along axis {axis}", x.std(axis, keepdims=True)),
        (f"the sum of {name} along axis {axis}", x.sum(axis, keepdims=True)),
        (f"the sum of exp({name}) along axis {axis}", np.exp(x).sum(axis, keepdims=True)),
    ):
        if np.all(np.abs(value) > 1e-6 * size):  # and not the round-off of a sum that is zero
            yield words, np.broadcast_to(value, x.shape)


def spread(value: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """An array in each way in which it may be spread to a shape: its axes in order, others put between them."""
    if value.ndim > len(shape):
        return
    for axes in itertools.combinations(range(len(shape)), value.ndim):
        if all(n in (1, shape[axis]) for n, axis in zip(value.shape, axes)):
            whole = np.expand_dims(value, tuple(axis for axis in range(len(shape)) if axis not in axes))
            yield np.broadcast_to(whole, shape)


def slack_of(report: ArgumentReport, part: np.ndarray) -> np.ndarray:
    """How well a relation must explain a part: to its resolution, and a small share of the error in it."""
    off = largest(report.analytic[part] - report.numeric[part])
    slack: np.ndarray = 4 * report.resolution[part] + min(1e-6 * largest(report.numeric[part]), 1e-3 * off)
    return slack


def by_a_term(report: ArgumentReport, part: np.ndarray, terms: list[Term]) -> str:
    """The factor, a power of one of the terms, by which a part of the gradient is off; nothing if there is none."""
    claimed, right, slack = report.analytic[part], report.numeric[part], slack_of(report, part)
    for term in terms:
        z = term.value[part]
        for power, form in POWERS.items():
            if power in (0.5, -0.5) and not np.all(z > 0):
                continue
            factor = z**power
            if not np.all(np.isfinite(factor)):
                continue
            constant = _fits(claimed, right * factor, slack)
            if constant and _different(factor[np.abs(right) > 100 * slack]) >= (2 if abs(constant) == 1 else ENOUGH):
                words = form.format(z=term.name)
                times = "" if constant == 1 else f"right up to a constant, {constant:.4g}, and: "
                if power > 0:
                    return f"{times}the factor {words} stands there once too often, or a division by it is left out"
                inverse = POWERS[-power].format(z=term.name)
                return f"{times}the factor {inverse} is left out, or it is divided by it once too often"
    return ""


def by_a_function(report: ArgumentReport, part: np.ndarray, arrays: Arrays, y: np.ndarray, dy: np.ndarray) -> str:
    """What the backward multiplies dy by, and what belongs there, where both are functions of the input or output."""
    if not dy.shape == y.shape == report.shape or not np.all(dy[part]):
        return ""
    values = [(report.name, arrays[report.name][part]), ("y", y[part])]
    slack = slack_of(report, part)
    belongs = _function(report.numeric[part], dy[part], values, slack)
    stands = _function(report.analytic[part], dy[part], values, slack)
    return f"it is dy times {stands}, where dy times {belongs} belongs" if belongs and stands else ""


def _function(gradient: np.ndarray, dy: np.ndarray, values: list[tuple[str, np.ndarray]], slack: np.ndarray) -> str:
    for words, f in FUNCTIONS.items():
        for name, u in values:
            made = f(u) * dy
            constant = _fits(gradient, made, slack) if np.all(np.isfinite(made)) else 0.0
            if constant and np.count_nonzero(np.abs(made) > 100 * slack) >= ENOUGH:
                times = "" if constant == 1 else "-" if constant == -1 else f"{constant:.4g} "
                return times + words.format(u=name)
    return ""


def _fits(wanted: np.ndarray, made: np.ndarray, slack: np.ndarray) -> float:
    """The constant that makes one the other; exactly 1, -1 or another plain one if it is that; 0 if there is none."""
    if not made.size or not np.any(made):
        return 0.0
    strongest = int(np.argmax(np.abs(made)))
    constant = float(wanted[strongest] / made[strongest])
    plain = round(2 * constant) / 2
    if plain and abs(constant - plain) <= 1e-6 * abs(plain):
        constant = plain
    fits = constant and bool(np.all(np.abs(wanted - constant * made) <= (1 + abs(constant)) * slack))
    return constant if fits else 0.0


def _different(values: np.ndarray) -> int:
    """How many values differ by more than round-off."""
    return 0 if not values.size else 1 + int(np.sum(np.diff(np.sort(values)) > 1e-3 * largest(values)))
