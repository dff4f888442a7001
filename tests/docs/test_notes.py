"""Every note is next to its lines of code, every backward of Part I has a note, and no line of code is lost."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from notes import NOTES, Note, Piece, code_of, functions, notes_of, pieces, read_notes, source_of

from tests.every import each

ROOT = Path(__file__).parents[2]
Read = Callable[[str], list[Note]]
FILES = sorted(NOTES.rglob("*.md"))
SOURCE = '''"""A head."""

def double(x):
    """Twice x."""
    y = x + x  # used twice
    return y


def double_backward(dy):
    # y = x + x
    dx = dy

    dx = dx + dy
    return dx
'''


def name_of(path: Path) -> str:
    return str(path.relative_to(NOTES))


@pytest.fixture
def written(tmp_path: Path) -> Read:
    """A function that reads a text of notes on SOURCE."""

    def read(text: str) -> list[Note]:
        path = tmp_path / "notes.md"
        path.write_text(text)
        return read_notes(path, SOURCE)

    return read


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


@each(FILES, name_of)
def test_notes_are_short_and_their_formulas_are_closed(path: Path) -> None:
    for note in read_notes(path, source_of(path).read_text("utf-8")):
        for line in note.text.split("\n"):
            assert line.count("$") % 2 == 0, line
            assert line.count("`") % 2 == 0, line
            for formula in re.findall(r"\$([^$]+)\$", line):
                assert formula.count("{") == formula.count("}"), formula
                assert formula == formula.strip(), formula
        words = re.sub(r"\$[^$]+\$", "x", note.text).split()
        assert len(words) <= 30, f"{note.function}: {len(words)} words"


def test_note_ends_at_a_blank_line_the_next_note_or_its_last_line(written: Read) -> None:
    first, second = "## double\n\n`y = x + x`\n: $2x$\n\n", "`# y = x`\n: One.\n  Two.\n\n`dx = dx + dy`\n: $2$\n"
    assert written(f"{first}## double_backward\n\n{second}") == [
        Note("double", 5, 6, "$2x$"),
        Note("double_backward", 10, 11, "One.\nTwo."),
        Note("double_backward", 13, 14, "$2$"),
    ]
    notes = written("## double_backward\n\n`# y = x` to `dx + dy`\n: All.\n")
    assert notes == [Note("double_backward", 10, 13, "All.")]


def test_blank_lines_between_two_notes_are_not_a_separate_piece() -> None:
    notes = [Note("double_backward", 10, 11, "One."), Note("double_backward", 13, 13, "Two.")]
    assert pieces(SOURCE, notes, 3) == [
        Piece(3, 9, ""), Piece(10, 12, "One."), Piece(13, 13, "Two."), Piece(14, 14, "")
    ]


def test_file_without_notes_is_one_piece() -> None:
    assert pieces(SOURCE, [], 3) == [Piece(3, 14, "")]
    source = ROOT / "numpy_attention" / "errors.py"
    assert code_of(source, 5).count(f"   :lines: 5-{len(source.read_text('utf-8').splitlines())}") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("## triple\n\n`y`\n: $3x$\n", "triple is not a function of the source; was it renamed?"),
        ("## double\n\n`y = 2 * x`\n: $2x$\n", "it is in no line; was the line changed?"),
        ("## double\n\n`dx = dy`\n: $2x$\n", "it is in no line"),
        ("## double\n\n`y`\n: $2x$\n", "must be in exactly one line of the function, but it is in lines 5, 6"),
        ("## double_backward\n\n`dx = dx + dy`\n: $2$\n\n`dx = dy`\n: $1$\n", "must come before the one above it"),
        ("## double\n\nNo code.\n", "expected a note, `code` and a line ': ...', got 'No code."),
    ],
)
def test_note_without_a_line_is_an_error_that_names_the_note(written: Read, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        written(text)


@each(FILES, name_of)
def test_links_of_notes_have_targets(path: Path) -> None:
    for text, target in re.findall(r"\[([^]]+)\]\(([^)]+)\)", path.read_text("utf-8")):
        assert (ROOT / target).is_file(), f"{path.name}: {target}"
        numbers = re.findall(r'^"""Chapter (\d+)', (ROOT / target).read_text("utf-8"))
        titles = {f"Chapter {number}" for number in numbers}
        titles |= {f"tutorial {int(number)}" for number in re.findall(r"tutorials/(\d+)-", target)}
        assert not re.search(r"\d", text) or text in titles, f"{path.name}: {text} is not {target}"


def test_every_backward_of_the_one_page_has_a_note_with_a_link() -> None:
    source = ROOT / "tutorials" / "one_page_gpt.py"
    notes = read_notes(notes_of(source), source.read_text("utf-8"))
    linked = {note.function for note in notes if "](" in note.text}
    assert {name for name in functions(source.read_text("utf-8")) if name.endswith("_backward")} <= linked


def test_link_in_a_note_becomes_a_link_on_the_page() -> None:
    source = ROOT / "tutorials" / "one_page_gpt.py"
    assert ":doc:`Chapter 3 <numpy_attention/ops/softmax.py>`" in "\n".join(code_of(source, 1))
