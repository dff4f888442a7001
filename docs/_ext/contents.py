"""The contents of the tutorials, read from their files: time, needs, what the reader can do afterwards, exercises.

The tutorials' index, the map of the book, and the links between tutorials and chapters are made from these facts.
"""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tutorials"
PARTS = {  # the first tutorial of each part
    0: "Start here", 1: "Attention and its gradient", 5: "The transformer", 10: "Checking gradients",
    11: "Training and writing", 15: "Memory and speed", 17: "Real models", 19: "Inside a model",
    22: "Attention since 2023", 24: "Beyond the next token",
}


class Tutorial(NamedTuple):
    """One tutorial; `needs` and `after` are Markdown, and `required` numbers the tutorials that come before."""

    path: Path
    number: int
    title: str
    minutes: int
    needs: str
    required: tuple[int, ...]
    after: str
    exercises: tuple[str, ...]
    sources: tuple[Path, ...]

    @property
    def part(self) -> int:
        """The number of the first tutorial of its part."""
        return max(first for first in PARTS if first <= self.number)


def tutorials() -> list[Tutorial]:
    """All tutorials in their order."""
    return [read(path) for path in sorted(FOLDER.glob("[0-9]*.md"))]


def read(path: Path) -> Tutorial:
    """The facts of one tutorial."""
    text = path.read_text("utf-8")

    def found(pattern: str, what: str, where: str = text) -> str:
        match = re.search(pattern, where, re.MULTILINE | re.DOTALL)
        if not match:
            raise ValueError(f"{path.name}: the tutorial must hold {what}")
        return " ".join(match[1].split())

    need = found(r"^\*\*You need\*\*: (.+?)\n\n", "a paragraph '**You need**: ...'")
    first = need.partition(". ")[0]
    will = found(r"^\*\*You will do\*\*: (.+?)(?:[.?](?=\s)|\n\n)", "a paragraph '**You will do**: ...'")
    clauses = re.sub(r" \([^)]*\)", "", will).split("; ")[:2]
    exercises = text.partition("\n## Exercises")[2]
    return Tutorial(
        path=path,
        number=int(path.name[:2]),
        title=found(r"^# (.+?)$", "a title '# ...'"),
        minutes=int(found(r"\bAbout (\d+) minutes", "'About N minutes' in its paragraph '**You need**'", need)),
        needs=re.sub(r"\[tutorial (\w+)\]", r"[\1]", re.sub(r"\btutorials (?=\[)", "", first)),
        required=tuple(int(number) for number in re.findall(r"\]\((\d\d)\w?-[\w-]+\.md\)", first)),
        after=", and ".join(clause.removeprefix("and ") for clause in clauses),
        exercises=tuple(dict.fromkeys(re.findall(r"tutorials/exercises/(\w+)\.py", exercises))),
        sources=tuple(dict.fromkeys(
            (FOLDER / target).resolve() for target in re.findall(r"\]\((\.\./numpy_attention/[\w./]+\.py)\)", text)
        )),
    )


def index_page() -> str:
    """The index of the tutorials in Markdown: the map, and a table with a row for each tutorial."""
    every = tutorials()
    picture = (ROOT / "docs" / "_static" / "diagrams" / "map.svg").read_text("utf-8")
    spoken = re.search(r"<desc[^>]*>(.+?)</desc>", picture, re.DOTALL)
    assert spoken
    rows = []
    for one in every:
        files = ", ".join(f"{{download}}`{name} </../tutorials/exercises/{name}.py>`" for name in one.exercises)
        rows.append(f"| [{one.title}]({one.path.name}) | {one.minutes} | {one.needs} | {one.after} | {files or '–'} |")
    hours = round(sum(one.minutes for one in every) / 60)
    intro = (
        "Each tutorial is a notebook. Every gradient is derived, computed and checked. Read the tutorials in order, or "
        "follow the arrows of the map: an arrow leads from a part to a part that needs it. The table below has the "
        f"links. All tutorials together take about {hours} hours, without the exercises."
    )
    exercises = (
        "An exercise is a file in which you write a function. A click on its name downloads the file; the project has "
        "this file in `tutorials/exercises`. `python -m numpy_attention grade FILE` (the **grader**) tests your "
        "function; [tutorial 1](01-from-words-to-vectors.md#exercises) shows how."
    )
    return "\n".join([
        "# Tutorials",
        "",
        intro,
        "",
        f"![{spoken[1]}](/_static/diagrams/map.svg)",
        "",
        exercises,
        "",
        ":::{table}",
        ":class: lessons",
        "",
        "| tutorial | minutes | you need | after it, you can | exercises |",
        "|---|---|---|---|---|",
        *rows,
        ":::",
        "",
        "```{toctree}",
        ":hidden:",
        "",
        *(one.path.stem for one in every),
        "```",
    ])


def twins() -> dict[Path, list[Tutorial]]:
    """The tutorials that link to a source file, for each such file."""
    found: dict[Path, list[Tutorial]] = {}
    for one in tutorials():
        for source in one.sources:
            found.setdefault(source, []).append(one)
    return found


def arrows() -> set[tuple[int, int]]:
    """The arrows of the map: (part, part that needs it), without those that follow from other arrows."""
    every = tutorials()
    part_of = {one.number: one.part for one in every}
    direct = {(part_of[need], one.part) for one in every for need in one.required} - {(p, p) for p in PARTS}
    reached = set(direct)
    for middle in PARTS:
        reached |= {(a, b) for a, m in reached for n, b in reached if m == n == middle}
    return {(a, b) for a, b in direct if not any((a, m) in reached and (m, b) in reached for m in PARTS)}
