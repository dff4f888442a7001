"""Experiments at simpler arrays: where is a wrong backward right, and what is left of it there?

    a mask, a vector      a mask that hides nothing, a gamma of ones: is the mask or gamma left out?
    options               without an option
    identity matrices     a projection that is left out does not matter, and the order of the elements becomes visible
    one element           its effect on each output, in the forward and in the backward: a hidden mask, or another order

An experiment needs a control. If an argument is all ones, a missing factor makes no difference. But then a square
equals a cube too, and a mistake for negative values is not visible. So the backward also runs at other constants and
at random positive values, where a missing factor is visible.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.line import largest
from numpy_attention.gradcheck.problem import Arrays, is_float, parameters_of
from numpy_attention.gradcheck.terms import ORDER, same_numbers

DIAGONAL = "only the diagonal of the Jacobian, the effect of each place on itself (of a softmax: w (1 - w) dy)"
OTHER = 1.37  # a constant that no formula contains
FEW = 8  # with more arguments, as in a layer, only vectors are set to ones
OUTPUTS = 200  # single elements are examined if the function has at most so many outputs


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
    with contextlib.suppress(ValueError, IndexError, ArithmeticError):
        other = evidence.problem.gradients({**evidence.exact, name: ~value}, evidence.scalar.dy)
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
    """Whether the backward is right at ones, and wrong at the same values in another order."""
    shuffled = np.random.default_rng([evidence.report.seed, 19]).permutation(value.reshape(-1)).reshape(value.shape)
    positive = np.random.default_rng([evidence.report.seed, 17]).uniform(0.5, 2.0, value.shape)

    def right_at(other: np.ndarray) -> bool:
        return evidence.right_at(names, {**evidence.exact, name: other})

    if np.all(value == 1) or not right_at(np.ones_like(value)) or right_at(shuffled):
        return
    if right_at(positive):
        if np.any(value <= 0):
            yield f"right when {name} is positive, else wrong: is a branch at zero or the sign of {name} wrong?"
    elif not right_at(np.full_like(value, OTHER)):
        yield (
            f"right when {name} is all ones, wrong when it is all {OTHER}: the factor {name} is missing, or applied "
            "once too often"
        )
    elif value.size in value.shape:
        yield (
            f"right when {name} has one value everywhere, else wrong: {name} is applied at the wrong place, before a "
            "sum or a mean instead of after it"
        )


def at_identity(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether a gradient is right, or has its elements in a wrong order, when the weights are identity matrices."""
    for name in names:
        x = evidence.exact[name]
        square = {
            key: np.broadcast_to(np.eye(w.shape[-1]), w.shape) for key, w in evidence.arrays.items()
            if key != name and is_float(w) and w.ndim > 1 and w.shape[-1] == w.shape[-2] and w.shape[-1] in x.shape
        }
        if not square:
            continue
        arrays = {**evidence.exact, **square}
        if evidence.right_at([name], arrays):
            weights = ", ".join(square)
            if evidence.right_at([name], {**arrays, **{key: OTHER * one for key, one in square.items()}}):
                yield f"d{name} is right with symmetric matrices for {weights}: multiply by the transposed matrix"
            else:
                yield (
                    f"d{name} is right with identity matrices for {weights}, else wrong: the gradient of a projection "
                    "is not multiplied by the transposed matrix of this projection"
                )
        elif x.size <= OUTPUTS and len(evidence.scalar.dy) == 1:
            grad = evidence.problem.gradients(arrays, evidence.scalar.dy)[name]

            def along(v: np.ndarray, name: str = name, arrays: Arrays = arrays) -> float:
                return float(np.sum(evidence.scalar.dy[0] * evidence.forward(name, v, arrays)))

            if grad is not None and abs(along(np.ones(x.shape)) - grad.sum()) <= 1e-6 * np.abs(grad).sum():
                right = np.array([along(unit) for unit in np.eye(x.size).reshape(-1, *x.shape)])
                if same_numbers(grad, right):
                    yield (
                        f"with identity matrices for {', '.join(square)}, d{name} holds the right numbers in the wrong "
                        f"places: {ORDER}"
                    )


def of_single_elements(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether the backward gives the effect of an element to other outputs, or to outputs where it has no effect."""
    dy = evidence.scalar.dy[0]
    if len(evidence.scalar.dy) > 1 or dy.size > OUTPUTS or len(names) > FEW:
        return
    rng = np.random.default_rng(evidence.report.seed)
    backward = [evidence.gradients((unit.reshape(dy.shape),)) for unit in np.eye(dy.size)]
    for name in names:
        shape = evidence.exact[name].shape
        v, grads = rng.standard_normal(shape), [grad for one in backward if (grad := one[name]) is not None]
        if len(grads) < dy.size:
            continue
        if same_numbers(np.array([np.sum(grad * v) for grad in grads]), evidence.forward(name, v)):
            yield f"d{name} is right for a dy whose numbers are in another order: {ORDER}"
        counts = [1] * (len(shape) - 2) + [3, 2][-len(shape):]  # two columns of three rows
        places = [rng.choice(n, min(n, count), replace=False) for n, count in zip(shape, counts)]
        some = np.ravel_multi_index(np.ix_(*places), shape).reshape(-1)
        directions = np.eye(v.size)[some].reshape(-1, *shape)
        right = np.array([evidence.forward(name, one).reshape(-1) for one in directions])
        analytic = np.array([grad.reshape(-1)[some] for grad in grads]).T
        kept, used = (np.abs(one) > 1e-9 * largest(one) for one in (right, analytic))
        ratio = (analytic * right).sum(axis=0) / (right * right).sum(axis=0)  # of each output
        fits = near(np.where(kept, analytic - ratio * right, 0.0), 0.0, 1e-6 * largest(analytic))
        share = float(np.median(ratio[kept.any(axis=0)])) * used.sum(axis=1)
        mean = near(share, 1.0, 1e-6)  # a sum of the hidden elements too, divided by their number
        if fits and not mean and not (kept & ~used).any() and np.ptp((used & ~kept).sum(axis=1)) > 0:
            yield f"d{name} uses elements that the forward hides: does the backward lack a mask, or a relu?"


def without_options(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """The options without which, or with a zero or a one for which, the backward is right."""
    given, right_at = evidence.problem.options, evidence.right_at
    known = parameters_of(getattr(evidence.problem, "op", evidence.problem.call))
    options = {name: one.default for name, one in known.items() if name not in evidence.exact} | dict(given)
    for name, value in options.items():
        rest = {key: other for key, other in given.items() if key != name}
        changes = [rest] * (name in given) + [{**rest, name: 0.0}] * (name in given and isinstance(value, float))
        for changed in changes + [{**rest, name: 1}] * (type(value) is int and value > 1):
            with contextlib.suppress(TypeError):  # an option that must be given
                if right_at(names, evidence.exact, evidence.problem.with_options(changed)):
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


def near(a: np.ndarray, b: np.ndarray | float, slack: float) -> bool:
    """Whether all elements of two arrays agree."""
    return bool(np.all(np.abs(a - b) <= slack))
