"""Writes the tables and counts of docs/gallery.md, and the count of docs/complex_step.md, from the catalogue.

    python -m tests.tutor.gallery_page             run all weaker checks and write everything (some minutes)
    python -m tests.tutor.gallery_page NAME ...    run them only on these mistakes; keep other results
    python -m tests.tutor.gallery_page known       run no weaker check; keep all results of the page

The other prose is written by hand. In every run of the tests, a test compares the page with the catalogue.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from numpy_attention.tutor import GALLERY
from numpy_attention.tutor.catalogue import CATALOGUE
from tests.generated import with_block
from tests.tutor.weaker import WEAKER, misses

DOCS = Path(__file__).parents[2] / "docs"
PAGE, COMPLEX_STEP = DOCS / "gallery.md", DOCS / "complex_step.md"
Missed = dict[str, list[str]]  # by the name of the weaker check


def row_of(name: str) -> str:
    """The row of a mistake, without the last column."""
    mistake = GALLERY[name]
    return f"| `{name}` | {mistake.wrong} | {mistake.hides} |".replace("*", "\\*")


def mistakes_table(missed: Missed) -> Iterator[str]:
    """A heading and a table for each op, layer or function."""
    for covers in dict.fromkeys(mistake.covers for mistake in GALLERY.values()):
        yield f"### {covers}\n"
        page = next(mistake.page for mistake in GALLERY.values() if mistake.covers == covers).rpartition(".")[2]
        yield f"[The code of these mistakes](../numpy_attention/tutor/pages/{page}.md)\n"
        yield "| mistake | why it is wrong | how it hides | missed by |"
        yield "|---|---|---|---|"
        for name in [name for name, mistake in GALLERY.items() if mistake.covers == covers]:
            numbers = [str(i) for i, weakness in enumerate(WEAKER, 1) if name in missed[weakness.name]]
            yield f"{row_of(name)} {', '.join(numbers) or '–'} |"
        yield ""


def weaker_table(missed: Missed) -> Iterator[str]:
    """A row for each weaker check."""
    yield f"| | change to the full check | missed of {len(GALLERY)} | names |"
    yield "|---|---|---|---|"
    yield "| 0 | no change | 0 | |"
    for i, weakness in enumerate(WEAKER, 1):
        names = missed[weakness.name]
        caught = [name for name in GALLERY if name not in names]
        which = f"all but {_listed(caught)}" if len(names) > len(caught) else _listed(names)
        yield f"| {i} | {weakness.name} | {len(names)} | {which} |"


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def missed_on_the_page() -> Missed:
    """The mistakes that each weaker check misses, read from the page."""
    found: Missed = {}
    for name, which in re.findall(r"^\| \d+ \| (.+?) \| \d+ \| (.*?) ?\|$", PAGE.read_text("utf-8"), re.MULTILINE):
        names = re.findall(r"`(\w+)`", which)
        found[name] = [one for one in GALLERY if one not in names] if which.startswith("all but") else names
    return found


def missed_with(names: list[str]) -> Missed:
    """The results of the page, except for these mistakes: every weaker check is run on them."""
    known, found = missed_on_the_page(), {}
    for weakness in WEAKER:
        through = {name for name in names if misses(weakness, GALLERY[name])}
        kept = set(known.get(weakness.name, ())) - set(names)
        found[weakness.name] = [name for name in GALLERY if name in kept | through]
    return found


def written(text: str, missed: Missed) -> str:
    """The page with new tables and counts."""
    for name, lines in (("mistakes", mistakes_table(missed)), ("weaker", weaker_table(missed))):
        text = with_block(text, name, "\n".join(lines).strip())
    fell = len(missed["check only that the loss falls"])
    text = counted(text, r"gallery of \d+ mistakes", f"gallery of {len(GALLERY)} mistakes")
    text = counted(text, r"in \d+ weaker ways", f"in {len(WEAKER)} weaker ways")
    return counted(text, r"For \d+ of the \d+ mistakes", f"For {fell} of the {len(GALLERY)} mistakes")


def counted(text: str, old: str, new: str) -> str:
    """The text with a new count in its prose; the words around the count must occur once."""
    text, times = re.subn(old.replace(" ", r"\s+"), new, text)
    assert times == 1, f"{old!r} occurs {times} times on the page"
    return text


def of_complex_steps(text: str) -> str:
    """docs/complex_step.md with a new count."""
    return counted(text, r"a list of \d+ functions", f"a list of {len(CATALOGUE)} functions")


if __name__ == "__main__":
    names = list(GALLERY) if not sys.argv[1:] else [name for name in sys.argv[1:] if name != "known"]
    PAGE.write_text(written(PAGE.read_text("utf-8"), missed_with(names)), encoding="utf-8")
    COMPLEX_STEP.write_text(of_complex_steps(COMPLEX_STEP.read_text("utf-8")), encoding="utf-8")
