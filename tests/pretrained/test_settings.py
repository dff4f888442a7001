"""Chapter 34, continued: settings become configurations, and an error names a setting that is not supported."""

import dataclasses

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.errors import InputError
from numpy_attention.files import StoredArray
from numpy_attention.pretrained.c34a_settings import FOLDERS, GGUF, Settings, configuration
from tests.pretrained import tiny

LLAMA_GGUF = {
    "general.architecture": "llama", "llama.embedding_length": 24, "llama.attention.head_count": 6,
    "llama.attention.head_count_kv": 2, "llama.block_count": 2, "llama.feed_forward_length": 40,
    "llama.context_length": 37, "llama.rope.freq_base": 500.0, "llama.attention.layer_norm_rms_epsilon": 1e-3,
    "llama.rope.dimension_count": 4, "tokenizer.ggml.tokens": ["a", "b", "c"],
}  # fmt: skip
GPT2_GGUF = {
    "gpt2.embedding_length": 20, "gpt2.attention.head_count": 5, "gpt2.block_count": 3, "gpt2.feed_forward_length": 80,
    "gpt2.context_length": 17, "gpt2.attention.layer_norm_epsilon": 1e-4, "tokenizer.ggml.tokens": ["a", "b", "c"],
}  # fmt: skip
GEMMA_GGUF = {key.replace("llama.", "gemma3."): value for key, value in LLAMA_GGUF.items() if "dim" not in key} | {
    "general.architecture": "gemma3", "gemma3.attention.key_length": 8, "gemma3.attention.sliding_window": 3,
}  # fmt: skip
VALUES = {
    "llama": tiny.LLAMA, "qwen2": tiny.QWEN2_WINDOW, "qwen3": tiny.QWEN3, "smollm3": tiny.SMOLLM3, "olmo2": tiny.OLMO2,
    "mixtral": tiny.MIXTRAL, "qwen3_moe": tiny.QWEN3_MOE_RAW, "gemma3_text": tiny.GEMMA3, "nested": tiny.GEMMA3_NESTED,
    "gpt2": tiny.GPT2, "bert": tiny.BERT,
    "llama gguf": LLAMA_GGUF, "gemma3 gguf": GEMMA_GGUF, "gpt2 gguf": GPT2_GGUF,
}  # fmt: skip


def configured(name, values=None, arrays=None):
    values = VALUES[name] if values is None else values
    kind, gguf = name.removesuffix(" gguf"), name.endswith(" gguf")
    kind = (GGUF if gguf else FOLDERS)[values.get("model_type", kind)]
    return configuration(kind, Settings(values, f"{name.removesuffix(' gguf')}." if gguf else ""), arrays or {})


def complaint(name, values, arrays=None):
    with pytest.raises(InputError) as caught:
        configured(name, values, arrays)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_llama_becomes_a_gpt_config():
    expected = na.RecentGPTConfig(
        tiny.V, 37, 24, 6, 2, d_ff=40, num_kv_heads=2, positions="rotary", norm="rms_norm", activation="swiglu",
        bias=False, tie_weights=False, rotary_base=500.0, norm_eps=1e-3,
    )  # fmt: skip
    assert configured("llama") == expected
    qwen2 = dataclasses.replace(expected, qkv_bias=True, norm_eps=1e-6)
    assert configured("qwen2", tiny.QWEN2) == qwen2
    assert configured("qwen2") == dataclasses.replace(qwen2, window=3)
    as_gguf = dataclasses.replace(expected, vocab_size=3, tie_weights=True)
    assert configured("llama gguf") == as_gguf
    untied = dataclasses.replace(as_gguf, tie_weights=False)
    assert configured("llama gguf", arrays={"output.weight": None}) == untied


