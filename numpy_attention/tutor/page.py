"""A page, `pages/NAME.md`: what is checked, the known mistakes, and the exercises of one chapter, in Markdown.

pages/README.md explains the format to readers and authors. This module reads the texts and tables of a page;
`catalogue` makes entries, mistakes and exercises from them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
FOLDER = HERE / "pages"
EXERCISE_FOLDERS = (HERE / "exercises", HERE.parents[1] / "tutorials" / "exercises")  # in a wheel, in a repository
COLUMNS = {"case", "try", "inputs", "options", "layer", "sizes", "first", "refused", "tolerance"}
LISTS = {"Questions", "Allowed", "Not allowed", "Not recognized", "Memory"}
Row = dict[str, str]  # a row of a table: the cells without backticks, by the heads of their columns


class Section(NamedTuple):
    """A heading with the text below it, up to the next heading; `line` is the number of the heading's line."""

    level: int
    title: str
    text: str
    line: int


class Edit(NamedTuple):
    """One part of a diff: in the function `where`, the lines `old` are replaced by the lines `new`."""

    where: str
    old: list[str]
    new: list[str]
    line: int  # of the page


@dataclass(frozen=True)
class MistakeText:
    """A mistake of the op, layer or function `covers`: what is wrong, how a test misses it, and the edits.

    `diagnosis` is a part of the checker's report about it. A mistake without `diagnosis` is a likely wrong answer to an
    exercise.
    """

    name: str
    covers: str
    wrong: str
    hides: str
    diagnosis: str
    page: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class ExerciseText:
    """The texts of an exercise; `lists` has the names after "Not allowed:" and similar words."""

    name: str
    title: str
    tutorial: int
    rows: list[Row]
    lists: dict[str, tuple[str, ...]]
    checked: str
    hints: tuple[str, ...]
    reasoning: str
    code: str

    @property
    def file(self) -> Path:
        """The file that the student changes, as it is in the package."""
        return next(file for folder in EXERCISE_FOLDERS if (file := folder / f"{self.name}.py").is_file())

    @property
    def solution(self) -> str:
        """The solution for a terminal: the reasoning, and below it the indented code."""
        return "\n".join([self.reasoning, "", *(f"    {line}".rstrip() for line in self.code.splitlines())])


@dataclass(frozen=True)
class Page:
    """All parts of a page."""

    name: str
    title: str
    chapter: int
    rows: list[Row]
    mistakes: list[MistakeText]
    exercises: list[ExerciseText]


@cache
def all_pages() -> tuple[Page, ...]:
    """All pages, in the order of the chapters; pages of one chapter are in the order of their names."""
    files = sorted(file for file in FOLDER.iterdir() if file.suffix == ".md" and file.name != "README.md")
    return tuple(sorted(map(read_page, files), key=lambda page: page.chapter))


@cache
def exercise_texts() -> dict[str, ExerciseText]:
    """The texts of all exercises, by name, in the order of the tutorials."""
    found = sorted((one for page in all_pages() for one in page.exercises), key=lambda one: one.tutorial)
    return {one.name: one for one in found}


def read_page(file: Path) -> Page:
    """Read a page.

    Raises: ValueError for a part that is missing or unknown; the message names the file and the line.
    """
    text = file.read_text(encoding="utf-8-sig")
    names = re.findall(r"^\* `(\w+)` is `(.+)`", text, re.MULTILINE)
    short = {name: meaning.replace("\\|", "|") for name, meaning in names}
    parts = list(sections(text))
    rows, mistakes, exercises = list[Row](), list[MistakeText](), list[ExerciseText]()
    for i, part in enumerate(parts):
        try:
            if part.title == "What is checked":
                rows += table(part.text, "case", short)
            elif found := re.fullmatch(r"Known mistakes of `(\w+)`|Wrong answers for `(\w+)`", part.title):
                known, covers = bool(found[1]), found[1] or found[2]
                mistakes += [_mistake(file.stem, covers, one, known) for one in below(parts, i)]
            elif found := re.fullmatch(r"Exercise `(\w+)`: (.+)", part.title):
                exercises.append(_exercise(found[1], found[2], part, below(parts, i), short))
            elif part.level == 2:
                raise ValueError(f"unknown heading {part.title!r}")
        except (AssertionError, ValueError) as error:
            raise ValueError(f"{file.name}, line {part.line}: {error}") from error
    chapter = re.search(r"Chapter (\d+)", parts[0].text) if parts else None
    if chapter is None:
        raise ValueError(f"{file.name}: the text below the title must name the chapter, as in 'Chapter 3'")
    return Page(file.stem, parts[0].title, int(chapter[1]), rows, mistakes, exercises)


def sections(text: str) -> Iterator[Section]:
    """The sections of a text in Markdown; a line that begins with # inside a block of code is not a heading."""
    lines = text.splitlines()
    heads, fenced = [], False
    for i, line in enumerate(lines):
        fenced ^= line.startswith("```")
        if line.startswith("#") and not fenced:
            heads.append(i)
    for start, end in zip(heads, [*heads[1:], len(lines)]):
        marks, _, title = lines[start].partition(" ")
        yield Section(len(marks), title, "\n".join(lines[start + 1 : end]), start + 1)


