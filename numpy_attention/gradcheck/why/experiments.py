"""Experiments on a wrong backward: change one thing at a time. When is the backward right, and on what does it depend?

    other arrays       a mask that hides nothing, a gamma of ones, identity matrices: is the backward right there?
    other options      without an option
    other dy           keep one output of dy, or one place along an axis. If the backward ignores a part that matters, a
                       term is missing. If it mixes places that the forward does not mix, it sums along the wrong axis

Each experiment yields sentences, and the first sentence is the diagnosis: the most specific experiments come first.
An experiment needs a control: where an argument is all ones, a missing factor makes no difference, but a square equals
a cube too. So the backward also runs at another constant, where the mistake must be visible.
"""

import contextlib
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from numpy_attention.gradcheck.derivative import rms
from numpy_attention.gradcheck.problem import Outputs, is_float, largest, parameters_of
from numpy_attention.gradcheck.why.relations import ORDER, same_numbers

if TYPE_CHECKING:
    from numpy_attention.gradcheck.why import Evidence

OTHER = 1.37  # a constant that no formula contains
MANY = 16  # longer axes are not examined place by place
OUTPUTS = 200  # single outputs are examined if the function has at most so many


def _beside_a_corner(evidence: "Evidence") -> Iterator[str]:
    """Whether the one wrong element has the slope of a point nearby, beyond a corner."""
    for report in evidence.wrong:
        x, unit = evidence.exact[report.name], report.wrong.astype(float)
        for step in (0.01, -0.01) if report.wrong.sum() == 1 else ():
            arrays = {**evidence.exact, report.name: x + step * (rms(x) or 1.0) * unit}
            slope = sum(np.sum(dy * y) for dy, y in zip(evidence.scalar.dy, evidence.change(report.name, unit, arrays)))
            if near(report.analytic[report.wrong], slope, 1e-6 * report.size):
                yield (
                    f"{report.symbol}: right except for element {list(report.worst)}, which gets the slope beyond a "
                    f"corner: does the backward compare {report.name} with another threshold?"
                )


def _of_masks(evidence: "Evidence") -> Iterator[str]:
    """Whether the backward inverts a mask, or is right only when the mask hides nothing."""
    for name, mask in evidence.arrays.items():
        if mask.dtype != bool or not mask.size:
            continue
        with contextlib.suppress(ValueError, IndexError, ArithmeticError):
            inverted = {**evidence.exact, name: ~mask}
            other = evidence.problem.gradients(inverted, evidence.scalar.dy) if evidence.answers else {}
            if all(report.fits(other.get(report.name)) for report in evidence.wrong):
                yield f"right with ~{name} in place of {name}: the backward inverts {name}"
        if not mask.all() and evidence.right_at({**evidence.exact, name: np.ones_like(mask)}):
            yield (
                f"right when {name} hides nothing: the backward counts the elements that {name} hides (in a mean, a "
                f"sum?), or does not apply {name} as the forward does"
            )


def _of_ones(evidence: "Evidence") -> Iterator[str]:
    """Whether the backward is right at ones, and wrong at the same values in another order."""
    arrays = {name: value for name, value in evidence.arrays.items() if is_float(value) and value.size > 1}
    for name, value in arrays.items():
        if np.all(value == 1) or not any(report.wrong.sum() > 2 for report in evidence.wrong):
            continue

        def right_at(other: np.ndarray, name: str = name) -> bool:
            return evidence.right_at({**evidence.exact, name: other})

        rng = evidence.rng()
        if not right_at(np.ones_like(value)) or right_at(rng.permutation(value.reshape(-1)).reshape(value.shape)):
            continue
        if right_at(rng.uniform(0.5, 2.0, value.shape)):
            yield f"right when {name} is positive, else wrong: is a branch at zero or the sign of {name} wrong?"
        elif not right_at(np.full_like(value, OTHER)):
            yield (
                f"right when {name} is all ones, wrong when it is all {OTHER}: the factor {name} is missing, or "
                "applied once too often"
            )
        elif value.size in value.shape:
            yield (
                f"right when {name} has one value everywhere, else wrong: {name} is applied at the wrong place, before "
                "a sum or a mean instead of after it"
            )


