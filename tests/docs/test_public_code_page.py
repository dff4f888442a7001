"""docs/public_code.md: its table and its cell name the same mistakes, and the gallery has them."""

import re
from pathlib import Path

from numpy_attention.catalogue import GALLERY

PAGE = Path(__file__).parents[2] / "docs" / "public_code.md"


def test_every_mistake_of_the_page_is_in_the_gallery() -> None:
    text = PAGE.read_text("utf-8")
    in_table = re.findall(r"\| `(\w+)` \|$", text, re.MULTILINE)
    in_cell = re.search(r'names = """(.*?)"""', text, re.DOTALL)
    assert in_cell
    assert in_table == in_cell[1].split()
    assert len(in_table) == 14
    assert set(in_table) <= set(GALLERY)
