"""Which part of dy reaches which part of a gradient? The paths of the backward beside those of the forward.

dy is cut to one output, to one place along an axis, and the backward is asked again: what does it make of that part
alone? Whether anything must come of it, the differences tell. A part that the backward is deaf to, though the forward
depends on it, is a use that was not added or a sum that became an assignment; a place that it hears, though the
forward keeps it apart, is a sum along the wrong axis.
"""

from collections.abc import Iterator

import numpy as np

from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.line import Outputs

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
                    yield _left_out(name, axis, deaf, n, bool(evidence.report.arguments[name].wrong.all()))


def _left_out(name: str, axis: int, deaf: list[int], n: int, whole: bool) -> str:
    heard = [place for place in range(n) if place not in deaf]
    if axis == 0 and heard in ([0], [n - 1]):
        word = "first" if heard == [0] else "last"
        return f"d{name} uses only the {word} row of dy: is the sum over the batch axis an assignment?"
    places = ("places " if len(deaf) > 1 else "place ") + ", ".join(map(str, deaf))
    nothing = f"d{name} takes nothing from {places} along axis {axis} of dy"
    if whole:
        return f"{nothing}: must it be summed over that axis, or over each group of it?"
    return f"{nothing}: if several belong to one row, is only the last kept, as d[ids] += dy does (np.add.at adds)?"


def mixing(evidence: Evidence, names: list[str]) -> Iterator[str]:
    """Whether forward and backward agree on which places along an axis have to do with each other."""
    rng = np.random.default_rng(evidence.report.seed)
    for i, one in enumerate(evidence.scalar.dy):
        for name in names:
            shape = evidence.exact[name].shape
            for axis in range(min(len(shape), one.ndim)):
                if not shape[axis] == one.shape[axis] > 1:
                    continue
                first = _alone(evidence.scalar.dy, i, _only(one, axis, [0]))
                others = list(range(1, shape[axis]))
                grad = evidence.gradients(first)[name]
                if grad is None:
                    continue
                claimed = bool(np.any(_only(grad, axis, others)))
                true = evidence.moves(name, first, _only(rng.standard_normal(shape), axis, others))
                where = f"the places along axis {axis} of {name}"
                if claimed and not true:
                    yield f"the backward mixes {where}, which the forward keeps apart: a sum along the wrong axis?"
                if true and not claimed:
                    yield f"the forward mixes {where}, the backward keeps them apart: has it another axis, or no sum?"


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
