"""The page that compares checkers shows the current reports of our checker; a script writes the other texts."""

import re

import pytest

from tests.benchmarks.compare_checkers import PAGE, ours, shortened
from tests.benchmarks.planted_errors import Planted, planted

CASES = list(planted())


def without_numbers(text: str) -> str:
    """The text without its numbers, whose last digits depend on the machine."""
    return re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?\s*", "# ", text)


def on_the_page(case: Planted) -> str:
    """Our report on the page."""
    section = PAGE.read_text("utf-8").split(f"### {case.name}\n")[1]
    return section.split("```text\n")[1].split("\n```")[0]


@pytest.mark.parametrize("case", CASES[1:], ids=lambda case: case.name)
def test_reports_match_the_page_of_checkers(case: Planted) -> None:
    assert ours(case.f, case.right, case.inputs) == ""
    message = ours(case.f, case.wrong, case.inputs)
    assert without_numbers(shortened(message)) == without_numbers(on_the_page(case))


@pytest.mark.slow
def test_the_report_for_one_element_of_a_million_matches_the_page() -> None:
    case = CASES[0]
    assert ours(case.f, case.right, case.inputs) == ""
    assert without_numbers(shortened(ours(case.f, case.wrong, case.inputs))) == without_numbers(on_the_page(case))


def test_every_planted_error_has_its_row_and_we_catch_them_all() -> None:
    text = PAGE.read_text("utf-8")
    for case in CASES:
        assert f"| {case.name} | **caught** |" in text
    assert f"**{len(CASES)} of 12**" in text
