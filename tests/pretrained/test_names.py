"""Chapter 34: the rows of interleaved rotary pairs are reordered into halves."""

import numpy as np

import numpy_attention as na
from numpy_attention.pretrained.c34_names import as_ours

ROTARY = na.GPTConfig(
    11, 5, 12, 3, 2, num_kv_heads=1, d_ff=7, positions="rotary", norm="rms_norm", activation="swiglu", bias=False
)  # fmt: skip


def test_interleaved_pairs_become_halves(rng):
    """Reordered rows with pairs of halves give the same scores as the rows of the file with interleaved pairs."""
    model = na.GPT(ROTARY, None, np.float64)
    x = rng.standard_normal((1, 5, 12))
    theirs_q, theirs_k = rng.standard_normal((12, 12)), rng.standard_normal((4, 12))
    positions = np.arange(5)

    def scores(w_q, w_k, pairing):
        q = na.rotary(na.split_heads(x @ w_q, 3)[0], positions, pairing=pairing)[0]
        k = na.rotary(na.split_heads(x @ w_k, 1)[0], positions, pairing=pairing)[0]
        return q @ k.swapaxes(-1, -2)

    ours_q = as_ours(theirs_q, "blocks.0.attention.w_q", "blk.0.attn_q.weight", model, interleaved=True)
    ours_k = as_ours(theirs_k, "blocks.0.attention.w_k", "blk.0.attn_k.weight", model, interleaved=True)
    expected = scores(theirs_q.T, theirs_k.T, "interleaved")
    np.testing.assert_allclose(scores(ours_q, ours_k, "half"), expected, rtol=1e-12, atol=1e-12)
    assert np.abs(scores(theirs_q.T, theirs_k.T, "half") - expected).max() > 0.1
