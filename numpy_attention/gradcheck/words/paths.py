"""Which part of dy reaches which part of a gradient? The paths of the backward beside those of the forward.

dy is cut to one output, to one place along an axis, and the backward is asked again: what does it make of that part
alone? Whether anything must come of it, the differences tell. A part that the backward is deaf to, though the forward
depends on it, is a use that was not added or a sum that became an assignment; a place that it hears, though the
forward keeps it apart, is a sum along the wrong axis.
"""

from collections.abc import Iterator

import numpy as np

from numpy_attention.gradcheck.numbers.line import Outputs
from numpy_attention.gradcheck.words.evidence import Evidence

MANY = 16  # axes longer than this are not taken apart place by place


def deaf_to_outputs(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether a gradient takes nothing from one of several outputs that its argument was used for."""
    dy, rng = evidence.scalar.dy, np.random.default_rng(evidence.report.seed)
    for name in names if len(dy) > 1 else []:
        deaf = []
        for i in range(len(dy)):
            alone = _alone(dy, i, dy[i])
            grad = evidence.gradients(alone)[name]
            silent = grad is not None and not np.any(grad)
            if silent and evidence.moves(name, alone, rng.standard_normal(evidence.exact[name].shape)):
                deaf.append(i)
        if deaf:
            outputs = ("outputs " if len(deaf) > 1 else "output ") + ", ".join(map(str, deaf))
            yield (
                f"d{name} takes nothing from dy of {outputs} (of {len(dy)}, counted from 0): {name} was used for "
                "each of them, and the gradients of all uses add"
            )


def deaf_to_places_of_dy(evidence: Evidence, names: list[str]) -> Iterator[str]:
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
                deaf = [place for place in range(n) if _equal(grad, without[place][name])]
                if grad is None or not np.any(grad) or not 0 < len(deaf) < n:
                    continue
                part = _only(one, axis, deaf)
                if evidence.moves(name, _alone(dy, i, part), rng.standard_normal(grad.shape)):
                    whole = bool(evidence.report.arguments[name].wrong.all())
                    yield _left_out(name, axis, deaf, n, whole and grad.shape != one.shape)


def _left_out(name: str, axis: int, deaf: list[int], n: int, summed: bool) -> str:
    heard = [place for place in range(n) if place not in deaf]
    if summed and axis == 0 and heard in ([0], [n - 1]):
        word = "first" if heard == [0] else "last"
        return f"d{name} uses only the {word} row of dy: is the sum over the batch axis an assignment?"
    places = ("places " if len(deaf) > 1 else "place ") + ", ".join(map(str, deaf))
    nothing = f"d{name} takes nothing from {places} along axis {axis} of dy"
    if n > 2 and deaf in ([0], [n - 1]):
        return f"{nothing}: does a loop or a slice {'begin one late' if deaf == [0] else 'stop one short'}?"
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

    def heard(place: int) -> tuple[list[int], list[int]]:
        """The other places that the backward and the forward have to do with one of dy."""
        part = _alone(evidence.scalar.dy, i, _only(evidence.scalar.dy[i], axis, [place]))
        grad = evidence.gradients(part)[name]
        others = [j for j in range(n) if j != place]
        if n > MANY:  # all of them at once
            true = evidence.moves(name, part, _only(rng.standard_normal(shape), axis, others))
            claimed = grad is not None and bool(np.any(_only(grad, axis, others)))
            return others * claimed, others * true
        claims = [j for j in others if grad is not None and np.any(_only(grad, axis, [j]))]
        return claims, [j for j in others if evidence.moves(name, part, _only(rng.standard_normal(shape), axis, [j]))]

    (claimed, true), (last_claimed, last_true) = heard(0), heard(n - 1)
    if claimed == true:
        claimed, true = last_claimed, last_true
    if claimed == true:
        return
    where = f"the places along axis {axis} of {name}"
    if bool(claimed) != bool(true):
        if claimed is not last_claimed and len(claimed) == len(last_true) and len(true) == len(last_claimed):
            yield (
                f"the backward runs the wrong way along axis {axis} of {name}: what the forward carries from the "
                "first place to the last comes back from the last to the first (reversed)"
            )
        elif claimed:
            yield f"the backward mixes {where}, which the forward keeps apart: a sum along the wrong axis?"
        else:
            yield f"the forward mixes {where}, the backward keeps them apart: has it another axis, or no sum?"
    elif set(claimed) > set(true):
        apart = ", ".join(map(str, sorted(set(claimed) - set(true))))
        yield f"the backward mixes {where} with {apart}, which the forward keeps apart: a sum over too much?"
    elif set(claimed) < set(true):
        apart = ", ".join(map(str, sorted(set(true) - set(claimed))))
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
