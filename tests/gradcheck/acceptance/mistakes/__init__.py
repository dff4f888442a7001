"""Planted mistakes in third-party functions.

    trial          the record of one mistake
    places         one point, ties, float32, relative: right nearly everywhere, or nearly right
    conduct        form, no function, structure: results that are not a gradient, forwards that are not a function
    derivations    ordinary mistakes
    drawn          mistakes drawn at random
"""

from tests.gradcheck.acceptance.mistakes.conduct import form, no_function, structure
from tests.gradcheck.acceptance.mistakes.derivations import ordinary
from tests.gradcheck.acceptance.mistakes.drawn import drawn
from tests.gradcheck.acceptance.mistakes.places import float32, one_point, relative, ties
from tests.gradcheck.acceptance.mistakes.trial import Trial

KINDS = (one_point, form, no_function, ties, float32, structure, relative, ordinary, drawn)


def trials() -> list[Trial]:
    """All planted mistakes, newly drawn."""
    return [trial for some in KINDS for trial in some()]


__all__ = ["KINDS", "Trial", "trials"]
