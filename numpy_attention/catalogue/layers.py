"""The layers of the catalogue: functions of their inputs and of every parameter, these drawn at random."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Build, Entry, Options
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.layers.block import DecoderBlock, EncoderBlock
from numpy_attention.layers.embedding import Embedding
from numpy_attention.layers.feed_forward import FeedForward
from numpy_attention.layers.linear import Linear
from numpy_attention.layers.multi_head_attention import MultiHeadAttention
from numpy_attention.layers.normalization import LayerNorm, RMSNorm
from numpy_attention.layers.position_embedding import PositionEmbedding
from numpy_attention.ops.masks import causal_mask
from numpy_attention.ops.positions import alibi_bias, alibi_slopes
from numpy_attention.ops.tiles import Band
from numpy_attention.pretrained.low_rank import LowRank

X = "x: B T d_model; d_model = H*d_k"
X_MASK = "x: B T d_model, mask: bool B 1 T T; d_model = H*d_k"
X_PADDING = "x: B T d_model, mask: bool B 1 1 T; d_model = H*d_k"
CROSS = "x: B T_q d_model, context: B T_k d_model, mask: bool B 1 T_q T_k; d_model = H*d_k"
DECODER = "x: B T d_model, context: B T_k d_model, context_mask: bool B 1 1 T_k; d_model = H*d_k"
SMALL = {"B": 2, "T": 3, "T_k": 4, "H": 2, "d_k": 2}
HEADS = {"H": 3}
PLAIN: Options = {}  # no options in the call


def layer_entry(cls: type, variant: str, spec: str, build: Build, **more: Any) -> Entry:
    """An entry for a class, built anew for every draw."""
    return Entry(f"{cls.__name__}: {variant}" if variant else cls.__name__, cls.__name__, spec, build=build, **more)


def dropout_on(_: Sizes) -> Mapping[str, Any]:
    """Options that turn dropout on, with the same masks in every call."""
    return {"rng": np.random.default_rng(3)}


def size_of(sizes: Sizes, name: str) -> int:
    """A size that is a number."""
    value = sizes[name]
    assert isinstance(value, int)
    return value


def _simple() -> list[Entry]:
    def linear(bias: bool) -> Build:
        return lambda sizes, rng, dtype: Linear(size_of(sizes, "d_in"), 4, rng, bias=bias, dtype=dtype)

    def embedding(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Embedding:
        return Embedding(size_of(sizes, "V"), 3, rng, dtype=dtype)

    def norm(cls: type) -> Build:
        return lambda sizes, _, dtype: cls(size_of(sizes, "d"), dtype=dtype)

    def positions(kind: str) -> Build:
        return lambda sizes, rng, dtype: PositionEmbedding(kind, 8, size_of(sizes, "d"), rng, dtype)

    def feed_forward(
        variant: str, spec: str = "x: B T d", wrong: str = "", call: Options = PLAIN, **options: Any
    ) -> Entry:
        def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> FeedForward:
            return FeedForward(size_of(sizes, "d"), 5, rng, dtype=dtype, **options)

        return layer_entry(FeedForward, variant, spec, build, wrong=wrong, options=call)

    return [
        layer_entry(Linear, "", "x: ... d_in", linear(True), wrong="x-1 x:int64 w+0"),
        layer_entry(Linear, "no bias", "x: B T d_in", linear(False), wrong="x-1"),
        layer_entry(Embedding, "", "ids: int<V> B T", embedding, wrong="ids:float64 ids=999"),
        layer_entry(LayerNorm, "", "x: ... d", norm(LayerNorm), at_least={"d": 3}, wrong="x-1"),
        layer_entry(RMSNorm, "", "x: ... d", norm(RMSNorm), at_least={"d": 2}, wrong="x-1"),
        layer_entry(PositionEmbedding, "learned", "x: B T d", positions("learned")),
        layer_entry(PositionEmbedding, "sinusoidal", "x: B T d", positions("sinusoidal")),
        layer_entry(PositionEmbedding, "shifted", "x: B T d, positions: int<8> B T", positions("learned")),
        feed_forward("relu", wrong="x-1"),
        *(feed_forward(name, activation=name) for name in ("gelu", "gelu_exact", "silu", "swiglu")),
        feed_forward("swiglu, no bias", "x: ... d", activation="swiglu", bias=False),
        feed_forward("dropout", call=dropout_on, activation="gelu", dropout=0.4),
    ]


def _attention() -> list[Entry]:
    def entry(
        variant: str,
        spec: str,
        wrong: str = "",
        call: Options = PLAIN,
        fixed: Mapping[str, int] = HEADS,
        **options: Any,
    ) -> Entry:
        def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> MultiHeadAttention:
            H_kv = size_of(sizes, "H_kv") if "H_kv" in sizes else None
            H = size_of(sizes, "H") if H_kv is None else size_of(sizes, "G") * H_kv
            d_model = 3 if "d_k" in options else H * size_of(sizes, "d_k")
            return MultiHeadAttention(d_model, H, rng, H_kv, dtype=dtype, **options)

        fixed = {"B": 2, "d_k": 2, **fixed}
        return layer_entry(MultiHeadAttention, variant, spec, build, wrong=wrong, fixed=fixed, options=call)

    def alibi(sizes: Sizes) -> Mapping[str, Any]:
        H, T = size_of(sizes, "H"), size_of(sizes, "T")
        return {"scores_bias": alibi_bias(H, T), "mask": causal_mask(T)}

    def tiled(variant: str, band: Band, **options: Any) -> Entry:
        def call(sizes: Sizes) -> Mapping[str, Any]:
            slopes = None if band.slopes is None else alibi_slopes(size_of(sizes, "H"))
            return {"band": band._replace(slopes=slopes), **dropout_on(sizes)}

        return entry(f"in tiles, {variant}", options.pop("spec", X), call=call, **options)

    grouped = "x: B T d_model, mask: bool T T; d_model = G*H_kv*d_k"
    return [
        entry("self", X, wrong="x-1"),
        entry("self, mask, biases", X_MASK, wrong="mask+2", bias=True),
        entry("cross", CROSS, wrong="context-1 mask+2"),
        entry("self, biases of q, k and v alone", X, qkv_bias=True),
        entry("cross, biases, dropout", CROSS, bias=True, dropout=0.3, call=dropout_on),
        entry("grouped heads", grouped, fixed={"G": 2, "H_kv": 2}),
        entry("d_k and d_v of their own", "x: B T 3, mask: bool B H T T", d_k=4, d_v=5),
        entry("rotary", X, fixed={"H": 2, "d_k": 4}, rotary_base=100.0),
        entry("rotary, interleaved, biases", X, rotary_base=10000.0, rotary_pairing="interleaved", bias=True),
        entry("ALiBi, causal", X, call=alibi),
        tiled("causal", Band(causal=True)),
        tiled("ALiBi, window, padding, dropout", Band(True, 2, np.ones(1)), spec=X_PADDING, dropout=0.3),
        tiled("cross", Band(), spec=CROSS, bias=True),
        tiled("rotary, grouped heads", Band(True), spec="x: B T d_model; d_model = G*H_kv*d_k",
              fixed={"G": 2, "H_kv": 2, "d_k": 4}, rotary_base=100.0),
    ]


def _blocks() -> list[Entry]:
    def entry(cls: type, variant: str, spec: str, wrong: str = "", call: Options = PLAIN, **options: Any) -> Entry:
        def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Any:
            H = size_of(sizes, "H")
            return cls(H * size_of(sizes, "d_k"), H, 5, rng, dtype=dtype, **options)

        return layer_entry(cls, variant, spec, build, wrong=wrong, options=call, fixed=SMALL, tolerance=1e-5)

    def causal(sizes: Sizes) -> Mapping[str, Any]:
        return {"mask": causal_mask(size_of(sizes, "T"))}

    def causal_dropout_on(sizes: Sizes) -> Mapping[str, Any]:
        return {**causal(sizes), **dropout_on(sizes)}

    def tiles_dropout_on(sizes: Sizes) -> Mapping[str, Any]:
        return {"band": Band(causal=True), **dropout_on(sizes)}

    gated: dict[str, Any] = {"norm": "rms_norm", "activation": "swiglu", "bias": False, "dropout": 0.3}
    crossed: dict[str, Any] = {"cross_attention": True, "pre_norm": True, "activation": "gelu", "dropout": 0.3}
    return [
        entry(EncoderBlock, "post-norm", X_MASK, wrong="x-1"),
        entry(EncoderBlock, "pre-norm", X_MASK, pre_norm=True, activation="gelu"),
        entry(EncoderBlock, "rms norm, swiglu, dropout", X, call=dropout_on, **gated),
        entry(DecoderBlock, "post-norm, cross", DECODER, "context-1", causal, cross_attention=True),
        entry(DecoderBlock, "pre-norm, cross, dropout", DECODER, call=causal_dropout_on, **crossed),
        entry(DecoderBlock, "in tiles, cross, dropout", DECODER, call=tiles_dropout_on, **crossed),
        entry(DecoderBlock, "pre-norm, no cross", X, call=causal, pre_norm=True, activation="silu"),
        entry(DecoderBlock, "post-norm, no cross, no bias", X, call=causal, bias=False),
    ]


def _low_rank() -> list[Entry]:
    def changed(layer: Any, rng: np.random.Generator) -> Any:
        """The layer with a change of low rank in the place of each matrix."""
        for name, w in list(vars(layer).items()):
            if name.startswith("w_") and w is not None:
                setattr(layer, name, LowRank(w, 2, 3.0, rng))
        return layer

    def entry(variant: str, spec: str, rank: int, alpha: float | None, wrong: str = "") -> Entry:
        def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> LowRank:
            return LowRank(rng.standard_normal((size_of(sizes, "d_in"), 4)).astype(dtype), rank, alpha, rng)

        return layer_entry(LowRank, variant, spec, build, wrong=wrong)

    def attention(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> MultiHeadAttention:
        d_model = size_of(sizes, "H") * size_of(sizes, "d_k")
        options: dict[str, Any] = {"num_kv_heads": 1, "bias": True, "rotary_base": 100.0}
        return changed(MultiHeadAttention(d_model, size_of(sizes, "H"), rng, dtype=dtype, **options), rng)

    def feed_forward(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> FeedForward:
        return changed(FeedForward(size_of(sizes, "d"), 5, rng, "swiglu", dtype=dtype), rng)

    grouped: dict[str, int] = {"B": 2, "H": 2, "d_k": 4}
    return [
        entry("", "x: ... d_in", 2, 3.0, wrong="x-1 x:int64 w+0 w:float32"),
        entry("rank 1", "x: B T d_in", 1, None),
        entry("a rank above both widths", "x: B d_in", 7, 1.0),
        layer_entry(MultiHeadAttention, "low rank, shared keys, rotary, biases", X_MASK, attention, fixed=grouped),
        layer_entry(FeedForward, "low rank, swiglu, biases", "x: B T d", feed_forward),
    ]


LAYERS: tuple[Entry, ...] = (*_simple(), *_attention(), *_blocks(), *_low_rank())