def _conjugate(evidence: "Evidence") -> Iterator[str]:
    """Whether the gradients are right for the conjugate of dy, as those of dy * w in place of dy * conj(w)."""
    outputs = evidence.problem.returned(evidence.run(evidence.exact)[1])
    signs = [sign for y in outputs for sign in ([1, -1] if np.iscomplexobj(y) else [1] * (y.dtype.kind == "f"))]
    if -1 in signs and len(signs) == len(evidence.scalar.dy):
        grads = evidence.gradients(tuple(sign * dy for sign, dy in zip(signs, evidence.scalar.dy)))
        parts: dict[str, Any] = {name: -1 if name.endswith(".imag") else 1 for name in evidence.names}
        if all(report.fits(parts[report.name] * grads[report.name]) for report in evidence.wrong):
            yield (
                f"right for the conjugate of {evidence.dy}: the backward must multiply by the conjugate of a complex "
                "factor; is np.conj left out?"
            )


def _without_options(evidence: "Evidence") -> Iterator[str]:
    """The options without which, or with a zero or a one for which, the backward is right."""
    given = evidence.problem.options
    known = parameters_of(getattr(evidence.problem, "op", evidence.problem.call))
    options = {name: one.default for name, one in known.items() if name not in evidence.exact} | dict(given)
    for name, value in options.items():
        rest = {key: other for key, other in given.items() if key != name}
        changes = [rest] * (name in given) + [{**rest, name: 0.0}] * (name in given and isinstance(value, float))
        for changed in changes + [{**rest, name: 1}] * (type(value) is int and value > 1):
            if evidence.right_at(evidence.exact, problem=evidence.problem.with_options(changed)):
                ignored = f"{name}={value!r}" if isinstance(value, (int, float, str)) else name
                yield f"right without the option {name}: does the backward ignore {ignored}?"


def ignored_outputs(evidence: "Evidence") -> Iterator[str]:
    """Outputs (of several) that depend on an argument and do not affect its gradient."""
    dy = evidence.scalar.dy
    alone = [_alone(dy, i, one) for i, one in enumerate(dy)] if len(dy) > 1 else []
    grads = [evidence.gradients(one) for one in alone]
    for name in evidence.names:
        silent = [i for i, one in enumerate(grads) if not np.any(one[name])]
        if ignored := [i for i in silent if evidence.depends(name, alone[i])]:
            yield (
                f"d{name} ignores {evidence.dy} of {_listed('output', ignored)} (of {len(dy)}, counted from 0): every "
                f"output depends on {name}, so the gradients of all of them must be added"
            )


def ignored_places_of_dy(evidence: "Evidence") -> Iterator[str]:
    """Places along an axis of dy that a gradient ignores although the function depends on them."""
    dy, once = evidence.scalar.dy, evidence.gradients()
    for i, one in enumerate(dy):
        for axis, n in enumerate(one.shape):
            parts = [_only(one, axis, [k]) for k in range(n if 1 < n <= MANY else 0)]
            without: list[Any] = [evidence.gradients((*dy[:i], one - part, *dy[i + 1:])) for part in parts]
            for name in evidence.names:
                grad: Any = once[name]
                ignored = [k for k, other in enumerate(without) if np.array_equal(grad, other[name])]
                if not np.any(grad) or not 0 < len(ignored) < n:
                    continue
                if evidence.depends(name, _alone(dy, i, _only(one, axis, ignored))):
                    whole = bool(evidence.report.arguments[name].wrong.all())
                    yield f"d{name} " + _left_out(axis, ignored, n, whole and grad.shape != one.shape, evidence.dy)


