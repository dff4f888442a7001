"""Each weaker check misses the given one or two mistakes; test_gallery_page tests all of them (slow)."""

import pytest

from numpy_attention.catalogue import MISTAKES, catch, mistakes_of
from numpy_attention.catalogue.weaker import WEAKER, Weakness

WEAK = {weakness.name: weakness for weakness in WEAKER}


@pytest.mark.parametrize(("weakness", "mistake"), [
    ("dy of ones", "zero"),
    ("dy of ones", "divided_by_the_batch"),
    ("gamma of ones, beta of zeros", "gamma_left_out"),
    ("gamma of ones, beta of zeros", "gamma_at_the_end"),
    ("all sizes equal", "aligned_at_the_start"),
    ("a batch of one, one leading axis", "bias_summed_over_one_axis"),
    ("no mask, no padding", "nan_at_padding"),
    ("no mask, no padding", "gradient_at_ignored_places"),
    ("dropout off", "dropout_scale_left_out"),
    ("all ids different", "last_id_wins"),
    ("all ids different", "buffered_plus"),
    ("differences in float32, tolerance 5 %", "erf_gradient_for_tanh"),
    ("mean loss, absolute or relative tolerance 1e-3", "erf_gradient_for_tanh"),
    ("parameters only, not dx", "residual_left_out"),
    ("gradients only: no check of results or repeats", "concat_by_reshape"),
    ("gradients only: no check of results or repeats", "evaluation_rescales"),
    ("KV cache with one token, clipping of one array, SGD only", "position_from_zero_again"),
    ("KV cache with one token, clipping of one array, SGD only", "stepped_twice"),
    ("check only that the loss falls", "scale_left_out"),
    ("check only that the loss falls", "both_sides_at_random"),
    ("gradients only: no check of results or repeats", "both_sides_at_zero"),
    ("check only shapes and isfinite", "diagonal_only"),
])
def test_weaker_check_misses_the_mistake(weakness: str, mistake: str) -> None:
    assert catch(MISTAKES[mistake], WEAK[weakness]) == ""


@pytest.mark.parametrize("weakness", [w for w in WEAKER if w.name != "changes 1 to 7 at once"], ids=lambda w: w.name)
def test_weaker_check_still_catches_some_mistakes(weakness: Weakness) -> None:
    """It still catches a mistake of layer norm, so its misses come from its weakness."""
    assert any(catch(mistake, weakness) for mistake in mistakes_of("layer_norm"))
