"""Mistakes in the exercises about the inside of a model, in the form in which a student writes them."""

import pytest

from tests.grade.hand_in import tutor_text

KEPT = "dy.copy() if keep is None else np.where(keep, dy, 0.0)"
SHAPE = """if add_shape is None:
        return dx, None
    shape = (1,) * (dy.ndim - len(add_shape)) + add_shape
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1)"""
HEADS = "t = np.arange(N, 2 * N)\n    return {}"
EFFECT = """sigma = {}
    return (({}) * gamma * direction).sum(axis=-1) / sigma"""
SIGMA = "np.sqrt(stream.var(axis=-1) + eps)"
CENTRED = "part - part.mean(axis=-1, keepdims=True)"


def ablation(dx: str = KEPT, dadd: str = "dy.sum(axis=axes).reshape(add_shape)") -> str:
    return f"dx = {dx}\n    {SHAPE}\n    return dx, {dadd}"


@pytest.mark.parametrize(("name", "exercise", "answer"), [
    ("gradient_through_what_was_thrown_away", "ablation", ablation("dy.copy()")),
    ("gradient_of_what_was_thrown_away_alone", "ablation",
     ablation("dy.copy() if keep is None else np.where(keep, 0.0, dy)")),
    ("added_only_where_kept", "ablation", ablation(dadd="dx.sum(axis=axes).reshape(add_shape)")),
    ("added_vector_averaged", "ablation", ablation(dadd="dy.mean(axis=axes).reshape(add_shape)")),
    ("gradient_of_add_left_at_zero", "ablation", ablation(dadd="np.zeros(add_shape, dy.dtype)")),
    ("earlier_copy_itself", "prefix_matching", HEADS.format("weights[:, t, t - N].mean(axis=-1)")),
    ("token_before_the_earlier_copy", "prefix_matching", HEADS.format("weights[:, t, t - N - 1].mean(axis=-1)")),
    ("last_query_left_out", "prefix_matching",
     HEADS.format("weights[:, t[:-1], t[:-1] - N + 1].mean(axis=-1)")),
    ("sum_over_the_second_half", "prefix_matching", HEADS.format("weights[:, t, t - N + 1].sum(axis=-1)")),
    ("divided_by_all_queries", "prefix_matching", HEADS.format("weights[:, t, t - N + 1].sum(axis=-1) / (2 * N)")),
    ("queries_and_keys_exchanged", "prefix_matching", HEADS.format("weights[:, t - N + 1, t].mean(axis=-1)")),
    ("whole_block_averaged", "prefix_matching", "return weights[:, N:, 1:N + 1].mean(axis=(1, 2))"),
    ("first_half_counted_too", "prefix_matching",
     "return np.mean([weights[:, t, t + 1] for t in range(N)], axis=0)"),
    ("sigma_of_the_part", "direct_effect", EFFECT.format(SIGMA.replace("stream", "part"), CENTRED)),
    ("part_not_centred", "direct_effect", EFFECT.format(SIGMA, "part")),
    ("centred_by_the_stream", "direct_effect", EFFECT.format(SIGMA, CENTRED.replace("- part", "- stream"))),
    ("eps_added_to_sigma", "direct_effect", EFFECT.format("np.sqrt(stream.var(axis=-1)) + eps", CENTRED)),
    ("eps_forgotten", "direct_effect", EFFECT.format("stream.std(axis=-1)", CENTRED)),
    ("gamma_not_used", "direct_effect", EFFECT.format(SIGMA, CENTRED).replace(" * gamma", "")),
    ("variance_for_sigma", "direct_effect", EFFECT.format("stream.var(axis=-1) + eps", CENTRED)),
    ("mean_square_for_the_variance", "direct_effect",
     EFFECT.format("np.sqrt((stream**2).mean(axis=-1) + eps)", CENTRED)),
    ("variance_of_a_sample", "direct_effect",
     EFFECT.format("np.sqrt(stream.var(axis=-1, ddof=1) + eps)", CENTRED)),
])
def test_mistake_is_named(name: str, exercise: str, answer: str) -> None:
    output = tutor_text(exercise, answer)
    assert f"a known mistake, `{name}`" in output, output
    assert output.count("a known mistake") == 1


def test_vector_that_is_not_summed_is_explained_by_its_shape() -> None:
    output = tutor_text("ablation", ablation(dadd="dy.copy()"))
    assert "dadd must have the shape of its argument, (2,), got (1, 2, 2): the sum over the batch axes" in output


def test_one_number_for_all_heads_is_explained_by_its_shape() -> None:
    output = tutor_text("prefix_matching", HEADS.format("weights[:, t, t - N + 1].mean()"))
    assert "the result must be an array of shape (1,), got float64" in output


def test_right_answer_passes() -> None:
    for exercise, answer in (
        ("ablation", ablation()), ("prefix_matching", HEADS.format("weights[:, t, t - N + 1].mean(axis=-1)")),
        ("direct_effect", EFFECT.format(SIGMA, CENTRED)),
    ):
        assert "WRONG" not in tutor_text(exercise, answer)
