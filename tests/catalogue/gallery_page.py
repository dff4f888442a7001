"""The tables of docs/gallery.md, written from the gallery itself.

    PYTHONPATH=. python tests/gallery/page.py             run all weaker checks and write the tables anew (7 minutes)
    PYTHONPATH=. python tests/gallery/page.py NAME ...    run them on these mistakes; the page knows the others
    PYTHONPATH=. python tests/gallery/page.py known       run none; the page knows all

The prose between the tables is written by hand. A test compares the page with the gallery in every run, a slow one
what each weaker check misses.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from numpy_attention.catalogue import MISTAKES, catch, missed_by_weaker
from numpy_attention.catalogue.weaker import WEAKER
from tests.generated import with_block
from tests.mutations import strength
from tests.mutations.explained import OF_CHAPTERS, OF_ROOMS, Explained

PAGE = Path(__file__).parents[2] / "docs" / "gallery.md"
Missed = dict[str, list[str]]  # by the name of the weaker check


def row_of(name: str) -> str:
    """A mutant's row up to the checks that miss it."""
    mutant = MISTAKES[name]
    return f"| `{name}` | {mutant.wrong} | {mutant.hides} |".replace("*", "\\*")


def mutants_table(missed: Missed) -> Iterator[str]:
    """A table for each op, layer or function."""
    for covers in dict.fromkeys(mutant.covers for mutant in MISTAKES.values()):
        yield f"### {covers}\n"
        yield "| mistake | why it is wrong | how it hides | missed by |"
        yield "|---|---|---|---|"
        for name in [name for name, mutant in MISTAKES.items() if mutant.covers == covers]:
            numbers = [str(i) for i, weakness in enumerate(WEAKER, 1) if name in missed[weakness.name]]
            yield f"{row_of(name)} {', '.join(numbers) or '–'} |"
        yield ""


def weaker_table(missed: Missed) -> Iterator[str]:
    """A row for each weaker check."""
    yield f"| | the full check, but with | misses of {len(MISTAKES)} | which |"
    yield "|---|---|---|---|"
    yield "| 0 | nothing taken away | 0 | |"
    for i, weakness in enumerate(WEAKER, 1):
        names = missed[weakness.name]
        caught = [name for name in MISTAKES if name not in names]
        which = f"all but {_listed(caught)}" if len(names) > len(caught) else _listed(names)
        yield f"| {i} | {weakness.name} | {len(names)} | {which} |"


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def explained_table(reasons: tuple[Explained, ...]) -> Iterator[str]:
    """A row for each reason why a change is not noticed."""
    yield "| where | change | why no result changes |"
    yield "|---|---|---|"
    for one in reasons:
        changes = ", ".join(f"`{change}`" for change in one.changes).replace(" -> ", " → ").replace(" | ", "` in `")
        yield f"| `{one.place}` | {changes} | {one.reason} |"


def missed_on_the_page() -> Missed:
    """What the page says that each weaker check misses."""
    found: Missed = {}
    for name, which in re.findall(r"^\| \d+ \| (.+?) \| \d+ \| (.*?) ?\|$", PAGE.read_text("utf-8"), re.MULTILINE):
        names = re.findall(r"`(\w+)`", which)
        found[name] = [one for one in MISTAKES if one not in names] if which.startswith("all but") else names
    return found


def missed_with(names: list[str]) -> Missed:
    """What the page says, but for these mistakes, which are tried on every weaker check."""
    known, found = missed_on_the_page(), {}
    for weakness in WEAKER:
        through = {name for name in names if not catch(MISTAKES[name], weakness)}
        kept = set(known[weakness.name]) - set(names)
        found[weakness.name] = [name for name in MISTAKES if name in kept | through]
    return found


def written(text: str, missed: Missed) -> str:
    """The page with its tables new."""
    tables = {
        "mutants": mutants_table(missed), "weaker": weaker_table(missed), "explained": explained_table(OF_CHAPTERS),
        "strength": strength.table(strength.stored()), "explained elsewhere": explained_table(OF_ROOMS),
    }
    for name, lines in tables.items():
        text = with_block(text, name, "\n".join(lines).strip())
    return text


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if name != "known"]
    missed = missed_with(names) if sys.argv[1:] else dict(missed_by_weaker())
    PAGE.write_text(written(PAGE.read_text("utf-8"), missed))
