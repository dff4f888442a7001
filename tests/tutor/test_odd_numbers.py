"""Public functions refuse invalid numbers and sizes with one sentence that names the argument."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from tests.tutor.test_odd_inputs import OURS

X, Q, TARGETS, IDS = np.ones((2, 4)), np.ones((3, 2)), np.zeros(2, np.int64), np.array([[1, 2]])
GPT: dict[str, Any] = {"vocab_size": 5, "context_length": 4, "d_model": 4, "num_heads": 2, "num_layers": 1}
SEQ2SEQ = {"source_vocab_size": 5, "target_vocab_size": 5, "context_length": 4, "d_model": 4, "num_heads": 2}
MODEL = na.GPT(na.GPTConfig(**GPT), np.random.default_rng(0))
TRANSLATOR = na.Seq2Seq(na.Seq2SeqConfig(**SEQ2SEQ), np.random.default_rng(0))


def write(**options: Any) -> Any:
    return MODEL.generate([1], **{"num_tokens": 2, "rng": np.random.default_rng(0), **options})


# An argument, and a call with a value for it. One argument of each function; tests/test_errors.py has the limits.
CALLS: list[tuple[str, Callable[[Any], Any]]] = [
    ("eps", lambda v: na.layer_norm(X, np.ones(4), np.ones(4), v)),
    ("eps", lambda v: na.rms_norm(X, np.ones(4), v)),
    ("scale", lambda v: na.scaled_dot_product_attention(Q, Q, Q, scale=v)),
    ("block_size", lambda v: na.tiled_attention(Q, Q, Q, block_size=v)),
    ("rate", lambda v: na.dropout(X, v, np.random.default_rng(0))),
    ("label_smoothing", lambda v: na.cross_entropy(X, TARGETS, label_smoothing=v)),
    ("block_size", lambda v: na.linear_cross_entropy(X, X, TARGETS, block_size=v)),
    ("axis", lambda v: na.softmax(X, v)),
    ("base", lambda v: na.rotary(X, np.arange(2), v)),
    ("length", lambda v: na.sinusoidal_positions(v, 2)),
    ("num_heads", na.alibi_slopes),
    ("num_heads", lambda v: na.split_heads(X, v)),
    ("T_q", na.causal_mask),
    ("window", lambda v: na.sliding_window_mask(3, v)),
    ("T", lambda v: na.padding_mask([0], v)),
    ("learning_rate", lambda v: na.SGD({"w": np.ones(2)}, v)),
    ("beta_1", lambda v: na.Adam({"w": np.ones(2)}, beta_1=v)),
    ("max_norm", lambda v: na.clip_by_global_norm({"w": np.ones(2)}, v)),
    ("peak", lambda v: na.warmup_cosine(1, 10, 3, v)),
    ("num_heads", lambda v: na.MultiHeadAttention(4, v, None)),
    ("d_out", lambda v: na.Linear(3, v, None)),
    ("d_ff", lambda v: na.FeedForward(3, v, None)),
    ("capacity", na.KeyValueCache),
    ("rank", lambda v: na.LowRank(X, v)),
    ("temperature", lambda v: write(temperature=v)),
    ("num_tokens", lambda v: write(num_tokens=v)),
    ("beam_size", lambda v: TRANSLATOR.beam_search(IDS, 1, 2, beam_size=v)),
    ("dropout", lambda v: na.GPTConfig(**GPT, dropout=v)),
    ("num_heads", lambda v: na.GPTConfig(**(GPT | {"num_heads": v}))),
    ("pad_token", lambda v: na.Seq2SeqConfig(**SEQ2SEQ, pad_token=v)),
]


@pytest.mark.parametrize(("argument", "call"), CALLS, ids=[f"{name} {i}" for i, (name, _) in enumerate(CALLS)])
def test_error_for_an_invalid_number_names_the_argument(argument: str, call: Callable[[Any], Any]) -> None:
    for value in ("3", True, math.nan, 1j, [1], np.ones(2)):
        with pytest.raises((TypeError, ValueError)) as failure:
            call(value)
        message = str(failure.value)
        assert OURS.match(message), f"{value!r}: {message}"
        assert argument in message, f"{value!r}: {message}"


@pytest.mark.parametrize("call", [
    lambda rng: na.dropout(X, 0.5, rng), lambda rng: na.Linear(3, 3, rng), lambda rng: write(rng=rng),
], ids=["dropout", "a layer", "generation"])
def test_error_for_a_seed_shows_how_to_make_a_generator(call: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"rng must be a np.random.Generator or None, got 3; np.random.default_rng.3"):
        call(3)
