"""Subjects of the attack on arrays that are not in the catalogue: masks, layers and models, optimizers, files."""

import contextlib
import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import numpy_attention as na
from tests.fuzz.subjects import Subject, renewed, subject_of, with_backward

SIZES = {"context_length": 6, "d_model": 4, "num_heads": 2, "num_layers": 1, "d_ff": 3}
X = np.random.default_rng(5).standard_normal((2, 3, 4)).astype(np.float32)
IDS = np.array([[1, 2, 0], [3, 4, 4]])
WEIGHTS = np.random.default_rng(6).dirichlet(np.ones(3), (2, 2, 3))  # (B, H, T, T)
DY = np.random.default_rng(7).standard_normal((1, 3, 5)).astype(np.float32)
MADE_ANEW = object()


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def gpt(**more: Any) -> na.GPT:
    return na.GPT(na.GPTConfig(**{"vocab_size": 5, **SIZES, **more}), rng())


def seq2seq() -> na.Seq2Seq:
    return na.Seq2Seq(na.Seq2SeqConfig(source_vocab_size=5, target_vocab_size=5, **SIZES), rng())


def classifier() -> na.SequenceClassifier:
    return na.SequenceClassifier(na.SequenceClassifierConfig(num_classes=3, vocab_size=5, **SIZES), rng())


def _layer(cls: type, *inputs: np.ndarray) -> Callable[..., Any]:
    """Create a layer, run forward and backward."""

    def use(**sizes: Any) -> Any:
        layer = cls(**renewed(sizes))
        y, cache = layer.forward(*inputs)
        return y, layer.backward(np.ones_like(y), cache), layer.parameters()

    return use


def _model(cls: type, config_class: type, *batch: np.ndarray) -> Callable[..., Any]:
    def use(rng: Any = MADE_ANEW, dtype: Any = np.float32, **sizes: Any) -> Any:
        config = config_class(**sizes)
        model = cls(config, np.random.default_rng(3) if rng is MADE_ANEW else copy.deepcopy(rng), dtype)
        loss, cache = model.loss(*batch)
        return loss, model.backward(cache), model.parameters()

    return use





def _edited(keep: Any, add: Any) -> Any:
    edited = na.inside.with_edits(gpt(), {"blocks.0": na.inside.Edit(keep, add)})
    loss, cache = edited.loss(IDS, IDS)
    return loss, edited.backward(cache)


def _direct(direction: Any) -> Any:
    model = gpt()
    return na.inside.direct_effects(model, na.inside.forward_with(model, {}, IDS)[1].at, direction)


def _rolled(weights: Any) -> Any:
    return na.inside.attention_rollout({"blocks.0.attention": weights, "blocks.1.attention": WEIGHTS})


def _patched(ids: Any, other_ids: Any, dy: Any) -> Any:
    return na.inside.patching_effects(gpt(), ids, other_ids, dy)


def _attributed(ids: Any, other_ids: Any, dy: Any, order: Any) -> Any:
    return na.inside.attributed_effects(gpt(), ids, other_ids, dy, order=order)


def _optimizer(cls: type) -> Callable[..., Any]:
    """Two steps of an optimizer; the given parameter does not change."""

    def use(parameter: Any, gradient: Any, **rates: Any) -> Any:
        parameter = copy.deepcopy(parameter)
        optimizer = cls({"w": parameter}, **rates)
        for _ in range(2):
            optimizer.step({"w": gradient})
        return parameter

    return use


def _step(parameter: Any, gradient: Any, learning_rate: Any) -> Any:
    return _optimizer_step(copy.deepcopy(parameter), gradient, learning_rate)


def _optimizer_step(parameter: Any, gradient: Any, learning_rate: Any) -> Any:
    na.Adam({"w": parameter}).step({"w": gradient}, learning_rate)
    return parameter


def _clip(gradient: Any, max_norm: Any) -> Any:
    grads = {"w": copy.deepcopy(gradient)}
    return na.clip_by_global_norm(grads, max_norm), grads["w"]


def _train(ids: Any, clip: Any, rng: Any) -> Any:
    model = gpt()
    return na.train(model, na.Adam(model.parameters()), [(ids, IDS)] * 2, clip=clip, rng=copy.deepcopy(rng))


def _stored(capacity: Any, k: Any, v: Any, rows: Any) -> Any:
    cache = na.KeyValueCache(capacity)
    cache.append(k, v)
    cache.reorder(rows)
    return cache.filled()


def _banded(x: Any, **band: Any) -> Any:
    layer = na.MultiHeadAttention(4, 2, rng())
    return with_backward(layer.forward, layer.backward)(x=x, band=na.Band(**band))


def _continued(x: np.ndarray, mask: np.ndarray | None, positions: np.ndarray | None) -> Any:
    """Three stored tokens, then x, in the absorbed form."""
    layer, past = na.LatentAttention(4, 2, rng(), rank=3, d_nope=2, d_rope=2), na.KeyValueCache(9)
    layer.forward(X, past=past)
    return layer.forward(x, mask, positions, past)[0], past.filled()


