"""Chapter 34, continued. Settings: which GPT, or which encoder, a file holds

The settings of a file give the architecture and its sizes. They become a configuration of Part III. Every program has
its own names for the sizes, and tables translate them, as for the parameters:

    ours             GGUF                        Hugging Face
    d_model          llama.embedding_length      hidden_size
    num_layers       llama.block_count           num_hidden_layers

Many models since 2023 are llamas with small changes: a norm of queries and keys, a window in most layers, slower rotary
angles. Some values need parts that this book does not have: other positions, another activation, a softcap of the
logits. The first such value is refused.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.beyond.c54_experts_gpt import ExpertsGPT
from numpy_attention.errors import InputError, short_repr
from numpy_attention.models.c21c_model import Model
from numpy_attention.models.c22a_text_encoder import TextEncoder
from numpy_attention.models.c23_gpt import GPT
from numpy_attention.pretrained import c34_names as names
from numpy_attention.pretrained.c33_gguf_files import Arrays
from numpy_attention.recent.c47_rotary_scaling import TOKENS, rotary_frequencies
from numpy_attention.recent.c49_recent_gpt import RecentGPT

Fields = dict[str, Any]
Table = dict[str, tuple[Any, ...]]

# our field: the name in a GGUF file after the kind, the name in a folder, and the default if there is one
LLAMA: Table = {
    "vocab_size": ("vocab_size", "vocab_size"),
    "context_length": ("context_length", "max_position_embeddings"),
    "d_model": ("embedding_length", "hidden_size"),
    "num_heads": ("attention.head_count", "num_attention_heads"),
    "num_layers": ("block_count", "num_hidden_layers"),
    "d_ff": ("feed_forward_length", "intermediate_size"),
    "num_kv_heads": ("attention.head_count_kv", "num_key_value_heads", None),
    "d_k": ("attention.key_length", "head_dim", None),
    "norm_eps": ("attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-6),
    "rotary_base": ("rope.freq_base", "rope_theta", 1e4),
}
SMOLLM3 = LLAMA | {"nope_every": ("", "no_rope_layer_interval", 4)}
GEMMA3 = LLAMA | {
    "window": ("attention.sliding_window", "sliding_window", None),
    "global_every": ("attention.sliding_window_pattern", "sliding_window_pattern", 6),
    "local_rotary_base": ("rope.freq_base_swa", "rope_local_base_freq", 1e4),
}
EXPERTS = LLAMA | {"num_experts": ("", "num_local_experts"), "top_k": ("", "num_experts_per_tok")}
MIXTRAL = EXPERTS | {"window": ("", "sliding_window", None)}
QWEN3_MOE = EXPERTS | {"d_ff": ("", "moe_intermediate_size")}
GPT2: Table = {
    "vocab_size": ("vocab_size", "vocab_size"),
    "context_length": ("context_length", "n_positions"),
    "d_model": ("embedding_length", "n_embd"),
    "num_heads": ("attention.head_count", "n_head"),
    "num_layers": ("block_count", "n_layer"),
    "d_ff": ("feed_forward_length", "n_inner", None),
    "norm_eps": ("attention.layer_norm_epsilon", "layer_norm_epsilon", 1e-5),
}
BERT: Table = {
    **{ours: LLAMA[ours] for ours in ("vocab_size", "context_length", "d_model", "num_heads", "num_layers", "d_ff")},
    "num_types": ("", "type_vocab_size", 2),
    "norm_eps": ("", "layer_norm_eps", 1e-12),
}
NOT_WHOLE = ("norm_eps", "rotary_base", "local_rotary_base")  # all other fields are integers

# settings with few supported values; the first value is the default
ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu": "gelu_exact", "relu": "relu", "silu": "silu"}
_COMMON: Table = {
    "use_bidirectional_attention": (False,), "attention.causal": (True,), "tie_word_embeddings": (False, True),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping", "attention.scale", TOKENS), (None,)),
    **dict.fromkeys(("partial_rotary_factor", "rope.scale_linear", "rope.scaling.attn_factor"), (1.0,)),
}
GEMMA3_ONLY = _COMMON | {"hidden_activation": ("gelu_pytorch_tanh",)}
QWEN_ONLY = _COMMON | {
    "hidden_act": ("silu",), "use_sliding_window": (False, True), "attention.sliding_window": (None,),
}
LLAMA_ONLY = QWEN_ONLY | {"use_sliding_window": (False,)}
MIXTRAL_ONLY = LLAMA_ONLY | {"router_jitter_noise": (0.0,)}
QWEN3_MOE_ONLY = QWEN_ONLY | {
    "norm_topk_prob": (False, True), "attention_bias": (False,),
    "decoder_sparse_step": (1,), "mlp_only_layers": ([],),  # every layer has experts
}
GPT2_ONLY: Table = {
    "scale_attn_by_inverse_layer_idx": (False,), "scale_attn_weights": (True,),
    "activation_function": tuple(ACTIVATIONS), "tie_word_embeddings": (True, False),
}
BERT_ONLY: Table = {
    "position_embedding_type": ("absolute",), "is_decoder": (False,), "hidden_act": ("gelu", *ACTIVATIONS),
}
CHOSEN = {
    "tie_word_embeddings": "tie_weights", "activation_function": "activation", "hidden_act": "activation",
    "norm_topk_prob": "renormalize",
}


class Kind(NamedTuple):
    """A kind of model in a file."""

    model: type[Model]
    names: Mapping[str, tuple[str, str]]  # of the parameters (Chapter 34)
    fields: Table
    only: Table
    always: Mapping[str, Any] = MappingProxyType({})  # fields that all models of the kind share
    missing: Mapping[str, Any] = MappingProxyType({})  # settings that a folder may leave out, as in `transformers`


_LLAMA = {"positions": "rotary", "norm": "rms_norm", "activation": "swiglu", "bias": False}
_QWEN3 = _LLAMA | {"qk_norm": "head"}
_GEMMA3 = _QWEN3 | {"activation": "geglu", "branch_norm": True, "embedding_scale": True}
_OLMO2 = _LLAMA | {"qk_norm": "all", "pre_norm": False, "branch_norm": True}
_QWENS_WINDOW = {"sliding_window": 4096, "max_window_layers": 28}
_OF_SMOLLM3 = {"rope_theta": 2e6, "tie_word_embeddings": True}
_OF_MIXTRAL = {"num_experts_per_tok": 2, "router_aux_loss_coef": 0.001, "rms_norm_eps": 1e-5, "rope_theta": 1e6}
_OF_QWEN3_MOE = {"num_experts_per_tok": 8, "router_aux_loss_coef": 0.001, "sliding_window": 4096}
_OF_GEMMA3 = {
    "sliding_window": 4096, "head_dim": 256, "query_pre_attn_scalar": 256, "rope_theta": 1e6,
    "tie_word_embeddings": True,
}
FOLDERS = {
    "llama": Kind(RecentGPT, names.LLAMA, LLAMA, LLAMA_ONLY, _LLAMA),
    "qwen2": Kind(RecentGPT, names.LLAMA, LLAMA, QWEN_ONLY, _LLAMA | {"qkv_bias": True}, _QWENS_WINDOW),
    "qwen3": Kind(RecentGPT, names.LLAMA, LLAMA, QWEN_ONLY, _QWEN3, _QWENS_WINDOW | {"head_dim": 128}),
    "smollm3": Kind(RecentGPT, names.LLAMA, SMOLLM3, LLAMA_ONLY, _LLAMA, _OF_SMOLLM3),
    "olmo2": Kind(RecentGPT, names.LLAMA, LLAMA, LLAMA_ONLY, _OLMO2, {"rms_norm_eps": 1e-5}),
    "gemma3_text": Kind(RecentGPT, names.GEMMA, GEMMA3, GEMMA3_ONLY, _GEMMA3, _OF_GEMMA3),
    "mixtral": Kind(ExpertsGPT, names.MIXTRAL, MIXTRAL, MIXTRAL_ONLY, _LLAMA, _OF_MIXTRAL),
    "qwen3_moe": Kind(ExpertsGPT, names.QWEN3_MOE, QWEN3_MOE, QWEN3_MOE_ONLY, _QWEN3, _OF_QWEN3_MOE),
    "gpt2": Kind(GPT, names.GPT2, GPT2, GPT2_ONLY),
    "bert": Kind(TextEncoder, names.BERT, BERT, BERT_ONLY),
}
_NO_GGUF = ("mixtral", "qwen3_moe", "bert")  # in GGUF, one tensor holds all experts of a block
GGUF = {name.removesuffix("_text"): kind for name, kind in FOLDERS.items() if name not in _NO_GGUF}


class Settings:
    """The settings of a file.

    Raises: InputError for a setting that is missing, wrong or not supported, when it is read.
    """

    def __init__(self, values: Mapping[str, Any], prefix: str = "") -> None:
        self.values = values
        self.prefix = prefix  # of all names in a GGUF file: "llama."; "" for a folder

    def number(self, name: str, default: Any = ..., kind: type[int | float] = int) -> Any:
        """An integer or float above 0; `default` if the setting is missing."""
        value = self.values.get(self.prefix + name)
        value = default if value is None else value
        if value is None:
            return None
        if type(value) in (int, kind) and 0 < value <= (2**24 if kind is int else 1e12):
            return kind(value)
        raise InputError(f"{self.prefix}{name} is {'missing' if value is ... else short_repr(value)}")

    def only(self, name: str, *allowed: Any) -> Any:
        """A value that must be in `allowed`; the first of `allowed` if the setting is missing."""
        value = self.values.get(self.prefix + name)
        if value is None:
            return allowed[0]
        if any(type(value) is type(one) and value == one for one in allowed):
            return value
        supported = " or ".join(map(repr, allowed))
        raise InputError(f"{self.prefix}{name} is {short_repr(value)}, supported is {supported}")


def configuration(kind: Kind, s: Settings, arrays: Arrays) -> Any:
    """The configuration of a model of this kind.

    Raises: InputError for a setting that is missing, wrong or not supported.
    """
    if s.prefix:  # a GGUF file lacks these two settings; it has the tokens, and a tensor for the head if it is not tied
        tied, tokens = "output.weight" not in arrays, s.values.get("tokenizer.ggml.tokens", ())
        s.values = {**s.values, s.prefix + "vocab_size": len(tokens), s.prefix + "tie_word_embeddings": tied}
    else:
        # a qwen3_moe has num_experts, or the name of a mixtral if transformers 5 wrote it
        s.values = {"num_local_experts": s.values.get("num_experts"), **kind.missing, **s.values}
    fields: Fields = {}
    for ours, (in_gguf, in_folder, *default) in kind.fields.items():
        number = float if ours in NOT_WHOLE else int
        fields[ours] = s.number(in_gguf if s.prefix else in_folder, default[0] if default else ..., number)
    for name, allowed in kind.only.items():
        value = s.only(name, *allowed)
        if name in CHOSEN:
            fields[CHOSEN[name]] = ACTIVATIONS.get(value, value)
    if "rotary_base" in fields:
        fields |= _decoder(s, fields, arrays)
    if kind.model is ExpertsGPT:
        fields["balance"] = s.values["router_aux_loss_coef"]  # may be 0; the configuration checks it
    elif kind.model is TextEncoder:
        fields["pad_token"] = pad = s.values.get("pad_token_id", 0)
        if pad is not None and (type(pad) is not int or pad < 0):
            raise InputError(f"pad_token_id is {short_repr(pad)}")
    try:
        return kind.model.config_class(**{**fields, **kind.always})
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from None


def _decoder(s: Settings, fields: Fields, arrays: Arrays) -> Fields:
    """The fields of a llama, or of one of its descendants, that depend on several settings."""
    d_model, num_heads, num_layers = fields["d_model"], fields["num_heads"], fields["num_layers"]
    gemma, width = "local_rotary_base" in fields, d_model // num_heads if fields["d_k"] is None else fields["d_k"]
    if s.prefix:
        for name in ("rope.dimension_count", "attention.value_length"):
            s.only(name, width)
        found = {"rotary_scaling": _gguf_scaling(s, arrays, width, fields["rotary_base"])}
    else:
        found = _rotary(s, fields, gemma)
    scalar = s.number("query_pre_attn_scalar", kind=float) if gemma and not s.prefix else width
    window, n = fields.get("window"), fields.get("global_every")
    if s.values.get("use_sliding_window") is True:  # in a Qwen, the first max_window_layers layers have no window
        window, first = s.number("sliding_window"), s.values.get("max_window_layers")
        n = 1 if type(first) is int and first >= num_layers else s.only("max_window_layers", 0) or None
    usual = "full_attention" if window is None else "sliding_attention"
    n = _every(s, "layer_types", num_layers, usual, "full_attention", n)
    if n == 1 or window is None:  # every layer sees everything
        window, n, found["local_rotary_base"] = None, None, None
    every = fields.get("nope_every")
    return {
        "num_kv_heads": fields["num_kv_heads"] or num_heads,
        "attention_scale": None if scalar == width else scalar**-0.5,
        "nope_every": every and _every(s, "no_rope_layers", num_layers, 1, 0, every),
        "window": window, "global_every": n, **found,
    }


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
    raise InputError(f"{name} must hold {special!r} for each n-th layer and {usual!r} for all others")


def _rotary(s: Settings, fields: Fields, gemma: bool) -> Fields:
    """The base of the rotary angles and their scaling, which can be in one of several places. In a Gemma 3, the layers
    with a window have another base."""
    rope = s.values.get("rope_scaling") or s.values.get("rope_parameters") or {}
    both = rope if gemma and isinstance(rope, Mapping) and "full_attention" in rope else {"full_attention": rope}
    base, scaling = _angles(both["full_attention"], fields["rotary_base"], fields["context_length"])
    if not gemma:
        return {"rotary_base": base, "rotary_scaling": scaling}
    local, of_local = _angles(both.get("sliding_attention", {}), fields["local_rotary_base"], 1)
    if of_local is not None:
        raise InputError("its layers with a window have rope scaling, which is not supported")
    return {"rotary_base": base, "rotary_scaling": scaling, "local_rotary_base": local}


def _angles(rope: Any, base: float, context_length: int) -> tuple[float, Fields | None]:
    """The base of the rotary angles, by default `base`, and their scaling. The type "dynamic" changes only the angles
    of texts longer than the context, which a model of this book does not read."""
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, Mapping) else rope
    if not isinstance(rope, Mapping) or kind not in ("default", "dynamic", "linear", "llama3", "yarn"):
        raise InputError(f"its rope scaling is {short_repr(kind)}, which is not supported")
    s = Settings(rope)
    s.only("partial_rotary_factor", 1.0)
    base = s.number("rope_theta", base, float)
    no_numbers = ("rope_type", "type", "rope_theta", "partial_rotary_factor")
    scaling = {"type": kind} | ({} if kind == "linear" else {TOKENS: context_length})
    scaling |= {name: value for name, value in rope.items() if name not in no_numbers and value is not None}
    return base, None if kind in ("default", "dynamic") else scaling


def _gguf_scaling(s: Settings, arrays: Arrays, width: int, base: float) -> Fields | None:
    """The scaling of the rotary angles in a GGUF file. For Llama 3, the file holds f_i / f_i' (Chapter 47) in a tensor,
    computed with the numbers below. So only these numbers are accepted."""
    kind, factor = s.only("rope.scaling.type", "linear", "none"), s.number("rope.scaling.factor", 1.0, float)
    if "rope_freqs.weight" not in arrays:
        return {"type": "linear", "factor": factor} if kind == "linear" and factor != 1 else None
    shape, _, read = arrays["rope_freqs.weight"]
    found = read() if width > 1 and shape == (width // 2,) else np.zeros(1)
    llama3 = {"type": "llama3", "factor": float(found.max()), "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    llama3[TOKENS] = 8192
    if factor == 1 and 1 <= found.max() < np.inf:
        expected = rotary_frequencies(width, base) / rotary_frequencies(width, base, llama3)
        if np.allclose(found, expected, rtol=1e-4):
            return llama3
    raise InputError("rope_freqs.weight does not hold the rope scaling of Llama 3, and no other is supported")
