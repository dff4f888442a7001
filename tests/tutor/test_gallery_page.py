"""docs/gallery.md lists every known mistake of the gallery, and docs/complex_step.md has the right counts."""

import pytest

from tests.tutor.gallery_page import COMPLEX_STEP, PAGE, missed_on_the_page, of_complex_steps, written
from tests.tutor.weaker import WEAKER

SCRIPT = "the page is out of date: python -m tests.tutor.gallery_page known, or with the names of new mistakes"


def test_page_equals_the_output_of_the_script() -> None:
    missed = missed_on_the_page()
    assert list(missed) == ["no change", *(weakness.name for weakness in WEAKER)], SCRIPT
    page = PAGE.read_text("utf-8")
    assert written(page, missed) == page, SCRIPT


@pytest.mark.slow
def test_counts_on_the_page_of_complex_steps_are_right() -> None:
    page = COMPLEX_STEP.read_text("utf-8")
    assert of_complex_steps(page) == page, SCRIPT
