"""The hand-written pages of the site: every included piece of source exists, and every link has a target.

The build of the site runs the cells.
"""

import ast
import re
from pathlib import Path

from pages import relink

from tests.every import each

DOCS = Path(__file__).parents[2] / "docs"
MADE_AT_THE_BUILD = {"api", "book", "checked", "notebooks", "tutorials"}
NO_PAGES = {*MADE_AT_THE_BUILD, "notes"}
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if page.relative_to(DOCS).parts[0] not in NO_PAGES]
FENCED = r"^(`{3,})(?:%s)[^\n]*\n(?P<code>.*?)^\1\s*$"
CELL = re.compile(FENCED % r"\{code-cell\}", re.MULTILINE | re.DOTALL)
CODE = re.compile(FENCED % r"\{code-cell\}|(?!\{)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https://)(?P<target>[^)#\s]+)(#[\w-]+)?\)")
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


@each([page for page in PAGES if included(page)], name_of)
def test_every_included_piece_of_source_exists(page: Path) -> None:
    for path, options in included(page):
        text = path.resolve().read_text("utf-8")
        if "pyobject" in options:
            text = source_of(text, options["pyobject"])
        start = text.find(options.get("start-at", ""))
        assert start >= 0, f"{path.name} {options}: no line with the start"
        assert text[start:].find(options.get("end-at", "")) >= 0, f"{path.name} {options}: no line with the end"


@each(PAGES, name_of)
def test_every_link_leads_to_a_file_of_the_repository_and_on_the_site_to_a_page(page: Path) -> None:
    text = CODE.sub("", page.read_text("utf-8"))
    targets = [(page.parent / link["target"]).resolve() for link in LINK.finditer(text)]
    made = [DOCS / folder for folder in MADE_AT_THE_BUILD]
    assert [str(target) for target in targets if not target.exists() or {target, *target.parents} & {*made}] == []
    assert "](../" not in relink(text, page.parent), "docs/_ext/pages.py must know the page of this link"
