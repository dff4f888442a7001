"""Planted errors in functions that are not this book's.

    trial          what an error is
    places         one point, ties, float32, relative: right nearly everywhere, or nearly right
    conduct        form, no function, structure: what does not behave as a function or a gradient
    derivations    ordinary mistakes
    drawn          mistakes drawn at random
    shared         those that every checker can be asked about
"""

from tests.benchmarks.attacks.conduct import form, no_function, structure
from tests.benchmarks.attacks.derivations import ordinary
from tests.benchmarks.attacks.drawn import drawn
from tests.benchmarks.attacks.places import float32, one_point, relative, ties
from tests.benchmarks.attacks.trial import Trial

KINDS = (one_point, form, no_function, ties, float32, structure, relative, ordinary, drawn)


def trials() -> list[Trial]:
    """All of them, drawn anew."""
    return [trial for some in KINDS for trial in some()]


__all__ = ["KINDS", "Trial", "trials"]