def test_the_descendants_of_llama_become_gpt_configs():
    llama = configured("llama")
    olmo2 = dataclasses.replace(llama, qk_norm="all", pre_norm=False, branch_norm=True)
    assert configured("olmo2") == olmo2
    assert configured("qwen3") == dataclasses.replace(llama, qk_norm="head", d_k=8)
    smollm3 = dataclasses.replace(llama, num_layers=5, tie_weights=True, nope_every=4)
    assert configured("smollm3") == smollm3
    gemma3 = dataclasses.replace(
        llama, num_layers=4, d_k=8, tie_weights=True, activation="geglu", qk_norm="head", branch_norm=True,
        embedding_scale=True, attention_scale=13**-0.5, window=3, global_every=3, rotary_base=1000.0,
        local_rotary_base=100.0, rotary_scaling={"type": "linear", "factor": 8.0},
    )  # fmt: skip
    assert configured("gemma3_text") == gemma3
    nested = dataclasses.replace(gemma3, tie_weights=False, global_every=2, rotary_scaling=None)
    assert configured("nested") == nested
    as_gguf = dataclasses.replace(
        gemma3, vocab_size=3, num_layers=2, attention_scale=None, global_every=6, rotary_base=500.0,
        local_rotary_base=1e4, rotary_scaling=None,
    )  # fmt: skip
    assert configured("gemma3 gguf") == as_gguf
    everywhere = dataclasses.replace(as_gguf, window=None, global_every=None, local_rotary_base=None)
    assert configured("gemma3 gguf", GEMMA_GGUF | {"gemma3.attention.sliding_window": None}) == everywhere
    assert configured("gemma3 gguf", GEMMA_GGUF | {"gemma3.attention.sliding_window_pattern": 1}) == everywhere


def test_models_with_experts_become_experts_gpt_configs():
    of_llama = dataclasses.asdict(configured("llama"))
    mixtral = na.ExpertsGPTConfig(**of_llama | {"d_ff": 14, "num_experts": 5, "top_k": 2, "balance": 0.03})
    assert configured("mixtral") == mixtral
    raw = dataclasses.replace(mixtral, d_k=8, qk_norm="head", renormalize=False, window=3)
    assert configured("qwen3_moe") == raw
    renormalized = dataclasses.replace(raw, renormalize=True, window=None)
    assert configured("qwen3_moe", tiny.QWEN3_MOE) == renormalized
    assert configured("mixtral", tiny.MIXTRAL | {"router_aux_loss_coef": 0}).balance == 0


FULL, NEAR = "full_attention", "sliding_attention"


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("qwen2", {"max_window_layers": 2}, (None, None)), ("qwen2", {"max_window_layers": 1}, None),
        ("qwen2", {"max_window_layers": None, "layer_types": [NEAR, FULL]}, (3, 2)),
        ("qwen2", {"use_sliding_window": False, "layer_types": [NEAR, FULL]}, None),
        ("mixtral", {"sliding_window": 3}, (3, None)), ("qwen3_moe", {"use_sliding_window": None}, (None, None)),
        ("gemma3_text", {"layer_types": [NEAR] * 4}, (3, None)), ("nested", {"layer_types": None}, (3, 6)),
    ],
    ids=str,
)  # fmt: skip
def test_windows_are_read_from_each_of_their_places_or_refused(name, change, expected):
    values = {key: value for key, value in (VALUES[name] | change).items() if value is not None}
    if expected is None:
        assert next(iter(reversed(change))) in complaint(name, values)
    else:
        config = configured(name, values)
        assert (config.window, config.global_every) == expected


def test_missing_settings_get_the_defaults_of_transformers():
    sizes = {
        "vocab_size": 11, "hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 7,
        "max_position_embeddings": 5,
    }  # fmt: skip

    def found(kind, *names, **more):
        config = configured(kind, sizes | {"model_type": kind} | more)
        return tuple(getattr(config, name) for name in names)

    names = ("d_k", "tie_weights", "rotary_base", "norm_eps")
    assert found("llama", *names) == (None, False, 1e4, 1e-6)
    assert found("qwen3", *names) == (128, False, 1e4, 1e-6)
    assert found("olmo2", *names) == (None, False, 1e4, 1e-5)
    assert found("smollm3", *names, "nope_every") == (None, True, 2e6, 1e-6, 4)
    assert found("gemma3_text", *names) == (256, True, 1e6, 1e-6)
    experts = {"num_experts": 9, "moe_intermediate_size": 5}
    of_experts = ("top_k", "balance", "renormalize", "window")
    assert found("mixtral", *names, *of_experts, num_local_experts=9) == (None, False, 1e6, 1e-5, 2, 0.001, True, None)
    assert found("qwen3_moe", *names, *of_experts, **experts) == (None, False, 1e4, 1e-6, 8, 0.001, False, None)
    assert found("qwen3_moe", "window", "global_every", use_sliding_window=True, **experts) == (4096, None)
    layers = ("window", "global_every", "local_rotary_base", "attention_scale")
    assert found("gemma3_text", *layers) == (4096, 6, 1e4, None)
    assert found("gemma3_text", "attention_scale", head_dim=64) == (256**-0.5,)
    on = {"use_sliding_window": True}
    for kind in ("qwen2", "qwen3"):
        assert found(kind, "window", "global_every", **on) == (None, None)  # the first 28 layers have no window
        assert found(kind, "window", "global_every", **on, max_window_layers=0) == (4096, None)


