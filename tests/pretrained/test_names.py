"""Chapter 34: every parameter gets its tensor, transposed and reordered as in this book."""

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.errors import InputError
from numpy_attention.files import StoredArray
from numpy_attention.pretrained.c34_names import BERT, GPT2, LLAMA, as_ours, fill, their_name
from tests.pretrained import tiny

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


@pytest.mark.parametrize("first", ["", "transformer.", "bert."])
def test_prefix_of_all_names_does_not_matter(first, tmp_path, rng):
    model, _ = na.load_pretrained(tiny.write(tmp_path, "bert"))
    tensors = tiny.tensors_of("bert", tiny.BERT)
    arrays = {f"{first}{name}": StoredArray(t.shape, "F32", lambda t=t: t) for name, t in tensors.items()}
    arrays[f"{first}embeddings.position_ids"] = StoredArray((1, 15), "I64", lambda: np.arange(15)[None])
    other = na.TextEncoder(model.config, None)
    fill(other, arrays, BERT)
    for name, p in other.parameters().items():
        np.testing.assert_array_equal(p, model.parameters()[name])


@pytest.mark.parametrize("shape", [(), (5,), (13, 12), (3, 4, 5), (2**20, 2**20)])
def test_tensor_of_a_wrong_shape_is_reported_and_not_read(shape):
    def never():
        raise AssertionError

    for config, table, gguf in ((ROTARY, LLAMA, True), (na.GPTConfig(11, 5, 12, 3, 1), GPT2, False)):
        model = na.GPT(config, None)
        arrays = {their_name(name, table, gguf): StoredArray(shape, "F32", never) for name in model.parameters()}
        with pytest.raises(InputError) as caught:
            fill(model, arrays, table, gguf)
        assert str(caught.value).startswith(f"{next(iter(arrays))} is {shape}, which gives ")