def below(parts: list[Section], i: int) -> list[Section]:
    """The sections one level below section i."""
    own = []
    for part in parts[i + 1 :]:
        if part.level <= parts[i].level:
            break
        own.append(part)
    return own


def table(text: str, head: str, short: dict[str, str]) -> list[Row]:
    """The rows of all tables whose first column has this head; short names of inputs are replaced by their meanings."""
    rows: list[Row] = []
    heads: list[str] = []
    shared: Row = {}
    for line in text.splitlines():
        cells = [cell.replace("\\|", "|").replace("`", "").strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if line.startswith("In every case: "):  # of the next table
            shared = dict(re.findall(r"`(\w+)` is `([^`]+)`", line))
        if not line.startswith("|"):
            shared, heads = ({} if heads else shared), []
        elif not heads:
            heads = cells
            unknown = set(heads) - COLUMNS if heads[0] == head else ()
            assert not unknown, f"unknown column {', '.join(unknown)}"
        elif heads[0] == head and set(line) - set("|-: "):
            assert len(cells) == len(heads), f"a row must have {len(heads)} cells, got {line}"
            row = {**shared, **{name: cell for name, cell in zip(heads, cells) if cell}}
            if "op" in row:
                row[head] = f"{row['op']}: {row[head]}"
            row["inputs"] = re.sub(r"\w+", lambda word: short.get(word[0], word[0]), row.get("inputs", ""))
            rows.append(row)
    return rows


def one_line(text: str) -> str:
    """A paragraph as one line."""
    return " ".join(text.split())


def blocks(text: str, language: str) -> list[tuple[str, int]]:
    """Each block of code in this language, with the number of its first line in the text."""
    found = re.finditer(rf"^```{language}\n(.*?)\n```$", text, re.DOTALL | re.MULTILINE)
    return [(one[1], text.count("\n", 0, one.start(1))) for one in found]


def _mistake(page: str, covers: str, part: Section, known: bool) -> MistakeText:
    name = part.title.strip("`")
    paragraphs = re.split(r"\n\n+", re.sub(r"^```.*?^```$", "", part.text, flags=re.DOTALL | re.MULTILINE).strip())
    texts = {"wrong": "", "Hides": "", "Report": ""}
    for paragraph in paragraphs:
        word, colon, rest = paragraph.partition(": ")
        key = word if colon and word in texts else "wrong"
        if not texts[key]:  # a later paragraph is for the reader alone
            texts[key] = one_line(rest if key != "wrong" else paragraph)
    edits = [edit for diff, line in blocks(part.text, "diff") for edit in _edits(diff, part.line + line + 1)]
    assert texts["wrong"], f"{name}: the first paragraph must explain the mistake"
    assert texts["Hides"], f"{name}: a paragraph must explain, after 'Hides: ', why a test may miss the mistake"
    assert bool(texts["Report"]) == known, (
        f"{name}: a known mistake has a part of the checker's report after 'Report: ', a wrong answer has none"
    )
    assert edits, f"{name}: there is no block of code ```diff"
    return MistakeText(name, covers, texts["wrong"], texts["Hides"], texts["Report"], page, tuple(edits))


def _edits(diff: str, line: int) -> Iterator[Edit]:
    """The edits of a diff: a line "@@ function" begins an edit; "-" marks old lines, "+" new lines, " " both."""
    edit: Edit | None = None
    for number, text in enumerate(diff.splitlines(), line):
        if text.startswith("@@ "):
            if edit is not None:
                yield edit
            edit = Edit(text[3:].strip(), [], [], number)
            continue
        assert edit is not None, "a diff must begin with a line '@@ function'"
        mark, code = text[:1] or " ", text[1:]
        assert mark in " -+", f"a line of a diff begins with '@@ ', '-', '+' or a space, got {text!r}"
        if mark in " -":
            edit.old.append(code)
        if mark in " +":
            edit.new.append(code)
    if edit is not None:
        yield edit


def _exercise(name: str, title: str, part: Section, parts: list[Section], short: dict[str, str]) -> ExerciseText:
    assert [one.title for one in parts] == ["Hints", "Solution"], f"{name} needs the parts Hints and Solution"
    hints, solution = parts
    tutorial = re.search(r"Tutorial (\d+)", part.text)
    checked = re.search(r"\*\*What is checked\.\*\* (.+?)(?:\n\n|$)", part.text, re.DOTALL)
    assert tutorial, f"{name}: the text must name the tutorial, as in 'Tutorial 3'"
    assert checked, f"{name}: there is no paragraph **What is checked.**"
    lists = re.findall(r"^(\w[a-z ]+): (`\w+`(?:, `\w+`)*)\.?$", part.text, re.MULTILINE)
    named = {word: tuple(re.findall(r"`(\w+)`", names)) for word, names in lists}
    assert set(named) <= LISTS, f"{name}: unknown line {', '.join(set(named) - LISTS)}"
    if "You also write the forward." in part.text:
        named["Forward"] = ()
    code = [block for block, _ in blocks(solution.text, "python")]
    assert len(code) == 1, f"{name}: the solution must have one block of code"
    return ExerciseText(
        name, title, int(tutorial[1]), table(part.text, "try", short), named, one_line(checked[1]),
        tuple(map(one_line, re.split(r"^\d\. ", hints.text, flags=re.MULTILINE)[1:])),
        solution.text.partition("\n\n```python")[0].strip(), code[0],
    )
