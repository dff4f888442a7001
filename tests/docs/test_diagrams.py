"""The diagrams are up to date, are on their pages with their descriptions, and quote existing code."""

import re
from html import unescape
from pathlib import Path

import contents

from docs.diagrams.drawings import DRAWINGS, FOLDER
from docs.diagrams.pen import Drawing
from tests.every import each

ROOT = Path(__file__).parents[2]
FOLDERS = (".", "tutorials", "docs", "docs/derivations")
PAGES = [page for folder in FOLDERS for page in sorted((ROOT / folder).glob("*.md"))]
IMAGE = re.compile(r"!\[([^]]*)\]\(([^)]*_static/diagrams/([\w-]+)\.svg)\)")
WITH_WIDTH = re.compile(r'<img src="([^"]*_static/diagrams/([\w-]+)\.svg)" width="\d+" alt="([^"]*)">')

QUOTED = re.compile(r'<text data-from="([^"]+)"[^>]*>([^<]+)</text>')

each_file = each(sorted(FOLDER.glob("*.svg")), lambda path: path.stem)


def placed() -> list[tuple[Path, str, str]]:
    """(page, name, description) of every diagram that a page shows."""
    found = [(page, *one) for page in PAGES for one in IMAGE.findall(page.read_text("utf-8"))]
    for path, name, words in WITH_WIDTH.findall((ROOT / "README.md").read_text("utf-8")):
        found.append((ROOT / "README.md", words, path, name))
    assert all((page.parent / path).exists() for page, _, path, _ in found)
    found += [(Path(contents.__file__), *one) for one in IMAGE.findall(contents.index_page())]
    return [(page, name, " ".join(words.split())) for page, words, _, name in found]


@each([draw() for draw in DRAWINGS], lambda drawing: drawing.name)
def test_stored_file_is_what_the_script_draws(drawing: Drawing) -> None:
    stored = (FOLDER / f"{drawing.name}.svg").read_text(encoding="utf-8")
    assert stored == drawing.svg(), "draw it again: python -m docs.diagrams"


@each_file
def test_diagram_is_on_a_page_with_its_description(path: Path) -> None:
    description = re.search(r"<desc [^>]*>([^<]+)</desc>", path.read_text("utf-8"))
    assert description
    assert {text for _, name, text in placed() if name == path.stem} == {unescape(description[1])}


@each_file
def test_quoted_code_is_in_the_source(path: Path) -> None:
    for file, code in QUOTED.findall(path.read_text("utf-8")):
        source = re.sub(r"\s+", " ", (ROOT / file).read_text("utf-8"))
        assert unescape(code) in source, f"{file} does not contain: {code}"


def test_three_diagrams_quote_code() -> None:
    assert sum(bool(QUOTED.search(path.read_text("utf-8"))) for path in FOLDER.glob("*.svg")) == 3
