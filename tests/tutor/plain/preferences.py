"""The plain forms of the losses on pairs of answers, one pair after the other."""

import math

import numpy as np

from numpy_attention.tutor.entry import Array


def plain_sequence_log_probability(
    logits: Array, targets: Array, mask: Array | None = None, average: bool = False
) -> Array:
    """Adds the logarithm of the softmax of each token that counts."""
    found = []
    for b, row in enumerate(logits):
        counted = [t for t in range(len(row)) if targets[b, t] != -100 and (mask is None or mask[b, t])]
        terms = [row[t, targets[b, t]] - np.logaddexp.reduce(row[t]) for t in counted]
        found.append(math.fsum(terms) / (max(len(terms), 1) if average else 1))
    return np.array(found)


def plain_bradley_terry_loss(chosen: Array, rejected: Array) -> Array:
    """Computes log(exp(chosen) + exp(rejected)) - chosen."""
    return np.mean([np.logaddexp(c, r) - c for c, r in zip(chosen, rejected)])


def plain_dpo_loss(
    chosen: Array, rejected: Array, reference_chosen: Array, reference_rejected: Array, beta: float = 0.1
) -> Array:
    """Compares the difference of the two policies with that of the references, one pair after the other."""
    pairs = zip(chosen - rejected, reference_chosen - reference_rejected)
    return np.mean([np.logaddexp(0.0, -beta * (ours - theirs)) for ours, theirs in pairs])


PLAIN = {
    "sequence_log_probability": plain_sequence_log_probability, "bradley_terry_loss": plain_bradley_terry_loss,
    "dpo_loss": plain_dpo_loss,
}
