"""The likely mistake, in words: what turns the true gradient into the one the backward gave?

Three ways to know. Relations: the wrong gradient is minus, twice, the transpose of the right one, or differs from it by
something that stands in the formula. Experiments: run the backward again with gamma all ones, with nothing masked,
with ids that do not repeat, and see when it becomes right. Places: only the last row is wrong, only the diagonal.
"""

import itertools

import numpy as np

from numpy_attention.gradcheck.problems.trees import Arrays
from numpy_attention.gradcheck.words.branches import at_one_value
from numpy_attention.gradcheck.words.conventions import in_the_other_convention
from numpy_attention.gradcheck.words.evidence import Evidence
from numpy_attention.gradcheck.words.experiments import experiments
from numpy_attention.gradcheck.words.paths import deaf_to_outputs
from numpy_attention.gradcheck.words.places import place, place_in_words
from numpy_attention.gradcheck.words.relations import find


def diagnose(evidence: Evidence) -> str:
    """Fill in the pattern of each wrong argument, and say what the likely mistake is."""
    if ties := [report.tie for report in evidence.wrong if report.tie]:
        return "; ".join(ties[:2])
    points = [at_one_value(report, _arrays(evidence)) for report in evidence.wrong]
    if all(points):
        return f"wrong only where {' and '.join(dict.fromkeys(points))}: is that a case of its own in the backward?"
    if other := in_the_other_convention(evidence):
        return other
    if swapped := _exchanged(evidence):
        return swapped
    if len(evidence.scalar.dy) > 1:  # whoever ignores one of several outputs seems to lack a term, or to take a mean
        deaf = "; ".join(deaf_to_outputs(evidence, [report.name for report in evidence.wrong]))
        if deaf:
            for report in evidence.wrong:
                report.pattern = place(report.wrong, np.isfinite(report.numeric))
            return deaf
    mistakes: dict[str, list[str]] = {}  # and whose they are
    known = 0
    for report in evidence.wrong:
        relation = find(report, evidence.scalar, evidence.exact, evidence.problem.options)
        report.pattern = relation.pattern if relation else place(report.wrong, np.isfinite(report.numeric))
        if relation:
            mistakes.setdefault(relation.mistake, []).append(report.symbol)
            known += not relation.weak
    sentences = [f"{', '.join(symbols)}: {mistake}" for mistake, symbols in mistakes.items()]
    if known < len(evidence.wrong):
        found = [_of_a_layers_input(evidence), next(experiments(evidence), "") or _of_one_parameter(evidence)]
        if any(found):
            found += [place_in_words(one) for one in evidence.wrong if one.pattern.startswith("only")]
        sentences = [*filter(None, found), *sentences]
    if not sentences:
        sentences = [place_in_words(report) for report in evidence.wrong]
    return "; ".join(sentences[:2])


def _exchanged(evidence: Evidence) -> str:
    """Whether two wrong gradients are right under each other's name."""
    for one, other in itertools.combinations(evidence.wrong, 2):
        if other.fits(one.analytic) and one.fits(other.analytic):
            for report in (one, other):
                report.pattern = place(report.wrong, np.isfinite(report.numeric))
            return f"{one.symbol} and {other.symbol} are exchanged: each holds the other's gradient"
    return ""


def _arrays(evidence: Evidence) -> Arrays:
    return {name: value for name, value in evidence.exact.items() if isinstance(value, np.ndarray)}


def _of_a_layers_input(evidence: Evidence) -> str:
    """What it tells that all parameters' gradients are right, and an input's is not."""
    parameters = evidence.problem.parameters
    wrong = {report.name for report in evidence.wrong}
    if not parameters or wrong & parameters:
        return ""
    names = ", ".join(f"d{name}" for name in sorted(wrong))
    return (
        f"every parameter's gradient is right, only {names} is wrong: a path to the input is missing or added "
        "twice (the residual path? one of q, k and v?)"
    )


def _of_one_parameter(evidence: Evidence) -> str:
    """What it tells that of a layer's many gradients only one is wrong."""
    wrong = [report.name for report in evidence.wrong]
    if not evidence.problem.parameters or len(wrong) > 1 or len(evidence.report.arguments) < 2:
        return ""
    return (
        f"all other gradients are right: the mistake stands where d{wrong[0]} is put together "
        "(used twice, its two gradients must be added)"
    )
