"""Every op in every variant, with the spec of its inputs: what Part I is checked with.

A line adds a variant: `_entry("softmax", "x: A B C", "axis 0", options={"axis": 0})`. The sizes A, B, C are drawn, all
different; `wrong` lists the calls that must be refused (see `Entry`).
"""

from typing import Any

import numpy as np

from numpy_attention import ops
from numpy_attention.catalogue.entry import Entry
from numpy_attention.gradcheck.problem import Arrays
from numpy_attention.gradcheck.spec import Sizes

QKV = "q: B H T_q d_k, k: B H T_k d_k, v: B H T_k d_v"
GROUPED = "q: B H_q T_q d_k, k: B H_kv T_k d_k, v: B H_kv T_k d_v"
GROUPS = "; H_q = G*H_kv"


def _generator() -> np.random.Generator:
    return np.random.default_rng(3)


def _times(name: str, factor: float) -> Any:
    return lambda inputs, sizes: {**inputs, name: inputs[name] * inputs[name].dtype.type(factor)}


def _far_out(inputs: Arrays, sizes: Sizes) -> Arrays:
    """All elements but the last where gelu is x or nothing; that one gives the gradient its size."""
    inputs["x"].reshape(-1)[:-1] *= 12
    return inputs


def _sure_of_all_but_one(inputs: Arrays, sizes: Sizes) -> Arrays:
    """Rows whose softmax is 0 and 1, but for the last, which gives the gradient its size."""
    inputs["x"][:-1] *= 300
    return inputs


def _with_zeros(inputs: Arrays, sizes: Sizes) -> Arrays:
    """Some elements exactly on the corner of relu."""
    inputs["x"].reshape(-1)[::3] = 0.0
    return inputs


def _nothing_to_see(inputs: Arrays, sizes: Sizes) -> Arrays:
    inputs["mask"][...] = False
    return inputs


def _nothing_counts(inputs: Arrays, sizes: Sizes) -> Arrays:
    inputs["targets"][...] = -100
    return inputs


def _entry(name: str, spec: str, variant: str = "", **more: Any) -> Entry:
    op, backward = getattr(ops, name), getattr(ops, f"{name}_backward")
    return Entry(f"{name}: {variant}" if variant else name, name, spec, op, backward, **more)


def _basics() -> list[Entry]:
    return [
        _entry("linear", "x: ... d_in, w: d_in d_out, b: d_out", wrong="w+0 b+0 x:int64 w:float32 x[list]"),
        _entry("linear", "x: B T d_in, w: d_in d_out", "no bias", wrong="w+0 x-1 w[more]"),
        _entry("linear", "x: N d_in, w: d_in 1, b: 1", "one output"),
        _entry(
            "embedding", "ids: int<V> B T, table: V d_model", wrong="ids:float64 ids=-1 ids=999 table[more] ids[list]"
        ),
        _entry("embedding", "ids: int<V> ..., table: V d_model", "any leading axes"),
        _entry("rotary", "x: B H T 2*d, positions: int<60> T", "half", wrong="x-1 positions+0 x:int64"),
        _entry("rotary", "x: B H T 2*d, positions: int<60> T", "interleaved", options={"pairing": "interleaved"}),
        _entry(
            "rotary", "x: B H T 2*d, positions: int<60> B 1 T", "positions of each sequence", options={"base": 100.0}
        ),
        _entry("rotary", "x: T 2*d, positions: int<60> T", "one sequence", options={"pairing": "interleaved"}),
        _entry(
            "split_heads", "x: B T H*d_k", options=lambda sizes: {"num_heads": sizes["H"]}, at_least={"H": 2},
            wrong="x-1"
        ),
        _entry("split_heads", "x: ... T H*d_k", "any leading axes", options=lambda sizes: {"num_heads": sizes["H"]}),
        _entry("concat_heads", "x: B H T d_v"),
        _entry("concat_heads", "x: H T d_v", "no leading axes", wrong="x[row]"),
        _entry("concat_heads", "x: ... H T d_v", "any leading axes"),
        _entry("dropout", "x: ... d", options=lambda _: {"rate": 0.4, "rng": _generator()}, wrong="x:int64 x[list]"),
        _entry("dropout", "x: B T d", "off", options={"rate": 0.0, "rng": None}),
        _entry("dropout", "x: B T d", "in evaluation", options={"rate": 0.4, "rng": None}),
        _entry("relu", "x: ... d", wrong="x:int64 x[list]"),
        _entry("relu", "x: B d", "on the corner", prepare=_with_zeros),
        _entry("gelu", "x: ... d", "tanh", wrong="x:int64 x[list]"),
        _entry("gelu", "x: ... d", "erf", options={"approximate": "none"}),
        _entry("gelu", "x: B d", "far out", prepare=_far_out),
        _entry("gelu", "x: B d", "erf, far out", options={"approximate": "none"}, prepare=_far_out),
        _entry("silu", "x: ... d", wrong="x:int64 x[list]"),
        _entry("silu", "x: B d", "far out", prepare=_times("x", 100.0)),
    ]


