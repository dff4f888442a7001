"""Every mistake of the gallery gets words that lead to it, and dies of itself, not of a slip in how it was planted."""

import pytest

from numpy_attention.catalogue import MISTAKES, catch

WORDS = {
    "dv_before_dropout": "right without dropout",
    "scale_left_out": "is the scale 1/sqrt(d) left out",
    "scale_applied_twice": "is the scale 1/sqrt(d) applied twice",
    "mask_in_the_forward_only": "the gradient leaks through what mask hides",
    "dk_not_transposed": "a factor that should be transposed",
    "dv_not_transposed": "a factor that should be transposed",
    "softmax_of_the_columns": "a sum along the wrong axis",
    "broadcast_bias_not_summed": "uses only the first row of dy",
    "first_head_of_the_group": "along axis 1 of dy: must it be summed over that axis, or over each group",
    "rescaled_sum_forgotten": "do not sum to one (made again without their maximum or sum?)",
    "row_sum_left_out": "is the `- sum(dy * w)` missing",
    "last_tile_only": "a block overwrites what it should add to",
    "tile_mask_left_out": "what is hidden stays hidden on the way back",
    "dropout_of_another_tile": "right without dropout",
    "distance_forgotten": "has the backward another formula than the forward",
    "bias_of_the_last_row": "uses only the last row of dy",
    "bias_summed_over_one_axis": "the sum over the batch axes (0, 1) is missing",
    "bias_averaged": "a mean taken where a sum belongs",
    "weight_not_transposed": "a factor that should be transposed",
    "last_id_wins": "rows of repeated ids get only one of their contributions",
    "buffered_plus": "np.add.at (a scatter-add)",
    "erf_gradient_for_tanh": "the other form of gelu",
    "dropout_scale_left_out": "the factor 1/(1 - rate) is left out",
    "one_mask_for_two_uses": "is something kept outside the cache?",
    "evaluation_rescales": "the forward gives",
    "turned_forward_again": "the forward applied to dy",
    "pairings_mixed": "a rotation by other angles, or of other pairs of coordinates",
    "concat_by_reshape": "the forward gives",
    "concat_backward_by_reshape": "a reshape without its transpose",
    "split_backward_by_reshape": "a reshape without its transpose",
    "other_side": "stands at position 2 of 5, so key 0 must be visible",
    "one_too_far": "must be hidden",
    "aligned_at_the_start": "stands at position 2 of 5, so key 1 must be visible",
    "arguments_in_the_wrong_order": "are the arguments, or the gradients, in the right order?",
    "keys_cut_with_the_length_of_the_queries": "cannot reshape",
    "query_path_only": "a path to the input is missing",
    "value_path_forgotten": "a path to the input is missing",
    "residual_left_out": "a path to the input is missing",
    "residual_twice": "added twice (the residual path?",
    "branch_reads_a_changed_gradient": "backward changed dy in place",
    "InputKeptOnTheLayer": "is something kept outside the cache?",
    "tied_head_left_out": "used twice, its two gradients must be added",
    "positions_not_summed_over_the_batch": "a mean stands where the sum over the 2 of axis 0",
    "gamma_left_out": "right when gamma is all ones",
    "gamma_at_the_end": "comes in at the wrong place",
    "mean_path_forgotten": "is a `- mean(...)` or a `- sum(...)` term missing?",
    "variance_path_forgotten": "is the path through the variance (or the mean square) missing",
    "two_dimensional_only": "the sum over the batch axes (0, 1) is missing",
    "variance_divided_by_d_minus_one": "n - 1 for n",
    "unbiased_deviation": "the forward gives",
    "eps_outside_the_root": "the forward gives",
    "scratch_in_dy": "backward changed dy in place",
    "scratch_in_the_cache": "does it change its cache in place?",
    "float64_out_of_float32": "of float32 is float64",
    "mean_subtracted": "off by the same number",
    "normalized_over_everything": "the forward mixes the places along axis 1 of x, the backward keeps them apart",
    "sum_without_weights": "the sum must be weighted",
    "zero": "the backward gives zero",
    "diagonal_only": "only the diagonal of the softmax's Jacobian",
    "always_the_last_axis": "right without the option axis",
    "divided_by_the_batch": "once too often",
    "divided_twice": "a mean taken where a sum belongs, or twice",
    "target_not_subtracted_when_smoothed": "right without the option label_smoothing",
    "gradient_at_ignored_places": "what is hidden or ignored still gets a gradient",
    "ignored_in_the_mean": "the forward gives",
    "nan_at_padding": "0 times infinity is NaN",
    "mean_of_each_block": "a mean whose 1/n was forgotten",
    "table_of_the_last_block": "right in one block: with block_size=2 a block overwrites what it should add to",
    "clip_each_array": "the joint norm asks for",
    "NoBiasCorrection": "step 1:",
    "CorrectedFromStepZero": "step 1:",
    "EpsInsideTheRoot": "step 1:",
    "DecayInTheMoments": "step 1:",
    "DecayOnEverything": "gamma[0] is",
    "DecayWithoutTheRate": "step 1:",
    "stepped_twice": "one step along the sum of its gradients",
    "position_from_zero_again": "the logits of token 1",
    "new_key_not_attended": "the logits of token",
    "keys_not_kept": "the logits of token 1",
    "change_not_scaled": "da, db: right up to the constant factor 0.666667",
    "scale_left_out_of_db": "db: right up to the constant factor 0.666667",
    "change_left_out_of_dx": "a path to the input is missing",
    "both_sides_at_zero": "does a gradient come through at all?",
    "both_sides_at_random": "the pretrained model is not the start",
    "gradient_through_what_was_thrown_away": "it leaks through what keep hides",
    "gradient_of_what_was_thrown_away_alone": "the backward takes keep the other way round",
    "added_only_where_kept": "the backward gives zero where keep hides, and there it must not be zero",
    "added_vector_not_summed": "uses only the first row of dy",
    "added_vector_averaged": "once too often",
    "added_before_the_mask": "the forward gives",
}


def test_every_mistake_has_its_words() -> None:
    assert WORDS.keys() == MISTAKES.keys()


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mutant_is_killed_in_words_that_lead_to_it(name: str) -> None:
    said = catch(MISTAKES[name])
    assert said, f"{name} gets through: {MISTAKES[name].wrong}"
    assert WORDS[name] in said, said
    assert "by no simple rule" not in said, said
    assert len(said.splitlines()) <= 24, "at most a screen"
    for slip in ("TypeError", "AttributeError", "NameError", "positional argument"):
        assert slip not in said, said
