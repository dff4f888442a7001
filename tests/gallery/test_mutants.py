"""The proof of the proof: weaker checks miss what is said. That the full one kills all: test_diagnoses."""

import numpy as np
import pytest

from numpy_attention.catalogue.plain import PLAIN
from numpy_attention.catalogue.properties import (
    forward_is_the_formula,
    two_uses_do_not_disturb_each_other,
)
from numpy_attention.catalogue.table import CATALOGUE
from numpy_attention.catalogue.trials import TRIALS
from numpy_attention.gallery import MUTANTS, kill, mutants_of
from numpy_attention.gallery.weaker import WEAKER, Weakness

WEAK = {weakness.name: weakness for weakness in WEAKER}


@pytest.mark.parametrize("covers", TRIALS)
def test_the_right_thing_passes_its_trial(covers: str) -> None:
    right, trial = TRIALS[covers]
    for seed in range(20):
        trial(right, seed)


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize("seed", [0, 5])
def test_the_forward_is_the_formula_written_plainly(name: str, seed: int) -> None:
    forward_is_the_formula(CATALOGUE[name], seed)


def test_the_plain_formulas_cover_what_the_gallery_spoils() -> None:
    spoiled = {mutant.covers for mutant in MUTANTS.values() if mutant.op is not None}
    assert spoiled <= set(PLAIN)


@pytest.mark.parametrize("name", CATALOGUE)
def test_two_uses_do_not_disturb_each_other(name: str) -> None:
    two_uses_do_not_disturb_each_other(CATALOGUE[name], seed=3)


@pytest.mark.parametrize(("weakness", "mutant"), [
    ("dy of ones", "zero"),
    ("dy of ones", "divided_by_the_batch"),
    ("gamma of ones, beta of zeros", "gamma_left_out"),
    ("gamma of ones, beta of zeros", "gamma_at_the_end"),
    ("all sizes equal", "keys_cut_with_the_length_of_the_queries"),
    ("all sizes equal", "aligned_at_the_start"),
    ("a batch of one, one leading axis", "bias_summed_over_one_axis"),
    ("no mask, no padding", "mask_in_the_forward_only"),
    ("no mask, no padding", "nan_at_padding"),
    ("no mask, no padding", "gradient_at_ignored_places"),
    ("dropout off", "dv_before_dropout"),
    ("dropout off", "dropout_scale_left_out"),
    ("all ids different", "last_id_wins"),
    ("all ids different", "buffered_plus"),
    ("differences in float32, within 5 %", "erf_gradient_for_tanh"),
    ("absolute or relative 1e-3 of a mean loss", "erf_gradient_for_tanh"),
    ("parameters only, not dx", "residual_left_out"),
    ("gradients only: no formula, no second use", "concat_by_reshape"),
    ("gradients only: no formula, no second use", "InputKeptOnTheLayer"),
    ("one token, one array, plain descent", "position_from_zero_again"),
    ("one token, one array, plain descent", "stepped_twice"),
    ("the loss falls", "scale_left_out"),
    ("shapes and isfinite", "diagonal_only"),
])  # fmt: skip
def test_a_weaker_check_lets_it_through(weakness: str, mutant: str) -> None:
    assert kill(MUTANTS[mutant], WEAK[weakness]) == ""


@pytest.mark.parametrize("weakness", [w for w in WEAKER if w.name != "all of these at once"], ids=lambda w: w.name)
def test_a_weaker_check_is_no_straw_man(weakness: Weakness) -> None:
    """Each still kills some mutant of layer norm, so what it misses is missed for the reason it is said to be."""
    assert any(kill(mutant, weakness) for mutant in mutants_of("layer_norm"))


def test_every_mutant_says_why_it_is_wrong_and_how_it_hides() -> None:
    known = {entry.covers for entry in CATALOGUE.values()} | set(TRIALS)
    for mutant in MUTANTS.values():
        assert mutant.covers in known, f"{mutant.name} belongs to {mutant.covers}, which nothing checks"
        for text in (mutant.wrong, mutant.hides):
            assert text.endswith("."), mutant.name
            assert len(text) > 20, mutant.name


def test_a_mutant_leaves_the_catalogue_as_it_was() -> None:
    entry = CATALOGUE["layer_norm"]
    spoiled = MUTANTS["gamma_left_out"].spoil(entry)
    assert spoiled.op_backward is not entry.op_backward
    assert CATALOGUE["layer_norm"].op_backward is entry.op_backward
    case = entry.case(0)
    assert not np.all(case.inputs["gamma"] == 1.0)
