"""When are two answers of one backward the same? To round-off, which is measured where a first look does not do.

What is spoilt by another call, or by the strides of an array, is off by far more than a sum in another order. So a
share of the gradient's size is let through at once; a gradient that is all round-off, as that of a key's bias, moves by
more than a share of itself, and there the jitter of the backward decides (`claims.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from numpy_attention.gradcheck.numbers.claims import claims
from numpy_attention.gradcheck.numbers.line import Outputs, largest
from numpy_attention.gradcheck.problems.problem import Gradients, Problem
from numpy_attention.gradcheck.report import GradientError

LOOSE = 1e-5  # of the gradient's size, or the root of a last bit
ROUND_OFF = 100.0  # so many times what was measured is still round-off

Given = dict[str, np.ndarray]


def root_of_eps(x: np.ndarray) -> float:
    """The root of the last bit of a 1 in the dtype of x; 0 for integers."""
    return float(np.finfo(x.dtype).eps) ** 0.5 if x.dtype.kind in "fc" else 0.0


@dataclass
class Asked:
    """What was asked once, and what counts as the same answer."""

    problem: Problem
    outputs: Outputs
    dy: Outputs
    grads: Gradients
    seed: int
    rtol: float
    atol: float
    round_off: dict[str, float] = field(default_factory=dict)

    def backward(self, dy: Outputs, cache: Any) -> Given:
        """The gradients that there are, just as the backward returns them."""
        returned = self.problem.pull_back(dy, cache)
        names = (name for name, grad in self.grads.items() if grad is not None)
        return {name: np.asarray(returned[name]) for name in names if returned.get(name) is not None}

    def fits(self, found: Given, name: str) -> bool:
        """Whether this gradient is there, in the shape and the kind of numbers in which it came at first."""
        first = np.asarray(self.grads[name])
        return name in found and (found[name].shape, found[name].dtype.kind) == (first.shape, first.dtype.kind)

    def differing(
        self, found: Given, expected: Mapping[str, Any], size: Mapping[str, Any] | None = None, times: float = 1.0
    ) -> str | None:
        """The first gradient that is another, by more than round-off, of so many `times` a dy.

        What they are off by is seen relative to the gradients `size`.
        """
        for name, grad in expected.items():
            if grad is None:
                continue
            if not self.fits(found, name):
                return name
            off = largest(found[name] - np.asarray(grad))
            share = max(LOOSE, root_of_eps(np.asarray(self.grads[name]))) + self.rtol
            allowed = share * largest(np.asarray((size or expected)[name])) + self.atol
            if not off <= allowed and not off <= times * self._round_off(name):  # NaN is never the same
                return name
        return None

    def _round_off(self, name: str) -> float:
        if not self.round_off:
            terms = max((largest(dy * y) for dy, y in zip(self.dy, self.outputs, strict=True)), default=0.0)
            found, _ = claims(self.problem, self.dy, self.grads, terms)
            self.round_off = {one.name: ROUND_OFF * (one.base + one.lenient + largest(one.jitter)) for one in found}
        return self.round_off.get(name, 0.0)

    def error(self, text: str) -> GradientError:
        return GradientError(f"gradcheck {self.problem.name}: {text}; repeat with seed={self.seed}")
