"""docs/gallery.md and docs/complex_step.md agree with the catalogue."""

import pytest
from tests.mutations import chapters

from numpy_attention.catalogue import GALLERY, catch
from numpy_attention.catalogue.exercise import SEEDS
from numpy_attention.catalogue.weaker import WEAKER, Weakness
from tests.catalogue.gallery_page import COMPLEX_STEP, PAGE, missed_on_the_page, of_complex_steps, written

SCRIPT = "the page is out of date: python -m tests.catalogue.gallery_page known, or with the names of new mistakes"


def test_page_equals_the_output_of_the_script() -> None:
    missed = missed_on_the_page()
    assert list(missed) == ["no change", *(weakness.name for weakness in WEAKER)], SCRIPT
    page = PAGE.read_text("utf-8")
    assert written(page, missed) == page, SCRIPT


def test_counts_on_the_page_of_complex_steps_are_right() -> None:
    page = COMPLEX_STEP.read_text("utf-8")
    assert of_complex_steps(page) == page, SCRIPT


@pytest.mark.slow
def test_counts_of_changed_operators_match_the_chapters() -> None:
    assert "\n".join(chapters.table()) in PAGE.read_text("utf-8"), SCRIPT


@pytest.mark.slow
@pytest.mark.parametrize("weakness", WEAKER, ids=lambda weakness: weakness.name)
def test_weaker_check_misses_the_mistakes_on_the_page(weakness: Weakness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missed mistake takes longest: the script of the page tries three seeds, this test only the first."""
    monkeypatch.setattr("numpy_attention.gradcheck.check.diagnose", lambda evidence: "")  # nothing here reads it
    missed = missed_on_the_page()[weakness.name]
    seeds = {name: SEEDS[:1] if name in missed else SEEDS for name in GALLERY}
    assert [name for name in GALLERY if not catch(GALLERY[name], weakness, seeds[name])] == missed, SCRIPT
