"""Is a complex gradient right, but in the convention of another library?

    here and in PyTorch      dz = dL/dRe z + i dL/dIm z        f analytic:  dz = conj(f'(z)) dy
    JAX and autograd         the conjugate of it, to the conjugate of dy:       f'(z) dy

So one that is right there becomes right here when dy goes in conjugated, and what comes out is conjugated.
"""

import numpy as np

from numpy_attention.gradcheck.words.evidence import Evidence

OTHER = (
    "right in the convention of JAX and autograd, dz = f'(z) dy; here, as in PyTorch, dz = dL/dRe z + i dL/dIm z, "
    "which is conj(f'(z)) dy for an analytic f: conjugate the derivative"
)


def in_the_other_convention(evidence: Evidence) -> str:
    """What it tells that all gradients are right once dy and they are conjugated; nothing if they are not."""
    problem, dy = evidence.problem, evidence.scalar.dy
    if not problem.complex or problem.conjugate is None:
        return ""
    _, cache = problem.run(evidence.exact)
    grads = problem.pull_back(problem.conjugate(dy, cache), cache)
    for report in evidence.report.arguments.values():
        grad, seen = grads.get(report.name), np.isfinite(report.numeric)
        if grad is None or np.shape(grad) != report.shape:
            return ""
        there = -grad if report.name.endswith(".imag") else grad
        slack = 1e-6 * report.size + report.resolution[seen]
        if not np.all(np.abs(there[seen] - report.numeric[seen]) <= slack):
            return ""
    return OTHER
