"""Measure the checker: false alarms, missed mistakes, right causes, hard corners.

    python -m tests.gradcheck.acceptance                       all five tables: three minutes
    python -m tests.gradcheck.acceptance rights mistakes       some of them: rights, mistakes, known, files, corners
    python -m tests.gradcheck.acceptance rights --draws 34     34 draws at each scale, 14,840 checks: ten minutes
    python -m tests.gradcheck.acceptance --said                also print what the checker says where it is not right

A mistake is missed if the check passes, or raises an error other than `GradientError`. A right gradient is accused if
the mistake is in the gradient of one argument, and the report calls the gradient of another argument wrong. The cause
is right if the diagnosis matches a pattern that was written for the mistake.
"""

import argparse
import functools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from numpy_attention.tutor import MISTAKES, catch
from numpy_attention.tutor.catalogue import TRIALS
from tests.gradcheck.acceptance.corners import CORNERS, counted
from tests.gradcheck.acceptance.files import print_files
from tests.gradcheck.acceptance.fresh import FRESH, HELD_OUT
from tests.gradcheck.acceptance.mistakes import trials
from tests.gradcheck.acceptance.strangers import STRANGERS
from tests.gradcheck.acceptance.third_party import THIRD_PARTY
from tests.gradcheck.acceptance.verdict import verdict

Check = tuple[str, str, Callable[[], Any]]  # a name, the scale of the inputs, the call of the checker
# clauses of a diagnosis that name no cause
SILENT = r"no simple rule|derive it again|\(no diagnosis\)|is wrong only in (the )?places?"


def judged(mistake: Any) -> tuple[str, str]:
    """Whether a mistake is "missed", "accused" with a right gradient, or caught with the cause "right", "none" or
    "wrong"; and what the checker says.
    """
    found = verdict(mistake.check)
    if found.state not in ("wrong", "unresolved"):
        return "missed", found.diagnosis
    if mistake.argument and set(found.arguments) - set(mistake.argument.split(",")):
        return "accused", f"d{', d'.join(found.arguments)}: {found.diagnosis}"
    clauses = [clause for clause in found.diagnosis.split("; ") if "no simple rule" not in clause]
    if mistake.names_the_cause("; ".join(clauses)):
        return "right", found.diagnosis
    return "none" if all(re.search(SILENT, clause) for clause in clauses) else "wrong", found.diagnosis


def judged_known(mistake: Any) -> tuple[str, str]:
    """The same for a known mistake of the package. Its page states a part of the report, with the wrong argument.

    A page states nothing for a mistake that occurs only in an exercise: then only "missed" or "caught" is known.
    """
    message = catch(mistake)
    if not message or not mistake.diagnosis:
        return "caught" if message else "missed", message
    return "right" if mistake.diagnosis in message else "wrong", message


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
    found["strangers"] = STRANGERS
    return found


def known_mistakes() -> dict[str, list[Any]]:
    """The known mistakes of the package, on the pages of the tutor: of the gallery, and of exercises only."""
    return {
        "gallery": [mistake for mistake in MISTAKES.values() if mistake.diagnosis],
        "exercises": [mistake for mistake in MISTAKES.values() if not mistake.diagnosis],
    }


def print_rights(draws: int) -> None:
    """Print each right gradient that the checker refuses."""
    started, checks, alarms = time.process_time(), 0, 0
    for name, _, check in chain(third_party_checks(draws), fresh_checks()):
        found = verdict(check)
        checks, alarms = checks + 1, alarms + (found.state != "right")
        if found.state != "right":
            print(f"false alarm, {found.state}: {name}: {found.diagnosis}", flush=True)
    print(f"\n{checks:,} right gradients: {alarms} false alarms, {time.process_time() - started:.0f} s\n")


def print_mistakes(kinds: dict[str, list[Any]], judge: Callable[[Any], tuple[str, str]], said: bool) -> None:
    """Print a row for each kind, and each missed mistake."""
    print("| kind | mistakes | missed | right gradient called wrong | right cause | no cause | wrong cause | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, some in kinds.items():
        started, counts, lines = time.process_time(), Counter[str](), []
        for mistake in some:
            result, message = judge(mistake)
            counts[result] += 1
            if result in ("missed", "accused") or (said and result in ("none", "wrong")):
                lines.append(f"{result}: {mistake.name}: {message}")
        columns = ("missed", "accused", "right", "none", "wrong")
        cells = ["-" if counts["caught"] and name != "missed" else str(counts[name]) for name in columns]
        print(f"| {kind} | {len(some)} | {' | '.join(cells)} | {time.process_time() - started:.1f} |")
        print(*lines, sep="\n", end="\n" if lines else "", flush=True)


def print_corners(said: bool) -> None:
    """Print the verdict of each hard corner beside the expected one."""
    print("\n| hard corner | case | expected | found | as expected | most calls | seconds |")
    print("|---|---|---|---|---|---|---|")
    failed = 0
    for corner in CORNERS:
        started = time.process_time()
        found = corner.verdicts(corner.draws)
        failure, seconds = corner.failure(found), time.process_time() - started
        failed += bool(failure)
        expected = corner.expected + ", with a sentence" * bool(corner.says)
        calls = max(one.calls for one in found)
        print(f"| {corner.row} | {corner.name} | {expected} | {counted(found)} | {'NO' if failure else 'yes'} "
              f"| {calls:,} | {seconds:.1f} |", flush=True)
        if failure and said:
            print(failure)
    print(f"\n{len(CORNERS)} hard corners, {failed} not as expected")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="false alarms, missed mistakes, right causes, hard corners")
    tables = ("rights", "mistakes", "known", "files", "corners")
    parser.add_argument("tables", nargs="*", metavar="table", help=f"{', '.join(tables)} (default: all)")
    parser.add_argument("--draws", type=int, default=1, help="draws of each function at each scale (default: 1)")
    parser.add_argument("--said", action="store_true", help="print what the checker says where it is not right")
    arguments = parser.parse_args()
    chosen = arguments.tables or tables
    if unknown := set(chosen) - set(tables):
        parser.error(f"there is no table {', '.join(unknown)}; the tables are {', '.join(tables)}")
    if "rights" in chosen:
        print_rights(arguments.draws)
    if "mistakes" in chosen:
        print_mistakes(mistakes(), judged, arguments.said)
    if "known" in chosen:
        print_mistakes(known_mistakes(), judged_known, arguments.said)
    if "files" in chosen:
        gallery = [mistake for mistake in known_mistakes()["gallery"] if mistake.covers not in TRIALS]
        print_files({kind: some for kind, some in mistakes().items() if kind != "strangers"}, gallery, judged)
    if "corners" in chosen:
        print_corners(arguments.said)


if __name__ == "__main__":
    main()
