"""The checker refuses no right function, misses no mistake, names the causes of most, and is right at hard corners.

tests/tutor/test_mistakes.py tests the known mistakes of the package.
"""

from collections.abc import Iterable

import pytest

from tests.gradcheck.acceptance.__main__ import Check, fresh_checks, judged, mistakes, third_party_checks
from tests.gradcheck.acceptance.corners import CORNERS, Corner
from tests.gradcheck.acceptance.third_party import FIELDS
from tests.gradcheck.acceptance.verdict import verdict

MISTAKES = mistakes()
# right causes that docs/checkers.md states: fewer are a step back; more belong on the page, too
RIGHT_CAUSES = {
    "one point": 20, "form": 24, "no function": 11, "ties": 10, "float32": 11, "structure": 22, "relative": 29,
    "ordinary": 82, "drawn": 94, "fresh": 117, "held out": 32, "strangers": 30,
}  # fmt: skip
SHOWN = 15  # the default run tries every fifteenth mistake


def refused(checks: Iterable[Check]) -> dict[str, str]:
    """The right gradients that the checker refuses, and what it says."""
    found = {name: verdict(check) for name, _, check in checks}
    return {name: one.diagnosis for name, one in found.items() if one.state != "right"}


@pytest.mark.parametrize("scale", ["normal", "float32"])
@pytest.mark.parametrize("field", FIELDS)
def test_no_right_gradient_is_refused(field: str, scale: str) -> None:
    names = {function.name for function in FIELDS[field]}
    checks = [one for one in third_party_checks(1) if one[1] == scale and one[0].split(",")[0] in names]
    assert refused(checks) == {}


def test_no_fresh_right_gradient_is_refused() -> None:
    assert refused(fresh_checks()) == {}


@pytest.mark.parametrize("kind", MISTAKES)
def test_no_mistake_is_missed_and_no_right_gradient_accused(kind: str) -> None:
    found = {mistake.name: judged(mistake) for mistake in MISTAKES[kind][::SHOWN]}
    assert {name: said for name, (result, said) in found.items() if result in ("missed", "accused")} == {}


def name_of(corner: Corner) -> str:
    return f"{corner.row}: {corner.name}".replace(" ", "-")


@pytest.mark.parametrize("corner", [corner for corner in CORNERS if not corner.slow], ids=name_of)
def test_hard_corners_have_the_expected_verdict(corner: Corner) -> None:
    assert not corner.failure(corner.verdicts(1))


@pytest.mark.slow
@pytest.mark.parametrize("corner", [corner for corner in CORNERS if corner.slow or corner.draws > 1], ids=name_of)
def test_hard_corners_have_the_expected_verdict_with_every_seed(corner: Corner) -> None:
    assert not corner.failure(corner.verdicts(corner.draws))


@pytest.mark.slow
def test_no_right_gradient_is_refused_at_any_scale() -> None:
    assert refused(third_party_checks(1)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", MISTAKES)
def test_every_mistake_is_caught_and_as_many_causes_are_right_as_the_page_says(kind: str) -> None:
    found = {mistake.name: judged(mistake) for mistake in MISTAKES[kind]}
    assert {name: said for name, (result, said) in found.items() if result in ("missed", "accused")} == {}
    others = {name: said for name, (result, said) in found.items() if result != "right"}
    assert len(found) - len(others) >= RIGHT_CAUSES[kind], others
