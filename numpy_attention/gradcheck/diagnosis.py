"""The likely mistake, in words: what turns the true gradient into the one the backward gave?

Three ways to know. Relations: the wrong gradient is minus, twice, the transpose of the right one, or differs from it by
something that stands in the formula. Experiments: run the backward again with gamma all ones, with nothing masked,
with ids that do not repeat, and see when it becomes right. Places: only the last row is wrong, only the diagonal.
"""

import numpy as np

from numpy_attention.gradcheck.evidence import Evidence
from numpy_attention.gradcheck.experiments import experiments
from numpy_attention.gradcheck.relations import find
from numpy_attention.gradcheck.report import ArgumentReport


def diagnose(evidence: Evidence) -> str:
    """Fill in the pattern of each wrong argument, and say what the likely mistake is."""
    mistakes: dict[str, list[str]] = {}  # and whose they are
    for report in evidence.wrong:
        relation = find(report, evidence.scalar, evidence.exact, evidence.problem.options)
        report.pattern = relation.pattern if relation else place(report.wrong, np.isfinite(report.numeric))
        if relation:
            mistakes.setdefault(relation.mistake, []).append(report.symbol)
    sentences = [f"{', '.join(symbols)}: {mistake}" for mistake, symbols in mistakes.items()]
    if sum(map(len, mistakes.values())) < len(evidence.wrong):
        found = [_of_a_layers_input(evidence), next(experiments(evidence), "") or _of_one_parameter(evidence)]
        if any(found):
            found += [place_in_words(one) for one in evidence.wrong if one.pattern.startswith("only the")]
        sentences = [*filter(None, found), *sentences]
    if not sentences:
        sentences = [place_in_words(report) for report in evidence.wrong]
    return "; ".join(sentences[:2])


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


def place(wrong: np.ndarray, seen: np.ndarray) -> str:
    """Where the wrong elements lie, in a few words."""
    count = int(wrong.sum())
    if seen.sum() < wrong.size:
        return "" if count > 1 else "a single element"
    if count == wrong.size:
        return "every element"
    if count == 1:
        return "a single element"
    for axis, n in enumerate(wrong.shape):
        others = tuple(i for i in range(wrong.ndim) if i != axis)
        hit = np.flatnonzero(wrong.any(axis=others))
        if len(hit) == 1 and n > 1:
            index = int(hit[0])
            which = "the last" if index == n - 1 else "the first" if index == 0 else f"number {index}"
            return f"only {which} along axis {axis}"
    if wrong.ndim >= 2 and wrong.shape[-1] == wrong.shape[-2] > 1:
        eye = np.broadcast_to(np.eye(wrong.shape[-1], dtype=bool), wrong.shape)
        if np.array_equal(wrong, eye):
            return "the diagonal"
        if np.array_equal(wrong, ~eye):
            return "all but the diagonal"
        for name, triangle in (("above", np.triu), ("below", np.tril)):
            if not np.any(triangle(wrong)) and not np.any(wrong & eye):
                return f"nothing {name} the diagonal"
    for axis in range(wrong.ndim):
        lines = wrong.any(axis=axis, keepdims=True)
        if np.array_equal(np.broadcast_to(lines, wrong.shape), wrong):
            return f"{int(lines.sum())} of {lines.size} whole lines along axis {axis}"
    return ""


def place_in_words(report: ArgumentReport) -> str:
    """The mistake that a place suggests."""
    pattern, symbol = report.pattern, report.symbol
    if pattern == "a single element":
        index = ", ".join(map(str, report.worst))
        return f"{symbol}: the formula is right but for element [{index}]: look at the indexing there"
    if pattern.startswith("only the last"):
        return f"{symbol} is wrong in {pattern.removeprefix('only ')} only: does a loop or a slice stop one short?"
    if pattern.startswith("only the first"):
        return f"{symbol} is wrong in {pattern.removeprefix('only ')} only: does a loop or a slice begin one late?"
    if pattern == "the diagonal":
        return f"{symbol} is wrong on the diagonal only: is each element's effect on itself missing?"
    if pattern:
        return f"{symbol} is wrong in {pattern.removeprefix('only ')}, by no simple rule"
    return f"{symbol} is wrong by no simple rule; derive it again, or check the parts of the function one by one"
