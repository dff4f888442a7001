"""How far an honest claim may be off: the round-off of a backward, and what only looks like it.

The jitter of a claim, its change when inputs move by a few last bits (`claims.py`), is its round-off as long as the
backward is smooth there. Two kinds of claims deceive it. One that is wrong at a single point, at zero or where two
inputs are equal, jumps when it is moved away, and the jump would excuse the error. And where a function is a stair, as
1 - p is when p is nearly 1, a few last bits move nothing, and a claim seems exact that is not.

So a claim in doubt is looked at again, beside the witness, at places near and not so near. There a right claim minus
the derivative scatters as the round-off of both. For a wrong one it is the same number everywhere, or zero everywhere
but here: next to no scatter.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.gradcheck.numbers.claims import Claim, Move, moved_by
from numpy_attention.gradcheck.numbers.point import Point

SAFETY = 8.0  # how many error bars apart is wrong
JUMP = 1e-9  # round-off of a larger share of the gradient is looked at twice

FURTHER = (2**16, 2**16, 2**26, 2**26)  # last bits
FAR = (2**38, 2**38, 2**41, 2**41)  # for what is as small as round-off can be, and may stand on a long stair

Derivative = Callable[[int], float]  # of one element


def jumps(jitter: Any, size: float) -> Any:
    """Where the jitter is large beside the size of the gradient."""
    return jitter > JUMP * size


class RoundOff:
    """How much claim minus derivative scatters about these arrays; `beside` gives derivatives at moved ones."""

    def __init__(self, point: Point, beside: Callable[[Move], Derivative]) -> None:
        self.point, self.beside = point, beside
        self.known: dict[tuple[int, ...], list[tuple[Move, Derivative]]] = {}

    def __call__(self, claim: Claim, elements: np.ndarray, ulps: tuple[int, ...] = FURTHER) -> np.ndarray:
        """The spread for each of these elements, from the moves that moved it; infinite where that is unknown."""
        x, moves = self.point.exact[claim.name], self._moves(ulps)
        off = np.full((len(moves) + 1, elements.size), np.nan)
        for k, (move, derivative) in enumerate(moves):
            grad = move.grads.get(claim.name)
            if grad is None:
                continue
            moved = (move.arrays[claim.name] != x).reshape(-1)[elements]
            for n in np.flatnonzero(moved):
                off[k, n] = float(grad.reshape(-1)[elements[n]]) - derivative(int(elements[n]))
        spread: np.ndarray = np.fmax.reduce(off) - np.fmin.reduce(off)
        return np.where(np.isfinite(spread), spread, np.inf)

    def _moves(self, ulps: tuple[int, ...]) -> list[tuple[Move, Derivative]]:
        near = self.point.moves
        if ulps not in self.known and near:
            rng = np.random.default_rng(len(near[0].arrays))
            further = moved_by(ulps, self.point.problem, near[0].arrays, near[0].dy, rng)
            self.known[ulps] = [(move, self.beside(move)) for move in [*near, *further]]
        return self.known.get(ulps, [])
