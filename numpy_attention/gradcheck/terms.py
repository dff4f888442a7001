"""Three forms of a wrong gradient: the right gradient times a factor, plus a term, or with another function.

    c = a g            a number: a sign, a mean instead of a sum, a missing scale (`factor_in_words`)
    c = g z^p          z is an argument, the output or a length: a factor is missing or applied twice (`by_a_term`)
    c = dy f(z)        while g = dy f'(z'): 1 - y instead of 1 - y**2, x instead of y (`by_a_function`)
    c = g + ...        (`added`)
        dy, dy * z                        a term of a sum or of the product rule, missing or with the wrong sign
        one number for each row           a mean or a sum is missing
        a multiple of x, of the output    the path through a variance, a length, a softmax
        other places                      the right numbers, but shifted by one or in another order

Each relation is tested on the whole gradient, or only on its wrong elements. Any two numbers are related by a factor,
so a relation needs several elements, and must explain the error in each element.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.gradcheck.line import Scalar, largest
from numpy_attention.gradcheck.problem import Arrays, is_float
from numpy_attention.gradcheck.report import ArgumentReport

ENOUGH = 3  # different values that a relation with a free constant must explain
# Functions of one variable that occur in derivatives.
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
CONSTANTS = {
    "pi": math.pi, "2 pi": 2 * math.pi, "sqrt(pi)": math.sqrt(math.pi), "sqrt(2 pi)": math.sqrt(2 * math.pi),
    "sqrt(2)": math.sqrt(2), "ln 2": math.log(2), "ln 10": math.log(10), "e": math.e,
}


class Term(NamedTuple):
    """A quantity of the formula, broadcast to the shape of a gradient."""

    name: str
    value: np.ndarray


def terms_of(report: ArgumentReport, arrays: Arrays, outputs: tuple[np.ndarray, ...]) -> list[Term]:
    """Possible factors in the gradient of one argument; the value of the argument comes first."""
    shape, own = report.shape, report.name
    names = sorted((name for name, value in arrays.items() if is_float(value)), key=lambda name: name != own)
    known = [(name, arrays[name]) for name in names]
    known += [("y" if len(outputs) == 1 else f"y[{i}]", y) for i, y in enumerate(outputs)]
    found = [Term(name, value) for name, array in known for value in spread(array, shape)]
    for name, array in known:
        if array.shape == shape:
            for axis in range(array.ndim if array.ndim > 1 else 0):
                found += [Term(quantity, value) for quantity, value in _along(name, array, axis)]
    return found


def _along(name: str, x: np.ndarray, axis: int) -> Iterator[tuple[str, np.ndarray]]:
    """Lengths and sums along an axis."""
    size = np.abs(x).sum(axis, keepdims=True)
    for quantity, value in (
        (f"the length of {name} along axis {axis}", np.sqrt((x * x).sum(axis, keepdims=True))),
        (f"the standard deviation of {name} along axis {axis}", x.std(axis, keepdims=True)),
        (f"the sum of {name} along axis {axis}", x.sum(axis, keepdims=True)),
        (f"the sum of exp({name}) along axis {axis}", np.exp(x).sum(axis, keepdims=True)),
    ):
        if np.all(np.abs(value) > 1e-6 * size):  # the value is not the round-off of a sum that is zero
            yield quantity, np.broadcast_to(value, x.shape)


def spread(value: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """An array, broadcast to a shape in every possible way: its axes stay in order, new axes come between them."""
    if value.ndim > len(shape):
        return
    for axes in itertools.combinations(range(len(shape)), value.ndim):
        if all(n in (1, shape[axis]) for n, axis in zip(value.shape, axes)):
            whole = np.expand_dims(value, tuple(axis for axis in range(len(shape)) if axis not in axes))
            yield np.broadcast_to(whole, shape)


def slack_of(report: ArgumentReport, part: np.ndarray) -> np.ndarray:
    """The error that is allowed in a relation: the tolerance of the part, and a small share of the error in it."""
    off = largest(report.analytic[part] - report.numeric[part])
    slack: np.ndarray = 4 * report.resolution[part] + min(1e-6 * largest(report.numeric[part]), 1e-3 * off)
    return slack


def by_a_term(report: ArgumentReport, part: np.ndarray, terms: list[Term]) -> str:
    """The mistake, if the wrong elements are the right ones times a power of one of the terms; else ""."""
    analytic, right, slack = report.analytic[part], report.numeric[part], slack_of(report, part)
    for term in terms:
        z = term.value[part]
        for power, form in POWERS.items():
            if power in (0.5, -0.5) and not np.all(z > 0):
                continue
            factor = z**power
            if not np.all(np.isfinite(factor)):
                continue
            constant = _fits(analytic, right * factor, slack)
            if constant and _different(factor[np.abs(right) > 100 * slack]) >= (2 if abs(constant) == 1 else ENOUGH):
                z_to_p = form.format(z=term.name)
                times = "" if constant == 1 else f"apart from a constant factor {constant:.4g}: "
                if power > 0:
                    return f"{times}the factor {z_to_p} is applied once too often, or a division by it is left out"
                inverse = POWERS[-power].format(z=term.name)
                return f"{times}the factor {inverse} is left out, or a division by it is applied once too often"
    return ""


def by_a_function(report: ArgumentReport, part: np.ndarray, arrays: Arrays, y: np.ndarray, dy: np.ndarray) -> str:
    """The mistake, if wrong and right gradient each are dy times a function of the input or the output; else ""."""
    if not dy.shape == y.shape == report.shape or not np.all(dy[part]):
        return ""
    values = [(report.name, arrays[report.name][part]), ("y", y[part])]
    slack = slack_of(report, part)
    right = _function(report.numeric[part], dy[part], values, slack)
    wrong = _function(report.analytic[part], dy[part], values, slack)
    return f"it is dy times {wrong}, but must be dy times {right}" if right and wrong else ""


def _function(gradient: np.ndarray, dy: np.ndarray, values: list[tuple[str, np.ndarray]], slack: np.ndarray) -> str:
    for formula, f in FUNCTIONS.items():
        for name, u in values:
            made = f(u) * dy
            constant = _fits(gradient, made, slack) if np.all(np.isfinite(made)) else 0.0
            if constant and np.count_nonzero(np.abs(made) > 100 * slack) >= ENOUGH:
                times = "" if constant == 1 else "-" if constant == -1 else f"{constant:.4g} "
                return times + formula.format(u=name)
    return ""


def _fits(wanted: np.ndarray, made: np.ndarray, slack: np.ndarray) -> float:
    """The constant by which `made` must be multiplied; rounded to a close multiple of 1/2; 0 if none fits."""
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
    """The number of values that differ by more than round-off."""
    return 0 if not values.size else 1 + int(np.sum(np.diff(np.sort(values)) > 1e-3 * largest(values)))


class Relation(NamedTuple):
    """A pattern in a few words, and the mistake that causes it.

    `certain`: one number is enough to recognize the mistake. `weak`: an experiment may find a better explanation.
    """

    pattern: str
    mistake: str
    certain: bool = False
    weak: bool = False


def constant(report: ArgumentReport, part: np.ndarray) -> float:
    """The one factor between wrong and right elements of a part; 0 if no factor fits."""
    analytic, right, slack = report.analytic[part], report.numeric[part], slack_of(report, part)
    strongest = int(np.argmax(np.abs(right)))
    factor = float(analytic[strongest] / right[strongest]) if right[strongest] else 0.0
    fits = factor and np.all(np.abs(analytic - factor * right) <= (1 + abs(factor)) * slack)
    # A factor within the round-off of one element explains nothing.
    return factor if fits and abs(factor - 1) * abs(right[strongest]) > slack[strongest] else 0.0


def factor_in_words(factor: float, scalar: Scalar, arrays: Arrays, options: Mapping[str, Any]) -> Relation:
    """The mistake that a factor indicates: the first known factor that matches."""
    if abs(factor - 1) < 1e-9:
        near = f"{abs(factor - 1):.1e}"
        return Relation(
            f"all by a relative {near}",
            f"right to {near}, but wrong by the same factor everywhere: a constant with too few digits?"
        )
    if abs(factor - 1) < 0.02:
        near = f"a factor of 1 {factor - 1:+.1e}"
        return Relation(f"all by {near}", f"right up to {near}: a rounded constant, or eps at a wrong place?")
    pattern = f"all by the constant factor {factor:.6g}"
    for number, mistake in _known_factors(factor, scalar, arrays, options):
        if abs(factor - number) <= 1e-6 * abs(number):
            return Relation("the sign" if number == -1 else pattern, mistake, True)
    return Relation(pattern, f"right up to the constant factor {factor:.6g}")


def _known_factors(
    factor: float, scalar: Scalar, arrays: Arrays, options: Mapping[str, Any]
) -> Iterator[tuple[float, str]]:
    """Numbers of the formula, each with the mistake that causes this factor; the simplest first."""
    shapes = {f"axis {i} of {name}": n for name, value in arrays.items() for i, n in enumerate(value.shape)}
    pairs = [where for where, n in shapes.items() if n == 2]
    mean = f", or a mean replaces the sum over the 2 elements of {pairs[0]}" if pairs else ""
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
            forgotten = "is the 1/n of a mean missing, or is a scale sqrt(n) instead of 1/sqrt(n)?"
            yield n, f"a division by {n} ({where}) is missing: {forgotten}"
            yield 1 / n, f"divided by {n} ({where}) once too often: a mean instead of a sum, or a mean applied twice?"
            yield math.sqrt(n), f"sqrt({n}) ({where}) too large: is the scale 1/sqrt(d) left out of the backward?"
            yield 1 / math.sqrt(n), f"sqrt({n}) ({where}) too small: is the scale 1/sqrt(d) applied twice?"
    for name, value in arrays.items():
        n, counted = value.size, round(factor * value.size)
        if value.dtype.kind in "iu" and 0 < counted < n:
            where = f"a mean over all {n} of {name}, but only {counted} count?"
            yield counted / n, f"{counted} / {n} of what it should be: {where}"
    if len(scalar.dy) == 1 and scalar.dy[0].size == 1:
        yield 1 / float(scalar.dy[0].reshape(())), "dy, a single number here, is left out: multiply by dy"
    for where, n in shapes.items():
        if n > 3:
            yield (n - 1) / n, f"{n - 1} / {n} of what it should be: n instead of n - 1, for {where} (n = {n})"
            yield n / (n - 1), f"{n} / {n - 1} of what it should be: n - 1 instead of n, for {where} (n = {n})"
    for constant, value in CONSTANTS.items():
        yield value, f"the factor {constant} is applied once too often"
        yield 1 / value, f"the factor {constant} is left out"
    if abs(factor) > 1.5 and abs(factor - round(factor)) < 1e-9 * abs(factor):
        yield round(factor), f"{factor:.0f} times what it should be: is a division by {factor:.0f} missing?"
    if factor and abs(1 / factor) > 1.5 and abs(1 / factor - round(1 / factor)) < 1e-9:
        n = round(1 / factor)
        mistake = f"the factor {n} is left out, or a division by {n} is applied once too often"
        yield 1 / n, f"1/{n} of what it should be: {mistake}"


def added(
    report: ArgumentReport, scalar: Scalar, arrays: Arrays, slack: np.ndarray, terms: list[Term]
) -> Relation | None:
    """The first relation: the wrong gradient is the right one plus a term, or has its elements at wrong places."""
    off = report.analytic - report.numeric
    size = largest(off)

    def same(ratio: np.ndarray, weight: np.ndarray, axis: int) -> bool:
        mean = (ratio * weight**2).sum(axis, keepdims=True) / np.maximum((weight**2).sum(axis, keepdims=True), 1e-300)
        return bool(np.all(np.abs((ratio - mean) * weight) <= slack))

    for dy in scalar.dy:
        if dy.shape == off.shape and np.any(dy):
            if np.all(np.abs(off + dy) <= slack):
                return Relation("off by dy", "lacks dy: the identity path of a residual branch is left out")
            if np.all(np.abs(off - dy) <= slack):
                return Relation(
                    "off by dy", "is too large by dy: a residual path is added twice, or only in the backward"
                )
    mistake = _term_of_a_sum(off, slack, scalar, terms)
    if mistake:
        return Relation("off by a term", mistake)
    relation = _factor_of_each_row(report, slack)
    if relation:
        return relation
    for axis in range(off.ndim - 1, -1, -1):
        if off.shape[axis] < 3:
            continue
        if same(off, np.ones_like(off), axis):
            return Relation(
                f"off by one number per row along axis {axis}",
                f"every row along axis {axis} is off by the same number in all its elements: is a `- mean(...)` or a "
                "`- sum(...)` term missing?"
            )
        x = arrays[report.name]
        centred = x - x.mean(axis, keepdims=True)
        for term, path in ((centred, "variance"), (x, "length")):
            if np.count_nonzero(term) == term.size and same(off / term, term, axis):
                return Relation(
                    f"off by a multiple of {report.name} along axis {axis}",
                    f"every row along axis {axis} is off by a multiple of {report.name}: is the path through the "
                    f"{path} (or the mean square) missing, or scaled differently than in the forward"
                    + (" (n - 1 instead of n)?" if path == "variance" else "?")
                )
        for y in scalar.y:
            if y.shape == off.shape and np.count_nonzero(y) == y.size and same(off / y, y, axis):
                softmax = np.all(y > 0) and np.allclose(y.sum(axis), 1.0)
                path = "is the softmax's `- sum(dy * w)` missing?" if softmax else (
                    "is the path through a sum along that axis missing?")
                return Relation(
                    f"off by a multiple of the output along axis {axis}",
                    f"every row along axis {axis} is off by a multiple of the output: {path}"
                )
    mistake = _shifted(report, slack)
    if mistake:
        return Relation("shifted", mistake)
    mistake = _reordered(report, slack)
    if mistake:
        return Relation("the right numbers in the wrong places", mistake)
    if report.wrong.mean() > 0.5 and size < 0.02 * largest(report.numeric):
        return Relation(
            "close, but not equal",
            "close, but not equal: does the backward use a different formula than the forward (the other form of "
            "gelu, a different eps, n - 1 instead of n, a rounded constant)?"
        )
    return None


def _term_of_a_sum(off: np.ndarray, slack: np.ndarray, scalar: Scalar, terms: list[Term]) -> str:
    """The mistake, if the error is dy times a term of the formula; else ""."""
    for i, dy in enumerate(scalar.dy):
        for each in spread(dy, off.shape) if dy.ndim else ():
            name = "dy" if len(scalar.dy) == 1 else f"dy[{i}]"
            for term in (Term("", np.ones(off.shape)), *terms):
                if not term.name and dy.shape == off.shape:
                    continue
                made = each * term.value
                strongest = np.unravel_index(int(np.argmax(np.abs(made))), off.shape)
                times = float(off[strongest] / made[strongest]) if made[strongest] else 0.0
                plain = abs(round(2 * times) / 2)
                if not plain or abs(abs(times) - plain) > 1e-6 * plain or plain > 4:
                    continue
                if np.all(np.abs(off - times * made) <= (1 + plain) * slack):
                    how = "too small" if times < 0 else "too large"
                    what = ("" if plain == 1 else f"{plain:g} ") + name + (f" * {term.name}" if term.name else "")
                    if plain in (2, 4):
                        return f"is {how} by {what}: a term with the wrong sign?"
                    return f"is {how} by {what}: a term of the sum is {'left out' if times < 0 else 'wrongly added'}"
    return ""


def _factor_of_each_row(report: ArgumentReport, slack: np.ndarray) -> Relation | None:
    """The relation, if each row has the right direction, and a wrong length that no term explains."""
    analytic, right = report.analytic, report.numeric
    for axis in range(right.ndim - 1, -1, -1):
        if right.shape[axis] < 3 or not report.wrong.any(axis=axis).all():
            continue
        strongest = np.argmax(np.abs(right), axis=axis, keepdims=True)
        top = np.take_along_axis(right, strongest, axis)
        if np.any(top == 0):
            continue
        factor = np.take_along_axis(analytic, strongest, axis) / top
        if np.all(np.abs(analytic - factor * right) <= (1 + np.abs(factor)) * slack):
            return Relation(
                f"every row along axis {axis} by a different factor",
                f"every row along axis {axis} has the right direction and a wrong length: is a factor that "
                "differs from row to row, such as 1/length or 1/sum, left out or applied twice?"
            )
    return None


def _shifted(report: ArgumentReport, slack: np.ndarray) -> str:
    """The mistake, if each element is shifted by one place along one axis or several; else ""."""
    analytic, right, close = report.analytic, report.numeric, 4 * float(slack.max())
    axes = [axis for axis, n in enumerate(right.shape) if n > 2]
    for many in range(1, len(axes) + 1):
        for chosen in itertools.combinations(axes, many):
            later, earlier = ((slice(None),) * right.ndim for _ in range(2))
            later = tuple(slice(1, None) if axis in chosen else one for axis, one in enumerate(later))
            earlier = tuple(slice(None, -1) if axis in chosen else one for axis, one in enumerate(earlier))
            for ours, theirs in ((later, earlier), (earlier, later)):
                moved = right[theirs]
                if np.ptp(moved) > 100 * close and largest(analytic[ours] - moved) <= close:
                    which = f"axis {chosen[0]}" if many == 1 else f"axes {', '.join(map(str, chosen))}"
                    return f"shifted by one along {which}: an index off by one, or a padding cut at the wrong side?"
    return ""


def _reordered(report: ArgumentReport, slack: np.ndarray) -> str:
    """The mistake, if the right numbers are in wrong places; else ""."""
    analytic, right, part = report.analytic, report.numeric, report.wrong
    close = float(slack.max()) * 4
    if part.sum() < 4 or largest(np.sort(analytic[part]) - np.sort(right[part])) > close:
        return ""
    for axis, n in enumerate(right.shape):
        if 2 < n and right.ndim > 1 and largest(np.sort(analytic, axis) - np.sort(right, axis)) <= close:
            return (
                f"the right numbers are in the wrong places along axis {axis}: a permutation instead of its inverse, "
                "or a reshape without its transpose?"
            )
    return "the right numbers are in the wrong places: a reshape without its transpose?"