def other_dy(evidence: "Evidence") -> Iterator[str]:
    """Whether the gradients are right for another dy: without an output or a place, reversed, shifted or averaged."""
    dy, name = evidence.scalar.dy, evidence.dy
    for i, one in enumerate(dy):
        changes = {f"ignores {name} of output {i} (of {len(dy)}, counted from 0)": 0.0 * one} if len(dy) > 1 else {}
        for axis, n in enumerate(one.shape):
            for k in range(n) if 1 < n <= MANY else ():
                rest = [other for other in range(n) if other != k]
                changes[_left_out(axis, [k], n, False, name)] = _only(one, axis, rest)
                changes[_left_out(axis, rest, n, True, name)] = _only(one, axis, [k])
            right = f"is right for a {name} that is {{}} along axis {axis}"
            changes[right.format("reversed")] = np.flip(one, axis)
            changes[right.format("shifted")] = np.roll(one, 1, axis)
            changes[right.format("averaged")] = 0.0 * one + one.mean(axis, keepdims=True)
        if one.ndim > 2:
            rows = one.reshape(-1, one.shape[-1])
            for which, k in (("first", 0), ("last", len(rows) - 1)):
                words = f"uses only the {which} of all rows of {name}: does an assignment replace the sum over rows?"
                changes[words] = _only(rows, 0, [k]).reshape(one.shape)
        for words, other in changes.items():
            if evidence.right_for((*dy[:i], other, *dy[i + 1 :])):
                yield f"{' and '.join(report.symbol for report in evidence.wrong)} {words}"


def _left_out(axis: int, ignored: list[int], n: int, summed: bool, dy: str) -> str:
    if summed and axis == 0 and ignored in (list(range(1, n)), list(range(n - 1))):
        row = "last" if 0 in ignored else "first"
        return f"uses only the {row} row of {dy}: does an assignment replace the sum over the batch axis?"
    mistake = "is a term left out, or overwritten instead of added?"
    if n > 2 and ignored in ([0], [n - 1]):
        mistake = f"does a loop or a slice {'begin one place late' if ignored == [0] else 'end one place early'}?"
    elif summed:
        mistake = "is a sum over this axis, or over groups along it, missing?"
    return f"ignores {_listed('place', ignored)} along axis {axis} of {dy}: {mistake}"


def _of_a_branch(evidence: "Evidence") -> Iterator[str]:
    """Whether a gradient is wrong only where its argument is above, or below, a number."""
    for report in evidence.wrong:
        fine = ~report.wrong & (report.analytic != 0)
        for side, sign in (("above", 1.0), ("below", -1.0)) if fine.any() and report.wrong.sum() > 2 else ():
            x = sign * evidence.exact[report.name]
            if x[fine].max() < (edge := x[report.wrong].min()):
                where = f"{report.name} is {side} a number near {sign * edge:.2g}"
                yield f"{report.symbol}: wrong only where {where}: does the backward take another branch there?"


def _forward_raises(evidence: "Evidence") -> Iterator[str]:
    """Whether the forward raises an error when an element moves whose derivative is unknown."""
    for report in evidence.wrong:
        x, unit = evidence.exact[report.name], np.zeros(report.shape)
        for index in np.argwhere(np.isnan(report.numeric) | report.unresolved)[:1]:
            unit[tuple(index)] = 1e-6 * (rms(x) or 1.0)
            try:
                evidence.problem.run({**evidence.exact, report.name: x + unit})
            except Exception as error:
                moved = f"{report.name}{index.tolist()}"
                yield f"the forward raises {type(error).__name__}: {error} when {moved} moves: it has no derivative"


