"""All that one run shows of an op or a layer: what two of them must share to be taken for each other."""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.catalogue.entry import Entry
from numpy_attention.catalogue.properties import same
from numpy_attention.gradcheck.claims import random_cotangent
from numpy_attention.gradcheck.line import Outputs
from numpy_attention.gradcheck.problem import Gradients
from numpy_attention.gradcheck.spec import Sizes


class Imprint(NamedTuple):
    """Outputs and gradients, and what the backward did to dy and to its cache."""

    y: Outputs
    grads: Gradients
    changed_dy: bool
    changed_cache: bool


def imprint(entry: Entry, seed: int, sizes: Sizes | None, dtype: Any = np.float64) -> Imprint | None:
    """What a run shows; None when it stops, and a mutant may stop in any way."""
    try:
        problem = entry.case(seed, dtype, sizes).problem()
        with np.errstate(all="ignore"):
            y, cache = problem.run(problem.inputs)
            dy = random_cotangent(y, seed)
            kept = tuple(one.copy() for one in dy)
            claimed = problem.pull_back(dy, cache)
            grads = {name: None if grad is None else np.array(grad) for name, grad in claimed.items()}
            changed_dy = not same(kept, dy)
            for one, before in zip(dy, kept):
                one[...] = before
            again = problem.pull_back(dy, cache)
    except Exception:
        return None
    return Imprint(y, grads, changed_dy, not same(grads, again))
