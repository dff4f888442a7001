"""The blind test: the checker catches every mistake and accepts every right function.

`python -m tests.gradcheck.fresh` prints whether the checker also names the cause of each mistake.
"""

import re
from pathlib import Path

import pytest

from tests.gradcheck.fresh import FRESH, HELD_OUT
from tests.gradcheck.fresh.__main__ import cause
from tests.gradcheck.fresh.pairs import differences, run

FIELDS = FRESH | HELD_OUT


@pytest.mark.parametrize("field", FIELDS)
def test_right_functions_agree_with_differences(field: str) -> None:
    wrong = {right.name for right in FIELDS[field].rights if differences(right, right.backward) > 1e-7}
    assert not wrong


@pytest.mark.parametrize("field", FIELDS)
def test_no_right_function_is_refused(field: str) -> None:
    refused = {right.name: run(right, right.forward, right.backward) for right in FIELDS[field].rights}
    assert not {name: said for name, said in refused.items() if said is not None}


@pytest.mark.slow
@pytest.mark.parametrize("field", FIELDS)
def test_every_mistake_is_caught(field: str) -> None:
    missed = [w.name for w in FIELDS[field].wrongs if run(w.right, w.forward, w.backward) is None]
    assert not missed


@pytest.mark.slow
def test_the_page_states_how_many_causes_are_right() -> None:
    text = (Path(__file__).parents[2] / "docs" / "checkers.md").read_text("utf-8")
    stated = re.search(r"is\s+right\s+for\s+(\d+)\s+of\s+the\s+132.*is\s+right\s+for\s+(\d+)\s+now", text, re.DOTALL)
    assert stated is not None
    for fields, count in zip((FRESH, HELD_OUT), stated.groups(), strict=True):
        wrongs = [wrong for pairs in fields.values() for wrong in pairs.wrongs]
        right = [w.name for w in wrongs if cause(w, run(w.right, w.forward, w.backward)) == "right"]
        assert len(right) == int(count)
