"""Check the gradients of all entries of the catalogue, or of some, and print the largest relative errors."""

import difflib
import statistics
import sys
import time
from typing import TextIO

from numpy_attention.backend import NumPyBackend
from numpy_attention.errors import InputError
from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.report import GradientError, Report
from numpy_attention.tutor.catalogue import CATALOGUE
from numpy_attention.tutor.entry import Entry


def select_entries(names: list[str] | None = None) -> list[Entry]:
    """The entries whose name, or whose op or class, is in `names`; all entries if `names` is None.

    Raises: InputError for an unknown name, with the most similar names.
    """
    if names is None:
        return list(CATALOGUE.values())
    known = {one for entry in CATALOGUE.values() for one in (entry.name, entry.covers)}
    for name in names:
        if name not in known:
            op = name.partition(":")[0][:80]
            near = difflib.get_close_matches(op.lower(), {entry.covers.lower() for entry in CATALOGUE.values()}, 3, 0)
            nearest = [entry.covers for entry in CATALOGUE.values() if entry.covers.lower() in near]
            if op in known:  # then the variant is wrong
                nearest = [entry.name for entry in CATALOGUE.values() if entry.covers == op]
            quoted = ", ".join(map(repr, dict.fromkeys(nearest)))
            raise InputError(f"there is no op, layer or model {name[:80]!r}; the nearest are {quoted}")
    return [entry for entry in CATALOGUE.values() if {entry.name, entry.covers} & set(names)]


def run(
    names: list[str] | None = None, seed: int = 0, stream: TextIO | None = None, backend: NumPyBackend | None = None
) -> int:
    """Check the gradients of the catalogue and print the largest relative error of each entry; count the failures.

    The reference is the complex step, which is exact. A line names the gradients that were compared with differences.
    """
    out = stream if stream is not None else sys.stdout
    failures, started = 0, time.perf_counter()
    entries = select_entries(names)
    reports: dict[str, Report] = {}
    for entry in entries:
        try:
            report = reports[entry.name] = check(entry.case(seed).problem(backend), seed)
        except GradientError as error:
            failures += 1
            print(f"{entry.name:<64} WRONG\n{error}", file=out)
            continue
        bad = report.error > entry.tolerance
        failures += bad
        left = left_to_differences(report)
        remarks = f"{'  WRONG' if bad else ''}{f'  by differences: {left}' if left else ''}"
        print(f"{entry.name:<64} {report.error:8.1e}{remarks}", file=out, flush=True)
    for line in _summary(reports):
        print(line, file=out)
    seconds = time.perf_counter() - started
    print(f"{len(entries)} checked, {failures} wrong, {seconds:.0f} s; seed {seed}", file=out)
    return failures


def left_to_differences(report: Report) -> str:
    """The gradients that were compared with differences, not with the complex step; empty if there are none."""
    left = [argument for argument in report.arguments.values() if argument.reference == "differences"]
    corners = sum(int(argument.kinks.sum()) for argument in left)
    names = ", ".join(argument.symbol for argument in left)
    return names + (f", with {corners} elements on a corner" if corners else "")


def _summary(reports: dict[str, Report]) -> list[str]:
    """Median and maximum of the errors, and the entries that were compared with differences."""
    left = [name for name, report in reports.items() if left_to_differences(report)]
    exact = {name: report.error for name, report in reports.items() if name not in left}
    lines = []
    if exact:
        worst = max(exact, key=lambda name: exact[name])
        median = statistics.median(exact.values())
        lines.append(f"against the complex step: median {median:.1e}, largest {exact[worst]:.1e} ({worst})")
    if left:
        lines.append(f"by differences: {'; '.join(left)}")
    return lines
