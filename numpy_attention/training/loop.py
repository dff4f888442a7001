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

That is all of training. The chapters from 29 on add what a long run needs around these lines: threads, machines,
checkpoints, a log. They call the same `take_step`.

    losses = train(model, AdamW(model.parameters()), batches, lambda step: warmup_cosine(step, 500, 50, 3e-3))
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from numpy_attention.backend import to_host
from numpy_attention.training.clipping import clip_by_global_norm, global_norm
from numpy_attention.training.optimizers import SGD, Adam


def train(
    model: Any, optimizer: SGD | Adam, batches: Iterable[tuple[np.ndarray, ...]],
    rate: Callable[[int], float] | None = None, clip: float = 1.0, rng: np.random.Generator | None = None,
) -> list[float]:
    """Take one step for each batch, and return the loss before each step.

    A batch holds the arguments of `model.loss`. rate(step) is the learning rate of a step, counted from 0; the default
    is the rate of the optimizer. With `rng`, dropout is on. The parameters of the model change in place.
    """
    losses = []
    for step, batch in enumerate(batches):
        loss, cache = model.loss(*batch, training=True, rng=rng)
        grads = model.backward(cache)
        learning_rate = rate(step) if rate else optimizer.learning_rate
        loss, _ = take_step(optimizer, loss, grads, learning_rate, clip)
        losses.append(loss)
    return losses


def take_step(
    optimizer: SGD | Adam, loss: Any, grads: dict[str, np.ndarray], learning_rate: float, clip: float
) -> tuple[float, float]:
    """Clip the gradients (not for clip = 0) and update the parameters; return the loss and the norm before clipping.

    If the loss or the norm is not finite, the parameters do not change: a NaN in one of them would spread to every
    later loss.
    """
    norm = clip_by_global_norm(grads, clip) if clip != 0 else global_norm(grads)
    # the only place in a step that waits for a GPU
    loss, norm = to_host(np.stack([loss.astype(np.float64), norm.astype(np.float64)])).tolist()
    if math.isfinite(loss) and math.isfinite(norm):
        optimizer.step(grads, learning_rate)
    return loss, norm
