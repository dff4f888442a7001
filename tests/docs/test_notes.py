"""Every note is next to its lines of code, every backward of Part I has a note, and no line of code is lost."""

import ast
import re
from pathlib import Path

from notes import NOTES, code_of, functions, read_notes, source_of

from tests.every import each

ROOT = Path(__file__).parents[2]
FILES = sorted(NOTES.rglob("*.md"))


def name_of(path: Path) -> str:
    return str(path.relative_to(NOTES))


@each(FILES, name_of)
def test_every_note_belongs_to_lines_of_an_existing_file(path: Path) -> None:
    assert source_of(path).is_file()
    source = source_of(path).read_text("utf-8")
    notes = read_notes(path, source)
    assert len(notes) == len(re.findall(r"^: ", path.read_text("utf-8"), re.MULTILINE))
    docstrings = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)) and ast.get_docstring(node)
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    where = functions(source)
    for note, after in zip(notes, [*notes[1:], None], strict=True):
        start, end = where[note.function]
        assert start < note.first <= note.last <= end
        assert not docstrings & set(range(note.first, note.last + 1)), f"{note} is next to a docstring"
        assert after is None or note.last < after.first


@each(FILES, name_of)
def test_pieces_of_a_page_cover_the_whole_file(path: Path) -> None:
    source = source_of(path)
    lines = source.read_text("utf-8").splitlines()
    first = (ast.parse(source.read_text("utf-8")).body[0].end_lineno or 0) + 2
    page = "\n".join(code_of(source, first))
    included = re.findall(r":lines: (\d+)-(\d+)\n +:lineno-start: (\d+)\n", page)
    assert len(included) == page.count("literalinclude") > 1
    shown: list[int] = []
    for start, end, number in included:
        assert start == number
        assert any(lines[n - 1].strip() for n in range(int(start), int(end) + 1)), "a piece of blank lines"
        shown += range(int(start), int(end) + 1)
    assert shown == list(range(first, len(lines) + 1))
    assert page.count(":caption:") == 1
    assert page.count(".. container:: noted") == len(read_notes(path, source.read_text("utf-8")))


def test_every_backward_of_part_one_has_a_note() -> None:
    """An appendix may be without notes."""
    for path in sorted((ROOT / "numpy_attention" / "ops").glob("[!_]*.py")):
        backwards = {name for name in functions(path.read_text("utf-8")) if name.endswith("_backward")}
        notes = NOTES / "ops" / f"{path.stem}.md"
        if not notes.exists() and re.match(r'"""Chapter \d+, appendix', path.read_text("utf-8")):
            continue
        noted = {note.function for note in read_notes(notes, path.read_text("utf-8"))} if notes.exists() else set()
        assert backwards <= noted, f"{path.name}: no note on {', '.join(sorted(backwards - noted))}"
