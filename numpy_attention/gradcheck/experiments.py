"""Experiments on a wrong backward: change one thing at a time. When is the backward right, and on what does it depend?

    dy                 is the backward the forward applied to dy, or the Jacobian without its transpose?
    parts of dy        keep one output of dy, or one place along an axis. If the backward ignores a part that matters,
                       one of several uses of an argument is not added, or an assignment replaces a sum. If it mixes
                       places that the forward does not mix, it sums along the wrong axis
    an argument        set it to a value without effect: a mask that hides nothing, a gamma of ones. A backward that
                       is right only there does not use the argument
    an option          run without the option
    sums and lengths   the gradient at the input of a softmax sums to zero, a rotation keeps lengths: which rule fails?

An experiment needs a control. If an argument is all ones, a missing factor makes no difference. But then a square
equals a cube too, and a mistake for negative values is not visible. So the backward also runs at other constants and
at random positive values, where a missing factor is visible.

Each experiment yields one sentence. The first sentence is the diagnosis, so the most specific experiments come first.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.line import Outputs, first_step, rms
from numpy_attention.gradcheck.problem import is_float

UNDONE = "a backward applies the transpose (the transposed matrix, the sum from the other end, the negative angle)"
SMALL = 1e-4  # the experiments cannot see a smaller relative error
OTHER = 1.37  # a constant that no formula contains
FEW = 8  # with more arguments, as in a layer, only vectors are set to ones
MANY = 16  # longer axes are not examined place by place


def experiments(evidence: Evidence) -> Iterator[str]:
    """The sentence of each experiment that finds something, the most specific first."""
    wrong = evidence.wrong
    names = [report.name for report in wrong]
    if all(report.error < SMALL for report in wrong):
        return
    with np.errstate(all="ignore"):
        yield from _forward_of_dy(evidence, names)
        yield from _where_ids_repeat(evidence)
        yield from at_neutral_values(evidence, names)
        yield from _jacobian_itself(evidence, names)
        if not any(report.wrong.sum() == 1 < report.wrong.size for report in wrong):
            yield from ignored_places_of_dy(evidence, names)
        yield from _without_options(evidence, names)
        if all(report.wrong.mean() > 0.5 for report in wrong):
            yield from mixing(evidence, names)
            yield from _sums_and_lengths(evidence)
            yield from local(evidence, names)


def _forward_of_dy(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether the backward is the forward applied to dy."""
    dy = evidence.scalar.dy
    for name in names if len(dy) == 1 else ():
        grad = evidence.gradients()[name]
        if grad is not None and np.any(grad) and dy[0].shape == evidence.exact[name].shape:
            again = evidence.problem.run({**evidence.exact, name: dy[0]})[0]
            if again[0].shape == grad.shape and np.allclose(again[0], grad, rtol=1e-9, atol=1e-12):
                yield f"d{name} is the forward applied to dy: {UNDONE}"


