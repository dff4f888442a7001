"""Tables of docs/checkers.md, made from the results of attack_checkers.py."""

import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "checkers.md"
KINDS = {
    "one point": "wrong at exactly one point: `x == 0`, `x == 1`, two equal inputs",
    "form": "not a gradient: None, wrong names, a missing gradient, complex numbers, a wrong shape",
    "no function": "a forward that is noisy, random, or too irregular to have a derivative",
    "ties": "the backward gives all of `dy` to each of several equal numbers",
    "float32": "float32: one element of 2,000 off by 1e-3, or one of 100,000 off by 1 %",
    "structure": "changes `dy`, an input or the cache; right only for contiguous `dy`; wrong for a batch of one",
    "relative": "off by 1e-7, 1e-10 or 1e-12",
    "ordinary": "ordinary mistakes in a derivation",
    "drawn": "100 mistakes drawn at random",
}
COST = ("seconds, median", "calls, median")
Found = dict[str, Any]


def tables(results: Found) -> dict[str, str]:
    """The blocks of the page by the names of their markers; only of parts that have results."""
    found = {}
    if results["errors"]:
        found["attack errors"] = errors_table(results["errors"])
    if results["right"]:
        found["attack right"] = right_table(results["right"])
    if results["shared"] and results["shared right"]:
        found["attack peers"] = peers_table(results["shared"], results["shared right"])
        versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
        found["attack versions"] = f"Versions: {versions}."
    return found


def errors_table(errors: Found) -> str:
    """A row for each kind of mistake: counts, misses, false accusations, grades of the diagnosis, cost."""
    diagnosis = ["right diagnosis", "no diagnosis", "wrong diagnosis"]
    head = ["kind", "mistakes", "missed", "right gradient called wrong", *diagnosis, *COST]
    lines = [row(head), "|---" * len(head) + "|"]
    for kind, text in [*KINDS.items(), ("", "**all**")]:
        some = [one for one in errors.values() if kind in ("", one["kind"])]
        caught = [one for one in some if is_caught(one)]
        count = [sum(one["words"] == grade for one in caught) for grade in ("right", "absent", "misleading")]
        accused = sum(bool(one["innocent"]) for one in some)
        cost = median([one["seconds"] for one in some], 3), median([one["calls"] for one in some], 0)
        lines.append(row([text, len(some), len(some) - len(caught), accused, *count, *cost]))
    return "\n".join(lines)


def is_caught(one: Found) -> bool:
    """Whether the checker reported the mistake: as wrong, or as not resolved."""
    return one["state"] in ("wrong", "unresolved")


def right_table(right: Found) -> str:
    """A row for each kind of input: checks, false alarms, cost."""
    head = ["inputs", "checks", "false alarms", "not resolved", "failed", "seconds per check", "calls per check"]
    lines = [row(head), "|---" * len(head) + "|"]
    scales = dict.fromkeys(key.split(", ")[1] for key in right)
    for scale in [*scales, "all"]:
        some = [one for key, one in right.items() if scale in ("all", key.split(", ")[1])]
        checks = sum(one["draws"] for one in some)
        alarms = [alarm for one in some for alarm in one["alarms"]]
        unresolved = sum(alarm["state"] == "unresolved" for alarm in alarms)
        seconds, calls = (sum(one[what] for one in some) / checks for what in ("seconds", "calls"))
        name = "**all**" if scale == "all" else scale
        cost = f"{len(alarms) / checks:.2%}", f"{seconds:.3f}", f"{calls:.0f}"
        lines.append(row([name, f"{checks:,}", len(alarms) - unresolved, unresolved, *cost]))
    return "\n".join(lines)


def cell(one: Found) -> str:
    """The result of a checker on a shared mistake."""
    if one["right"] != "passed":
        return {"alarm": "false alarm", "too long": "too long", "cannot": "cannot"}[one["right"]]
    return {"alarm": "**caught**", "cannot": "**caught**", "passed": "missed", "too long": "too long"}[one["wrong"]]


def peers_table(shared: Found, right: Found) -> str:
    """A row for each shared mistake; below, false alarms on right gradients and seconds."""
    checkers = sorted(next(iter(shared.values())), key=lambda name: name != "numpy_attention")
    lines = [row(["planted mistake", *checkers]), "|---" * (len(checkers) + 1) + "|"]
    lines += [row([name, *(cell(found[checker]) for checker in checkers)]) for name, found in shared.items()]

    def counted(what: str, test: Callable[[Found], bool], over: Found, of: str = "") -> str:
        counts = [sum(test(found[checker]) for found in over.values()) for checker in checkers]
        return row([f"**{what}**", *(f"**{count}{of}**" for count in counts)])

    lines += [
        counted("caught", lambda one: cell(one) == "**caught**", shared, f" of {len(shared)}"),
        counted(f"false alarms on {len(right)} right gradients", lambda one: one["right"] == "alarm", right),
        counted("right gradients not checked in 60 s", lambda one: one["right"] in ("cannot", "too long"), right),
        row(["seconds per right gradient, median",
             *(median([found[checker]["seconds"] for found in right.values()], 3) for checker in checkers)]),
    ]
    return "\n".join(lines)


def row(cells: Iterable[Any]) -> str:
    """A line of a table."""
    return "| " + " | ".join(map(str, cells)) + " |"


def median(numbers: list[float], digits: int) -> str:
    """The median, rounded."""
    return f"{statistics.median(numbers):.{digits}f}"


def alarms_of(right: Found) -> tuple[int, int]:
    """The number of failed checks of right gradients, and of all checks of right gradients."""
    return sum(len(one["alarms"]) for one in right.values()), sum(one["draws"] for one in right.values())
