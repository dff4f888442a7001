"""Chapter 28. The training loop

    batch = inputs and targets
      |
      |   loss, cache = model.loss(*batch)          forward
      v
    grads = model.backward(cache)                   backward
      |
      |   scaled to a joint norm of at most `clip`  Chapter 25, appendix
      v
    parameters -= update from grads and the rate of this step                        Chapters 25 and 26
      |
      +---> next batch

If the activations of a batch do not fit into memory, the batch is cut into shards with n_1, ..., n_K counted targets
(padding, for example, is not counted). The loss of the batch is a mean over all n counted targets, so it is a weighted
mean of the losses of the shards, and their gradients are added with the same weights:

    loss = sum_i (n_i / n) loss_i            d loss / d p = sum_i (n_i / n) d loss_i / d p

The plain mean of the shard losses would be wrong: a shard with much padding would count too much.

That is all of training. The chapters from 29 on add what a long run needs around these lines: threads, machines,
checkpoints, a log. They call the same `take_step`.

    losses = train(model, AdamW(model.parameters()), batches, lambda step: warmup_cosine(step, 500, 50, 3e-3))
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from numpy_attention.backend import to_host
from numpy_attention.errors import require_size
from numpy_attention.training.c25_optimizers import SGD, Adam
from numpy_attention.training.c25a_clipping import clip_by_global_norm, norm_of_finite_square

Batch = tuple[np.ndarray, ...]


def train(
    model: Any, optimizer: SGD | Adam, batches: Iterable[Batch],
    rate: Callable[[int], float] | None = None, clip: float = 1.0, rng: np.random.Generator | None = None,
    accumulate: int = 1,
) -> list[float]:
    """Take one step for each batch, and return the loss before each step.

    A batch holds the arguments of `model.loss`. rate(step) is the learning rate of a step, counted from 0; the default
    is the rate of the optimizer. With `rng`, dropout is on. With `accumulate`, each batch is cut into this many shards,
    to save memory; its last array must be the targets. The parameters of the model change in place.
    """
    require_size("train", "accumulate", accumulate)
    losses = []
    for step, batch in enumerate(batches):
        if accumulate > 1:
            loss, grads = in_shards(model, batch, accumulate, rng)
        else:
            loss, cache = model.loss(*batch, training=True, rng=rng)
            grads = model.backward(cache)
        learning_rate = rate(step) if rate else optimizer.learning_rate
        loss, _ = take_step(optimizer, loss, grads, learning_rate, clip)
        losses.append(loss)
    return losses


def in_shards(
    model: Any, batch: Batch, count: int, rng: np.random.Generator | None
) -> tuple[Any, dict[str, np.ndarray]]:
    """The loss of a batch and its gradients, one shard after the other."""
    loss: Any = 0.0
    grads: dict[str, np.ndarray] = {}
    for shard, weight in weighted_shards(batch, count):
        of_shard, cache = model.loss(*shard, training=True, rng=rng)
        loss = loss + weight * of_shard.astype(np.float64)
        for name, g in model.backward(cache, dloss=weight).items():
            grads[name] = grads[name] + g if name in grads else g
    return loss, grads


def shards(batch: Batch, count: int) -> list[Batch]:
    """Cut the batch along its first axis into `count` shards of nearly equal size (fewer if it has fewer examples)."""
    count = min(count, len(batch[0]))
    return list(zip(*(np.array_split(array, count) for array in batch), strict=True))


def count_targets(batch: Batch, ignore_index: int = -100) -> int:
    """The number of targets that enter the mean; the targets are the last array of a batch."""
    return int((batch[-1] != ignore_index).sum())


def weighted_shards(batch: Batch, count: int) -> list[tuple[Batch, float]]:
    """The shards of a batch, each with its weight n_i / n in the loss."""
    if count == 1:
        return [(batch, 1.0)]
    cut = shards(batch, count)
    counts = [count_targets(shard) for shard in cut]
    return [(shard, n / max(sum(counts), 1)) for shard, n in zip(cut, counts, strict=True)]


def take_step(
    optimizer: SGD | Adam, loss: Any, grads: dict[str, np.ndarray], learning_rate: float, clip: float
) -> tuple[float, float]:
    """Clip the gradients (not for clip = 0) and update the parameters; return the loss and the norm before clipping.

    If the loss or the norm is not finite, the parameters do not change: a NaN in one of them would spread to every
    later loss.
    """
    norm: Any = clip_by_global_norm(grads, clip) if clip != 0 else norm_of_finite_square(grads)
    loss, norm = to_host(np.stack([loss, norm])).tolist()  # the only place in a step that waits for a GPU
    if math.isfinite(loss) and math.isfinite(norm):
        optimizer.step(grads, learning_rate)
    return loss, norm
