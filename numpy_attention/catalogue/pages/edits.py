"""Edits of activations inside a model (Chapter 38): the op, and each model with an edit at one place."""

from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, Entry, dropout_on
from numpy_attention.catalogue.exercise import Exercise, Try
from numpy_attention.catalogue.mistake import backward_of, op_of
from numpy_attention.catalogue.tiny import GATED, IDS, LENGTHS, TILED, tiny_model
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.inside.edits import Edit, EditCache, edit, edit_backward
from numpy_attention.inside.run import RunCache, backward_with, forward_with
from numpy_attention.layers.layer import Layer, Parameters, prefixed
from numpy_attention.models.gpt import GPT
from numpy_attention.models.seq2seq import Seq2Seq
from numpy_attention.models.sequence_classifier import SequenceClassifier
from numpy_attention.models.text_encoder import TextEncoder
from numpy_attention.ops.sums import sum_to_shape

CHAPTER = 38

PAIRS = "source_ids: int<V> B T_s, target_ids: int<V> B T"
STREAM = "keep: bool B T 4, add: B T 4"
VECTOR = "keep: bool B T 1, add: 4"
HEADS = "keep: bool H 1 1, add: H T 2"
SIZES = {"B": 2, "T": 3, "T_s": 4, "V": 5, "H": 2}
STREAM_AT, OF_HEADS, OF_NETWORK, LAST = "blocks.1", "blocks.0.attention", "blocks.0.feed_forward", "norm"
REFUSED = "x:int64 x[list] keep+0 keep:int64 keep:float64 keep[more] add+0 add-1 add:float32 add:int64 add[list]"


class Edited(Layer):
    """A model with an edit at one place, as a layer: a function of the added array and of all parameters."""

    def __init__(self, model: Any, place: str) -> None:
        self.model, self.place = model, place

    def forward(self, keep: Array, add: Array, **inputs: Any) -> tuple[Array, tuple[RunCache, tuple[int, ...]]]:
        """The output of the model (logits or directions), and the cache for the backward."""
        y, cache = forward_with(self.model, {self.place: Edit(keep, add)}, **inputs)
        return y, (cache, add.shape)

    def backward(self, dy: Array, cache: tuple[RunCache, tuple[int, ...]]) -> tuple[Array, Parameters]:
        """dadd and the gradients of all parameters; ids and keep have no gradient."""
        of_run, add_shape = cache
        d_at, grads = backward_with(dy, of_run)
        return sum_to_shape(d_at[self.place], add_shape), prefixed("model", grads)


def _edit(variant: str, spec: str, wrong: str = "") -> Entry:
    return Entry(f"edit: {variant}" if variant else "edit", "edit", spec, edit, edit_backward, wrong=wrong)


def _run(variant: str, place: str, spec: str, model_of: Any, options: Any = None, wrong: str = "") -> Entry:
    def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Edited:
        return Edited(model_of(sizes, rng, dtype), place)

    return Entry(
        f"forward_with: {variant}", "forward_with", spec, build=build, options=options or {}, wrong=wrong,
        fixed=SIZES, tolerance=1e-5,
    )


def _gpt(variant: str, place: str, spec: str, options: Any = None, wrong: str = "", **model: Any) -> Entry:
    return _run(f"{place}, {variant}", place, f"{IDS}, {spec}", partial(tiny_model, GPT, **model), options, wrong)


def _seq2seq(place: str, spec: str, **model: Any) -> Entry:
    return _run(f"{place}, encoder-decoder", place, f"{PAIRS}, {spec}", partial(tiny_model, Seq2Seq, **model))


_classifier = partial(tiny_model, SequenceClassifier, num_classes=3)
_text_encoder = partial(tiny_model, TextEncoder)


