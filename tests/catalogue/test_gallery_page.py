"""The page on the gallery says what the gallery holds."""

import pytest
from tests.gallery.page import PAGE, missed_on_the_page, row_of, written

from numpy_attention.catalogue import MISTAKES, catch
from numpy_attention.catalogue.weaker import WEAKER, Weakness


def test_every_mistake_stands_on_the_page_as_in_the_gallery() -> None:
    text = PAGE.read_text("utf-8")
    for name in MISTAKES:
        assert row_of(name) in text, f"{name} is out of date: PYTHONPATH=. python tests/gallery/page.py"
    assert f"{len(MISTAKES)} mistakes" in text


def test_the_tables_of_the_page_are_those_of_the_script() -> None:
    missed = missed_on_the_page()
    assert list(missed) == ["nothing taken away", *(weakness.name for weakness in WEAKER)]
    page = PAGE.read_text("utf-8")
    assert written(page, missed) == page, "PYTHONPATH=. python tests/gallery/page.py"


@pytest.mark.slow
@pytest.mark.parametrize("weakness", WEAKER, ids=lambda weakness: weakness.name)
def test_a_weaker_check_misses_what_the_page_says(weakness: Weakness) -> None:
    missed = [name for name, mutant in MISTAKES.items() if not catch(mutant, weakness)]
    assert missed == missed_on_the_page()[weakness.name], "PYTHONPATH=. python tests/gallery/page.py"
