"""The plain form of the clipped policy loss: token by token, with the minimum of the two products as in the papers."""

import math

import numpy as np

from numpy_attention.tutor.entry import Array


def plain_clipped_policy_loss(
    log_probs: Array, old_log_probs: Array, advantages: Array, mask: Array | None = None, clip: float = 0.2,
    clip_high: float | None = None, reference_log_probs: Array | None = None, kl: float = 0.0,
    average: str = "answers", ratio: str = "token",
) -> Array:
    """Adds the losses of the counted tokens of each answer."""
    high = 1 + (clip if clip_high is None else clip_high)
    of_answers: list[list[float]] = []
    for b in range(len(log_probs)):
        counted = [t for t in range(log_probs.shape[1]) if mask is None or mask[b, t]]
        changes = [log_probs[b, t] - old_log_probs[b, t] for t in counted]
        if ratio == "sequence":
            changes = [sum(changes) / len(changes)] * len(changes) if changes else []
        losses = []
        for t, change in zip(counted, changes):
            r, A = math.exp(change), advantages[b]
            loss = -min(r * A, min(max(r, 1 - clip), high) * A)
            if reference_log_probs is not None:
                x = reference_log_probs[b, t] - log_probs[b, t]
                loss += kl * (math.exp(x) - x - 1)
            losses.append(loss)
        of_answers.append(losses)
    if average == "answers":
        return np.mean([sum(losses) / max(len(losses), 1) for losses in of_answers])
    return np.sum([sum(losses) for losses in of_answers]) / max(sum(map(len, of_answers)), 1)


PLAIN = {"clipped_policy_loss": plain_clipped_policy_loss}