ENTRIES = (
    _edit("", "x: B H T d_v, keep: bool B H T d_v, add: B H T d_v", REFUSED),
    _edit("keep alone", "x: B T d, keep: bool B T d", "keep-1 keep:int64 keep[list] x:int64"),
    _edit("keep of one head", "x: B H T d_v, keep: bool H 1 1"),
    _edit("add alone", "x: ... d, add: d", "add+0 add:float32 add[list]"),
    _edit("add along the batch", "x: B T d, add: T d", "add+0 add-1"),
    _edit("add along batch and time", "x: B H T d_v, keep: bool B 1 T 1, add: H 1 d_v", "keep+0 add+0"),
    _edit("add one number", "x: B T d, keep: bool B T d, add: 1 1 1"),
    _edit("add along the width", "x: B T d, add: B T 1", "add+0"),
    _edit("neither", "x: ... d", "x:int64 x[list]"),
    _gpt("two blocks", STREAM_AT, STREAM, num_layers=2, wrong="keep+1 keep:int64 add-1 add:float32 ids=999"),
    _gpt("a vector at each place", "blocks.0", VECTOR, positions="rotary"),
    _gpt("one head masked", OF_HEADS, HEADS, wrong="keep+0 add+0 add:float32"),
    _gpt("rotary, grouped heads, gated", OF_HEADS, HEADS, positions="rotary", num_kv_heads=1, **GATED),
    _gpt("post-norm, untied", OF_HEADS, HEADS, pre_norm=False, tie_weights=False),
    _gpt("low rank", OF_HEADS, HEADS, rank=2),
    _gpt("in tiles, ALiBi", OF_HEADS, HEADS, **TILED, positions="alibi"),
    _gpt("recomputed, dropout", OF_HEADS, HEADS, dropout_on, recompute=True, dropout=0.3, num_layers=2),
    _gpt("pre-norm", OF_NETWORK, STREAM, num_layers=2),
    _gpt("post-norm", OF_NETWORK, STREAM, pre_norm=False, num_layers=2),
    _gpt("dropout", OF_NETWORK, VECTOR, dropout_on, dropout=0.3),
    _gpt("recomputed", OF_NETWORK, STREAM, recompute=True, num_layers=2),
    _gpt("tied", LAST, STREAM),
    _gpt("rms norm, untied", LAST, VECTOR, tie_weights=False, **GATED),
    _run("blocks.0.attention, classifier", OF_HEADS, f"{IDS}, {HEADS}", _classifier),
    _run("blocks.0.attention, text encoder", OF_HEADS, f"{IDS}, {HEADS}", _text_encoder, LENGTHS),
    _run("blocks.0.feed_forward, text encoder", OF_NETWORK, f"{IDS}, {STREAM}", _text_encoder, LENGTHS),
    _seq2seq("decoder.blocks.0.cross_attention", HEADS),
    _seq2seq("decoder.blocks.0.feed_forward", STREAM, pre_norm=True),
    _seq2seq("encoder.blocks.0.attention", "keep: bool H 1 1, add: H T_s 2", pre_norm=True),
    _seq2seq("encoder.blocks.0", "keep: bool B T_s 4, add: B T_s 4"),
)


def plain_edit(x: Array, keep: Array | None = None, add: Array | None = None) -> Array:
    """Computes one element at a time."""
    kept = np.broadcast_to(np.ones((), bool) if keep is None else keep, x.shape)
    added = np.broadcast_to(np.zeros(()) if add is None else add, x.shape)
    return np.reshape([(x[i] if kept[i] else 0.0) + added[i] for i in np.ndindex(x.shape)], x.shape)


PLAIN = {"edit": plain_edit}


@backward_of("edit", diagnosis="it leaks through elements that keep hides")
def gradient_through_what_was_thrown_away(dy: Array, cache: EditCache) -> Any:
    """dx = dy: removed elements get a gradient, although y does not depend on them.

    Hides: right if everything is kept, and kept elements always have the right gradient.
    """
    return dy.copy(), edit_backward(dy, cache)[1]


