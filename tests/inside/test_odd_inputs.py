"""Chapter 38, continued: invalid models, places and edits raise errors that name them."""

from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.inside import Edit, forward_with, one_head, replacing, with_edits

SIZES: dict[str, Any] = {"context_length": 6, "d_model": 8, "num_heads": 2, "num_layers": 2, "d_ff": 5}
IDS = np.array([[1, 2, 3]])
BLOCKS = [f"blocks.{i}{part}" for i in (0, 1) for part in ("", ".attention", ".feed_forward")]
PLACES = ", ".join([*BLOCKS, "norm"])
NO_PLACE = f"forward_with: edits must be named after places of the model: {PLACES}, got "


def model_of(dtype: Any = np.float64) -> na.GPT:
    return na.GPT(na.GPTConfig(vocab_size=7, **SIZES), np.random.default_rng(0), dtype)


@pytest.mark.parametrize(("edits", "message"), [
    ({"blocks.2": Edit()}, NO_PLACE + "'blocks.2'; did you mean 'blocks.1'?"),
    ({"norm": np.ones(8)}, "forward_with: edits['norm'] must be an Edit, got ndarray; replacing(where, value) makes"),
    ([("norm", Edit())], "forward_with: edits must be a dict from names of places to Edits, got list"),
    ({"blocks.1": Edit(None, np.ones(7))},
     "forward_with: edits['blocks.1'].add must be broadcastable to x (1, 3, 8), got (7,)"),
    ({"blocks.0.attention": Edit(np.ones((3, 1, 1), bool))},
     "forward_with: edits['blocks.0.attention'].keep must be broadcastable to x (1, 2, 3, 4), got (3, 1, 1)"),
    ({"norm": Edit(np.ones(8))},
     "forward_with: edits['norm'].keep must be of bool, True = keep, got float64; compare: keep > 0"),
    ({"norm": Edit(None, np.ones(8, np.float32))},
     "forward_with: edits['norm'].add must be float64, the dtype of x, got float32; convert it: add.astype(x.dtype)"),
])
def test_refuses_edits_that_do_not_fit_and_names_the_place(edits: Any, message: str) -> None:
    model = model_of()
    with pytest.raises((TypeError, ValueError)) as failure:
        forward_with(model, edits, IDS)
    assert str(failure.value).startswith(message)


def test_place_names_of_an_encoder_decoder_begin_with_the_stack() -> None:
    config: dict[str, Any] = {"source_vocab_size": 7, "target_vocab_size": 7, **SIZES}
    model = na.Seq2Seq(na.Seq2SeqConfig(**config), None)
    names = r"encoder\.blocks\.0, .*, decoder\.blocks\.1\.feed_forward, got 'blocks\.0'"
    with pytest.raises(ValueError, match=names + r"; did you mean '\w+\.blocks\.0'\?"):
        with_edits(model, {"blocks.0": Edit()})


def test_value_is_used_only_where_the_mask_is_true() -> None:
    change = replacing(np.array([True, False]), np.array([[3.0, np.nan]]))
    assert change.keep is not None
    assert change.add is not None
    np.testing.assert_array_equal(change.keep, [False, True])
    np.testing.assert_array_equal(change.add, [[3.0, 0.0]])


def test_refuses_an_edited_model_where_blocks_or_norms_are_read() -> None:
    """Its blocks and norms are wrapped by places. Functions that only run the model accept it."""
    model = model_of()
    edited = with_edits(model, {"blocks.0.attention": replacing(one_head(1, 2))})
    at = forward_with(model, {}, IDS)[1].at
    inside = na.inside
    for op, call in {
        "forward_with": lambda: forward_with(edited, {}, IDS),
        "logit_lens": lambda: inside.logit_lens(edited, at["norm"]),
        "direct_effects": lambda: inside.direct_effects(edited, at, np.ones(8)),
        "copying_scores": lambda: inside.copying_scores(edited),
    }.items():
        refusal = f"^{op}: model must be a model without edits, got an edited model; pass the original model"
        with pytest.raises(ValueError, match=refusal):
            call()
    pair = {name: Edit() for name in ("encoder.norm", "decoder.blocks.0")}
    config = na.Seq2SeqConfig(7, 7, pre_norm=True, **SIZES)
    with pytest.raises(ValueError, match=r"^forward_with: model must be a model without edits"):
        with_edits(with_edits(na.Seq2Seq(config, None), pair), {})
    np.testing.assert_array_equal(inside.unembedding(edited), inside.unembedding(model))
    np.testing.assert_array_equal(
        inside.previous_token_scores(edited, IDS)["blocks.0.attention"],
        inside.previous_token_scores(model, IDS)["blocks.0.attention"],
    )