TURNS = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("rope", "expected"),
    [
        ({"rope_type": "linear", "factor": 2.0}, {"factor": 2.0}), ({"type": "linear", "factor": 3}, {"factor": 3}),
        ({"rope_type": "llama3", "original_max_position_embeddings": 8, **TURNS},
         {"original_max_position_embeddings": 8, **TURNS}),
        ({"rope_type": "llama3", **TURNS}, {"original_max_position_embeddings": 37, **TURNS}),
        ({"type": "yarn", "rope_type": "linear", "factor": 2.0}, {"factor": 2.0}),
        ({"type": "yarn", "factor": 4.0, "beta_fast": 16, "mscale": None},
         {"factor": 4.0, "beta_fast": 16, "original_max_position_embeddings": 37}),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("place", ["rope_parameters", "rope_scaling"])
def test_rope_scaling_becomes_rotary_scaling(rope, place, expected):
    config = configured("llama", tiny.LLAMA | {place: rope})
    kind = rope.get("rope_type", rope.get("type"))
    assert (config.rotary_scaling, config.rotary_base) == ({"type": kind, **expected}, 500.0)


def test_the_tensor_of_a_gguf_file_gives_the_scaling_of_llama_3():
    values = LLAMA_GGUF | {"llama.rope.freq_base": 5e5, "llama.attention.key_length": 8}
    del values["llama.rope.dimension_count"]
    factors = tiny.llama3_factors(8, 5e5)

    def stored(array):
        return {"rope_freqs.weight": StoredArray(array.shape, "F32", lambda: array)}

    assert configured("llama gguf", values, stored(factors)).rotary_scaling == tiny.OF_LLAMA3 | {"type": "llama3"}
    shapes = factors[:-1], factors[None], np.ones(0)
    for wrong in (factors * 0.99, factors[::-1], factors * np.nan, factors - 1, *shapes):
        message = complaint("llama gguf", values, stored(wrong))
        assert "rope_freqs.weight does not hold the rope scaling of Llama 3" in message
    twice = values | {"llama.rope.scaling.factor": 2.0}
    assert "rope_freqs.weight does not" in complaint("llama gguf", twice, stored(factors))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("llama", {"rope_scaling": {"type": "longrope", "factor": 2.0}}, "its rope scaling is 'longrope'"),
        ("llama", {"rope_scaling": {"rope_type": "linear"}}, "factor"),
        ("llama", {"layer_types": ["sliding_attention"] * 2}, "layer_types must hold 'full_attention'"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5, supported is 1.0"),
        ("llama", {"hidden_size": 25}, "d_model must be divisible by num_heads, got 25 and 6"),
        ("llama", {"hidden_size": "24"}, "hidden_size is '24'"),
        ("llama gguf", {"llama.attention.sliding_window": 3}, "llama.attention.sliding_window is 3"),
        ("qwen2", {"sliding_window": None}, "sliding_window is missing"),
        ("mixtral", {"router_jitter_noise": 0.1}, "router_jitter_noise is 0.1, supported is 0.0"),
        ("mixtral", {"num_local_experts": None}, "num_local_experts is missing"),
        ("mixtral", {"num_experts_per_tok": 6}, "top_k must be in [1, 5], got 6"),
        ("mixtral", {"router_aux_loss_coef": -1.0}, "balance must be at least 0 and finite, got -1.0"),
        ("qwen3_moe", {"mlp_only_layers": [0]}, "mlp_only_layers is a list, supported is []"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step is 2, supported is 1"),
        ("qwen3_moe", {"attention_bias": True}, "attention_bias is True, supported is False"),
        ("gemma3_text", {"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0, supported is None"),
        ("nested", {"rope_parameters": {"full_attention": {}, "sliding_attention": {"type": "linear", "factor": 2.0}}},
         "its layers with a window have rope scaling"),
        ("gpt2", {"activation_function": "swish"}, "activation_function is 'swish', supported is 'gelu_new' or "),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
    ],
)  # fmt: skip
def test_error_names_each_unsupported_setting(name, change, message):
    assert message in complaint(name, VALUES[name] | change)