def _at_identity(evidence: "Evidence") -> Iterator[str]:
    """Whether a gradient is right when the weights are identity matrices, which need no transpose."""
    for name in evidence.names:
        square = {
            key: np.broadcast_to(np.eye(w.shape[-1]), w.shape) for key, w in evidence.arrays.items()
            if key != name and is_float(w) and w.ndim > 1 and w.shape[-1] == w.shape[-2]
        }
        if square and evidence.right_at({**evidence.exact, **square}, [name]):
            yield (
                f"d{name} is right with identity matrices for {', '.join(square)}, else wrong: it is not multiplied by "
                "the transposed matrix"
            )


def _of_single_elements(evidence: "Evidence") -> Iterator[str]:
    """Whether the backward gives the effect of an element to other outputs, or to outputs where it has no effect."""
    dy = evidence.scalar.dy[0]
    if len(evidence.scalar.dy) > 1 or dy.size > OUTPUTS:
        return
    backward = [evidence.gradients((unit.reshape(dy.shape),)) for unit in np.eye(dy.size)]
    for name in evidence.names:
        x, rng = evidence.exact[name], evidence.rng()
        grads: list[Any] = [one[name] for one in backward]
        v = rng.standard_normal(x.shape)
        if same_numbers(np.array([np.sum(grad * v) for grad in grads]), evidence.change(name, v)[0]):
            yield f"d{name} is right for a {evidence.dy} whose numbers are in another order: {ORDER}"
        counts = [1] * (x.ndim - 2) + [3, 2][-x.ndim:]  # two columns of three rows
        places = [rng.choice(n, min(n, count), replace=False) for n, count in zip(x.shape, counts)]
        some = np.ravel_multi_index(np.ix_(*places), x.shape).reshape(-1)
        units = [unit.reshape(x.shape) for unit in np.eye(x.size)[some]]
        right = np.array([evidence.change(name, unit)[0].reshape(-1) for unit in units])
        given = np.array([grad.reshape(-1)[some] for grad in grads]).T
        moved, used = (np.abs(one) > 1e-9 * largest(one) for one in (right, given))
        # Each input has a different number of hidden outputs: where the backward mixes a whole axis, it is the same.
        if not (moved & ~used).any() and np.ptp((used & ~moved).sum(axis=1)) > 0:
            yield f"d{name} uses elements that the forward hides, or does not choose (by a mask, a relu, a max)"


def of_a_layers_input(evidence: "Evidence") -> Iterator[str]:
    """Whether the gradients of all parameters are right, but the gradient of an input is wrong."""
    if evidence.problem.parameters.isdisjoint(evidence.names) and evidence.problem.parameters:
        inputs = ", ".join(f"d{name}" for name in sorted(evidence.names))
        yield (
            f"the gradients of all parameters are right, only {inputs} is wrong: a path to the input is missing or "
            "added twice: how often does the forward use the input?"
        )


def _mixing(evidence: "Evidence") -> Iterator[str]:
    """Axes along which forward and backward mix different places: does dy at one place affect other places?"""
    dys, rng = evidence.scalar.dy, evidence.rng()
    for (i, dy), name in itertools.product(enumerate(dys), evidence.names):
        v = rng.standard_normal(evidence.exact[name].shape)
        for axis, n in enumerate(v.shape[: dy.ndim]):
            if not 1 < n <= MANY or v.shape[: axis + 1] != dy.shape[: axis + 1]:
                continue
            effects = [evidence.change(name, _only(v, axis, [j]))[i] * dy for j in range(n)]
            grads: list[Any] = [evidence.gradients(_alone(dys, i, _only(dy, axis, [k])))[name] for k in range(n)]
            moves, uses = _by_place(effects, axis), _by_place(grads, axis).T  # of input j, output k
            if mistake := _mixed(moves & ~np.eye(n, dtype=bool), uses & ~np.eye(n, dtype=bool)):
                yield mistake.format(where=f"the places along axis {axis} of {name}")


def _by_place(arrays: list[np.ndarray], axis: int) -> np.ndarray:
    """For each array, the places along an axis where it is not zero."""
    sizes = [np.abs(one).max(axis=tuple(i for i in range(one.ndim) if i != axis)) for one in arrays]
    return np.array(sizes) > 1e-9 * np.max(sizes)


