"""The hand-written pages of the site: every code cell runs, and every piece of source that they include exists."""

import ast
import re
from pathlib import Path

import pytest

from tests.every import each

DOCS = Path(__file__).parents[2] / "docs"
TUTORIALS = sorted((DOCS.parent / "tutorials").glob("*.md"))
WIDEST = 111  # columns of code that fit on a page without scrolling
MADE_AT_THE_BUILD = {"api", "book", "notebooks", "tutorials"}
NO_PAGES = {*MADE_AT_THE_BUILD, "notes"}
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if page.relative_to(DOCS).parts[0] not in NO_PAGES]
FENCED = r"^(`{3,})(?:%s)[^\n]*\n(?P<code>.*?)^\1\s*$"
CELL = re.compile(FENCED % r"\{code-cell\}", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(FENCED % r"\{code-cell\}|python", re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r"^(`{3,})\{literalinclude\} (?P<path>\S+)\n(?P<options>.*?)^\1\s*$", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(DOCS))


def cells_of(page: Path) -> list[tuple[int, str]]:
    """The code cells of a page, each with the number of its first line of code."""
    text = page.read_text("utf-8")
    found = []
    for match in CELL.finditer(text):
        code = re.sub(r"\A(:[^\n]*\n)+", lambda options: "\n" * options[0].count("\n"), match["code"])
        found.append((text.count("\n", 0, match.start("code")) + 1, code))
    return found


def included(page: Path) -> list[tuple[Path, dict[str, str]]]:
    found = []
    for match in INCLUDE.finditer(page.read_text("utf-8")):
        options = dict(re.findall(r"^:([\w-]+):\s*(.*?)\s*$", match["options"], re.MULTILINE))
        found.append((DOCS / match["path"].lstrip("/"), {key: value.strip('"') for key, value in options.items()}))
    return found


def source_of(text: str, name: str) -> str:
    """The lines of a function, class or method."""
    body = ast.parse(text).body
    for part in name.split("."):
        node = next((n for n in body if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name == part), None)
        assert node is not None, f"there is no {name}"
        body = node.body
    return "\n".join(text.split("\n")[node.lineno - 1 : node.end_lineno])


@pytest.mark.parametrize("page", [page for page in PAGES if cells_of(page)], ids=name_of)
def test_every_cell_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "page"}
    for line, code in cells_of(page):
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)


@each([*PAGES, *TUTORIALS])
def test_code_fits_the_width_of_a_page(page: Path) -> None:
    for match in PYTHON.finditer(page.read_text("utf-8")):
        for line in match["code"].splitlines():
            assert len(line) <= WIDEST or line.startswith(":"), line


@each([page for page in PAGES if included(page)], name_of)
def test_every_included_piece_of_source_exists(page: Path) -> None:
    for path, options in included(page):
        text = path.resolve().read_text("utf-8")
        if "pyobject" in options:
            text = source_of(text, options["pyobject"])
        start = text.find(options.get("start-at", ""))
        assert start >= 0, f"{path.name} {options}: no line with the start"
        assert text[start:].find(options.get("end-at", "")) >= 0, f"{path.name} {options}: no line with the end"


def test_derivations_are_complete_and_each_asserts_its_bytes() -> None:
    index = (DOCS / "derivations" / "index.md").read_text("utf-8")
    listed = re.search(r"\{toctree\}\n(?::.*\n)*\n((?:\w+\n)+)", index)
    assert listed
    pages = listed[1].split()
    promised = {"softmax", "normalization", "attention", "tiled_attention", "cross_entropy", "gelu", "rotary", "adam"}
    assert set(pages) >= promised
    for name in pages:
        text = (DOCS / "derivations" / f"{name}.md").read_text("utf-8")
        for part in ("Formula", "Index by index", "In matrices", "Line for line", "What could be recomputed instead"):
            assert f"\n## {part}\n" in text, f"{name}: no part '{part}'"
        assert re.search(r"^assert .*nbytes|moments == ", text, re.MULTILINE), f"{name} asserts no number of bytes"


@each(sorted((DOCS / "derivations").glob("[!i]*.md")), name_of)
def test_every_question_of_a_derivation_has_a_closed_answer(page: Path) -> None:
    text = page.read_text("utf-8")
    asked = re.findall(
        r"^\*\*Predict\.\*\* (?:[^\n]+\n)+\n<details>\n<summary>The answer</summary>\n\n(.+?)\n\n</details>\n",
        text, re.MULTILINE | re.DOTALL,
    )
    assert 1 <= len(asked) == text.count("**Predict.**") == text.count("<details>") == text.count("</details>")
    for answer in asked:
        assert "\n#" not in answer, "a heading is folded away"
        assert "{code-cell}" not in answer, "code is folded away"


@each(sorted((DOCS / "derivations").glob("[!i]*.md")), name_of)
def test_every_name_in_the_prose_of_a_derivation_is_in_its_code(page: Path) -> None:
    shown = "".join(code for _, code in cells_of(page))
    for path, options in included(page):
        text = path.resolve().read_text("utf-8")
        shown += source_of(text, options["pyobject"]) if "pyobject" in options else text
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for name in re.findall(r"`([A-Za-z_]\w*)`", prose):
        assert re.search(rf"\b{name}\b", shown), f"{name_of(page)} mentions {name}, which is not in its code"


def test_every_page_is_in_a_table_of_contents() -> None:
    contents = "".join(page.read_text("utf-8") for page in PAGES if page.stem == "index")
    for page in PAGES:
        if page.stem != "index":
            names = [re.escape(page.stem), r"\*"] if page.parent == DOCS else [re.escape(page.stem)]
            listed = re.search(rf"^({'|'.join(names)})$", contents, re.MULTILINE)
            assert listed, f"{name_of(page)} is in no table of contents"