def _softmax_and_norms() -> list[Entry]:
    norms = []
    for name, spec, wrong in [("layer_norm", ", gamma: d, beta: d", "beta+0 "), ("rms_norm", ", gamma: d", "")]:
        norms += [
            _entry(name, "x: ... d" + spec, at_least={"d": 3}, wrong=wrong + "gamma+0 x-1 x:int64 gamma:float32"),
            _entry(name, "x: A d" + spec, "1 leading axis", at_least={"d": 3}),
            _entry(name, "x: A B C D d" + spec, "4 leading axes", fixed={"A": 2, "B": 1, "C": 2, "D": 3, "d": 4}),
            _entry(name, "x: B T d" + spec, "width 2", fixed={"d": 2}, tolerance=1e-3),
            _entry(name, "x: B T d" + spec, "width 1", fixed={"d": 1}, tolerance=1e-3),
            _entry(name, "x: B T d" + spec, "eps", options={"eps": 0.3}),
            _entry(
                name, "x: B T d" + spec, "small x", options={"eps": 1e-5}, prepare=_times("x", 1e-2), at_least={"d": 4}
            ),
        ]
    return [
        _entry("softmax", "x: ... d", wrong="x:int64 x[list]"),
        _entry("softmax", "x: A B C", "axis 0", options={"axis": 0}),
        _entry("softmax", "x: A B C", "axis 1", options={"axis": 1}),
        _entry("softmax", "x: A B C D", "axis -2", options={"axis": -2}),
        _entry("softmax", "x: B d", "scores of 500", prepare=_times("x", 500.0)),
        *norms,
    ]


def _losses() -> list[Entry]:
    rows, padded = "logits: B T V, targets: int<V> B T", "logits: B T V, targets: int<V|-100> B T"
    return [
        _entry("cross_entropy", rows, wrong="targets+0 targets:float64 targets=-1 targets=999 logits:int64 logits+0"),
        _entry("cross_entropy", "logits: V, targets: int<V>", "one place"),
        _entry("cross_entropy", padded, "ignore_index"),
        _entry(
            "cross_entropy", "logits: N V, targets: int<V|7777> N", "another ignore_index",
            options={"ignore_index": 7777}
        ),
        _entry("cross_entropy", rows, "label smoothing", options={"label_smoothing": 0.1}),
        _entry("cross_entropy", padded, "label smoothing, ignore_index", options={"label_smoothing": 0.3}),
        _entry("cross_entropy", padded, "nothing counts", prepare=_nothing_counts),
        _entry("cross_entropy", padded, "logits of 1e4", prepare=_times("logits", 1e4)),
        *_losses_by_rows(),
    ]


def _losses_by_rows() -> list[Entry]:
    def entry(spec: str, variant: str, prepare: Any = None, wrong: str = "", **options: Any) -> Entry:
        return _entry("linear_cross_entropy", spec, variant, prepare=prepare, wrong=wrong, options=options)

    rows, one_a_row = "x: B T d, table: V d, targets: int<V> B T", "x: N d, table: V d, targets: int<V> N"
    padded = "x: N d, table: V d, targets: int<V|-100> N"
    refused = "targets+0 targets:float64 targets=-1 targets=999 x-1 x:int64 table-1 table:float32 table[more] x[list]"
    return [
        entry(rows, "one block", wrong=refused),
        entry(padded, "ignore_index, blocks of 2", block_size=2),
        entry(padded, "label smoothing, blocks of 1", block_size=1, label_smoothing=0.3),
        entry(padded, "nothing counts, blocks of 3", prepare=_nothing_counts, block_size=3),
        entry(one_a_row, "logits of some hundred, blocks of 2", prepare=_sure_of_all_but_one, block_size=2),
        entry("x: d, table: V d, targets: int<V>", "one place"),
    ]


