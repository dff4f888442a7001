"""Public functions refuse invalid numbers and sizes with one sentence that names the argument."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import numpy_attention as na
from tests.tutor.test_odd_inputs import OURS

X = np.ones((2, 4))
Q = np.ones((3, 2))
TARGETS = np.zeros(2, np.int64)


class Taken(NamedTuple):
    """An argument: its name in the error, a call with a value for it, and the values in ODD that are valid for it."""

    argument: str
    call: Callable[[Any], Any]
    valid: tuple[Any, ...] = ()


def weights() -> dict[str, np.ndarray]:
    return {"w": np.ones(2)}


def optimizer_step(rate: Any) -> None:
    na.Adam(weights()).step(weights(), rate)


def resume(steps: Any) -> None:
    optimizer = na.SGD(weights())
    optimizer.load_state({"steps": np.asarray(steps)})


GPT = {"vocab_size": 5, "context_length": 4, "d_model": 4, "num_heads": 2, "num_layers": 1}
SEQ2SEQ = {"source_vocab_size": 5, "target_vocab_size": 5, "context_length": 4, "d_model": 4, "num_heads": 2}
MODEL = na.GPT(na.GPTConfig(**GPT), np.random.default_rng(0))
TRANSLATOR = na.Seq2Seq(na.Seq2SeqConfig(**SEQ2SEQ), np.random.default_rng(0))
IDS = np.array([[1, 2]])


def write(**options: Any) -> Any:
    return MODEL.generate([1], **{"num_tokens": 2, "rng": np.random.default_rng(0), **options})


def attend(op: Callable[..., Any], **options: Any) -> Any:
    return op(Q, Q, Q, **options)


def field(kind: Any, sizes: dict[str, int], name: str, valid: tuple[Any, ...] = ()) -> Taken:
    return Taken(name, lambda value: kind(**{**sizes, name: value}), valid)


NUMBERS = [
    Taken("eps", lambda v: na.layer_norm(X, np.ones(4), np.ones(4), v), (1.5, 1)),
    Taken("eps", lambda v: na.rms_norm(X, np.ones(4), v), (1.5, 1)),
    Taken("scale", lambda v: attend(na.scaled_dot_product_attention, scale=v), (None, -1, 0, 0.0, 1.5, 1)),
    Taken("scale", lambda v: attend(na.tiled_attention, scale=v), (None, -1, 0, 0.0, 1.5, 1)),
    Taken("softcap", lambda v: attend(na.scaled_dot_product_attention, softcap=v), (None, 1, 1.5)),
    Taken("softcap", lambda v: attend(na.tiled_attention, softcap=v), (None, 1, 1.5)),
    Taken("cap", lambda v: na.softcap(X, v), (1, 1.5)),
    Taken("rate", lambda v: na.dropout(X, v, np.random.default_rng(0)), (0, 0.0)),
    Taken("rate", lambda v: attend(na.scaled_dot_product_attention, dropout=v), (0, 0.0)),
    Taken("label_smoothing", lambda v: na.cross_entropy(X, TARGETS, label_smoothing=v), (0, 0.0, 1)),
    Taken("label_smoothing", lambda v: na.linear_cross_entropy(X, X, TARGETS, label_smoothing=v), (0, 0.0, 1)),
    Taken("base", lambda v: na.rotary(X, np.arange(2), v), (1.5, 1)),
    Taken("rotary_base", lambda v: na.MultiHeadAttention(4, 2, None, rotary_base=v), (None, 1.5, 1)),
    Taken("learning_rate", lambda v: na.SGD(weights(), v), (0, 0.0, 1, 1.5)),
    Taken("momentum", lambda v: na.SGD(weights(), momentum=v), (0, 0.0)),
    Taken("learning_rate", lambda v: na.Adam(weights(), v), (0, 0.0, 1, 1.5)),
    Taken("learning_rate", optimizer_step, (None, 0, 0.0, 1, 1.5)),
    Taken("beta_1", lambda v: na.Adam(weights(), beta_1=v), (0, 0.0)),
    Taken("beta_2", lambda v: na.Adam(weights(), beta_2=v), (0, 0.0)),
    Taken("eps", lambda v: na.Adam(weights(), eps=v), (1, 1.5)),
    Taken("weight_decay", lambda v: na.AdamW(weights(), weight_decay=v), (0, 0.0, 1, 1.5)),
    Taken("max_norm", lambda v: na.clip_by_global_norm(weights(), v), (1, 1.5)),
    Taken("peak", lambda v: na.warmup_cosine(1, 10, 3, v), (0, 0.0, 1, 1.5)),
    Taken("minimum", lambda v: na.warmup_cosine(5, 10, 3, 1.0, v), (0, 0.0, 1, 1.5)),
    Taken("temperature", lambda v: write(temperature=v), (0, 0.0, 1, 1.5)),
    Taken("top_p", lambda v: write(top_p=v), (None, 1)),
    Taken("length_penalty", lambda v: TRANSLATOR.beam_search(IDS, 1, 2, length_penalty=v), (0, 0.0, 1, 1.5)),
    Taken("alpha", lambda v: na.LowRank(X, 1, v), (None, 1, 1.5)),
    field(na.GPTConfig, GPT, "dropout", (0, 0.0)),
    field(na.GPTConfig, GPT, "rotary_base", (1, 1.5)),
    field(na.GPTConfig, GPT, "norm_eps", (None,)),
    field(na.GPTConfig, GPT, "softcap", (None, 1, 1.5)),
    field(na.GPTConfig, GPT, "attention_scale", (None, 1.5, 1)),
    field(na.GPTConfig, GPT | {"positions": "rotary", "window": 2}, "local_rotary_base", (None, 1, 1.5)),
    Taken("scale", lambda v: na.MultiHeadAttention(4, 2, None, scale=v), (None, -1, 0, 0.0, 1.5, 1)),
    Taken("softcap", lambda v: na.MultiHeadAttention(4, 2, None, softcap=v), (None, 1, 1.5)),
    field(na.TextEncoderConfig, GPT, "temperature", (1, 1.5)),
    field(na.TextEncoderConfig, GPT, "norm_eps", (None,)),
    field(na.Seq2SeqConfig, SEQ2SEQ, "label_smoothing", (0, 0.0, 1)),
]
SIZES = [
    Taken("T_q", na.causal_mask, (0, 1)),
    Taken("T_k", lambda v: na.causal_mask(3, v), (None, 0, 1)),
    Taken("T_q", lambda v: na.sliding_window_mask(v, 1), (0, 1)),
    Taken("window", lambda v: na.sliding_window_mask(3, v), (1, 2**63)),
    Taken("window", lambda v: attend(na.tiled_attention, causal=True, window=v), (None, 1, 2**63)),
    Taken("ahead", lambda v: na.sliding_window_mask(3, 2, None, v), (0, 1, 2**63)),
    Taken("ahead", lambda v: attend(na.tiled_attention, ahead=v), (None, 0, 1, 2**63)),
    Taken("block_size", lambda v: attend(na.tiled_attention, block_size=v), (None, 1, 2**63)),
    Taken("block_size", lambda v: na.linear_cross_entropy(X, X, TARGETS, block_size=v), (1, 2**63)),
    Taken("T", lambda v: na.padding_mask([0], v), (0, 1)),
    Taken("num_heads", lambda v: na.split_heads(X, v), (1,)),
    Taken("axis", lambda v: na.softmax(X, v), (0, 1, -1)),
    Taken("ignore_index", lambda v: na.cross_entropy(X, TARGETS, v), (0, 1, -1, 2**63)),
    Taken("length", lambda v: na.sinusoidal_positions(v, 2), (0, 1)),
    Taken("d_model", lambda v: na.sinusoidal_positions(2, v), (1,)),
    Taken("num_heads", na.alibi_slopes, (1,)),
    Taken("T_q", lambda v: na.alibi_bias(2, v), (0, 1)),
    Taken("num_heads", lambda v: na.MultiHeadAttention(4, v, None), (1,)),
    Taken("num_kv_heads", lambda v: na.MultiHeadAttention(4, 2, None, v), (None, 1)),
    Taken("d_k", lambda v: na.MultiHeadAttention(4, 2, None, d_k=v), (None, 1)),
    Taken("d_out", lambda v: na.Linear(3, v, None), (1,)),
    Taken("vocab_size", lambda v: na.Embedding(v, 3, None), (1,)),
    Taken("d_ff", lambda v: na.FeedForward(3, v, None), (1,)),
    Taken("d_model", na.LayerNorm, (1,)),
    Taken("d_model", na.RMSNorm, (1,)),
    Taken("capacity", na.KeyValueCache, (0, 1, 2**63)),
    Taken("rank", lambda v: na.LowRank(X, v), (1,)),
    Taken("step", lambda v: na.warmup_cosine(v, 10, 3, 1.0), (0, 1, 2**63)),
    Taken("steps", lambda v: na.warmup_cosine(1, v, 3, 1.0), (1, 2**63)),
    Taken("warmup", lambda v: na.warmup_cosine(1, 10, v, 1.0), (0, 1, 2**63)),
    Taken("num_tokens", lambda v: write(num_tokens=v), (0, 1)),
    Taken("top_k", lambda v: write(top_k=v), (None, 1, 2**63)),
    Taken("beam_size", lambda v: TRANSLATOR.beam_search(IDS, 1, 2, beam_size=v), (1, 2**63)),
    Taken("max_tokens", lambda v: TRANSLATOR.greedy(IDS, 1, 2, v), (None, 1)),
    Taken("start_token", lambda v: TRANSLATOR.greedy(IDS, v, 2, 1), (0, 1)),
    Taken("stop_token", lambda v: TRANSLATOR.greedy(IDS, 1, v, 1), (0, 1, -1)),
    Taken("steps", resume, (0, 1)),
    *(field(na.GPTConfig, GPT, name, (1,)) for name in ("vocab_size", "context_length", "num_heads", "num_layers")),
    *(field(na.GPTConfig, GPT, name, (None, 1)) for name in ("d_ff", "num_kv_heads", "window")),
    field(na.Seq2SeqConfig, SEQ2SEQ, "num_decoder_layers", (None, 1)),
    field(na.Seq2SeqConfig, SEQ2SEQ, "pad_token", (None, 0, 1, -1)),
    field(na.TextEncoderConfig, GPT, "num_types", (1,)),
]
ODD = (
    None, "3", True, math.nan, math.inf, -math.inf, -1, 0, 0.0, 1, 1.5, 1j, np.ones(2), np.array(["a"]), [1],
    {}, np.float64("nan"), np.bool_(True),
)


def is_one_of(value: Any, values: tuple[Any, ...]) -> bool:
    return any(type(value) is type(one) and value == one for one in values)


@pytest.mark.parametrize("taken", NUMBERS, ids=[f"{taken.argument} {i}" for i, taken in enumerate(NUMBERS)])
def test_error_for_an_invalid_number_names_the_argument(taken: Taken) -> None:
    check_all(taken, (*ODD, 10**400))


@pytest.mark.parametrize("taken", SIZES, ids=[f"{taken.argument} {i}" for i, taken in enumerate(SIZES)])
def test_error_for_an_invalid_size_names_the_argument(taken: Taken) -> None:
    check_all(taken, (*ODD, 2.0, np.float32(1.0)))
    if 2**63 in taken.valid:
        taken.call(2**63)


def check_all(taken: Taken, values: tuple[Any, ...]) -> None:
    for value in values:
        if is_one_of(value, taken.valid):
            taken.call(value)
            continue
        with pytest.raises((TypeError, ValueError)) as failure:
            taken.call(value)
        message = str(failure.value)
        assert OURS.match(message), f"{value!r}: {message}"
        assert taken.argument in message, f"{value!r}: {message}"


@pytest.mark.parametrize("call", [
    lambda rng: na.dropout(X, 0.5, rng),
    lambda rng: attend(na.scaled_dot_product_attention, dropout=0.5, rng=rng),
    lambda rng: na.Linear(3, 3, rng),
    lambda rng: write(rng=rng),
], ids=["dropout", "attention", "a layer", "generation"])
def test_error_for_a_seed_shows_how_to_make_a_generator(call: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"rng must be a np.random.Generator or None, got 3; np.random.default_rng.3"):
        call(3)
