"""The likely mistake, in words: what turns the true gradient into the one the backward gave?

Three ways to know. Relations: the wrong gradient is minus, twice, the transpose of the right one, or differs from it by
something that stands in the formula. Experiments: run the backward again with gamma all ones, with nothing masked,
with ids that do not repeat, and see when it becomes right. Places: only the last row is wrong, only the diagonal.
"""

from collections.abc import Mapping

import numpy as np

from numpy_attention.gradcheck import relations
from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.experiments import experiments


def diagnose(evidence: Evidence) -> str:
    """Fill in the pattern of each wrong argument, and say what the likely mistake is."""
    mistakes: dict[str, list[str]] = {}  # and whose they are
    for report in evidence.wrong:
        relation = relations.find(report, evidence.scalar, evidence.exact, evidence.problem.options)
        report.pattern = relation.pattern if relation else relations.place(report.wrong, np.isfinite(report.numeric))
        if relation:
            mistakes.setdefault(relation.mistake, []).append(report.symbol)
    sentences = [f"{', '.join(symbols)}: {mistake}" for mistake, symbols in mistakes.items()]
    if sum(map(len, mistakes.values())) < len(evidence.wrong):
        found = [_of_a_layers_input(evidence), next(experiments(evidence), "") or _of_one_parameter(evidence)]
        if any(found):
            found += [relations.place_in_words(one) for one in evidence.wrong if one.pattern.startswith("only the")]
        sentences = [*filter(None, found), *sentences]
    if not sentences:
        sentences = [relations.place_in_words(report) for report in evidence.wrong]
    return "; ".join(sentences[:2])


def _of_a_layers_input(evidence: Evidence) -> str:
    """What it tells that all parameters' gradients are right, and an input's is not."""
    parameters = evidence.problem.parameters
    wrong = {report.name for report in evidence.wrong}
    if not parameters or wrong & parameters:
        return ""
    names = ", ".join(f"d{name}" for name in sorted(wrong))
    return (f"every parameter's gradient is right, only {names} is wrong: a path to the input is missing or added "
            "twice (the residual path? one of q, k and v?)")


def _of_one_parameter(evidence: Evidence) -> str:
    """What it tells that of a layer's many gradients only one is wrong."""
    wrong = [report.name for report in evidence.wrong]
    if not evidence.problem.parameters or len(wrong) > 1 or len(evidence.reports) < 2:
        return ""
    return (f"all other gradients are right: the mistake stands where d{wrong[0]} is put together "
            "(used twice, its two gradients must be added)")


def explain_shape(got: tuple[int, ...], expected: tuple[int, ...],
                  others: Mapping[str, tuple[int, ...]] | None = None) -> str:
    """What a gradient of another shape than its argument tells; `others` are the shapes of the other arguments."""
    for other, shape in (others or {}).items():
        if shape == got:
            return f"this is the shape of {other}: are the arguments, or the gradients, in the right order?"
    extra = len(got) - len(expected)
    if extra > 0 and got[extra:] == expected:
        flat = ", or a reshape to the shape of the argument" if set(got[:extra]) == {1} else ""
        return f"the sum over the batch axes {tuple(range(extra))} is missing{flat}"
    if len(got) == len(expected) and sorted(got) == sorted(expected):
        return "transposed"
    if len(got) == len(expected) and all(a == b or b == 1 for a, b in zip(got, expected)):
        axes = tuple(i for i, (a, b) in enumerate(zip(got, expected)) if a != b)
        return (f"the sum over axes {axes}, along which the argument was broadcast, is missing; or a sum without "
                "keepdims=True was broadcast")
    if int(np.prod(got)) == int(np.prod(expected)):
        return "the right number of elements: a reshape is missing"
    if extra < 0:
        return "summed over too many axes, or not spread back over those that the forward summed"
    return "a gradient has the shape of its argument"