def _jacobian_itself(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether the backward returns J dy instead of J^T dy."""
    dy = evidence.scalar.dy
    for name in names if len(dy) == 1 else ():
        grad = evidence.gradients()[name]
        if grad is not None and grad.shape == dy[0].shape and np.any(grad) and _near(
                _forwards(evidence, name), grad, 1e-6 * float(np.abs(grad).max())):
            yield f"d{name} is the Jacobian itself applied to dy, not its transpose: {UNDONE}"


def _forwards(evidence: Evidence, name: str) -> np.ndarray:
    """The derivative of the output along dy, which a backward without the transpose returns; four calls."""
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
    """Whether exactly the rows with repeated ids are wrong, and each holds only one of its terms."""
    for name, value in evidence.exact.items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and len(evidence.wrong) == 1:
            numbers, counts = np.unique(value, return_counts=True)
            wrong, analytic = evidence.wrong[0].wrong, evidence.wrong[0].analytic
            rows = set(np.flatnonzero(wrong.any(axis=tuple(range(1, wrong.ndim)))).tolist())
            if rows and rows == set(numbers[counts > 1].tolist()) and _one_term_each(evidence, value, analytic, rows):
                yield (
                    f"wrong just where an id in {name} repeats: a row for repeated {name} must get the sum of all "
                    f"contributions, but d[{name}] += dy keeps only the last one; use np.add.at (a scatter-add), or "
                    "sort and np.add.reduceat"
                )


def _one_term_each(evidence: Evidence, ids: np.ndarray, analytic: np.ndarray, rows: set[int]) -> bool:
    """Whether each of these rows equals dy at one of its places; also True if the shape of dy allows no comparison."""
    dy = evidence.scalar.dy[0]
    if len(evidence.scalar.dy) > 1 or dy.shape != ids.shape + analytic.shape[1:]:
        return True
    return all(any(np.allclose(one, analytic[row]) for one in dy[ids == row]) for row in rows)


def _without_options(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """The options without which the backward is right."""
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
    """The likely mistake of a backward that is right only without an option."""
    if name in ("dropout", "rate"):
        return (
            "right without dropout: where the forward uses the array after dropout (zeroed and rescaled), the "
            "backward must use this array too, not the array before dropout"
        )
    if name == "block_size":
        return f"right in one block: with {name}={value} a block overwrites a sum to which it must add, or is left out"
    ignored = f"{name}={value!r}" if isinstance(value, (int, float, str)) else name  # the address of a function varies
    return f"right without the option {name}: does the backward ignore {ignored}?"


def _sums_and_lengths(evidence: Evidence) -> Iterator[str]:
    """Wrong sums and lengths, not of parameters: at the input of a softmax, of weights with sum 1, of a rotation."""
    for report in evidence.wrong:
        right, analytic = report.numeric, report.analytic
        if not np.isfinite(right).all() or report.name in evidence.problem.parameters:
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
                            f"{report.symbol} sums to zero along axis {axis}, as at the input of a norm or a "
                            "softmax, but must have the sums of dy: is the residual path, the term dy, missing?"
                        )
                    yield (
                        f"the sums of {report.symbol} and dy along axis {axis} must be equal, but are not: the "
                        "weights in the backward do not sum to one (recomputed without their maximum or sum?)"
                    )
            if _near(total, 0 * total, n * slack) and not _near(analytic_total, total, 100 * n * slack):
                yield (
                    f"{report.symbol} must sum to zero along axis {axis}, as at the input of every softmax, but does "
                    "not: is `- sum(dy * w)` missing, or along another axis, or is the softmax's backward left out?"
                )
            as_dy = any(dy.shape == right.shape for dy in evidence.scalar.dy)
            if as_dy and _near(analytic_total, 0 * total, n * slack) and not _near(total, 0 * total, 100 * n * slack):
                yield (
                    f"{report.symbol} sums to zero along axis {axis}, as at the input of a softmax, but must not: are "
                    "the weights in the backward divided by another sum than in the forward?"
                )
            length, theirs = (np.sqrt((one * one).sum(axis)) for one in (right, analytic))
            if _near(length, theirs, slack):
                yield (
                    f"{report.symbol} has the right length along axis {axis} but a wrong direction: is it rotated by "
                    "wrong angles, or in wrong pairs of coordinates?"
                )


def _near(a: np.ndarray, b: np.ndarray, slack: float) -> bool:
    return bool(np.all(np.abs(a - b) <= slack))


def at_neutral_values(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Values of an argument, such as a mask without effect, at which the backward is right."""
    for name, value in evidence.arrays.items():
        if value.dtype == bool and value.size:
            yield from _of_masks(evidence, names, name, value)
    arrays = {name: value for name, value in evidence.arrays.items() if is_float(value) and value.size > 1}
    few = len(arrays) <= FEW and any(report.wrong.sum() > 2 for report in evidence.wrong)
    for name, value in arrays.items():
        if value.ndim == 1 or few:
            yield from _of_ones(evidence, names, name, value)


def _of_masks(evidence: Evidence, names: list[str], name: str, value: np.ndarray) -> Iterator[str]:
    """Whether the backward inverts a mask, does not use it, or hides elements that the function does not hide."""
    try:
        other = evidence.problem.gradients({**evidence.exact, name: ~value}, evidence.scalar.dy)
    except (ValueError, IndexError, ArithmeticError):
        other = {}
    if all(report.fits(other.get(report.name)) for report in evidence.wrong):
        yield f"right with ~{name} in place of {name}: the backward inverts {name}"
    if not value.all() and evidence.right_at(names, {**evidence.exact, name: np.ones_like(value)}):
        if all(not np.any(report.analytic[report.wrong]) for report in evidence.wrong):
            mistake = f"the backward returns zero where {name} is False, but the gradient is not zero there"
        else:
            mistake = (
                f"the gradient leaks through elements that {name} hides; apply {name} in the backward too, or keep "
                "the masked weights in the cache"
            )
        yield f"right when {name} hides nothing: {mistake}"


def _of_ones(evidence: Evidence, names: list[str], name: str, value: np.ndarray) -> Iterator[str]:
    if np.all(value == 1) or not _right_only_at(evidence, names, name, np.ones_like(value)):
        return
    positive = np.random.default_rng([evidence.report.seed, 17]).uniform(0.5, 2.0, value.shape)
    if evidence.right_at(names, {**evidence.exact, name: positive}):
        if np.any(value <= 0):
            yield f"right when {name} is positive, else wrong: is a branch at zero or the sign of {name} wrong?"
    elif not evidence.right_at(names, {**evidence.exact, name: np.full_like(value, OTHER)}):
        yield (
            f"right when {name} is all ones, wrong when it is all {OTHER}: the factor {name} is missing, or applied "
            "once too often"
        )
    elif value.ndim == 1:
        yield (
            f"right when {name} has one value everywhere, else wrong: {name} is applied at the wrong place, before a "
            "sum or a mean instead of after it"
        )


def _right_only_at(evidence: Evidence, names: list[str], name: str, changed: np.ndarray) -> bool:
    """Whether the backward is right at changed values, and wrong at a shuffled copy of the original values."""
    if not evidence.right_at(names, {**evidence.exact, name: changed}):
        return False
    value, rng = evidence.exact[name], np.random.default_rng([evidence.report.seed, 19])
    shuffled = rng.permutation(value.reshape(-1)).reshape(value.shape)
    return not evidence.right_at(names, {**evidence.exact, name: shuffled})


def ignored_outputs(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Outputs (of several) that depend on an argument and do not affect its gradient."""
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
                f"d{name} ignores dy of {outputs} (of {len(dy)}, counted from 0): every output depends on {name}, so "
                "the gradients of all of them must be added"
            )


def ignored_places_of_dy(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Places along an axis of dy that a gradient ignores although the function depends on them."""
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
        return f"d{name} uses only the {word} row of dy: does an assignment replace the sum over the batch axis?"
    places = ("places " if len(ignored) > 1 else "place ") + ", ".join(map(str, ignored))
    nothing = f"d{name} ignores {places} along axis {axis} of dy"
    if n > 2 and ignored in ([0], [n - 1]):
        how = "begin one place late" if ignored == [0] else "end one place early"
        return f"{nothing}: does a loop or a slice {how}?"
    if summed:
        return f"{nothing}: is a sum over this axis, or over groups along it, missing?"
    return f"{nothing}: is a term left out, or overwritten instead of added?"


def mixing(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Axes along which forward and backward mix different places."""
    for i, one in enumerate(evidence.scalar.dy):
        for name in names:
            shape = evidence.exact[name].shape
            for axis in range(min(len(shape), one.ndim)):
                if shape[:axis + 1] == one.shape[:axis + 1] and shape[axis] > 1:
                    yield from _mixed(evidence, name, i, axis)


def _mixed(evidence: Evidence, name: str, i: int, axis: int) -> Iterator[str]:
    """Whether dy at the first or the last place along an axis affects other places than it should."""
    rng, shape = np.random.default_rng(evidence.report.seed), evidence.exact[name].shape
    n = shape[axis]

    def used(place: int) -> tuple[list[int], list[int]]:
        """The other places that one place of dy affects: in the backward, and in the forward."""
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
                f"the backward runs in the wrong direction along axis {axis} of {name}: the forward goes from the "
                "first place to the last, so the backward must go from the last to the first (reversed)"
            )
        elif backward:
            yield f"the backward mixes {where}, but the forward does not: is a sum along the wrong axis?"
        else:
            yield f"the forward mixes {where}, but the backward does not: is a sum missing, or along another axis?"
    elif set(backward) > set(forward):
        apart = ", ".join(map(str, sorted(set(backward) - set(forward))))
        yield (
            f"the backward mixes {where} with place {apart}, but the forward does not: does a sum contain too many "
            "terms?"
        )
    elif set(backward) < set(forward):
        apart = ", ".join(map(str, sorted(set(forward) - set(backward))))
        yield f"the forward mixes {where} with place {apart}, but the backward does not: is a sum too short?"


def local(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether the error at a place depends only on dy at the same place: a direct path, or a derivative, is wrong."""
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
                    f"the error in d{name} depends only on dy at the same place, but the function mixes the places: a "
                    f"direct path from {name} to the output (a residual, a gate) is left out, or has a wrong factor"
                )
            elif stays:
                yield (
                    f"each output depends only on {name} at the same place, so d{name} must be dy times a derivative: "
                    "is the derivative missing, or taken at another number?"
                )


def _alone(dy: Outputs, i: int, part: np.ndarray) -> Outputs:
    """dy with `part` for output i, and zeros for all other outputs."""
    return tuple(part if i == j else np.zeros_like(one) for j, one in enumerate(dy))


def _only(x: np.ndarray, axis: int, places: list[int]) -> np.ndarray:
    """x with zeros everywhere except at these places of an axis."""
    kept = np.zeros_like(x)
    index = (slice(None),) * axis + (places,)
    kept[index] = x[index]
    return kept


def _equal(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is not None and b is not None and np.array_equal(a, b)