def _attention() -> list[Entry]:
    def entry(spec: str, variant: str, **more: Any) -> Entry:
        return _entry("scaled_dot_product_attention", spec, variant, **more)

    def tiled(spec: str, variant: str, **options: Any) -> Entry:
        wrong = options.pop("wrong", "")
        return _entry("tiled_attention", spec, variant, options=options, wrong=wrong)

    def tiled_alibi(spec: str, variant: str, dropout: float = 0.0, **options: Any) -> Entry:
        def complete(sizes: Sizes) -> dict[str, Any]:
            heads = [sizes[name] for name in ("H", "G", "H_kv") if name in sizes]  # H_q = G H_kv
            drop = {"dropout": dropout, "rng": _generator()} if dropout else {}
            return {"slopes": ops.alibi_slopes(int(np.prod(heads))), **options, **drop}

        return _entry("tiled_attention", spec, variant, options=complete)

    def tiled_dropout(spec: str, variant: str, **options: Any) -> Entry:
        complete = {"dropout": 0.4, **options}
        return _entry("tiled_attention", spec, variant, options=lambda _: {**complete, "rng": _generator()})

    grouped_wrong = "k+1 v+1 q:float32"
    refused = "k+0 k-1 v+2 k.T q:float32 q:int64 q[list]"
    return [
        entry(QKV, "T_q and T_k differ", wrong=refused),
        entry("q: T_q d_k, k: T_k d_k, v: T_k d_v", "no leading axes", wrong="k-1 v+0"),
        entry(
            "q: B T_q d_k, k: B T_k d_k, v: B T_k d_v, mask: bool B T_q T_k", "one head, mask",
            wrong="mask+1 mask:float64"
        ),
        entry(QKV + ", mask: bool T_q T_k", "mask", wrong="mask+0 mask:int64"),
        entry(QKV + ", mask: bool B 1 1 T_k", "padding mask"),
        entry(QKV + ", mask: bool B H T_q T_k", "mask of each head"),
        entry(QKV + ", mask: bool T_q T_k", "nothing to see", prepare=_nothing_to_see),
        entry(QKV + ", bias: B H T_q T_k", "bias", wrong="bias+2 bias:float32"),
        entry(QKV + ", bias: H 1 T_k", "bias that is broadcast", wrong="bias+2"),
        entry(QKV + ", mask: bool T_q T_k, bias: H T_q T_k", "mask and bias"),
        entry(QKV + ", bias: B 1 T_q T_k, mask: bool B 1 T_q T_k", "both, and a scale", options={"scale": 0.7}),
        entry(QKV, "scale", options={"scale": 0.3}),
        entry(QKV, "saturated", prepare=_times("q", 40.0), tolerance=1e-5),
        entry(QKV, "dropout", options=lambda _: {"dropout": 0.4, "rng": _generator()}),
        entry(
            QKV + ", mask: bool B 1 T_q T_k, bias: T_q T_k", "mask, bias and dropout",
            options=lambda _: {"dropout": 0.3, "rng": _generator()}
        ),
        entry(GROUPED + GROUPS, "grouped heads", at_least={"G": 2, "H_kv": 2}, wrong=grouped_wrong),
        entry(GROUPED + ", mask: bool B 1 T_q T_k, bias: H_q T_q T_k" + GROUPS, "grouped heads, mask and bias"),
        entry(
            GROUPED + ", mask: bool B H_q T_q T_k" + GROUPS, "grouped heads, mask and dropout",
            options=lambda _: {"dropout": 0.3, "rng": _generator()}
        ),
        tiled(QKV, "one tile", wrong=refused),
        tiled(QKV, "tiles of 2", block_size=2),
        tiled(QKV + ", mask: bool T_q T_k", "mask, tiles of 1", block_size=1, wrong="mask+0 mask:int64"),
        tiled(QKV + ", mask: bool B H T_q T_k", "mask of each head, tiles of 3", block_size=3),
        tiled(QKV, "causal, tiles of 2", block_size=2, causal=True),
        tiled("q: B H T d_k, k: B H T d_k, v: B H T d_v", "causal square, tiles of 3", block_size=3, causal=True),
        tiled(QKV + ", mask: bool B 1 T_q T_k", "causal and mask, tiles of 2", block_size=2, causal=True),
        tiled("q: T_q d_k, k: T_k d_k, v: T_k d_v", "no leading axes, scale", block_size=2, scale=0.4),
        tiled("q: T_q d_k, k: T_k d_k, v: T_k d_v, mask: bool T_q T_k", "no leading axes, mask", block_size=2),
        tiled("q: H T_q d_k, k: H 2 d_k, v: H 2 d_v, mask: bool H 1 2", "padding mask, tiles of 1", block_size=1),
        tiled("q: H 2 d_k, k: H T_k d_k, v: H T_k d_v, mask: bool H 2 1", "mask of queries, tiles of 1", block_size=1),
        tiled(GROUPED + ", mask: bool T_q T_k" + GROUPS, "grouped heads and mask, tiles of 2", block_size=2),
        tiled("q: B H T d_k, k: B H T d_k, v: B H T d_v", "window of 2", block_size=3, causal=True, window=2),
        tiled(QKV + ", mask: bool T_q T_k", "window and mask, tiles of 2", block_size=2, causal=True, window=3),
        tiled_alibi(QKV, "ALiBi, tiles of 2", block_size=2),
        tiled_alibi("q: B H T d_k, k: B H T d_k, v: B H T d_v", "ALiBi, causal", block_size=3, causal=True),
        tiled_dropout(QKV, "dropout, tiles of 2", block_size=2),
        tiled_dropout("q: B H T d_k, k: B H T d_k, v: B H T d_v", "dropout, causal", block_size=2, causal=True),
        tiled_alibi(
            GROUPED + ", mask: bool B 1 T_q T_k" + GROUPS, "grouped heads, causal, all at once", dropout=0.3,
            block_size=2, causal=True, window=3
        ),
    ]


OPS: tuple[Entry, ...] = (*_basics(), *_softmax_and_norms(), *_losses(), *_attention())
