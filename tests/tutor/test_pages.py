"""Right answers of the exercises agree with the package; trials report wrong answers."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import gradcheck
from numpy_attention.models.c23c_sampling import sample
from numpy_attention.pretrained.c37_low_rank import LowRank
from numpy_attention.training.c27a_byte_pairs import BytePairVocabulary
from numpy_attention.training.c27a_byte_pairs import learn_merges as learn_from_chunks
from numpy_attention.tutor.catalogue import TRIALS, ours

OURS = ours()


def test_tied_table_gets_the_sum_of_both_gradients(rng: np.random.Generator) -> None:
    ids, table, w = np.array([[2, 0, 2], [1, 2, 4]]), rng.standard_normal((5, 3)), rng.standard_normal((3, 3))
    assert gradcheck(OURS.tied_table, OURS.tied_table_backward, (ids, table, w)).ok


def test_next_outputs_equal_outputs_of_the_whole_text(rng: np.random.Generator) -> None:
    x, *w = (rng.standard_normal(shape) for shape in ((6, 3), (3, 2), (3, 2), (3, 4)))
    q, k, v = (x @ one for one in w)
    whole, _ = ops.scaled_dot_product_attention(q, k, v, ops.causal_mask(6))
    past, parts = (k[:0], v[:0]), []
    for piece in (x[:2], x[2:3], x[3:]):
        y, *past = OURS.next_outputs(piece, *past, *w)
        parts.append(y)
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-12)


def test_merges_equal_those_of_the_vocabulary_for_one_chunk(rng: np.random.Generator) -> None:
    text = bytes(rng.integers(97, 100, 60).tolist())
    merges = OURS.learn_merges(list(text), 8)
    assert merges == learn_from_chunks({text.decode(): 1}, 264)
    other = bytes(rng.integers(97, 100, 50).tolist())
    assert OURS.encode(list(other), merges) == BytePairVocabulary(merges).encode(other.decode()).tolist()


def test_top_p_agrees_with_the_sampler(rng: np.random.Generator) -> None:
    logits = 2 * rng.standard_normal((40, 7))
    p = OURS.top_p(logits, 0.7)
    np.testing.assert_allclose(p.sum(axis=-1), 1.0)
    drawn = np.stack([sample(logits, np.random.default_rng(seed), top_p=0.7) for seed in range(60)])
    rows = np.arange(40)
    assert (p[rows, drawn] > 0).all(), "top_p keeps every token that the sampler draws"
    assert (p.argmax(axis=-1) == logits.argmax(axis=-1)).all()
    ranked = -np.sort(-p, axis=-1)
    full = -np.sort(-ops.softmax(logits)[0], axis=-1)
    for row, kept in zip(full, (ranked > 0).sum(axis=-1)):
        assert row[:kept].sum() >= 0.7 > row[: kept - 1].sum()


def test_joined_gradient_equals_gradient_of_the_whole_batch(rng: np.random.Generator) -> None:
    logits, targets = rng.standard_normal((7, 5)), rng.integers(0, 5, 7)
    targets[3] = -100
    parts = slice(0, 2), slice(2, 4), slice(4, 7)
    grads, counts = [], []
    for part in parts:
        dlogits = np.zeros_like(logits)
        dlogits[part] = ops.cross_entropy_backward(np.ones(()), ops.cross_entropy(logits[part], targets[part])[1])
        grads.append({"logits": dlogits})
        counts.append(int((targets[part] != -100).sum()))
    whole = ops.cross_entropy_backward(np.ones(()), ops.cross_entropy(logits, targets)[1])
    np.testing.assert_allclose(OURS.joined_gradient(grads, counts)["logits"], whole, rtol=1e-12)


@pytest.mark.parametrize(("covers", "wrong", "message"), [
    ("causal_mask", np.tri, "a mask has dtype bool"),
    ("causal_mask", lambda T_q, T_k: np.tri(T_q + 1, T_k, dtype=bool), "has shape"),
    ("clip_by_global_norm", lambda grads, most: 1.0, "the norm before clipping is"),
    ("tied_step", lambda table, uses, optimizer, **options: None, "the tied table differs by"),
    ("logits_step_by_step", lambda model, ids: np.zeros((*ids.shape, 7)), "the logits of token 0 are off"),
    ("low_rank_start", lambda w, rank, rng: LowRank(2 * w, rank, rng=rng), "y differs from x w by"),
])
def test_trial_reports_a_wrong_answer(covers: str, wrong: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        TRIALS[covers](wrong, 0)