def _weights(**arguments: Any) -> Any:
    return na.tiled_attention_weights(na.tiled_attention(**arguments)[1])


def _low_rank(w: Any, rank: Any, alpha: Any, rng: Any) -> Any:
    layer = na.LowRank(w, rank, alpha, copy.deepcopy(rng))
    y, cache = layer.forward(X)
    return y, layer.backward(np.ones_like(y), cache)


def _changed(rank: Any, alpha: Any, rng: Any) -> Any:
    model = gpt()
    na.add_low_rank(model, rank, alpha, copy.deepcopy(rng))
    na.merge_low_rank(model)
    return model.parameters()


def _exported(path: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        na.export_safetensors(gpt(), path)
        return na.import_safetensors(path).parameters()


def _imported(path: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        na.export_safetensors(gpt(), "m.safetensors")
        Path("text.safetensors").write_text("no such file")
        return na.import_safetensors(path, gpt()).parameters()


def _call(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **arguments: f(**renewed(arguments))


def _of(call: Callable[..., Any], use: Callable[..., Any] | None = None, **good: Any) -> Callable[[], Subject]:
    return lambda: subject_of(call, use or _call(call), good, call.__name__)


def _table() -> dict[str, Callable[[], Subject]]:
    q = np.random.default_rng(1).standard_normal((2, 3, 4))
    w, g = q[0].copy(), q[1].copy()
    wide: dict[str, Any] = {"d_model": 4, "num_heads": 2}
    prompts = np.array([1, 2, 3])
    start: dict[str, Any] = {"source_ids": IDS, "start_token": 1, "stop_token": 2, "max_tokens": 3}
    block = {**wide, "d_ff": 3, "rng": rng()}
    return {
        "causal_mask": _of(na.causal_mask, T_q=3, T_k=4),
        "sliding_window_mask": _of(na.sliding_window_mask, T_q=3, window=2, T_k=4, ahead=1),
        "padding_mask": _of(na.padding_mask, lengths=np.array([1, 3]), T=3),
        "mask_from_blocked": _of(na.mask_from_blocked, blocked=w > 0),
        "mask_from_additive": _of(na.mask_from_additive, additive=np.where(w > 0, 0.0, -np.inf)),
        "sinusoidal_positions": _of(na.sinusoidal_positions, length=3, d_model=4),
        "rotary_frequencies": _of(na.rotary_frequencies, width=4, scaling={"type": "ntk", "factor": 2.0}),
        "yarn_temperature": _of(na.yarn_temperature, factor=2.0),
        "alibi_slopes": _of(na.alibi_slopes, num_heads=3),
        "alibi_bias": _of(na.alibi_bias, num_heads=2, T_q=3, T_k=4),
        "erf": _of(na.erf, x=w),
        "tiled_attention_weights": _of(na.tiled_attention, _weights, q=q, k=q, v=q),
        "Band": _of(na.Band, _banded, x=X, causal=False, window=2, slopes=np.array([0.5, 0.25]),
                    ahead=1),
        "KeyValueCache": _of(na.KeyValueCache, _stored, capacity=4, k=q[None], v=q[None], rows=np.array([0, 0])),
        "Linear": _of(na.Linear, _layer(na.Linear, X), d_in=4, d_out=2, rng=rng()),
        "Embedding": _of(na.Embedding, _layer(na.Embedding, IDS), vocab_size=5, d_model=4, rng=rng()),
        "LayerNorm": _of(na.LayerNorm, _layer(na.LayerNorm, X), d_model=4),
        "RMSNorm": _of(na.RMSNorm, _layer(na.RMSNorm, X), d_model=4),
        "FeedForward": _of(na.FeedForward, _layer(na.FeedForward, X), d_model=4, d_ff=3, rng=rng()),
        "MultiHeadAttention": _of(
            na.MultiHeadAttention, _layer(na.MultiHeadAttention, X), **wide, rng=rng(), num_kv_heads=1, d_k=2, d_v=3,
            rotary_base=100.0, qk_norm="head", norm_eps=1e-5, output_gate="element", sink=True, softcap=2.0, scale=0.5,
            rotary_width=2, rotary_scaling={"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 8}),
        "LatentAttention": _of(
            na.LatentAttention, _layer(na.LatentAttention, X), **wide, rng=rng(), rank=3, d_nope=2, d_rope=2, d_v=3,
            q_rank=2, rotary_base=100.0),
        "LatentAttention.forward": _of(_continued, x=X, mask=np.ones((3, 6), bool), positions=np.arange(3, 6)),
        "PositionEmbedding": _of(
            na.PositionEmbedding, _layer(na.PositionEmbedding, X), kind="learned", length=5, d_model=4, rng=rng()),
        "EncoderBlock": _of(na.EncoderBlock, _layer(na.EncoderBlock, X), **block, norm_eps=1e-5),
        "DecoderBlock": _of(na.DecoderBlock, _layer(na.DecoderBlock, X), **block),
        "GPTConfig": _of(na.GPTConfig, _model(na.GPT, na.GPTConfig, IDS, IDS), vocab_size=5, **SIZES, num_kv_heads=1,
                         positions="alibi", window=2, norm_eps=1e-5, rng=rng(), dtype=np.float32),
        "GPTConfig since 2023": _of(
            na.GPTConfig, _model(na.GPT, na.GPTConfig, IDS, IDS), vocab_size=5, **SIZES, positions="rotary", d_k=4,
            window=2, global_every=2, nope_every=3, local_rotary_base=10.0, rotary_width=2, attention_scale=0.5,
            softcap=2.0, sink=True, qk_norm="all", output_gate="head", branch_norm=True, embedding_scale=True,
            rotary_scaling={"type": "linear", "factor": 2.0}, rng=rng()),
        "Seq2SeqConfig": _of(na.Seq2SeqConfig, _model(na.Seq2Seq, na.Seq2SeqConfig, IDS, IDS, IDS),
                             source_vocab_size=5, target_vocab_size=5, **SIZES, pad_token=0, rng=rng()),
        "SequenceClassifierConfig": _of(
            na.SequenceClassifierConfig,
            _model(na.SequenceClassifier, na.SequenceClassifierConfig, IDS, np.array([0, 2])), num_classes=3,
            vocab_size=5, **SIZES, pad_token=0, rng=rng()),
        "TextEncoderConfig": _of(na.TextEncoderConfig, _model(na.TextEncoder, na.TextEncoderConfig, IDS, IDS),
                                 vocab_size=5, **SIZES, pad_token=0, norm_eps=1e-5, rng=rng()),
        "GPT.generate": _of(gpt().generate, prompt_ids=prompts, num_tokens=3, rng=rng(), top_k=2, top_p=0.9,
                            stop_token=4),
        "GPT.forward": _of(gpt().forward, lambda **a: gpt().forward(**a)[0], ids=IDS),
        "GPT.attention_weights": _of(gpt().attention_weights, ids=IDS),
        "Seq2Seq.greedy": _of(seq2seq().greedy, **start, source_lengths=np.array([1, 3])),
        "Seq2Seq.beam_search": _of(seq2seq().beam_search, **start, source_lengths=np.array([1, 3])),
        "Seq2Seq.attention_weights": _of(seq2seq().attention_weights, source_ids=IDS, target_ids=IDS),
        "SequenceClassifier.predict": _of(classifier().predict, ids=IDS, lengths=np.array([1, 3])),
        "SGD": _of(na.SGD, _optimizer(na.SGD), parameter=w, gradient=g),
        "Adam": _of(na.Adam, _optimizer(na.Adam), parameter=w, gradient=g),
        "AdamW": _of(na.AdamW, _optimizer(na.AdamW), parameter=w, gradient=g),
        "Adam.step": _of(na.Adam.step, _step, parameter=w, gradient=g, learning_rate=0.1),
        "clip_by_global_norm": _of(_clip, gradient=g, max_norm=0.5),
        "global_norm": _of(lambda gradient: na.global_norm({"w": gradient}), gradient=g),
        "warmup_cosine": _of(na.warmup_cosine, step=1, steps=5, warmup=2, peak=0.1),
        "train": _of(_train, ids=IDS, clip=1.0, rng=rng()),
        "LowRank": _of(na.LowRank, _low_rank, w=w.T.astype(np.float32).copy(), rank=2, alpha=1.0, rng=rng()),
        "add_low_rank": _of(na.add_low_rank, _changed, rank=2, alpha=1.0, rng=rng()),
        "prefix_matching_scores": _of(na.inside.prefix_matching_scores, model=gpt(), ids=np.tile(IDS, 2)),
        "previous_token_scores": _of(na.inside.previous_token_scores, model=gpt(), ids=IDS),
        "copying_scores": _of(na.inside.copying_scores, model=gpt()),
        "logit_lens": _of(na.inside.logit_lens, model=gpt(), x=X),
        "unembedding": _of(na.inside.unembedding, model=gpt()),
        "direct_effects": _of(_direct, direction=X[0, 0]),
        "attention_rollout": _of(_rolled, weights=WEIGHTS),
        "patching_effects": _of(_patched, ids=IDS[:1], other_ids=IDS[1:], dy=DY),
        "attributed_effects": _of(_attributed, ids=IDS[:1], other_ids=IDS[1:], dy=DY, order=2),
        "one_head": _of(na.inside.one_head, head=1, num_heads=3),
        "replacing": _of(na.inside.replacing, where=w > 0, value=g),
        "with_edits": _of(_edited, keep=X > 0, add=X[0]),
        "export_safetensors": _of(_exported, path="m.safetensors"),
        "import_safetensors": _of(_imported, path="m.safetensors"),
    }


MADE = _table()
COVERED_BY = {  # public names that no other subject covers
    "GPT": "GPTConfig", "Seq2Seq": "Seq2SeqConfig", "SequenceClassifier": "SequenceClassifierConfig",
    "TextEncoder": "TextEncoderConfig", "merge_low_rank": "add_low_rank", "Layer": "Linear",
    "Edit": "with_edits", "backward_with": "forward_with",
}
