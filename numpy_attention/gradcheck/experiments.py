"""Experiments on a wrong backward: change one thing at a time, and see when it becomes right, or what it depends on.

    dy                 twice the dy must give twice the gradient
    parts of dy        dy is cut to one output, or to one place along an axis. A part that the backward ignores although
                       the forward depends on it is a use that was not added, or a sum that became an assignment; a
                       place that it takes in although the forward keeps it apart is a sum along the wrong axis
    an argument        set to a value at which it has no effect: a mask that hides nothing, a gamma of ones, ids that do
                       not repeat, a symmetric matrix. A backward that is right only there has left that argument out
    an option          the same without it
    sums and lengths   a gradient behind a softmax sums to zero, a rotation keeps lengths: which of these fails?

An experiment needs a control. At ones a missing factor does nothing, but neither does a square for a cube, and a branch
at zero is never seen: so the backward is also run at other constants and at random positive values, where the factor
that is left out shows.

Each experiment yields a sentence. The first one is the diagnosis, so the most telling experiments come first.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.line import Outputs, first_step, rms
from numpy_attention.gradcheck.problem import Arrays, is_float

UNDONE = "a backward is the transpose of it (the matrix transposed, the sum from the other end, the angle turned back)"
SMALL = 1e-4  # an error below this share is below what the experiments see
REPEATED = (
    "rows of repeated {name} get only one of their contributions: d[{name}] += dy keeps the last; add them up "
    "with np.add.at (a scatter-add), or sort and np.add.reduceat"
)
OTHER = 1.37  # a constant that no formula contains
FEW = 8  # arguments; with more of them, as in a layer, only vectors are set to ones
MANY = 16  # axes longer than this are not taken apart place by place


def experiments(evidence: Evidence) -> Iterator[str]:
    """The sentence of each experiment that finds something, the most telling first."""
    wrong = evidence.wrong
    names = [report.name for report in wrong]
    if all(report.error < SMALL for report in wrong):
        return
    with np.errstate(all="ignore"):
        yield from _with_other_cotangents(evidence, names)
        yield from _where_ids_repeat(evidence)
        yield from ignored_outputs(evidence, names)
        yield from at_neutral_values(evidence, names)
        yield from _jacobian_itself(evidence, names)
        if not any(report.wrong.sum() == 1 < report.wrong.size for report in wrong):
            yield from ignored_places_of_dy(evidence, names)
        yield from _without_options(evidence, names)
        if all(report.wrong.mean() > 0.5 for report in wrong):
            yield from mixing(evidence, names)
            yield from _sums_and_lengths(evidence)
            yield from local(evidence, names)


def _with_other_cotangents(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """A backward is linear in dy; and it is not the forward applied to dy."""
    problem, dy = evidence.problem, evidence.scalar.dy
    once, twice = evidence.gradients(), evidence.gradients(tuple(2 * one for one in dy))
    for name in names:
        grad, double = once[name], twice[name]
        if grad is None or double is None or not np.any(grad):
            continue
        if np.allclose(double, grad, rtol=1e-12, atol=0):
            yield f"d{name} does not depend on dy at all: is the chain rule's last factor missing?"
        if np.allclose(double, 4 * grad, rtol=1e-9, atol=0):
            yield f"d{name} grows with the square of dy: is dy used twice?"
        if len(dy) == 1 and dy[0].shape == evidence.exact[name].shape:
            again = problem.run({**evidence.exact, name: dy[0]})[0] if dy[0].size == grad.size else ()
            if again and again[0].shape == grad.shape and np.allclose(again[0], grad, rtol=1e-9, atol=1e-12):
                yield f"d{name} is the forward applied to dy: {UNDONE}"


def _jacobian_itself(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether the backward gives J dy, where J^T dy belongs."""
    dy = evidence.scalar.dy
    for name in names if len(dy) == 1 else ():
        grad = evidence.gradients()[name]
        if grad is not None and grad.shape == dy[0].shape and np.any(grad) and _near(
                _forwards(evidence, name), grad, 1e-6 * float(np.abs(grad).max())):
            yield f"d{name} is the Jacobian itself applied to dy, not its transpose: {UNDONE}"


