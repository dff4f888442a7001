"""What it tells that a wrong gradient is the right one times a number: a sign, a mean for a sum, a scale left out."""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.gradcheck.numbers.line import Scalar
from numpy_attention.gradcheck.problems.problem import Arrays
from numpy_attention.gradcheck.report import ArgumentReport
from numpy_attention.gradcheck.words.terms import slack_of

CONSTANTS = {
    "pi": math.pi, "2 pi": 2 * math.pi, "sqrt(pi)": math.sqrt(math.pi), "sqrt(2 pi)": math.sqrt(2 * math.pi),
    "sqrt(2)": math.sqrt(2), "ln 2": math.log(2), "ln 10": math.log(10), "e": math.e,
}


class Relation(NamedTuple):
    """A pattern in a few words, and the mistake that makes it.

    `certain` where a single number suffices to tell it; `weak` where experiments may know more.
    """

    pattern: str
    mistake: str
    certain: bool = False
    weak: bool = False


def constant(report: ArgumentReport, part: np.ndarray) -> float:
    """The factor by which all of a part is off; 0 if there is none."""
    claimed, right, slack = report.analytic[part], report.numeric[part], slack_of(report, part)
    strongest = int(np.argmax(np.abs(right)))
    factor = float(claimed[strongest] / right[strongest]) if right[strongest] else 0.0
    fits = factor and np.all(np.abs(claimed - factor * right) <= (1 + abs(factor)) * slack)
    # A factor that the round-off of one element makes explains nothing.
    return factor if fits and abs(factor - 1) * abs(right[strongest]) > slack[strongest] else 0.0


def factor_in_words(
    factor: float, report: ArgumentReport, scalar: Scalar, arrays: Arrays, options: Mapping[str, Any]
) -> Relation:
    """What a factor means: the first of the known ones that it is."""
    if abs(factor - 1) < 1e-9:
        near = f"{abs(factor - 1):.1e}"
        return Relation(
            f"all by {near} of themselves",
            f"right to {near}, and off by that factor everywhere: a constant of so few digits?"
        )
    if abs(factor - 1) < 0.02:
        near = f"a factor of 1 {factor - 1:+.1e}"
        return Relation(f"all by {near}", f"right up to {near}: a rounded constant, or eps at another place?")
    pattern = f"all by the constant factor {factor:.6g}"
    for number, mistake in _known_factors(factor, scalar, arrays, options):
        if abs(factor - number) <= 1e-6 * abs(number):
            return Relation("the sign" if number == -1 else pattern, mistake, True)
    return Relation(pattern, f"right up to the constant factor {factor:.6g}")


def _known_factors(
    factor: float, scalar: Scalar, arrays: Arrays, options: Mapping[str, Any]
) -> Iterator[tuple[float, str]]:
    """Numbers that stand in the formula, and the mistake that leaves each as a factor; the plainest first."""
    shapes = {f"axis {i} of {name}": n for name, value in arrays.items() for i, n in enumerate(value.shape)}
    pairs = [where for where, n in shapes.items() if n == 2]
    mean = f", or a mean stands where the sum over the 2 of {pairs[0]} belongs" if pairs else ""
    yield -1, "the sign is wrong"
    yield 2, "twice what it should be: a term is added twice, or a factor 1/2 is missing"
    yield 0.5, "half of what it should be: a factor 2 (of a square?) or one of two uses is missing" + mean
    for name, value in options.items():
        if isinstance(value, float) and value not in (0.0, 1.0):
            yield value, f"{name} is applied once too often"
            yield 1 / value, f"{name} is left out"
            yield 1 - value, f"the factor 1/(1 - {name}) is left out"
            yield 1 / (1 - value), f"the factor 1/(1 - {name}) is applied once too often"
    shapes |= {f"all of {name}": value.size for name, value in arrays.items()}
    for dy in scalar.dy:
        for many in range(1, dy.ndim + 1):
            for axes in itertools.combinations(range(dy.ndim), many):
                which = f"axes {axes}" if many > 1 else f"axis {axes[0]}"
                shapes.setdefault(f"{which} of the output", math.prod(dy.shape[axis] for axis in axes))
    for where, n in shapes.items():
        if n > 1:
            forgotten = "a mean whose 1/n was forgotten, or a scale 1/sqrt(n) upside down?"
            yield n, f"a division by {n} ({where}) is missing: {forgotten}"
            yield 1 / n, f"divided by {n} ({where}) once too often: a mean taken where a sum belongs, or twice?"
            yield math.sqrt(n), f"sqrt({n}) ({where}) too large: is the scale 1/sqrt(d) left out of the backward?"
            yield 1 / math.sqrt(n), f"sqrt({n}) ({where}) too small: is the scale 1/sqrt(d) applied twice?"
    for name, value in arrays.items():
        n, counted = value.size, round(factor * value.size)
        if value.dtype.kind in "iu" and 0 < counted < n:
            where = f"a mean over all {n} of {name}, where only {counted} count?"
            yield counted / n, f"{counted} / {n} of what it should be: {where}"
    if len(scalar.dy) == 1 and scalar.dy[0].size == 1:
        y = float(scalar.y[0].reshape(()))
        yield 1 / float(scalar.dy[0].reshape(())), "dy itself, a single number here, is left out: multiply by it"
        for words, value in (("y, the output", y), ("exp(y), of the output", math.exp(min(y, 700.0)))):
            if abs(value) > 1e-3:
                yield value, f"the factor {words}, is one too many"
                yield 1 / value, f"the factor {words}, is left out"
    for where, n in shapes.items():
        if n > 3:
            yield (n - 1) / n, f"{n - 1} / {n} of what it should be: n for n - 1, of the {n} of {where}"
            yield n / (n - 1), f"{n} / {n - 1} of what it should be: n - 1 for n, of the {n} of {where}"
    for words, value in CONSTANTS.items():
        yield value, f"the factor {words} is one too many"
        yield 1 / value, f"the factor {words} is left out"
    if abs(factor) > 1.5 and abs(factor - round(factor)) < 1e-9 * abs(factor):
        yield round(factor), f"{factor:.0f} times what it should be: is a division by {factor:.0f} missing?"
    if factor and abs(1 / factor) > 1.5 and abs(1 / factor - round(1 / factor)) < 1e-9:
        n = round(1 / factor)
        yield 1 / n, f"1/{n} of what it should be: the factor {n} is left out, or it is divided by {n} once too often"


