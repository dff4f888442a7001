"""The embedding (op: Chapter 2, layer: Chapter 15): gradients of repeated ids and of a tied table are sums."""

from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, layer_entry, op_entry, size_of
from numpy_attention.catalogue.exercise import Exercise, Try
from numpy_attention.catalogue.mistake import backward_of
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.layers.embedding import Embedding
from numpy_attention.ops.embedding import EmbeddingCache, embedding_backward

CHAPTER = 2


def _layer(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Embedding:
    return Embedding(size_of(sizes, "V"), 3, rng, dtype=dtype)


ENTRIES = (
    op_entry(
        "embedding", "ids: int<V> B T, table: V d_model", wrong="ids:float64 ids=-1 ids=999 table[more] ids[list]"
    ),
    op_entry("embedding", "ids: int<V> ..., table: V d_model", "any leading axes"),
    layer_entry(Embedding, "", "ids: int<V> B T", _layer, wrong="ids:float64 ids=999"),
)


def plain_embedding(ids: Array, table: Array) -> Array:
    """Returns one row of the table for each id."""
    return np.reshape([table[i] for i in ids.reshape(-1)], (*ids.shape, table.shape[1]))


PLAIN = {"embedding": plain_embedding}


@backward_of("embedding", diagnosis="keeps only the last of several terms where an index repeats")
def last_id_wins(dy: Array, cache: EmbeddingCache) -> Array:
    """A token that occurs three times gets only the gradient of its last place: `d[ids] = dy`.

    Hides: right if all ids of the batch differ.
    """
    dtable = np.zeros_like(cache.table)
    dtable[cache.ids] = dy
    return dtable


@backward_of("embedding", diagnosis="keeps only the last of several terms where an index repeats")
def buffered_plus(dy: Array, cache: EmbeddingCache) -> Array:
    """`d[ids] += dy` looks like a sum, but NumPy reads d[ids] once, before it writes, so repeated ids are lost.

    Hides: right if all ids of the batch differ.
    """
    dtable = np.zeros_like(cache.table)
    dtable[cache.ids] += dy
    return dtable


@backward_of("embedding")
def mean_of_all_places(dy: Array, cache: EmbeddingCache) -> Array:
    """Every row of the table gets the mean of all dy, but it must get the sum of dy over the places of its id.

    Hides: right for a table with one row that is used once.
    """
    return np.zeros_like(cache.table) + dy.reshape(-1, dy.shape[-1]).mean(axis=0)


@backward_of("embedding")
def mean_of_all_places_for_the_rows_read(dy: Array, cache: EmbeddingCache) -> Array:
    """Every used row gets the mean of all dy instead of the sum of dy over the places of its id.

    Hides: right for a single id that is used once, and for unused rows.
    """
    dtable = np.zeros_like(cache.table)
    dtable[cache.ids] = dy.reshape(-1, dy.shape[-1]).mean(axis=0)
    return dtable


@backward_of("embedding")
def mean_of_its_places(dy: Array, cache: EmbeddingCache) -> Array:
    """A row that is used n times gets the mean of its n terms instead of their sum, but every use affects the loss.

    Hides: right if all ids differ.
    """
    uses = np.bincount(cache.ids.reshape(-1), minlength=len(cache.table))
    return embedding_backward(dy, cache) / np.maximum(uses, 1).astype(dy.dtype)[:, None]


@backward_of("embedding")
def ids_not_flattened(dy: Array, cache: EmbeddingCache) -> Array:
    """The loop runs only over the first axis: if ids has two axes, v is a row of ids, and += loses its repeated ids.

    Hides: right for ids with one axis (one sentence), and for a batch in which no row repeats an id.
    """
    dtable = np.zeros_like(cache.table)
    for n, v in enumerate(cache.ids):
        dtable[v] += dy[n]
    return dtable


def tied_table(ids: Array, table: Array, w: Array) -> Any:
    """A tiny model that uses its table twice, at the input and at the output."""
    x = table[ids]
    h = x @ w
    return h @ table.T, (ids, table, w, x, h)


def tied_table_backward(dlogits: Array, cache: Any) -> tuple[Array, Array]:
    """The gradient of the table is the sum of two gradients."""
    ids, table, w, x, h = cache
    dh = dlogits @ table
    dtable = rows_together(dlogits, h)
    np.add.at(dtable, ids, dh @ w.T)
    return dtable, rows_together(x, dh)


def rows_together(a: Array, b: Array) -> Array:
    """a^T b over all rows."""
    return np.asarray(a.reshape(-1, a.shape[-1]).T @ b.reshape(-1, b.shape[-1]))


@backward_of("tied_table")
def only_the_rows_read(dlogits: Array, cache: Any) -> Any:
    """dtable contains only the gradient through the lookup; the gradient through the logits must be added.

    Hides: the loss falls; only unused rows do not learn at all.
    """
    *_, h = cache
    whole, dw = tied_table_backward(dlogits, cache)
    return whole - rows_together(dlogits, h), dw


@backward_of("tied_table")
def only_the_logits(dlogits: Array, cache: Any) -> Any:
    """dtable contains only the gradient through the logits; the gradient through the lookup must be added.

    Hides: the loss falls, and every row learns.
    """
    return rows_together(dlogits, cache[-1]), tied_table_backward(dlogits, cache)[1]


@backward_of("tied_table")
def repeats_lost_in_the_tied_table(dlogits: Array, cache: Any) -> Any:
    """dtable[ids] += ... reads dtable[ids] once, before it writes, so an id that occurs twice loses one gradient.

    Hides: right if all ids differ.
    """
    ids, table, w, _, h = cache
    dtable = rows_together(dlogits, h)
    dtable[ids] += dlogits @ table @ w.T
    return dtable, tied_table_backward(dlogits, cache)[1]


@backward_of("tied_table")
def two_gradients_averaged(dlogits: Array, cache: Any) -> Any:
    """dtable is the mean of its two gradients instead of their sum, but both uses affect the loss.

    Hides: the direction is right, and the learning rate absorbs the factor.
    """
    dtable, dw = tied_table_backward(dlogits, cache)
    return dtable / 2, dw


OURS = {"tied_table": tied_table, "tied_table_backward": tied_table_backward}
EXERCISES = (
    Exercise("embedding", 1, (
        Try("embedding", "ids: int<V> B T, table: V d_model"),
        Try("embedding", "ids: int<V> N, table: V d", "one sentence"),
    )),
    Exercise("tied_table", 12, (
        Try("tied_table", "ids: int<V> B T, table: V d, w: d d", "a batch"),
        Try("tied_table", "ids: int<V> N, table: V d, w: d d", "one sentence"),
    )),
)
