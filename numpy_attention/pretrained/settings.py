"""Chapter 34, continued. Settings: which GPT, or which encoder, a file holds

The settings of a file give the architecture and its sizes. They become a configuration of Part III. Some values need
parts that this book does not have: other positions, another activation, heads of another width. All such values are
refused together, in one error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from numpy_attention.errors import MAX_SAID, InputError, several, short_repr
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.models.text_encoder import TextEncoderConfig

ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu": "gelu_exact", "relu": "relu", "silu": "silu"}
Config = TypeVar("Config")
MISSING: Any = object()
LARGEST = 2**24  # upper limit of every size of a model


class Settings:
    """The settings of a file. They are read one after the other, and all errors are reported together at the end."""

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where, self.values = where, values
        self.wrong: list[str] = []
        self.guessed = False  # True if a size is wrong and was replaced by 1

    def number(self, name: str, default: Any = MISSING, kind: type[int | float] = int) -> Any:
        """An integer or float above 0; `default` if the setting is missing, 1 if it is wrong."""
        value = self.values.get(name)
        value = default if value is None else value
        if value is None or (type(value) in (int, kind) and 0 < value <= (LARGEST if kind is int else 1e12)):
            return value
        self.wrong.append(f"{name} is {'missing' if value is MISSING else short_repr(value)}")
        self.guessed = True
        return 1

    def only(self, name: str, *allowed: Any) -> Any:
        """A value that must be in `allowed`; the first of `allowed` if the setting is missing or wrong."""
        value = self.values.get(name)
        if value is None or any(type(value) is type(one) and value == one for one in allowed):
            return allowed[0] if value is None else value
        self.wrong.append(f"{name} is {short_repr(value)}, supported is {' or '.join(map(repr, allowed))}")
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


def llama_gguf(s: Settings, tensors: Collection[str]) -> GPTConfig:
    """A llama in a GGUF file."""
    d_model, num_heads = s.number("llama.embedding_length"), s.number("llama.attention.head_count")
    for width in ("rope.dimension_count", "attention.key_length", "attention.value_length"):
        s.only(f"llama.{width}", d_model // num_heads)
    s.only("llama.rope.scaling.type", "none")
    s.only("llama.rope.scaling.factor", 1.0)
    s.only("llama.rope.scale_linear", 1.0)
    s.only("llama.expert_count", 0)
    return s.config(
        GPTConfig, vocab_size=_tokens(s), context_length=s.number("llama.context_length"), d_model=d_model,
        num_heads=num_heads, num_layers=s.number("llama.block_count"), d_ff=s.number("llama.feed_forward_length"),
        num_kv_heads=s.number("llama.attention.head_count_kv", num_heads), positions="rotary", norm="rms_norm",
        activation="swiglu", bias=False, tie_weights="output.weight" not in tensors,
        rotary_base=float(s.number("llama.rope.freq_base", 1e4, float)),
        norm_eps=float(s.number("llama.attention.layer_norm_rms_epsilon", 1e-6, float)),
    )


def gpt2_gguf(s: Settings, tensors: Collection[str]) -> GPTConfig:
    """A GPT-2 in a GGUF file."""
    return s.config(
        GPTConfig, vocab_size=_tokens(s), context_length=s.number("gpt2.context_length"),
        d_model=s.number("gpt2.embedding_length"), num_heads=s.number("gpt2.attention.head_count"),
        num_layers=s.number("gpt2.block_count"), d_ff=s.number("gpt2.feed_forward_length"),
        tie_weights="output.weight" not in tensors,
        norm_eps=float(s.number("gpt2.attention.layer_norm_epsilon", 1e-5, float)),
    )


def llama_folder(s: Settings, tensors: Collection[str]) -> GPTConfig:
    """A llama or a qwen2 in a folder; a qwen2 has biases for query, key and value."""
    d_model, num_heads = s.number("hidden_size"), s.number("num_attention_heads")
    s.only("head_dim", d_model // num_heads)
    s.only("hidden_act", "silu")
    for name in ("mlp_bias", "attention_bias", "use_sliding_window"):
        s.only(name, False)
    return s.config(
        GPTConfig, vocab_size=s.number("vocab_size"), context_length=s.number("max_position_embeddings"),
        d_model=d_model, num_heads=num_heads, num_layers=s.number("num_hidden_layers"),
        d_ff=s.number("intermediate_size"), num_kv_heads=s.number("num_key_value_heads", num_heads),
        positions="rotary", norm="rms_norm", activation="swiglu", bias=False,
        qkv_bias=s.values.get("model_type") == "qwen2", tie_weights=s.only("tie_word_embeddings", False, True),
        rotary_base=_rotary_base(s), norm_eps=float(s.number("rms_norm_eps", 1e-6, float)),
    )


def gpt2_folder(s: Settings, tensors: Collection[str]) -> GPTConfig:
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


def bert_folder(s: Settings, tensors: Collection[str]) -> TextEncoderConfig:
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
    """The number of tokens in a GGUF file."""
    tokens = s.values.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and tokens:
        return len(tokens)
    s.wrong.append(f"tokenizer.ggml.tokens is {'missing' if tokens is None else 'not a list of texts'}")
    s.guessed = True
    return 1


def _rotary_base(s: Settings) -> float:
    """The base of the rotary angles, which can be in one of several places; scaled angles are not supported."""
    rope = s.values.get("rope_parameters") or s.values.get("rope_scaling") or {}
    scaling = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, Mapping) else rope
    if scaling != "default":
        s.wrong.append(f"its rope scaling is {short_repr(scaling)}, which is not supported")
        return 1.0
    base = Settings(s.where, {"rope_theta": 1e4} | dict(s.values) | dict(rope))
    base.wrong = s.wrong
    base.only("partial_rotary_factor", 1.0)
    return float(base.number("rope_theta", kind=float))
