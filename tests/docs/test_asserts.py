"""On a tutorial's page the asserts of each cell are folded, and all other statements stay unchanged."""

import ast
from pathlib import Path

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
