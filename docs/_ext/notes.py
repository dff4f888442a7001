r"""Notes next to the code of a chapter. A note is the formula that its lines of code compute.

docs/notes/ops/c03_softmax.md holds the notes on numpy_attention/ops/c03_softmax.py. Each note is below the name of a
function and starts with a piece of code. This piece must be in exactly one line of the function; the note begins at
that line:

    ## softmax_backward

    `average = dot_in_rows(`
    : $\sum_i dy_i\,y_i$, one number for each row.

docs/notes/tutorials holds the notes on files of tutorials/. A note may link a file: [text](tutorials/03-softmax.md).

Each line of the note is one line on the page. The note's lines of code end at the next note, at a blank line or at the
end of the function; if the note starts with "`first` to `last`", they end at the line with `last`.
"""

import ast
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
NOTES = ROOT / "docs" / "notes"
SECTION = re.compile(r"^## (?P<name>[\w.]+)\n", re.MULTILINE)
NOTE = re.compile(r"`(?P<first>[^`\n]+)`(?: to `(?P<last>[^`\n]+)`)?\n: (?P<text>.+(?:\n  \S.*)*)\n+")


class Note(NamedTuple):
    """The text of a note, and the lines of code next to it, counted from 1."""

    function: str
    first: int
    last: int
    text: str


class Piece(NamedTuple):
    """Lines of a file, from `first` to `last`, and the text of the note next to them ("" without a note)."""

    first: int
    last: int
    text: str


def source_of(notes: Path) -> Path:
    """The file of the package, or of tutorials/, that a file of notes belongs to."""
    name = notes.relative_to(NOTES).with_suffix(".py")
    return ROOT / name if name.parts[0] == "tutorials" else ROOT / "numpy_attention" / name


def notes_of(source: Path) -> Path:
    """The file of notes for a file of the package or of tutorials/."""
    name = source.relative_to(ROOT)
    return (NOTES / (name if name.parts[0] == "tutorials" else Path(*name.parts[1:]))).with_suffix(".md")


def read_notes(notes: Path, source: str) -> list[Note]:
    """The notes in a file, with the lines of their source; an error names a note whose code is not in the source."""
    lines, where = source.splitlines(), functions(source)
    _, *sections = re.split(r"^(?=## )", notes.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found: list[Note] = []
    for section in sections:
        title = SECTION.match(section)
        name = title["name"] if title else section.partition("\n")[0]
        if name not in where:
            raise ValueError(f"{notes}: {name} is not a function of the source; was it renamed?")
        start, end = where[name]
        text = section[title.end() :].strip() + "\n" if title else ""
        while text:
            match = NOTE.match(text)
            if not match:
                raise ValueError(f"{notes}, {name}: expected a note, `code` and a line ': ...', got {text[:60]!r}")
            text = text[match.end() :]
            first = _line(notes, name, match["first"], lines, start, end)
            last = _line(notes, name, match["last"], lines, first, end) if match["last"] else None
            if found and first <= found[-1].first:
                raise ValueError(f"{notes}, {name}: the note at `{match['first']}` must come before the one above it")
            blank = next((n for n in range(first, end) if not lines[n].strip()), end)  # the line before a blank line
            found.append(Note(name, first, last or blank, match["text"].replace("\n  ", "\n")))
    return [
        note if after is None else note._replace(last=min(note.last, after.first - 1))
        for note, after in zip(found, [*found[1:], None], strict=True)
    ]


def functions(source: str) -> dict[str, tuple[int, int]]:
    """First and last line of every function and method, by name and by Class.name."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = (node.lineno, node.end_lineno or node.lineno)
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    found[f"{node.name}.{part.name}"] = (part.lineno, part.end_lineno or part.lineno)
    return found


def _line(notes: Path, name: str, code: str, lines: list[str], start: int, end: int) -> int:
    hits = [n for n in range(start, end + 1) if code in lines[n - 1]]
    if len(hits) != 1:
        got = f"it is in lines {', '.join(map(str, hits))}" if hits else "it is in no line; was the line changed?"
        raise ValueError(f"{notes}, {name}: `{code}` must be in exactly one line of the function, but {got}")
    return hits[0]


def pieces(source: str, notes: list[Note], first: int) -> list[Piece]:
    """All lines of a source from line `first` on, cut at the begin and end of every note."""
    lines = source.splitlines()
    found = []
    for note, after in zip(notes, [*(note.first for note in notes), len(lines) + 1][1:], strict=True):
        if note.first > first:
            found.append(Piece(first, note.first - 1, ""))
        between = "".join(lines[note.last : after - 1]).strip()
        found.append(Piece(note.first, note.last if between else after - 1, note.text))  # no piece of blank lines only
        first = found[-1].last + 1
    return [*found, Piece(first, len(lines), "")] if first <= len(lines) else found


def code_of(path: Path, first: int) -> list[str]:
    """The code of a chapter in reStructuredText, from line `first` on, with its notes."""
    source = path.read_text(encoding="utf-8")
    notes = notes_of(path)
    out: list[str] = []
    for piece in pieces(source, read_notes(notes, source) if notes.exists() else [], first):
        caption = [f"   :caption: {path.relative_to(ROOT)}"] if piece.first == first else []
        code = [
            f".. literalinclude:: /../{path.relative_to(ROOT)}", "   :language: python", "   :class: chapter",
            f"   :lines: {piece.first}-{piece.last}", f"   :lineno-start: {piece.first}", *caption,
        ]
        if piece.text:
            text = [f"| {_to_rst(line)}" for line in piece.text.split("\n")]
            note = [".. container:: margin-note", "", *_indented(text), ""]
            code = [".. container:: noted", "", *_indented([*note, *code])]
        out += [*code, ""]
    return out


def _indented(lines: list[str]) -> list[str]:
    return ["   " + line if line else line for line in lines]


def _to_rst(line: str) -> str:
    """One line of a note: $formulas$, `code` and [links](file) are marked up, other special characters are escaped."""
    marked = []
    for part in re.split(r"(\$[^$]+\$|`[^`]+`|\[[^]]+\]\([\w./-]+\))", line):
        if part.startswith("$"):
            marked.append(f":math:`{part[1:-1]}`")
        elif part.startswith("`"):
            marked.append(f"`{part}`")
        elif link := re.fullmatch(r"\[(.+)\]\((.+)\)", part):
            marked.append(f":doc:`{link[1]} <{link[2]}>`")
        else:
            marked.append(re.sub(r"([\\`*_|])", r"\\\1", part))
    return "\\ ".join(part for part in marked if part)
