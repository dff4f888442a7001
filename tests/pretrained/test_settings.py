"""Chapter 34, continued: settings become configurations, and one error names all settings that are not supported."""

import dataclasses
import math

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.errors import InputError, short_repr
from numpy_attention.pretrained.settings import (
    Settings,
    bert_folder,
    gpt2_folder,
    gpt2_gguf,
    llama_folder,
    llama_gguf,
)
from tests.pretrained import tiny

LLAMA_GGUF = {
    "llama.embedding_length": 24, "llama.attention.head_count": 6, "llama.attention.head_count_kv": 2,
    "llama.block_count": 2, "llama.feed_forward_length": 40, "llama.context_length": 37,
    "llama.rope.freq_base": 500.0, "llama.attention.layer_norm_rms_epsilon": 1e-3, "llama.rope.dimension_count": 4,
    "tokenizer.ggml.tokens": ["a", "b", "c"],
}  # fmt: skip
GPT2_GGUF = {
    "gpt2.embedding_length": 20, "gpt2.attention.head_count": 5, "gpt2.block_count": 3, "gpt2.feed_forward_length": 80,
    "gpt2.context_length": 17, "gpt2.attention.layer_norm_epsilon": 1e-4, "tokenizer.ggml.tokens": ["a", "b", "c"],
}  # fmt: skip
CONFIG = {
    "llama": (llama_folder, tiny.LLAMA), "qwen2": (llama_folder, tiny.QWEN2), "gpt2": (gpt2_folder, tiny.GPT2),
    "bert": (bert_folder, tiny.BERT), "llama gguf": (llama_gguf, LLAMA_GGUF), "gpt2 gguf": (gpt2_gguf, GPT2_GGUF),
}  # fmt: skip
SIZES = [(name, key) for name, (_, values) in CONFIG.items() for key, value in values.items() if type(value) is int]
SIZES = [(name, key) for name, key in SIZES if key not in ("llama.rope.dimension_count", "pad_token_id")]


def configured(name, values=None, tensors=()):
    configure, usual = CONFIG[name]
    s = Settings("model", usual if values is None else values)
    return configure(s, tensors), s


def complaints(name, values):
    """The error message for these settings, or "" without errors; a size that was replaced by 1 must give an error."""
    try:
        _, s = configured(name, values)
    except InputError as error:
        return str(error)
    assert s.wrong or not s.guessed
    return str(s.error()) if s.wrong else ""


def test_a_llama_becomes_a_gpt_config():
    expected = na.GPTConfig(
        tiny.V, 37, 24, 6, 2, d_ff=40, num_kv_heads=2, positions="rotary", norm="rms_norm", activation="swiglu",
        bias=False, qkv_bias=False, tie_weights=False, rotary_base=500.0, norm_eps=1e-3,
    )  # fmt: skip
    config, s = configured("llama")
    assert (config, s.wrong, s.guessed) == (expected, [], False)
    qwen2 = dataclasses.replace(expected, qkv_bias=True, norm_eps=1e-6)
    assert configured("qwen2")[0] == qwen2
    as_gguf = dataclasses.replace(expected, vocab_size=3, qkv_bias=None, tie_weights=True)
    assert configured("llama gguf")[0] == as_gguf
    untied = dataclasses.replace(as_gguf, tie_weights=False)
    assert configured("llama gguf", tensors={"output.weight"})[0] == untied


def test_a_gpt2_becomes_a_gpt_config():
    expected = na.GPTConfig(tiny.V, 17, 20, 5, 3, d_ff=28, norm_eps=1e-4)
    assert configured("gpt2")[0] == expected
    assert configured("gpt2", tiny.GPT2 | {"n_inner": None, "activation_function": "relu"})[0] == dataclasses.replace(
        expected, d_ff=None, activation="relu"
    )
    untied = configured("gpt2", tiny.GPT2 | {"tie_word_embeddings": False})[0]
    assert untied == dataclasses.replace(expected, tie_weights=False)
    assert configured("gpt2 gguf")[0] == na.GPTConfig(3, 17, 20, 5, 3, d_ff=80, norm_eps=1e-4)


def test_a_bert_becomes_a_text_encoder_config():
    config, s = configured("bert")
    assert config == na.TextEncoderConfig(len(tiny.WORDS), 15, 18, 3, 2, d_ff=26, pad_token=0, norm_eps=1e-6)
    assert s.wrong == []


def test_missing_settings_get_the_defaults_of_the_original_program():
    few = {k: v for k, v in tiny.LLAMA.items() if k not in ("rms_norm_eps", "rope_theta", "num_key_value_heads")}
    config, _ = configured("llama", few | {"tie_word_embeddings": None})
    assert (config.norm_eps, config.rotary_base, config.num_kv_heads, config.tie_weights) == (1e-6, 1e4, 6, False)
    few = {k: v for k, v in tiny.GPT2.items() if k not in ("layer_norm_epsilon", "activation_function")}
    config, _ = configured("gpt2", few)
    assert (config.norm_eps, config.activation, config.tie_weights) == (1e-5, "gelu", True)


