"""The layers of the catalogue: functions of their inputs and of every parameter, these drawn at random."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Build, Entry
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.layers.decoder_block import DecoderBlock
from numpy_attention.layers.embedding import Embedding
from numpy_attention.layers.encoder_block import EncoderBlock
from numpy_attention.layers.feed_forward import FeedForward
from numpy_attention.layers.linear import Linear
from numpy_attention.layers.multi_head_attention import MultiHeadAttention
from numpy_attention.layers.normalization import LayerNorm, RMSNorm
from numpy_attention.layers.position_embedding import PositionEmbedding
from numpy_attention.ops.masks import causal_mask
from numpy_attention.ops.positions import alibi_bias

X = "x: B T d_model; d_model = H*d_k"
X_MASK = "x: B T d_model, mask: bool B 1 T T; d_model = H*d_k"
CROSS = "x: B T_q d_model, context: B T_k d_model, mask: bool B 1 T_q T_k; d_model = H*d_k"
DECODER = "x: B T d_model, context: B T_k d_model, context_mask: bool B 1 1 T_k; d_model = H*d_k"
SMALL = {"B": 2, "T": 3, "T_k": 4, "H": 2, "d_k": 2}


def layer_entry(cls: type, variant: str, spec: str, build: Build, **more: Any) -> Entry:
    """An entry for a class, built anew for every draw."""
    return Entry(f"{cls.__name__}: {variant}" if variant else cls.__name__, cls.__name__, spec, build=build, **more)


def training_on(_: Sizes) -> Mapping[str, Any]:
    """Options that turn dropout on, with the same masks in every call."""
    return {"training": True, "rng": np.random.default_rng(3)}


def _d_model(sizes: Sizes) -> int:
    return size_of(sizes, "H") * size_of(sizes, "d_k")


def size_of(sizes: Sizes, name: str) -> int:
    """A size that is a number."""
    value = sizes[name]
    assert isinstance(value, int)
    return value


def _simple() -> list[Entry]:
    def linear(bias: bool) -> Build:
        return lambda sizes, rng, dtype: Linear(size_of(sizes, "d_in"), 4, rng, bias=bias, dtype=dtype)

    def feed_forward(**options: Any) -> Build:
        return lambda sizes, rng, dtype: FeedForward(size_of(sizes, "d"), 5, rng, dtype=dtype, **options)

    def positions(kind: str) -> Build:
        return lambda sizes, rng, dtype: PositionEmbedding(kind, 8, size_of(sizes, "d"), rng, dtype)

    return [
        layer_entry(Linear, "", "x: ... d_in", linear(True), wrong="x-1 x:int64 w+0"),
        layer_entry(Linear, "no bias", "x: B T d_in", linear(False), wrong="x-1"),
        layer_entry(Embedding, "", "ids: int<V> B T",
               lambda sizes, rng, dtype: Embedding(size_of(sizes, "V"), 3, rng, dtype=dtype),
               wrong="ids:float64 ids=999"),
        layer_entry(LayerNorm, "", "x: ... d", lambda sizes, _, dtype: LayerNorm(size_of(sizes, "d"), dtype=dtype),
               at_least={"d": 3}, wrong="x-1"),
        layer_entry(RMSNorm, "", "x: ... d", lambda sizes, _, dtype: RMSNorm(size_of(sizes, "d"), dtype=dtype),
               at_least={"d": 2}, wrong="x-1"),
        layer_entry(PositionEmbedding, "learned", "x: B T d", positions("learned")),
        layer_entry(PositionEmbedding, "sinusoidal", "x: B T d", positions("sinusoidal")),
        layer_entry(PositionEmbedding, "shifted", "x: B T d, positions: int<8> B T", positions("learned")),
        layer_entry(FeedForward, "relu", "x: B T d", feed_forward(), wrong="x-1"),
        *(layer_entry(FeedForward, name, "x: B T d", feed_forward(activation=name))
          for name in ("gelu", "gelu_exact", "silu", "swiglu")),
        layer_entry(FeedForward, "swiglu, no bias", "x: ... d", feed_forward(activation="swiglu", bias=False)),
        layer_entry(FeedForward, "dropout", "x: B T d", feed_forward(activation="gelu", dropout=0.4),
                    options=training_on),
    ]


def _attention() -> list[Entry]:
    def entry(variant: str, spec: str, wrong: str = "", call: Any = None, fixed: Mapping[str, int] | None = None,
              **options: Any) -> Entry:
        def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> MultiHeadAttention:
            H_kv = size_of(sizes, "H_kv") if "H_kv" in sizes else None
            H = size_of(sizes, "H") if H_kv is None else size_of(sizes, "G") * H_kv
            d_model = 3 if "d_k" in options else H * size_of(sizes, "d_k")
            return MultiHeadAttention(d_model, H, rng, H_kv, dtype=dtype, **options)

        return layer_entry(MultiHeadAttention, variant, spec, build, wrong=wrong,
                      fixed={"B": 2, "d_k": 2, **(fixed or {"H": 3})}, options=call or {})

    grouped = "x: B T d_model, mask: bool T T; d_model = G*H_kv*d_k"
    return [
        entry("self", X, wrong="x-1"),
        entry("self, mask, biases", X_MASK, wrong="mask+2", bias=True),
        entry("cross", CROSS, wrong="context-1 mask+2"),
        entry("cross, biases, dropout", CROSS, bias=True, dropout=0.3, call=training_on),
        entry("grouped heads", grouped, fixed={"G": 2, "H_kv": 2}),
        entry("d_k and d_v of their own", "x: B T 3, mask: bool B H T T", d_k=4, d_v=5),
        entry("rotary", X, fixed={"H": 2, "d_k": 4}, rotary_base=100.0),
        entry("rotary, interleaved, biases", X, rotary_base=10000.0, rotary_pairing="interleaved", bias=True),
        entry("ALiBi, causal", X, call=lambda sizes: {
            "bias": alibi_bias(size_of(sizes, "H"), size_of(sizes, "T")), "mask": causal_mask(size_of(sizes, "T"))}),
    ]


def _blocks() -> list[Entry]:
    def encoder(**options: Any) -> Build:
        return lambda sizes, rng, dtype: EncoderBlock(
            _d_model(sizes), size_of(sizes, "H"), 5, rng, dtype=dtype, **options)

    def decoder(**options: Any) -> Build:
        return lambda sizes, rng, dtype: DecoderBlock(
            _d_model(sizes), size_of(sizes, "H"), 5, rng, dtype=dtype, **options)

    def causal(sizes: Sizes) -> Mapping[str, Any]:
        return {"mask": causal_mask(size_of(sizes, "T"))}

    def causaltraining_on(sizes: Sizes) -> Mapping[str, Any]:
        return {**causal(sizes), **training_on(sizes)}

    small: dict[str, Any] = {"fixed": SMALL, "tolerance": 1e-5}
    return [
        layer_entry(EncoderBlock, "post-norm", X_MASK, encoder(), wrong="x-1", **small),
        layer_entry(EncoderBlock, "pre-norm", X_MASK, encoder(pre_norm=True, activation="gelu"), **small),
        layer_entry(EncoderBlock, "rms norm, swiglu, dropout", X,
               encoder(norm="rms_norm", activation="swiglu", bias=False, dropout=0.3), options=training_on, **small),
        layer_entry(DecoderBlock, "post-norm, cross", DECODER, decoder(cross_attention=True), options=causal,
               wrong="context-1", **small),
        layer_entry(DecoderBlock, "pre-norm, cross, dropout", DECODER,
               decoder(cross_attention=True, pre_norm=True, activation="gelu", dropout=0.3),
               options=causaltraining_on, **small),
        layer_entry(DecoderBlock, "pre-norm, no cross", X, decoder(pre_norm=True, activation="silu"),
               options=causal, **small),
        layer_entry(DecoderBlock, "post-norm, no cross, no bias", X, decoder(bias=False), options=causal, **small),
    ]


LAYERS: tuple[Entry, ...] = (*_simple(), *_attention(), *_blocks())
