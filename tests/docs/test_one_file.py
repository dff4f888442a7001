"""docs/fingers.html and docs/one_page.html: equal to their sources, complete without a network, with links to files."""

import re

import pytest

from docs.one_file import DOCS, PAGES, block, formula
from tests.every import each


@each(list(PAGES))
def test_stored_page_equals_its_sources(name: str) -> None:
    made = PAGES[name]()
    assert (DOCS / name).read_text("utf-8") == made, "run: python -m docs.one_file"


@each(list(PAGES))
def test_page_loads_nothing_and_its_links_lead_to_files(name: str) -> None:
    page = (DOCS / name).read_text("utf-8")
    assert not re.search(r"<link|<img|\bsrc=|url\(|@import|\bfetch\(|XMLHttpRequest", page)
    links = [link.partition("#")[0] for link in re.findall(r'href="([^"]+)"', page)]
    assert len(links) > 4
    assert [link for link in links if not (DOCS / link).is_file()] == []


def test_formula_is_html_and_an_unknown_command_is_an_error() -> None:
    assert formula(r"e^{-\infty}") == '<span class="math"><i>e</i><sup>−∞</sup></span>'
    assert formula(r"\sqrt{d_k}") == '<span class="math">√<span class="root"><i>d</i><sub><i>k</i></sub></span></span>'
    with pytest.raises(KeyError, match="frac"):
        formula(r"\frac 1 2")


@each(["| a table |", "> a quotation", "a ![picture](a.svg)", "a $formula"])
def test_unknown_markdown_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"this Markdown is not known here|leads to no file"):
        block(text)