@pytest.mark.parametrize("place", ["rope_theta", "rope_parameters", "rope_scaling"])
def test_rotary_base_is_found_in_each_of_its_places(place):
    values = {k: v for k, v in tiny.LLAMA.items() if k != "rope_theta"}
    value = 7e6 if place == "rope_theta" else {"rope_type": "default", "rope_theta": 7e6}
    config, s = configured("llama", values | {place: value})
    assert (config.rotary_base, s.wrong) == (7e6, [])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "its rope scaling is 'linear'"),
        ("llama", {"rope_scaling": {"rope_type": "yarn"}}, "its rope scaling is 'yarn'"),
        ("llama", {"rope_parameters": {"rope_type": ["x"]}}, "its rope scaling is a list"),
        ("llama", {"rope_scaling": "linear"}, "its rope scaling is 'linear'"),
        ("llama", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ("llama", {"mlp_bias": True}, "mlp_bias is True, supported is False"),
        ("llama", {"attention_bias": True}, "attention_bias is True, supported is False"),
        ("llama", {"head_dim": 8}, "head_dim is 8, supported is 4"),
        ("llama", {"tie_word_embeddings": 1}, "tie_word_embeddings is 1, supported is False or True"),
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window is True"),
        ("gpt2", {"activation_function": "swish"}, "activation_function is 'swish', supported is 'gelu_new' or "),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights is False"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention is True"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ("bert", {"is_decoder": True}, "is_decoder is True"),
        ("bert", {"pad_token_id": "0"}, "pad_token_id is '0'"),
        ("bert", {"pad_token_id": -1}, "pad_token_id is -1"),
        ("llama gguf", {"llama.rope.scaling.type": "yarn"}, "llama.rope.scaling.type is 'yarn', supported is 'none'"),
        ("llama gguf", {"llama.rope.scaling.factor": 4.0}, "llama.rope.scaling.factor is 4.0"),
        ("llama gguf", {"llama.rope.scale_linear": 2.0}, "llama.rope.scale_linear is 2.0"),
        ("llama gguf", {"llama.expert_count": 8}, "llama.expert_count is 8, supported is 0"),
        ("llama gguf", {"llama.attention.key_length": 6}, "llama.attention.key_length is 6, supported is 4"),
        ("llama gguf", {"tokenizer.ggml.tokens": 7}, "tokenizer.ggml.tokens is not a list of texts"),
        ("llama gguf", {"tokenizer.ggml.tokens": np.ones(3)}, "tokenizer.ggml.tokens is not a list of texts"),
        ("gpt2 gguf", {"tokenizer.ggml.tokens": None}, "tokenizer.ggml.tokens is missing"),
        ("llama", {"hidden_size": 25}, "d_model must be divisible by num_heads, got 25 and 6"),
        ("llama", {"num_key_value_heads": 4}, "num_heads must be a multiple of num_kv_heads"),
        ("llama", {"rms_norm_eps": 2.0}, "norm_eps must be in (0, 1), got 2.0"),
    ],
)  # fmt: skip
def test_error_names_each_unsupported_setting(name, change, message):
    text = complaints(name, CONFIG[name][1] | change)
    assert message in text
    assert "\n" not in text


def test_a_wrong_size_becomes_1_so_that_all_settings_are_checked():
    s = Settings("model", {"heads": "x"})
    assert [s.number("heads"), s.number("layers"), s.number("width", 7)] == [1, 1, 7]
    assert (s.wrong, s.guessed) == (["heads is 'x'", "layers is missing"], True)


STRANGE = (0, -3, 2.5, "24", True, [24], {"a": 1}, np.ones(2), math.nan, math.inf, 10**9, 10**30, "9" * 500)


@pytest.mark.parametrize(("name", "key"), SIZES)
def test_error_names_a_wrong_size(name, key):
    for value in STRANGE:
        message = complaints(name, CONFIG[name][1] | {key: value})
        assert f"{key} is {short_repr(value)}" in message
        assert len(message) < 300


@pytest.mark.parametrize(("name", "key"), SIZES)
def test_error_names_a_missing_size_unless_it_has_a_default(name, key):
    defaults = {"num_key_value_heads", "n_inner", "type_vocab_size", "llama.attention.head_count_kv"}
    message = complaints(name, {other: value for other, value in CONFIG[name][1].items() if other != key})
    assert (f"{key} is missing" in message) == (key not in defaults)
    assert bool(message) == (key not in defaults)


@pytest.mark.parametrize(
    ("name", "key"),
    [("llama", "rms_norm_eps"), ("llama", "rope_theta"), ("gpt2", "layer_norm_epsilon"), ("bert", "layer_norm_eps"),
     ("llama gguf", "llama.rope.freq_base"), ("gpt2 gguf", "gpt2.attention.layer_norm_epsilon")],
)  # fmt: skip
def test_error_names_a_wrong_float(name, key):
    for value in (0.0, -1.0, "1e-5", True, [1e-5], math.nan, math.inf, 1e300, 10**400):
        assert f"{key} is {short_repr(value)}" in complaints(name, CONFIG[name][1] | {key: value})


def test_one_error_lists_all_problems_but_not_their_consequences():
    """A missing number of heads is replaced by 1, and this replacement causes no further errors."""
    changes = {"hidden_size": "x", "num_attention_heads": None, "hidden_act": "relu", "mlp_bias": 1, "vocab_size": -1}
    parts = complaints("llama", tiny.LLAMA | changes).split(": ", 1)[1].split("; ")
    assert parts == [
        "hidden_size is 'x'", "num_attention_heads is missing", "hidden_act is 'relu', supported is 'silu'",
        "mlp_bias is 1, supported is False", "vocab_size is -1",
    ]  # fmt: skip
