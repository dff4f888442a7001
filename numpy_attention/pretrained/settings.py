"""Chapter 34, continued. Settings: which GPT, or which encoder, a file holds

The settings of a file give the architecture and its sizes. They become a configuration of Part III. Many models since
2023 are llamas with small changes: a norm of queries and keys, a window in most layers, slower rotary angles. Some
values need parts that this book does not have: other positions, another activation, a softcap of the logits. All such
values are refused together, in one error.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from numpy_attention.errors import MAX_SAID, InputError, several, short_repr
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.models.text_encoder import TextEncoderConfig
from numpy_attention.ops.positions import TOKENS, rotary_frequencies
from numpy_attention.pretrained.gguf_files import Arrays

ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu": "gelu_exact", "relu": "relu", "silu": "silu"}
Config = TypeVar("Config")
MISSING: Any = object()
LARGEST = 2**24  # upper limit of every size of a model
LLAMA = {"positions": "rotary", "norm": "rms_norm", "activation": "swiglu", "bias": False}
GEMMA = {"activation": "geglu", "qk_norm": "head", "branch_norm": True, "embedding_scale": True}
DESCENDANTS: dict[str, dict[str, Any]] = {  # what each model does differently from a llama
    "llama": {}, "qwen2": {"qkv_bias": True}, "qwen3": {"qk_norm": "head"}, "smollm3": {},
    "olmo2": {"qk_norm": "all", "pre_norm": False, "branch_norm": True}, "gemma3_text": GEMMA, "gemma3": GEMMA,
}
DEFAULTS: dict[str, dict[str, Any]] = {  # of settings that are missing in a folder, as in `transformers`
    "qwen2": {"sliding_window": 4096, "max_window_layers": 28},
    "qwen3": {"sliding_window": 4096, "max_window_layers": 28, "head_dim": 128},
    "smollm3": {"rope_theta": 2e6, "tie_word_embeddings": True, "no_rope_layer_interval": 4},
    "olmo2": {"rms_norm_eps": 1e-5},
    "gemma3_text": {
        "head_dim": 256, "query_pre_attn_scalar": 256, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        "sliding_window": 4096, "sliding_window_pattern": 6, "tie_word_embeddings": True,
    },
}


class Settings:
    """The settings of a file. They are read one after the other, and all errors are reported together at the end."""

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where, self.values = where, values
        self.prefix = ""  # of all names
        self.wrong: list[str] = []
        self.guessed = False  # True if a size is wrong and was replaced by 1

    def number(self, name: str, default: Any = MISSING, kind: type[int | float] = int) -> Any:
        """An integer or float above 0; `default` if the setting is missing, 1 if it is wrong."""
        value = self.values.get(self.prefix + name)
        value = default if value is None else value
        if value is None or (type(value) in (int, kind) and 0 < value <= (LARGEST if kind is int else 1e12)):
            return value
        self.wrong.append(f"{self.prefix}{name} is {'missing' if value is MISSING else short_repr(value)}")
        self.guessed = True
        return 1

    def only(self, name: str, *allowed: Any) -> Any:
        """A value that must be in `allowed`; the first of `allowed` if the setting is missing or wrong."""
        value = self.values.get(self.prefix + name)
        if value is None or any(type(value) is type(one) and value == one for one in allowed):
            return allowed[0] if value is None else value
        self.wrong.append(f"{self.prefix}{name} is {short_repr(value)}, supported is {' or '.join(map(repr, allowed))}")
        return allowed[0]

    def config(self, kind: type[Config], **fields: Any) -> Config:
        """The configuration.

        Raises: InputError with all errors in the settings, if they give no valid configuration.
        """
        try:
            return kind(**fields)
        except (TypeError, ValueError) as error:
            if not self.guessed:
                self.wrong.append(str(error))
        raise self.error()

    def error(self) -> InputError:
        """One error line for all problems, with space for six or more of them; the caller raises it."""
        return InputError(f"{self.where} cannot be loaded: {several(self.wrong, 2 * MAX_SAID)}")


def decoder_gguf(s: Settings, arrays: Arrays) -> GPTConfig:
    """A llama in a GGUF file, or one of its descendants. The numbers 4, 6 and 62 are in llama.cpp, not in the file."""
    kind = str(s.values.get("general.architecture"))
    s.prefix, gemma = f"{kind}.", kind == "gemma3"
    d_model, num_heads, num_layers = map(s.number, ("embedding_length", "attention.head_count", "block_count"))
    d_k = s.number("attention.key_length", None)
    width = d_model // num_heads if d_k is None else d_k
    for name in ("rope.dimension_count", "attention.value_length"):
        s.only(name, width)
    s.only("expert_count", 0)
    s.only("attention.causal", True)
    for name in ("attn_logit_softcapping", "final_logit_softcapping", "attention.scale"):
        s.only(name, None)
    window = s.number("attention.sliding_window", None) if gemma else s.only("attention.sliding_window", None)
    base = float(s.number("rope.freq_base", 1e4, float))
    return _decoder(
        s, kind, vocab_size=_tokens(s), context_length=s.number("context_length"), d_model=d_model, num_heads=num_heads,
        num_layers=num_layers, d_ff=s.number("feed_forward_length"), d_k=d_k,
        num_kv_heads=s.number("attention.head_count_kv", num_heads), tie_weights="output.weight" not in arrays,
        rotary_base=base, rotary_scaling=_gguf_scaling(s, arrays, width, base),
        norm_eps=float(s.number("attention.layer_norm_rms_epsilon", 1e-6, float)),
        window=window, global_every=s.number("attention.sliding_window_pattern", 6) if window else None,
        local_rotary_base=float(s.number("rope.freq_base_swa", 1e4, float)) if window else None,
        nope_every=4 if kind == "smollm3" else None,
        attention_scale=(d_model // num_heads) ** -0.5 if gemma and num_layers == 62 else None,  # Gemma 3 27B
    )


def gpt2_gguf(s: Settings, arrays: Arrays) -> GPTConfig:
    """A GPT-2 in a GGUF file."""
    s.prefix = "gpt2."
    return s.config(
        GPTConfig, vocab_size=_tokens(s), context_length=s.number("context_length"),
        d_model=s.number("embedding_length"), num_heads=s.number("attention.head_count"),
        num_layers=s.number("block_count"), d_ff=s.number("feed_forward_length"),
        tie_weights="output.weight" not in arrays,
        norm_eps=float(s.number("attention.layer_norm_epsilon", 1e-5, float)),
    )


def decoder_folder(s: Settings, arrays: Arrays) -> GPTConfig:
    """A llama in a folder, or one of its descendants."""
    kind = str(s.values.get("model_type"))
    s.values = DEFAULTS.get(kind, {}) | dict(s.values)
    gemma = kind == "gemma3_text"
    d_model, num_heads, num_layers = map(s.number, ("hidden_size", "num_attention_heads", "num_hidden_layers"))
    s.only("hidden_activation" if gemma else "hidden_act", "gelu_pytorch_tanh" if gemma else "silu")
    for name in ("mlp_bias", "attention_bias", "use_bidirectional_attention"):
        s.only(name, False)
    for name in ("attn_logit_softcapping", "final_logit_softcapping", TOKENS):
        s.only(name, None)
    d_k, context_length = s.number("head_dim", None), s.number("max_position_embeddings")
    scalar = s.number("query_pre_attn_scalar", kind=float) if gemma else d_k
    nope_every = s.number("no_rope_layer_interval") if kind == "smollm3" else None
    return _decoder(
        s, kind, vocab_size=s.number("vocab_size"), context_length=context_length, d_model=d_model,
        num_heads=num_heads, num_layers=num_layers, d_ff=s.number("intermediate_size"), d_k=d_k,
        num_kv_heads=s.number("num_key_value_heads", num_heads), tie_weights=s.only("tie_word_embeddings", False, True),
        norm_eps=float(s.number("rms_norm_eps", 1e-6, float)), attention_scale=None if scalar == d_k else scalar**-0.5,
        nope_every=nope_every and _every(s, "no_rope_layers", num_layers, 1, 0, nope_every),
        **_windows(s, kind, num_layers), **_rotary(s, context_length, gemma),
    )


def gpt2_folder(s: Settings, arrays: Arrays) -> GPTConfig:
    """A GPT-2 in a folder."""
    s.only("scale_attn_by_inverse_layer_idx", False)
    s.only("scale_attn_weights", True)
    s.only("add_cross_attention", False)
    return s.config(
        GPTConfig, vocab_size=s.number("vocab_size"), context_length=s.number("n_positions"),
        d_model=s.number("n_embd"), num_heads=s.number("n_head"), num_layers=s.number("n_layer"),
        d_ff=s.number("n_inner", None), activation=ACTIVATIONS[s.only("activation_function", *ACTIVATIONS)],
        tie_weights=s.only("tie_word_embeddings", True, False),
        norm_eps=float(s.number("layer_norm_epsilon", 1e-5, float)),
    )


def bert(s: Settings, arrays: Arrays) -> TextEncoderConfig:
    """A BERT in a folder."""
    s.only("position_embedding_type", "absolute")
    s.only("is_decoder", False)
    pad = s.values.get("pad_token_id", 0)
    if not (pad is None or (type(pad) is int and 0 <= pad <= LARGEST)):
        s.wrong.append(f"pad_token_id is {short_repr(pad)}")
    return s.config(
        TextEncoderConfig, vocab_size=s.number("vocab_size"), context_length=s.number("max_position_embeddings"),
        d_model=s.number("hidden_size"), num_heads=s.number("num_attention_heads"),
        num_layers=s.number("num_hidden_layers"), d_ff=s.number("intermediate_size"),
        num_types=s.number("type_vocab_size", 2), pad_token=pad,
        activation=ACTIVATIONS[s.only("hidden_act", "gelu", *ACTIVATIONS)],
        norm_eps=float(s.number("layer_norm_eps", 1e-12, float)),
    )


def _tokens(s: Settings) -> int:
    tokens = s.values.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and tokens:
        return len(tokens)
    s.wrong.append(f"tokenizer.ggml.tokens is {'missing' if tokens is None else 'not a list of texts'}")
    s.guessed = True
    return 1


def _decoder(s: Settings, kind: str, **fields: Any) -> GPTConfig:
    if fields["global_every"] == 1 or fields["window"] is None:  # every layer sees everything
        fields |= {"window": None, "global_every": None, "local_rotary_base": None}
    return s.config(GPTConfig, **{**LLAMA, **DESCENDANTS[kind], **fields})


def _windows(s: Settings, kind: str, num_layers: int) -> dict[str, int | None]:
    """The sliding window, and the n for which each n-th layer has none."""
    if kind == "gemma3_text":
        window, n = s.number("sliding_window"), s.number("sliding_window_pattern")
    elif s.only("use_sliding_window", False, *[True] * kind.startswith("qwen")):
        window, first = s.number("sliding_window"), s.values["max_window_layers"]  # the layers before it have no window
        n = 1 if type(first) is int and first >= num_layers else s.only("max_window_layers", 0) or None
    else:
        window, n = None, 1
    with_window = "full_attention" if window is None else "sliding_attention"
    return {"window": window, "global_every": _every(s, "layer_types", num_layers, with_window, "full_attention", n)}


def _every(s: Settings, name: str, num_layers: int, usual: Any, special: Any, default: int | None) -> int | None:
    """The n for which a list has `special` for each n-th layer and `usual` for all others; None without any `special`;
    `default` without a list."""
    found = s.values.get(name)
    if found is None:
        return default
    layers = found[:num_layers] if isinstance(found, list) else []
    n = layers.index(special) + 1 if special in layers else None
    if len(layers) == num_layers and layers == [usual if not n or (i + 1) % n else special for i in range(num_layers)]:
        return n
    s.wrong.append(f"{name} must hold {special!r} for each n-th layer and {usual!r} for all others")
    return None


def _rotary(s: Settings, context_length: int, gemma: bool) -> dict[str, Any]:
    """The base of the rotary angles and their scaling, which can be in one of several places. In a Gemma 3, the layers
    with a window have another base."""
    rope = s.values.get("rope_scaling") or s.values.get("rope_parameters") or {}
    both = rope if gemma and isinstance(rope, Mapping) and "full_attention" in rope else {"full_attention": rope}
    base, scaling = _angles(s, both["full_attention"], "rope_theta", context_length)
    if not gemma:
        return {"rotary_base": base, "rotary_scaling": scaling}
    local, of_local = _angles(s, both.get("sliding_attention", {}), "rope_local_base_freq", context_length)
    if of_local is not None:
        s.wrong.append("its layers with a window have rope scaling, which is not supported")
    return {"rotary_base": base, "rotary_scaling": scaling, "local_rotary_base": local}


def _angles(s: Settings, rope: Any, usual: str, context_length: int) -> tuple[float, dict[str, Any] | None]:
    """The base of the rotary angles, by default the setting with the name `usual`; and their scaling."""
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, Mapping) else rope
    if not isinstance(rope, Mapping) or kind not in ("default", "linear", "llama3", "yarn"):
        s.wrong.append(f"its rope scaling is {short_repr(kind)}, which is not supported")
        return 1.0, None
    one = Settings(s.where, rope)
    one.wrong = s.wrong
    for settings in (s, one):
        settings.only("partial_rotary_factor", 1.0)
    base = float(one.number("rope_theta", kind=float) if "rope_theta" in rope else s.number(usual, 1e4, float))
    no_numbers = ("rope_type", "type", "rope_theta", "partial_rotary_factor")
    scaling = {"type": kind} | ({} if kind == "linear" else {TOKENS: context_length})
    scaling |= {name: value for name, value in rope.items() if name not in no_numbers and value is not None}
    return base, None if kind == "default" else scaling


def _gguf_scaling(s: Settings, arrays: Arrays, width: int, base: float) -> dict[str, Any] | None:
    """The scaling of the rotary angles in a GGUF file. For Llama 3, the file holds f_i / f_i' (Chapter 8) in a tensor,
    computed with the numbers below. So only these numbers are accepted."""
    s.only("rope.scale_linear", 1.0)
    s.only("rope.scaling.attn_factor", 1.0)
    kind, factor = s.only("rope.scaling.type", "linear", "none"), s.number("rope.scaling.factor", 1.0, float)
    linear = {"type": "linear", "factor": factor} if kind == "linear" and factor != 1 else None
    if "rope_freqs.weight" not in arrays:
        return linear
    shape, _, read = arrays["rope_freqs.weight"]
    found = read() if shape == (width / 2,) else np.zeros(1)
    llama3 = {"type": "llama3", "factor": float(found.max()), "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    llama3[TOKENS] = 8192
    if linear is None and 1 <= found.max() < np.inf:
        expected = rotary_frequencies(width, base) / rotary_frequencies(width, base, llama3)
        if np.allclose(found, expected, rtol=1e-4):
            return llama3
    s.wrong.append("rope_freqs.weight does not hold the rope scaling of Llama 3, and no other is supported")
    return None
