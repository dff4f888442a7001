"""docs/gallery.md says what the catalogue holds."""

import pytest

from numpy_attention.catalogue import GALLERY, catch
from numpy_attention.catalogue.exercise import SEEDS
from numpy_attention.catalogue.weaker import WEAKER, Weakness
from tests.catalogue.gallery_page import COMPLEX_STEP, PAGE, missed_on_the_page, of_complex_steps, written
from tests.mutations import chapters

SCRIPT = "the page is out of date: python -m tests.catalogue.gallery_page known, or with the names of new mistakes"


def test_the_page_is_what_the_script_writes() -> None:
    missed = missed_on_the_page()
    assert list(missed) == ["nothing taken away", *(weakness.name for weakness in WEAKER)], SCRIPT
    page = PAGE.read_text("utf-8")
    assert written(page, missed) == page, SCRIPT


def test_the_page_on_complex_steps_counts_entries_and_mistakes() -> None:
    page = COMPLEX_STEP.read_text("utf-8")
    assert of_complex_steps(page) == page, SCRIPT


@pytest.mark.slow
def test_the_counts_of_changed_operators_are_those_of_the_chapters() -> None:
    assert "\n".join(chapters.table()) in PAGE.read_text("utf-8"), SCRIPT


@pytest.mark.slow
@pytest.mark.parametrize("weakness", WEAKER, ids=lambda weakness: weakness.name)
def test_a_weaker_check_misses_what_the_page_says(weakness: Weakness) -> None:
    """To be missed takes longest: three seeds when the page is written, the first of them here."""
    missed = missed_on_the_page()[weakness.name]
    seeds = {name: SEEDS[:1] if name in missed else SEEDS for name in GALLERY}
    assert [name for name in GALLERY if not catch(GALLERY[name], weakness, seeds[name])] == missed, SCRIPT
