"""Measure the checker: false alarms, missed mistakes, right causes.

    python -m tests.gradcheck.acceptance                each right function at each scale once, every mistake: a minute
    python -m tests.gradcheck.acceptance --draws 34     34 draws at each scale, 14,840 checks: ten minutes
    python -m tests.gradcheck.acceptance --said         also print what the checker says where it names another cause

A mistake is missed if the check passes, or raises an error other than `GradientError`. A right gradient is accused if
the mistake is in the gradient of one argument, and the report calls the gradient of another argument wrong. The cause
is right if the diagnosis matches a pattern that was written for the mistake.
"""

import argparse
import functools
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from numpy_attention.gradcheck import GradientError
from tests.gradcheck.acceptance.fresh import FRESH, HELD_OUT
from tests.gradcheck.acceptance.mistakes import trials
from tests.gradcheck.acceptance.third_party import THIRD_PARTY

Check = tuple[str, str, Callable[[], Any]]  # a name, the scale of the inputs, the call of the checker
# clauses of a diagnosis that name no cause
SILENT = r"no simple rule|derive it again|\(no diagnosis\)|is wrong only in (the )?places?"


class Verdict(NamedTuple):
    """What the checker says: right, wrong, unresolved (neither of the two) or crash; the diagnosis; the arguments."""

    state: str
    diagnosis: str = ""
    arguments: tuple[str, ...] = ()


def verdict(check: Callable[[], Any]) -> Verdict:
    """Run a check and read its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            check()
        except GradientError as error:
            if error.report is None:  # not a gradient: None, a wrong shape, NaN
                return Verdict("wrong", str(error))
            names = tuple(one.name for one in error.report.wrong)
            if not names:
                return Verdict("unresolved", str(error))
            why_not = f"(no diagnosis) {error.report.why_not or ''}".strip()
            return Verdict("wrong", error.report.diagnosis or why_not, names)
        except Exception as error:
            return Verdict("crash", f"{type(error).__name__}: {error}")
    return Verdict("right")


def judged(mistake: Any) -> tuple[str, str]:
    """Whether a mistake is "missed", "accused" with a right gradient, or caught with the cause "right", "none" or
    "wrong"; and what the checker says.
    """
    found = verdict(mistake.check)
    if found.state in ("right", "crash"):
        return "missed", found.diagnosis
    if mistake.argument and set(found.arguments) - set(mistake.argument.split(",")):
        return "accused", f"d{', d'.join(found.arguments)}: {found.diagnosis}"
    clauses = [clause for clause in found.diagnosis.split("; ") if "no simple rule" not in clause]
    if mistake.names_the_cause("; ".join(clauses)):
        return "right", found.diagnosis
    return "none" if all(re.search(SILENT, clause) for clause in clauses) else "wrong", found.diagnosis


def third_party_checks(draws: int) -> Iterator[Check]:
    """The checks of right third-party functions at all their scales."""
    for name, function in THIRD_PARTY.items():
        for scale in function.scales:
            for seed in range(draws):
                yield f"{name}, {scale}, {seed}", scale, functools.partial(function.check, scale, seed)


def fresh_checks() -> Iterator[Check]:
    """The checks of the right functions of the fresh set."""
    for pairs in (FRESH | HELD_OUT).values():
        for right in pairs.rights:
            yield right.name, "", right.check


def mistakes() -> dict[str, list[Any]]:
    """All planted mistakes, by kind."""
    found: dict[str, list[Any]] = {}
    for trial in trials():
        found.setdefault(trial.kind, []).append(trial)
    for kind, fields in (("fresh", FRESH), ("held out", HELD_OUT)):
        found[kind] = [wrong for pairs in fields.values() for wrong in pairs.wrongs]
    return found


def main() -> None:
    """Print every false alarm and every missed mistake, and a table."""
    parser = argparse.ArgumentParser(description="false alarms, missed mistakes and right causes of the checker")
    parser.add_argument("--draws", type=int, default=1, help="draws of each function at each scale (default: 1)")
    parser.add_argument("--said", action="store_true", help="print the diagnosis where the cause is not right")
    arguments = parser.parse_args()
    started, checks, alarms = time.process_time(), 0, 0
    for name, _, check in chain(third_party_checks(arguments.draws), fresh_checks()):
        found = verdict(check)
        checks, alarms = checks + 1, alarms + (found.state != "right")
        if found.state != "right":
            print(f"false alarm, {found.state}: {name}: {found.diagnosis}", flush=True)
    print(f"\n{checks:,} right gradients: {alarms} false alarms, {time.process_time() - started:.0f} s\n")
    print("| kind | mistakes | missed | right gradient called wrong | right cause | no cause | wrong cause | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, some in mistakes().items():
        started, counts, lines = time.process_time(), Counter[str](), []
        for mistake in some:
            result, said = judged(mistake)
            counts[result] += 1
            if result in ("missed", "accused") or (arguments.said and result != "right"):
                lines.append(f"{result}: {mistake.name}: {said}")
        cells = [counts[result] for result in ("missed", "accused", "right", "none", "wrong")]
        print(f"| {kind} | {len(some)} | {' | '.join(map(str, cells))} | {time.process_time() - started:.1f} |")
        print(*lines, sep="\n", end="\n" if lines else "", flush=True)


if __name__ == "__main__":
    main()
