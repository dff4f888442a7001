"""On a tutorial's page the asserts of each cell are folded, and all other statements stay unchanged."""

import ast
from pathlib import Path

import pytest
from asserts import CELL, fold_asserts

from tests.every import each

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "tutorials").glob("[0-9]*.md"))


def cells(text: str) -> list[tuple[bool, list[str]]]:
    """For each cell: whether it is folded, and its statements."""
    return [
        ("hide-input" in cell["options"], [ast.dump(one) for one in ast.parse(cell["code"]).body])
        for cell in CELL.finditer(text)
    ]


@each(TUTORIALS)
def test_folding_keeps_every_statement_and_folds_asserts(path: Path) -> None:
    before, after = cells(path.read_text("utf-8")), cells(fold_asserts(path.read_text("utf-8")))
    assert sorted(one for _, code in before for one in code) == sorted(one for _, code in after for one in code)
    plain = [one for _, code in before for one in code if not one.startswith("Assert")]
    assert plain == [one for folded, code in after for one in code if not one.startswith("Assert")]
    assert all(one.startswith("Assert") for folded, code in after if folded for one in code)
    asserted = sum(one.startswith("Assert") for _, code in before for one in code)
    left = sum(one.startswith("Assert") for folded, code in after if not folded for one in code)
    assert asserted
    assert left <= asserted / 10


def test_assert_stays_if_a_later_statement_changes_its_variable() -> None:
    text = "```{code-cell} ipython3\nx = 1\nassert x == 1\nx = 2\nprint(x)\n# twice\nassert x == 2\n```\n"
    folded = fold_asserts(text)
    first, second = CELL.finditer(folded)
    assert first["code"] == "x = 1\nassert x == 1\nx = 2\nprint(x)\n"
    assert second["code"] == "# twice\nassert x == 2\n"


@pytest.mark.parametrize("later", ["x[0] = 2", "x += 1", "x.y = 3", "def x(): pass", "del x"])
def test_writing_into_a_variable_counts_as_a_change(later: str) -> None:
    text = f"```{{code-cell}} ipython3\nassert x\n{later}\n```\n"
    assert fold_asserts(text) == text


def test_cell_with_only_asserts_is_not_changed() -> None:
    text = "```{code-cell} ipython3\nassert 1 < 2\nassert 2 < 3\n```\n"
    assert fold_asserts(text) == text
