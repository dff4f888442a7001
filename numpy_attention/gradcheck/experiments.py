"""Experiments on a wrong backward: change one thing at a time. When is the backward right, and on what does it depend?

    steps              `paths`: is one step of the forward differentiated in a wrong way?
    dy                 is the backward the forward applied to dy, or the Jacobian without its transpose?
    parts of dy        keep one output of dy, or one place along an axis. If the backward ignores a part that matters,
                       one of several uses of an argument is not added, or an assignment replaces a sum. If it mixes
                       places that the forward does not mix, it sums along the wrong axis
    simpler arrays     `simpler`
    sums and lengths   the gradient at the input of a softmax sums to zero, a rotation keeps lengths: which rule fails?

Each experiment yields one sentence. The first sentence is the diagnosis, so the most specific experiments come first.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from numpy_attention.gradcheck import simpler
from numpy_attention.gradcheck.evidence import Evidence, only
from numpy_attention.gradcheck.line import Outputs
from numpy_attention.gradcheck.paths import of_steps
from numpy_attention.gradcheck.simpler import DIAGONAL, near

UNDONE = "a backward applies the transpose (the transposed matrix, the sum from the other end, the negative angle)"
SMALL = 1e-4  # the experiments cannot see a smaller relative error
MANY = 16  # longer axes are not examined place by place


def experiments(evidence: Evidence) -> Iterator[str]:
    """The sentence of each experiment that finds something, the most specific first."""
    wrong = evidence.wrong
    names = [report.name for report in wrong]
    some = [of_steps, simpler.at_neutral_values, _not_transposed, simpler.without_options, ignored_places_of_dy]
    if any(report.wrong.sum() == 1 < report.wrong.size for report in wrong):
        some.remove(ignored_places_of_dy)
    at_simpler = [simpler.at_identity, simpler.of_single_elements]
    every = [*at_simpler, _of_a_layers_input, mixing, _sums_and_lengths]
    if all(report.error < SMALL for report in wrong):
        some, every = [], [_of_a_layers_input]
    elif any(report.wrong.mean() <= 0.5 for report in wrong):
        every = [_of_a_layers_input]
    for experiment in some + every:
        try:
            with np.errstate(all="ignore"):
                yield from experiment(evidence, names)
        except Exception:  # a function may raise any error at simpler arrays
            if experiment not in (of_steps, *at_simpler):
                return


def _not_transposed(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether the backward is the forward applied to dy, or the Jacobian J dy instead of J^T dy."""
    dy = evidence.scalar.dy
    for name in names if len(dy) == 1 else ():
        grad = evidence.gradients()[name]
        if grad is None or not np.any(grad) or not grad.shape == dy[0].shape == evidence.exact[name].shape:
            continue
        close = 1e-6 * float(np.abs(grad).max())
        if near(evidence.problem.run({**evidence.exact, name: dy[0]})[0][0], grad, close):
            yield f"d{name} is the forward applied to dy: {UNDONE}"
        if near(evidence.forward(name, dy[0]), grad, close):
            yield f"d{name} is the Jacobian itself applied to dy, not its transpose: {UNDONE}"