def _forwards(evidence: Evidence, name: str) -> np.ndarray:
    """The derivative of the output along dy: what a backward would give that forgot to transpose. Four calls."""
    x, dy = evidence.exact[name], evidence.scalar.dy[0]
    evaluate, before, h = evidence.problem.bind(evidence.exact), x.copy(), first_step(0.0, rms(x)) / 4
    slopes = []
    try:
        for step in (h, h / 2):
            np.add(before, step * dy, out=x)
            right = evaluate()[0]
            np.add(before, -step * dy, out=x)
            slopes.append((right - evaluate()[0]) / (2 * step))
    finally:
        x[...] = before
    return np.asarray((4 * slopes[1] - slopes[0]) / 3)


def _where_ids_repeat(evidence: Evidence) -> Iterator[str]:
    """Whether just those rows of a table are wrong that were looked up more than once, and hold one of their terms."""
    for name, value in evidence.exact.items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and len(evidence.wrong) == 1:
            numbers, counts = np.unique(value, return_counts=True)
            wrong, analytic = evidence.wrong[0].wrong, evidence.wrong[0].analytic
            rows = set(np.flatnonzero(wrong.any(axis=tuple(range(1, wrong.ndim)))).tolist())
            if rows and rows == set(numbers[counts > 1].tolist()) and _one_term_each(evidence, value, analytic, rows):
                yield f"wrong just where a number in {name} repeats: {REPEATED.format(name=name)}"


def _one_term_each(evidence: Evidence, ids: np.ndarray, analytic: np.ndarray, rows: set[int]) -> bool:
    """Whether each of these rows is dy at one of its places; yes where dy has another form, so that this is unknown."""
    dy = evidence.scalar.dy[0]
    if len(evidence.scalar.dy) > 1 or dy.shape != ids.shape + analytic.shape[1:]:
        return True
    return all(any(np.allclose(one, analytic[row]) for one in dy[ids == row]) for row in rows)


