"""python -m tests.gradcheck.fresh [--misses] [WORD...]: run the checker on the blind test and print what it names.

`--misses` also prints what the checker says about each pair whose cause it does not name. With words, only the pairs
run whose name contains one of the words. `--held-out` runs the held-out pairs and prints only the totals.
"""

import re
import sys

from tests.gradcheck.fresh import FRESH, HELD_OUT
from tests.gradcheck.fresh.pairs import Wrong, run

SILENT = r"no simple rule found|derive it again|\(no diagnosis\)|is wrong only in (the )?places?"


def cause(wrong: Wrong, said: str | None) -> str:
    if said is not None and wrong.names_the_cause(said):
        return "right"
    clauses = (said or "(no diagnosis)").split("; ")
    return "none" if all(re.search(SILENT, clause) for clause in clauses) else "wrong"


def main(*arguments: str) -> None:
    words = [word for word in arguments if not word.startswith("--")]
    held_out = "--held-out" in arguments
    counts = dict.fromkeys(("pairs", "caught", "right", "wrong", "none"), 0)
    for name, pairs in (HELD_OUT if held_out else FRESH).items():
        for right in pairs.rights:
            if (said := run(right, right.forward, right.backward)) is not None:
                print(f"false alarm, {name}, {right.name}: {said}")
        for wrong in pairs.wrongs:
            if words and not any(word in wrong.name for word in words):
                continue
            said = run(wrong.right, wrong.forward, wrong.backward)
            found = cause(wrong, said)
            counts["pairs"] += 1
            counts["caught"] += said is not None
            counts[found] += 1
            if not held_out:
                print(f"{'not caught' if said is None else 'caught'}, cause {found}: {wrong.name}")
            if "--misses" in arguments and found != "right":
                print(f"    is:   {wrong.cause}\n    said: {said}")
    print(", ".join(f"{key} {n}" for key, n in counts.items()))
    print(f"causes right: {100 * counts['right'] / max(1, counts['pairs']):.1f} of 100")


if __name__ == "__main__":
    main(*sys.argv[1:])