def _mixed(moves: np.ndarray, uses: np.ndarray) -> str:
    """The mistake, from the outputs k that an input j moves, and those whose dy its gradient uses; else ""."""
    if not moves.any():
        return (
            "the backward mixes {where}, but the forward does not: is a sum along the wrong axis, or does a reshape "
            "without its transpose put rows in another order?"
        ) * bool(uses.any())
    if not uses.any():
        return (
            "the forward mixes {where}, but the backward does not: is a sum missing, or along another axis (only the "
            "diagonal of the Jacobian)?"
        )
    if np.array_equal(moves, uses.T) and not np.array_equal(moves, uses):
        return (
            "the backward runs in the wrong direction over {where}: the forward goes from the first place to the "
            "last, so the backward must go from the last to the first (reversed)"
        )
    if np.all(uses <= moves) and np.any(uses < moves):
        return "the forward mixes more of {where} than the backward: is a sum too short?"
    return ""


def _sums_and_lengths(evidence: "Evidence") -> Iterator[str]:
    """Wrong sums and lengths, not of parameters: of weights with sum 1, of a rotation."""
    for report in evidence.wrong:
        right, given = report.numeric, report.analytic
        if not np.isfinite(right).all() or report.name in evidence.problem.parameters:
            continue
        for axis, n in ((axis, n) for axis, n in enumerate(right.shape) if n > 1):
            close = 1e-6 * n * report.size
            right_zero, given_zero = (near(one.sum(axis), 0.0, close) for one in (right, given))
            if right_zero and not given_zero:
                softmax = evidence.has("exp", "logaddexp")
                before = "a softmax or a norm" if softmax else "a norm"
                term = " (of a softmax: `- sum(dy * w)`)" * softmax
                yield (
                    f"{report.symbol} must sum to zero along axis {axis}, as before {before}, but does not: the same "
                    f"number added to all these elements of {report.name} changes nothing. Is a path missing or scaled "
                    f"wrongly: a mean or a sum that is subtracted{term}, or one side of x_i - x_j?"
                )
            if given_zero and not right_zero:
                yield (
                    f"{report.symbol} sums to zero along axis {axis}, as before a softmax or a norm, but must not: is "
                    "another path to the input missing, or is a number divided by another sum than in the forward?"
                )
            if near(np.linalg.norm(right, axis=axis), np.linalg.norm(given, axis=axis), close / n):
                yield (
                    f"{report.symbol} has the right length along axis {axis} but a wrong direction: is it rotated by "
                    "wrong angles, or in wrong pairs of coordinates?"
                )


def _alone(dy: Outputs, i: int, part: np.ndarray) -> Outputs:
    """dy with `part` for output i, and zeros for all other outputs."""
    return tuple(part if i == j else np.zeros_like(one) for j, one in enumerate(dy))


def _only(x: np.ndarray, axis: int, places: list[int]) -> np.ndarray:
    """x with zeros everywhere except at these places of an axis."""
    kept = np.isin(np.arange(x.shape[axis]), places).reshape((-1,) + (1,) * (x.ndim - axis - 1))
    return np.where(kept, x, 0.0)


def _listed(word: str, numbers: list[int]) -> str:
    return f"{word}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def near(a: np.ndarray, b: np.ndarray | float, slack: float) -> bool:
    """Whether all elements of two arrays agree."""
    return bool(np.all(np.abs(a - b) <= slack))


SPECIFIC = [_beside_a_corner, _of_masks, _of_ones, _conjugate, _without_options, _of_a_branch, _forward_raises]
# True of many mistakes that are wrong everywhere, so only if nothing specific is found.
GENERAL = [_at_identity, _of_single_elements, of_a_layers_input, _mixing, _sums_and_lengths]