def _without_options(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether the backward is right without one of the options."""
    problem = evidence.problem
    for name, value in problem.options.items():
        rest = {key: other for key, other in problem.options.items() if key != name}
        try:
            fine = evidence.right_at(names, evidence.exact, problem.with_options(rest))
        except (TypeError, ValueError):  # an option that must be given
            continue
        if fine:
            yield _without(name, value)


def _without(name: str, value: Any) -> str:
    """What it means that a backward is right without an option."""
    if name in ("dropout", "rate"):
        return (
            "right without dropout: where the forward went on with what dropout left, zeroed and rescaled, the "
            "backward must use just that, not what was there before"
        )
    if name == "block_size":
        return f"right in one block: with {name}={value} a block overwrites what it should add to, or is left out"
    return f"right without the option {name}: does the backward forget {name}={value!r}?"


def _sums_and_lengths(evidence: Evidence) -> Iterator[str]:
    """Whether sums or lengths tell: of a gradient behind a softmax, of weights that are not one, of a rotation."""
    for report in evidence.wrong:
        right, analytic = report.numeric, report.analytic
        if not np.isfinite(right).all() or not report.size:
            continue
        slack = 1e-6 * report.size
        for axis, n in enumerate(right.shape):
            if n < 2:
                continue
            total, analytic_total = right.sum(axis), analytic.sum(axis)
            for dy in evidence.scalar.dy:
                like_dy = dy.ndim == right.ndim and dy.sum(axis).shape == total.shape
                like_dy = like_dy and not _near(dy.sum(axis), 0 * total, 100 * slack)  # zero is the next case
                if like_dy and _near(dy.sum(axis), total, slack) and not _near(analytic_total, total, 100 * slack):
                    if dy.shape == right.shape and _near(analytic_total, 0 * analytic_total, n * slack):
                        yield (
                            f"{report.symbol} sums to zero along axis {axis}, as behind a norm or a softmax, where "
                            "it must have the sums of dy: is dy left out, the straight path of a residual?"
                        )
                    yield (
                        f"{report.symbol} must have the sums of dy along axis {axis}, and has not: the weights that "
                        "the backward uses do not sum to one (made again without their maximum or sum?)"
                    )
            if _near(total, 0 * total, n * slack) and not _near(analytic_total, total, 100 * n * slack):
                yield (
                    f"{report.symbol} must sum to zero along axis {axis}, as behind every softmax, and does not: is "
                    "the `- sum(dy * w)` missing, or taken along another axis, or the softmax's backward left out?"
                )
            length, theirs = (np.sqrt((one * one).sum(axis)) for one in (right, analytic))
            if _near(length, theirs, slack):
                yield (
                    f"{report.symbol} has the right length along axis {axis} but another direction: a rotation by "
                    "other angles, or of other pairs of coordinates?"
                )


def _near(a: np.ndarray, b: np.ndarray, slack: float) -> bool:
    return bool(np.all(np.abs(a - b) <= slack))


def at_neutral_values(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether the backward is right where one of the arguments has no effect."""
    for name, value in evidence.exact.items():
        if not isinstance(value, np.ndarray) or not value.size:
            continue
        if is_float(value):
            continue
        if value.dtype == bool:
            yield from _of_masks(evidence, names, name, value)
        changed, words = _neutral(name, value, evidence.exact, names)
        if changed is not None and evidence.right_at(names, {**evidence.exact, name: changed}):
            yield words
    arrays = {name: value for name, value in evidence.exact.items() if is_float(value) and value.size > 1}
    few = len(arrays) <= FEW and any(report.wrong.sum() > 2 for report in evidence.wrong)
    for name, value in arrays.items() if few else ():
        yield from _of_symmetry(evidence, names, name, value)
    for name, value in arrays.items():
        if value.ndim == 1 or few:
            yield from _of_ones(evidence, names, name, value)


def _of_masks(evidence: Evidence, names: list[str], name: str, value: np.ndarray) -> Iterator[str]:
    """Whether the backward inverts a mask, or hides what the function does not hide."""
    try:
        other = evidence.problem.gradients({**evidence.exact, name: ~value}, evidence.scalar.dy)
    except (ValueError, IndexError, ArithmeticError):
        return
    if all(report.fits(other[report.name]) for report in evidence.wrong):
        yield f"right with ~{name} in the place of {name}: the backward takes {name} the other way round"
    zero = all(not np.any(report.analytic[report.wrong]) for report in evidence.wrong)
    if zero and evidence.right_at(names, {**evidence.exact, name: np.ones_like(value)}):
        zeros = f"the backward gives zero where {name} hides, and there it must not be zero"
        yield f"right when {name} hides nothing: {zeros}"


def _neutral(name: str, value: np.ndarray, exact: Arrays, wrong: list[str]) -> tuple[np.ndarray | None, str]:
    """A mask that hides nothing or ids that do not repeat, and what it means if the backward is right there only."""
    if value.dtype == bool and not value.all():
        return np.ones_like(value), (
            f"right when {name} hides nothing: the gradient leaks through what {name} hides; "
            f"apply {name} in the backward too, or keep the masked weights in the cache"
        )
    if value.dtype.kind in "iu":
        tables = [exact[other].shape[0] for other in wrong if exact[other].ndim]
        if len(np.unique(value)) < value.size <= max(tables, default=0):
            return np.arange(value.size).reshape(value.shape), (
                f"right when no number in {name} repeats: {REPEATED.format(name=name)}")
    return None, ""


def _of_ones(evidence: Evidence, names: list[str], name: str, value: np.ndarray) -> Iterator[str]:
    if np.all(value == 1) or not _tells(evidence, names, name, np.ones_like(value)):
        return
    positive = np.random.default_rng([evidence.report.seed, 17]).uniform(0.5, 2.0, value.shape)
    if evidence.right_at(names, {**evidence.exact, name: positive}):
        if np.any(value <= 0):
            yield f"right when {name} is positive, wrong when it is not: a branch at zero, or a sign of {name}?"
    elif not evidence.right_at(names, {**evidence.exact, name: np.full_like(value, OTHER)}):
        yield (
            f"right when {name} is all ones, and not when it is all {OTHER}: {name} is missing from the gradient, "
            "or stands there once too often"
        )
    elif value.ndim == 1:
        yield (
            f"right when {name} is the same everywhere, wrong when it is not: {name} comes in at the wrong place, "
            "before a sum or a mean where it belongs behind it"
        )


def _of_symmetry(evidence: Evidence, names: list[str], name: str, value: np.ndarray) -> Iterator[str]:
    if value.ndim >= 2 and value.shape[-1] == value.shape[-2] > 1:
        other = value.swapaxes(-1, -2)
        if not np.array_equal(other, value) and _tells(evidence, names, name, (value + other) / 2):
            yield f"right when {name} is symmetric, wrong when it is not: a transpose of {name} is missing, or too many"
    for axis, n in enumerate(value.shape):
        if n > 2 and _tells(evidence, names, name, (value + np.flip(value, axis)) / 2):
            yield (
                f"right when {name} reads the same in both directions along axis {axis}: must {name} be reversed "
                "there, or must it not?"
            )


def _tells(evidence: Evidence, names: list[str], name: str, changed: np.ndarray) -> bool:
    """Whether the backward is right at changed values, and wrong at the same ones in another order."""
    if not evidence.right_at(names, {**evidence.exact, name: changed}):
        return False
    value, rng = evidence.exact[name], np.random.default_rng([evidence.report.seed, 19])
    shuffled = rng.permutation(value.reshape(-1)).reshape(value.shape)
    return not evidence.right_at(names, {**evidence.exact, name: shuffled})


def ignored_outputs(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether a gradient takes nothing from one of several outputs that its argument was used for."""
    dy, rng = evidence.scalar.dy, np.random.default_rng(evidence.report.seed)
    for name in names if len(dy) > 1 else []:
        ignored = []
        for i in range(len(dy)):
            alone = _alone(dy, i, dy[i])
            grad = evidence.gradients(alone)[name]
            silent = grad is not None and not np.any(grad)
            if silent and evidence.moves(name, alone, rng.standard_normal(evidence.exact[name].shape)):
                ignored.append(i)
        if ignored:
            outputs = ("outputs " if len(ignored) > 1 else "output ") + ", ".join(map(str, ignored))
            yield (
                f"d{name} takes nothing from dy of {outputs} (of {len(dy)}, counted from 0): {name} was used for "
                "each of them, and the gradients of all uses add"
            )


def ignored_places_of_dy(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether a gradient that must gather from all of dy leaves some places of an axis out."""
    dy, once = evidence.scalar.dy, evidence.gradients()
    rng = np.random.default_rng(evidence.report.seed)
    for i, one in enumerate(dy):
        for axis, n in enumerate(one.shape):
            if not 1 < n <= MANY:
                continue
            parts = [_only(one, axis, [place]) for place in range(n)]
            without = [evidence.gradients((*dy[:i], one - part, *dy[i + 1:])) for part in parts]
            for name in names:
                grad = once[name]
                ignored = [place for place in range(n) if _equal(grad, without[place][name])]
                if grad is None or not np.any(grad) or not 0 < len(ignored) < n:
                    continue
                part = _only(one, axis, ignored)
                if evidence.moves(name, _alone(dy, i, part), rng.standard_normal(grad.shape)):
                    whole = bool(evidence.report.arguments[name].wrong.all())
                    yield _left_out(name, axis, ignored, n, whole and grad.shape != one.shape)


def _left_out(name: str, axis: int, ignored: list[int], n: int, summed: bool) -> str:
    used = [place for place in range(n) if place not in ignored]
    if summed and axis == 0 and used in ([0], [n - 1]):
        word = "first" if used == [0] else "last"
        return f"d{name} uses only the {word} row of dy: is the sum over the batch axis an assignment?"
    places = ("places " if len(ignored) > 1 else "place ") + ", ".join(map(str, ignored))
    nothing = f"d{name} takes nothing from {places} along axis {axis} of dy"
    if n > 2 and ignored in ([0], [n - 1]):
        return f"{nothing}: does a loop or a slice {'begin one late' if ignored == [0] else 'stop one short'}?"
    if summed:
        return f"{nothing}: must it be summed over that axis, or over each group of it?"
    return f"{nothing}: is it left out, or overwritten where it must be added?"


def mixing(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether forward and backward agree on which places along an axis have to do with each other."""
    for i, one in enumerate(evidence.scalar.dy):
        for name in names:
            shape = evidence.exact[name].shape
            for axis in range(min(len(shape), one.ndim)):
                if shape[:axis + 1] == one.shape[:axis + 1] and shape[axis] > 1:
                    yield from _mixed(evidence, name, i, axis)


def _mixed(evidence: Evidence, name: str, i: int, axis: int) -> Iterator[str]:
    """What comes of dy at the first place along an axis, and at the last, to the other places."""
    rng, shape = np.random.default_rng(evidence.report.seed), evidence.exact[name].shape
    n = shape[axis]

    def used(place: int) -> tuple[list[int], list[int]]:
        """The other places that the backward and the forward have to do with one of dy."""
        part = _alone(evidence.scalar.dy, i, _only(evidence.scalar.dy[i], axis, [place]))
        grad = evidence.gradients(part)[name]
        others = [j for j in range(n) if j != place]
        if n > MANY:  # all of them at once
            moves = evidence.moves(name, part, _only(rng.standard_normal(shape), axis, others))
            mixes = grad is not None and bool(np.any(_only(grad, axis, others)))
            return others * mixes, others * moves
        mixed = [j for j in others if grad is not None and np.any(_only(grad, axis, [j]))]
        return mixed, [j for j in others if evidence.moves(name, part, _only(rng.standard_normal(shape), axis, [j]))]

    (backward, forward), (last_backward, last_forward) = used(0), used(n - 1)
    if backward == forward:
        backward, forward = last_backward, last_forward
    if backward == forward:
        return
    where = f"the places along axis {axis} of {name}"
    if bool(backward) != bool(forward):
        if backward is not last_backward and len(backward) == len(last_forward) and len(forward) == len(last_backward):
            yield (
                f"the backward runs the wrong way along axis {axis} of {name}: what the forward carries from the "
                "first place to the last comes back from the last to the first (reversed)"
            )
        elif backward:
            yield f"the backward mixes {where}, which the forward keeps apart: a sum along the wrong axis?"
        else:
            yield f"the forward mixes {where}, the backward keeps them apart: has it another axis, or no sum?"
    elif set(backward) > set(forward):
        apart = ", ".join(map(str, sorted(set(backward) - set(forward))))
        yield f"the backward mixes {where} with {apart}, which the forward keeps apart: a sum over too much?"
    elif set(backward) < set(forward):
        apart = ", ".join(map(str, sorted(set(forward) - set(backward))))
        yield f"the forward mixes {where} with {apart}, the backward keeps them apart: is a sum cut short?"


def local(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether what is wrong stays at its own place, in a function that mixes the places."""
    rng = np.random.default_rng(evidence.report.seed)
    for i, one in enumerate(evidence.scalar.dy):
        for name in names:
            shape = evidence.exact[name].shape
            axes = [axis for axis, n in enumerate(shape) if n > 1]
            if shape != one.shape or not axes:
                continue
            mixes, stays = False, True
            for axis in axes:
                part = _alone(evidence.scalar.dy, i, _only(one, axis, [0]))
                v = _only(rng.standard_normal(shape), axis, list(range(1, shape[axis])))
                off, true, size = evidence.disagreement(name, part, v)
                mixes |= abs(true) > 1e-4 * size
                own, _, of = evidence.disagreement(name, part, _only(rng.standard_normal(shape), axis, [0]))
                stays &= abs(off) <= 1e-6 * size and abs(own) > 1e-4 * of
            if mixes and stays:
                yield (
                    f"what is wrong with d{name} stays at its own place, though the function mixes the places: a path "
                    f"straight from {name} to the output (a residual, a gate) is left out, or has another factor"
                )


def _alone(dy: Outputs, i: int, part: np.ndarray) -> Outputs:
    """dy with a part of output i, and zeros for all the others."""
    return tuple(part if i == j else np.zeros_like(one) for j, one in enumerate(dy))


def _only(x: np.ndarray, axis: int, places: list[int]) -> np.ndarray:
    """x with all but some places of an axis set to zero."""
    kept = np.zeros_like(x)
    index = (slice(None),) * axis + (places,)
    kept[index] = x[index]
    return kept


def _equal(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is not None and b is not None and np.array_equal(a, b)
