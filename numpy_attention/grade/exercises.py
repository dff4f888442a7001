"""The list of exercises, in reading order: name, title, what is claimed of a right answer, and its tries.

A new exercise is an entry here, three hints in `hints`, a page of its name in `solutions`, and a file of its name in
tutorials/exercises with the forward written and the backward left to do.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.catalogue.trials import trial_of_adam, trial_of_causal_mask
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.grade.exercise import Exercise, Try, adam_imprint, masks_imprint, no_square_array, of_results

ATTENTION = "scaled_dot_product_attention"
QKV = "q: B H T_q d_k, k: B H T_k d_k, v: B H T_k d_v"
GROUPED = "q: B H_q T_q d_k, k: B H_kv T_k d_k, v: B H_kv T_k d_v"
DIFFERENCES = (
    "float32 in, float32 out; every element of the gradient agrees with differences of the forward, for a random dy"
)


def _off(_: Sizes) -> dict[str, Any]:
    return {"rate": 0.4, "rng": None}


def _on(_: Sizes) -> dict[str, Any]:
    return {"rate": 0.4, "rng": np.random.default_rng(3)}


def _heads(sizes: Sizes) -> dict[str, Any]:
    return {"num_heads": sizes["H"]}


def _dropout(_: Sizes) -> dict[str, Any]:
    return {"dropout": 0.4, "rng": np.random.default_rng(3)}


def _width(sizes: Sizes) -> int:
    H, d_k = sizes["H"], sizes["d_k"]
    assert isinstance(H, int)
    assert isinstance(d_k, int)
    return H * d_k


def _attention(cls: Any, sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Any:
    return cls(_width(sizes), sizes["H"], rng, dtype=dtype)


def _low_rank(rank: int, alpha: float) -> Callable[..., Any]:
    def build(cls: Any, sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Any:
        d_in = sizes["d_in"]
        assert isinstance(d_in, int)
        return cls(rng.standard_normal((d_in, 4)).astype(dtype), rank, alpha, rng)

    return build


def _block(cls: Any, sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Any:
    return cls(_width(sizes), sizes["H"], 5, rng, dtype=dtype)


SELF = "x: B T d_model, mask: bool B 1 T T; d_model = H*d_k"
CROSS = "x: B T_q d_model, context: B T_k d_model, mask: bool B 1 T_q T_k; d_model = H*d_k"
SMALL = {"B": 2, "H": 2}

_LIST = (
    Exercise(
        "softmax", "the gradient of the softmax", f"{DIFFERENCES}, along any axis; its rows sum to zero.",
        (
            Try("softmax", "x: ... d", "last axis"), Try("softmax", "x: A B C", "axis 0", {"axis": 0}),
            Try("softmax", "x: A B C", "axis 1", {"axis": 1}),
        ),
    ),
    Exercise(
        "linear", "the gradients of a linear map", f"{DIFFERENCES} and any number of leading axes.",
        (
            Try("linear", "x: N d_in, w: d_in d_out, b: d_out", "a batch of rows"),
            Try("linear", "x: B T d_in, w: d_in d_out, b: d_out", "a batch of sequences"),
            Try("linear", "x: ... d_in, w: d_in d_out, b: d_out", "any leading axes"),
        ),
    ),
    Exercise(
        "embedding", "the gradient of an embedding", f"{DIFFERENCES} and ids that repeat.",
        (
            Try("embedding", "ids: int<V> B T, table: V d_model"),
            Try("embedding", "ids: int<V> N, table: V d", "one sentence"),
        ),
    ),
    of_results(
        "attention_forward", "attention from nothing",
        "Both results agree with the formula, with T_q != T_k, masks that hide whole rows, scores of a thousand; "
        "float32 in, float32 out.",
        "attention", theirs_to_write=(ATTENTION, "tiled_attention"),
    ),
    Exercise(
        "attention", "the gradients of attention", f"{DIFFERENCES}, T_q != T_k, and masks that hide whole rows.",
        (
            Try(ATTENTION, QKV), Try(ATTENTION, QKV + ", mask: bool T_q T_k", "mask"),
            Try(ATTENTION, "q: T_q d_k, k: T_k d_k, v: T_k d_v, mask: bool T_q T_k", "no leading axes"),
        ),
        leave_out=("dv_before_dropout", "broadcast_bias_not_summed", "first_head_of_the_group"),
    ),
    Exercise(
        "causal_mask", "the causal mask, and a softmax that minds it",
        "mask[i, j] is True exactly when key j is not after query i, the last query standing at the last key; "
        "rows that see nothing get zero gradient, never NaN; float32 in, float32 out.",
        (Try("causal_softmax", "x: B T_q T_k, mask: bool T_q T_k"),),
        trials={"causal_mask": {"does what it says": trial_of_causal_mask}}, imprints={"causal_mask": masks_imprint},
    ),
    Exercise(
        "heads", "splitting and joining heads", f"{DIFFERENCES}; every number goes back to where it came from.",
        (Try("split_heads", "x: ... T H*d_k", "", _heads, at_least={"H": 2}), Try("concat_heads", "x: ... H T d_v")),
    ),
    Exercise(
        "attention_options", "attention with bias, dropout and shared heads",
        f"{DIFFERENCES}, with a bias that is broadcast, dropout on the weights, and several query heads to a key head.",
        (
            Try(ATTENTION, QKV + ", bias: H 1 T_k", "bias"), Try(ATTENTION, QKV + ", mask: bool T_q T_k", "mask"),
            Try(ATTENTION, QKV + ", bias: B H T_q T_k", "dropout", _dropout),
            Try(ATTENTION, GROUPED + "; H_q = G*H_kv", "shared heads", at_least={"G": 2}),
        ),
    ),
    Exercise(
        "dropout", "dropout from nothing", f"{DIFFERENCES}, with a generator and without.",
        (Try("dropout", "x: N d", "in training", _on), Try("dropout", "x: ... d", "in use", _off)),
        leave_out=("one_mask_for_two_uses",),  # no single run shows it; the checker runs a second, and says so
        from_nothing=True,
    ),
    Exercise(
        "multi_head_attention", "the gradients of multi-head attention",
        f"{DIFFERENCES}: for x, for the context, and for all four weight matrices.",
        (
            Try("MultiHeadAttention", SELF, "self", build=_attention, fixed=SMALL),
            Try("MultiHeadAttention", CROSS, "cross", build=_attention, fixed=SMALL),
        ),
        parts=(
            "linear_backward", "split_heads_backward", "concat_heads_backward", "scaled_dot_product_attention_backward",
        ),
    ),
    Exercise(
        "rotary", "rotary positions from nothing", f"{DIFFERENCES}; and every vector keeps its length.",
        (
            Try("rotary", "x: T 2*d, positions: int<60> T", "one sequence"),
            Try("rotary", "x: B H T 2*d, positions: int<60> T", "a batch of heads, another base", {"base": 100.0}),
        ),
        from_nothing=True,
    ),
    Exercise(
        "layer_norm", "the gradients of layer norm", f"{DIFFERENCES} and a random gamma.",
        (
            Try("layer_norm", "x: B T d, gamma: d, beta: d", "a batch of sequences", at_least={"d": 3}),
            Try("layer_norm", "x: N d, gamma: d, beta: d", "large eps", {"eps": 0.3}, at_least={"d": 3}),
            Try("layer_norm", "x: ... d, gamma: d, beta: d", "any leading axes", at_least={"d": 3}),
        ),
    ),
    Exercise(
        "rms_norm", "RMS norm from nothing", f"{DIFFERENCES} and a random gamma.",
        (
            Try("rms_norm", "x: B T d, gamma: d", "a batch of sequences", at_least={"d": 3}),
            Try("rms_norm", "x: N d, gamma: d", "large eps", {"eps": 0.3}, at_least={"d": 3}),
            Try("rms_norm", "x: ... d, gamma: d", "any leading axes", at_least={"d": 3}),
        ),
        from_nothing=True,
    ),
    Exercise(
        "gelu", "the gradient of GELU (tanh form)", f"{DIFFERENCES}, to nine digits: the erf form is only near.",
        (Try("gelu", "x: ... d"), Try("gelu", "x: B d", "a matrix")),
    ),
    Exercise(
        "encoder_block", "the gradients of a whole encoder block", f"{DIFFERENCES}: for x and for every parameter.",
        (Try("EncoderBlock", SELF, build=_block, fixed={"B": 2, "T": 3, "H": 2, "d_k": 2}),),
        parts=("MultiHeadAttention", "FeedForward", "LayerNorm"),
    ),
    of_results(
        "differences", "a gradient by differences", "Each element is the central difference of sum(dy * f(x)).",
        "differences",
    ),
    Exercise(
        "cross_entropy", "the gradient of the cross-entropy", f"{DIFFERENCES}; ignored places get exactly zero.",
        (
            Try("cross_entropy", "logits: B T V, targets: int<V> B T"),
            Try("cross_entropy", "logits: B T V, targets: int<V|-100> B T", "ignored places"),
            Try("cross_entropy", "logits: N V, targets: int<V|-100> N", "smoothing", {"label_smoothing": 0.2}),
        ),
    ),
    Exercise(
        "adam", "one step of Adam",
        "Four steps agree with steps by hand, element by element, tiny gradients among them.",
        trials={"Adam": {"does what it says": trial_of_adam}}, imprints={"Adam": adam_imprint},
    ),
    Exercise(
        "tied_table", "the two gradients of a tied table", f"{DIFFERENCES} and ids that repeat.",
        (
            Try("tied_table", "ids: int<V> B T, table: V d, w: d d", "a batch"),
            Try("tied_table", "ids: int<V> N, table: V d, w: d d", "one sentence"),
        ),
    ),
    of_results(
        "byte_pairs", "byte pairs from nothing", "The same merges and the same ids, ties and repeats among them.",
        "learn_merges", "encode", theirs_to_write=("merged", "count_chunks"),
    ),
    of_results(
        "kv_cache", "attention with stored keys", "The outputs and the longer store, of one new token and of several.",
        "next_outputs", theirs_to_write=(ATTENTION, "tiled_attention", "causal_mask"),
    ),
    of_results(
        "top_p", "the next token, by top-p", "The probabilities that are kept, and the token for a number u in [0, 1).",
        "top_p", "draw",
    ),
    Exercise(
        "tiled_attention", "attention in little memory",
        f"{DIFFERENCES}, masks among them; and no array of T_q x T_k is ever built.",
        (
            Try("tiled_attention", "q: T_q d_k, k: T_k d_k, v: T_k d_v", "tiles of 2", {"block_size": 2}),
            Try("tiled_attention", "q: T_q d_k, k: T_k d_k, v: T_k d_v, mask: bool T_q T_k", "mask", {"block_size": 3}),
        ),
        memory=no_square_array, leave_out=("dropout_of_another_tile", "distance_forgotten"),
    ),
    of_results(
        "several_workers", "one gradient from several workers", "The gradient of the mean over the places of all.",
        "joined_gradient",
    ),
    Exercise(
        "low_rank", "the gradients of a change of low rank",
        f"{DIFFERENCES}: for x, a and b, and none for the frozen w.",
        (
            Try("LowRank", "x: ... d_in", "rank 2", build=_low_rank(2, 3.0)),
            Try("LowRank", "x: B T d_in", "rank 1", build=_low_rank(1, 0.5)),
        ),
    ),
    Exercise(
        "ablation", "the gradients of an edit", f"{DIFFERENCES}, whatever is kept, and an add that is repeated.",
        (
            Try("edit", "x: B T d, keep: bool B T d", "keep"), Try("edit", "x: B T d, add: B T d", "add"),
            Try("edit", "x: B H T d_v, keep: bool H 1 1, add: B H T d_v", "a head thrown away, and a patch"),
            Try("edit", "x: B T d, add: d", "a vector"), Try("edit", "x: B H T d_v, add: H 1 d_v", "one for each head"),
        ),
    ),
    of_results(
        "prefix_matching", "heads that look for what came last time",
        "The mean weight on the key behind the earlier copy, of one head and of several; float32 in, float32 out.",
        "prefix_matching",
    ),
    of_results(
        "direct_effect", "what a part of the stream says about a token",
        "The effect at each position, through the norm of the whole stream; float32 in, float32 out.", "direct_effect",
    ),
)

EXERCISES: dict[str, Exercise] = {exercise.name: exercise for exercise in _LIST}
