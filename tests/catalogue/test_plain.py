"""The forward of each op is that of the formula written plainly."""

from dataclasses import replace

import pytest

from numpy_attention import ops
from numpy_attention.catalogue.plain import PLAIN
from numpy_attention.catalogue.properties import forward_is_the_formula
from numpy_attention.catalogue.table import CATALOGUE
from numpy_attention.gallery import MUTANTS


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize("seed", [0, 5])
def test_the_forward_is_the_formula_written_plainly(name: str, seed: int) -> None:
    forward_is_the_formula(CATALOGUE[name], seed)


def test_the_plain_formulas_cover_what_the_gallery_spoils() -> None:
    spoiled = {mutant.covers for mutant in MUTANTS.values() if mutant.op is not None}
    assert spoiled <= set(PLAIN)


def test_a_forward_with_another_formula_is_told_so() -> None:
    wrong = replace(CATALOGUE["softmax"], op=lambda x: (ops.softmax(x)[0] * 1.001, None))
    with pytest.raises(AssertionError, match="the forward gives"):
        forward_is_the_formula(wrong, 0)