def _sums_and_lengths(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Wrong sums and lengths, not of parameters: at the input of a softmax, of weights with sum 1, of a rotation."""
    for report in evidence.wrong:
        right, analytic = report.numeric, report.analytic
        if not np.isfinite(right).all() or report.name in evidence.problem.parameters:
            continue
        slack = 1e-6 * report.size
        for axis, n in enumerate(right.shape):
            if n < 2:
                continue
            total, analytic_total, slack_of_sum = right.sum(axis), analytic.sum(axis), n * slack
            if near(total, 0.0, slack_of_sum) and not near(analytic_total, total, 100 * slack_of_sum):
                yield (
                    f"{report.symbol} must sum to zero along axis {axis}, as at the input of every softmax, but does "
                    "not: is `- sum(dy * w)` missing, or along another axis, is the softmax's backward left out, or "
                    "one side of a difference x_i - x_j?"
                )
            sums = [dy.sum(axis) for dy in evidence.scalar.dy if dy.shape == right.shape]
            if sums and near(analytic_total, 0.0, slack_of_sum) and not near(total, 0.0, 100 * slack_of_sum):
                residual = "is the residual path, the term dy, missing?"
                weights = "are the weights in the backward divided by another sum than in the forward?"
                yield (
                    f"{report.symbol} sums to zero along axis {axis}, as at the input of a softmax, but must not: "
                    f"{residual if any(near(one, total, slack) for one in sums) else weights}"
                )
            length, theirs = (np.sqrt((one * one).sum(axis)) for one in (right, analytic))
            if near(length, theirs, slack):
                yield (
                    f"{report.symbol} has the right length along axis {axis} but a wrong direction: is it rotated by "
                    "wrong angles, or in wrong pairs of coordinates?"
                )


def _of_a_layers_input(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether the gradients of all parameters are right, but the gradient of an input is wrong."""
    if evidence.problem.parameters.isdisjoint(names) and evidence.problem.parameters:
        yield (
            f"the gradients of all parameters are right, only {', '.join(f'd{name}' for name in sorted(names))} is "
            "wrong: a path to the input is missing or added twice (the residual path? one of q, k and v?)"
        )


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
            parts = (only(one, axis, [place]) for place in range(n if 1 < n <= MANY else 0))
            without: list[Any] = [evidence.gradients((*dy[:i], one - part, *dy[i + 1:])) for part in parts]
            for name in names:
                grad: Any = once[name]
                ignored = [place for place, other in enumerate(without) if np.array_equal(grad, other[name])]
                part = only(one, axis, ignored)
                if grad is None or not np.any(grad) or not 0 < len(ignored) < n:
                    continue
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
            few = min(len(shape), one.ndim)
            pairs = [(axis, axis) for axis in range(few) if shape[:axis + 1] == one.shape[:axis + 1]]
            pairs += [(len(shape) - k, one.ndim - k) for k in range(1, few + 1) if shape[-k:] == one.shape[-k:]]
            for axis, of_dy in dict.fromkeys(pairs):
                leads = shape[:axis + 1] == one.shape[:of_dy + 1]
                if shape[axis] > 1:
                    found = _mixed(evidence, name, i, axis, of_dy)
                    yield from (text for text in found if leads or DIAGONAL in text)


def _mixed(evidence: Evidence, name: str, i: int, axis: int, of_dy: int) -> Iterator[str]:
    """Whether dy at the first or the last place along an axis affects other places than it should."""
    rng, shape = np.random.default_rng(evidence.report.seed), evidence.exact[name].shape
    n = shape[axis]

    def part_of_dy(place: int) -> Outputs:
        return _alone(evidence.scalar.dy, i, only(evidence.scalar.dy[i], of_dy, place))

    def used(place: int) -> tuple[list[int], list[int]]:
        """The other places that one place of dy affects: in the backward, and in the forward."""
        part, others = part_of_dy(place), [j for j in range(n) if j != place]
        grad, together = evidence.gradients(part)[name], [others] if n > MANY else [[j] for j in others]
        mixed = [some for some in together if grad is not None and np.any(only(grad, axis, some))]
        moved = [some for some in together if evidence.moves(name, part, only(rng.standard_normal(shape), axis, some))]
        return [*itertools.chain(*mixed)], [*itertools.chain(*moved)]

    def right_at_itself(place: int) -> bool:
        part, v = part_of_dy(place), only(rng.standard_normal(shape), axis, place)
        off, _, size, _ = evidence.disagreement(name, v, part)
        return size > 0 and abs(off) <= 1e-6 * size

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
        elif backward and last_forward:
            yield (
                f"the backward mixes {where} in both directions, the forward in one: is a causal mask missing in the "
                "backward?"
            )
        elif backward:
            yield (
                f"the backward mixes {where}, but the forward does not: is a sum along the wrong axis, or does a "
                "reshape without its transpose put rows in another order?"
            )
        elif right_at_itself(0) and right_at_itself(n - 1):
            yield f"the forward mixes {where}, but the backward does not: {DIAGONAL}"
        else:
            yield f"the forward mixes {where}, but the backward does not: is a sum missing, or along another axis?"
    elif set(backward) < set(forward):
        apart = ", ".join(map(str, sorted(set(forward) - set(backward))))
        yield f"the forward mixes {where} with place {apart}, but the backward does not: is a sum too short?"


def _alone(dy: Outputs, i: int, part: np.ndarray) -> Outputs:
    """dy with `part` for output i, and zeros for all other outputs."""
    return tuple(part if i == j else np.zeros_like(one) for j, one in enumerate(dy))
