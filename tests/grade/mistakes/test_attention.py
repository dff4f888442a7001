"""Mistakes in attention from scratch, in the form in which a student writes them."""

import pytest

from tests.grade.hand_in import tutor_text

FORWARD = """scores = q @ k.swapaxes(-1, -2) / np.asarray(np.sqrt(q.shape[-1]), q.dtype)
    if mask is not None:
        scores = {hidden}
    e = np.exp(scores - scores.max(axis={axis}, keepdims=True))
    weights = e / e.sum(axis={axis}, keepdims=True)
    {behind}
    return weights @ v, weights"""
BACK = """dweights = dy @ v.swapaxes(-1, -2)
    dscores = {} * scale
    return dscores @ k, dscores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ dy"""
STORED = """k, v = np.concatenate([past_k, x @ w_k]), np.concatenate([past_v, x @ w_v])
    s = x @ w_q @ k.T / np.sqrt(k.shape[1])
    {}
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v, k, v"""
MASKED = "np.where(mask, scores, -np.inf)"


def forward(hidden: str = MASKED, axis: int = -1, behind: str = "") -> str:
    return FORWARD.format(hidden=hidden, axis=axis, behind=behind)


@pytest.mark.parametrize(("name", "exercise", "answer"), [
    ("scores_not_scaled", "attention_forward", forward().replace("q.shape[-1]", "1")),
    ("softmax_over_the_queries", "attention_forward", forward(axis=-2)),
    ("mask_after_the_softmax", "attention_forward",
     forward("scores", behind="weights = weights if mask is None else weights * mask")),
    ("hidden_scores_of_zero", "attention_forward", forward("scores * mask")),
    ("equal_weights_for_hidden_keys", "attention_forward", forward("np.where(mask, scores, -1e9).astype(q.dtype)")),
    ("nan_for_a_fully_masked_query", "attention_forward", forward()),
    ("mask_ignored", "attention_forward", forward().replace("if mask is not None:", "if False:")),
    ("average_left_out", "attention", BACK.format("weights * dweights")),
    ("average_not_weighted", "attention",
     BACK.format("weights * (dweights - dweights.mean(axis=-1, keepdims=True))")),
    ("softmax_left_out", "attention", BACK.format("dweights")),
    ("no_mask_among_the_new", "kv_cache", STORED.format("")),
    ("mask_from_the_first_key", "kv_cache", STORED.format("s = np.where(np.tri(*s.shape) > 0, s, -np.inf)")),
    ("own_key_not_seen", "kv_cache",
     STORED.format("s = np.where(np.tri(*s.shape, len(past_k) - 1) > 0, s, -1e300)")),
    ("store_ignored", "kv_cache",
     STORED.format("s = np.where(np.tri(*s.shape) > 0, s, -np.inf)").replace("[past_k, x @ w_k]", "[x @ w_k]").replace(
         "[past_v, x @ w_v]", "[x @ w_v]")),
])
def test_mistake_is_named(name: str, exercise: str, answer: str) -> None:
    assert f"a known mistake, `{name}`" in tutor_text(exercise, answer), tutor_text(exercise, answer)


def test_first_wrong_answer_is_shown_in_numbers() -> None:
    output = tutor_text("attention_forward", forward())
    assert "a mask that hides all keys of the second query y at [1, 0] is nan, but must be 0" in output
    assert "mask = [[False, True, False], [False, False, False]]" in output


def test_each_question_is_a_separate_property() -> None:
    without_mask = forward("scores").replace("if mask is not None:", "if False:")
    output = tutor_text("attention_forward", without_mask)
    right = "right attention: two queries and three keys, no mask right attention: a batch of heads"
    assert output.startswith(right)
    assert "right attention: arrays of float32 WRONG attention: a mask" in output
    assert "a known mistake, `mask_ignored`: The mask is not used; as tutorial 5 shows" in output
    output = tutor_text("attention_forward", forward())
    assert "right attention: a mask WRONG attention: a mask that hides all keys of the second query" in output