@backward_of("edit", diagnosis="the backward inverts keep")
def gradient_of_what_was_thrown_away_alone(dy: Array, cache: EditCache) -> Any:
    """The backward inverts the mask: removed elements get the gradient, and kept elements get none.

    Hides: shapes and sizes are right; if one head is removed, the weights of every head still get some gradient.
    """
    dx, dadd = edit_backward(dy, cache)
    return dx if cache.keep is None else dy - dx, dadd


@backward_of("edit", diagnosis="the backward returns zero where keep is False, but the gradient is not zero there")
def added_only_where_kept(dy: Array, cache: EditCache) -> Any:
    """The gradient of add is multiplied by keep, but add acts everywhere, also where x is removed.

    Hides: right if everything is kept, as in steering; in a patch, which adds where x is removed, add gets no
    gradient.
    """
    dx, dadd = edit_backward(dy, cache)
    return dx, None if dadd is None else sum_to_shape(dx, dadd.shape)


@backward_of("edit", diagnosis="uses only the first row of dy")
def added_vector_not_summed(dy: Array, cache: EditCache) -> Any:
    """A vector that is added at every place acts at every place, but only the gradient of the first place is kept.

    Hides: the shape is right; the numbers are right if add has the shape of x.
    """
    dx, dadd = edit_backward(dy, cache)
    if dadd is None:
        return dx, None
    first = dy[(0,) * (dy.ndim - dadd.ndim)]
    return dx, first[tuple(slice(0, size) for size in dadd.shape)].copy()


@backward_of("edit", diagnosis="once too often")
def added_vector_averaged(dy: Array, cache: EditCache) -> Any:
    """The gradient of a repeated add is a mean over the places, but the effects of all places add up.

    Hides: the direction is right; the numbers are right if add has the shape of x.
    """
    dx, dadd = edit_backward(dy, cache)
    return dx, dadd if dadd is None else dadd * np.asarray(dadd.size / dy.size, dy.dtype)


@op_of("edit", added_only_where_kept, diagnosis="the forward gives")
def added_before_the_mask(x: Array, keep: Array | None = None, add: Array | None = None) -> Any:
    """y = keep * (x + add): the mask must remove only x, but here it also removes add.

    Hides: right if everything is kept, and the backward matches the forward, so no gradient check can find it.
    """
    _, cache = edit(x, keep, add)
    y = x if add is None else x + add
    return np.array(y if keep is None else np.where(keep, y, 0.0)), cache


@backward_of("edit")
def repeated_along_one_axis_alone(dy: Array, cache: EditCache) -> Any:
    """dadd is summed over only one of the axes along which add is repeated; along the others it keeps the first place.

    Hides: right if add is repeated along at most one axis.
    """
    dx, dadd = edit_backward(dy, cache)
    if dadd is None:
        return dx, None
    shape = (1,) * (dy.ndim - dadd.ndim) + dadd.shape
    axes = [axis for axis, size in enumerate(shape) if size == 1 and dy.shape[axis] > 1]
    summed = dy.sum(axis=axes[0], keepdims=True) if axes else dy.copy()
    return dx, summed[tuple(slice(0, size) for size in shape)].reshape(dadd.shape)


@backward_of("edit")
def gradient_of_add_left_at_zero(dy: Array, cache: EditCache) -> Any:
    """dadd is zero, as if y did not depend on add, but a change of add changes y by the same amount.

    Hides: dx is right; without add everything is right.
    """
    dx, dadd = edit_backward(dy, cache)
    return dx, None if dadd is None else np.zeros_like(dadd)


OURS = {"edit": edit, "edit_backward": edit_backward}
EXERCISES = (
    Exercise("ablation", 20, (
        Try("edit", "x: B T d, keep: bool B T d", "keep"), Try("edit", "x: B T d, add: B T d", "add"),
        Try("edit", "x: B H T d_v, keep: bool H 1 1, add: B H T d_v", "one head removed, and a patch"),
        Try("edit", "x: B T d, add: d", "a vector"), Try("edit", "x: B H T d_v, add: H 1 d_v", "one for each head"),
    )),
)
