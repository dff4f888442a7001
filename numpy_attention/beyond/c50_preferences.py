"""Chapter 50. Preferences: which of two answers is better?

The cross-entropy of Chapter 11 needs the right token at every position. Often we know less: of two answers to one
question, people prefer one. Three functions lead from this knowledge to a gradient.

The **log-probability of an answer** is the sum over its tokens of -loss, the loss of Chapter 11. The mask m hides the
tokens of the question, since the model did not choose them:

    L = sum_t m_t log p_t[token t]        dlogits_t = dL m_t ([v = token] - p_t)

A **reward model** gives each answer one number, its reward. The probability that the chosen answer is preferred to the
rejected one is sigmoid(z), where z is the difference of their rewards. The loss is the negative log of it:

    loss = -log sigmoid(z) = log(1 + exp(-z)),  z = reward_chosen - reward_rejected        dz = -sigmoid(-z)

If both rewards are equal, the loss is log 2 = 0.693. sigmoid(-z) is the probability of the wrong order: a pair that is
already clearly in order has almost no gradient.

**DPO** needs no reward model. The policy itself gives the reward: beta times how much more probable the answer is than
under the reference, the model before this training:

    reward = beta (L - L_reference)        loss as above

    dL_chosen = -beta sigmoid(-z)        dL_rejected = +beta sigmoid(-z)

At the start the policy is the reference, so both rewards are 0 and the loss is log 2. Only the difference of the
rewards counts. Both may fall: the answers share tokens, and what lowers the rejected one often lowers the chosen one.
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent, require_number
from numpy_attention.ops.c11_losses import require_single
from numpy_attention.ops.c11a_weighted_losses import (
    WeightedCrossEntropyCache,
    weighted_cross_entropy,
    weighted_cross_entropy_backward,
)
from numpy_attention.shapes import check_shapes

SHAPES = {
    "sequence_log_probability": "logits: B T V, targets: int<V|-100> B T, mask?: bool B T; V >= 1",
    "bradley_terry_loss": "chosen: B, rejected: B; B >= 1",
    "dpo_loss": "chosen: B, rejected: B, reference_chosen: B, reference_rejected: B; B >= 1",
}
FIXES = {"targets": "one id for each row of logits: row t predicts token t + 1", "mask": "True for a token that counts"}


class SequenceLogProbabilityCache(NamedTuple):
    """The cache of the losses of all tokens, and the weight of each token in the sum."""

    losses: WeightedCrossEntropyCache
    share: np.ndarray  # (B, T), 1 or 0; 1 / n or 0 for an average


def sequence_log_probability(
    logits: np.ndarray, targets: np.ndarray, mask: np.ndarray | None = None, average: bool = False
) -> tuple[np.ndarray, SequenceLogProbabilityCache]:
    """The log-probability of each answer: the sum, or the average, over the tokens that the mask shows.

    Formula: y = sum_t m_t log p_t[token t], divided by sum_t m_t for average=True; an answer without tokens gives 0

    Shapes: logits (B, T, V), targets (B, T) of integers in [0, V), or -100 for a token that does not count,
    mask (B, T), True for a token of the answer -> y (B,)

    Units: nats, or nats per token.

    Raises: ValueError for a token outside [0, V) or shapes that do not fit; TypeError for targets that are not integers
    or a mask that is not bool.

    Source: Rafailov et al., Direct Preference Optimization (2023), appendix B; the average: Meng, Xia, Chen, SimPO
    (2024), section 2.2.

    >>> sequence_log_probability(np.zeros((1, 3, 4)), np.array([[-100, 3, 1]]))[0] / np.log(4.0)
    array([-2.])
    """
    op = "sequence_log_probability"
    check_shapes(op, SHAPES[op], fixes=FIXES, logits=logits, targets=targets, mask=mask)
    targets = np.asarray(targets, like=logits)
    if mask is not None:
        targets = np.where(np.asarray(mask, like=logits), targets, -100)
    losses, of_losses = weighted_cross_entropy(logits, targets, reduction="none")  # (B, T), -log p of each token
    share = token_shares(targets != -100, losses, average)
    return -(losses * share).sum(axis=1), SequenceLogProbabilityCache(of_losses, share)


def sequence_log_probability_backward(dy: np.ndarray, cache: SequenceLogProbabilityCache) -> np.ndarray:
    """Gradient of `sequence_log_probability`: dlogits = dy m ([v = token] - p), divided by n for an average.

    Shapes: dy (B,) -> dlogits (B, T, V)
    """
    p = cache.losses.softmax.y  # (B, T, V)
    require_cotangent("sequence_log_probability_backward", "dy", dy, p.shape[:1], p.dtype)
    # y = -sum of losses * share
    return weighted_cross_entropy_backward(-dy[:, None] * cache.share, cache.losses)


def token_shares(mask: np.ndarray | None, like: np.ndarray, average: bool) -> np.ndarray:
    """The weight of each token: 1 where it counts, or 1 / n for an average over the n counted tokens of a row.

    Shapes: mask (B, T) or None -> (B, T), in the real dtype of `like`
    """
    counted = np.ones_like(like.real) if mask is None else np.asarray(mask, like=like).astype(like.real.dtype)
    return counted / np.maximum(counted.sum(axis=1, keepdims=True), 1) if average else counted


def bradley_terry_loss(chosen: np.ndarray, rejected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The loss of a reward model: the chosen answer of each pair must get the larger reward.

    Formula: loss = mean of -log sigmoid(chosen - rejected)

    Shapes: chosen (B,), rejected (B,) -> loss, a single number

    Units: nats; the rewards are log-odds.

    Raises: ValueError when the shapes differ; TypeError when the arrays are not floats of one dtype.

    Source: Bradley, Terry, Rank Analysis of Incomplete Block Designs (1952); for answers of a model: Ouyang et al.,
    Training Language Models to Follow Instructions with Human Feedback (2022), equation 1.

    >>> bradley_terry_loss(np.array([0.3, 5.0]), np.array([0.3, -995.0]))[0].round(4)  # log(2) / 2
    np.float64(0.3466)
    """
    check_shapes("bradley_terry_loss", SHAPES["bradley_terry_loss"], chosen=chosen, rejected=rejected)
    z = chosen - rejected  # (B,)
    e = np.exp(np.where(z.real < 0, z, -z))  # exp(-|z|) cannot overflow
    losses = np.where(z.real < 0, -z, 0) + np.log1p(e)
    wrong = np.where(z.real < 0, 1, e) / (1 + e)  # sigmoid(-z), the probability of the wrong order
    return losses.mean(), wrong


def bradley_terry_loss_backward(dloss: np.ndarray | float, cache: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of `bradley_terry_loss`: dchosen = -dloss sigmoid(rejected - chosen) / B, drejected = -dchosen.

    Shapes: dloss a single number -> dchosen (B,), drejected (B,)
    """
    require_single("bradley_terry_loss_backward", dloss)
    # loss = mean of -log sigmoid(z), and wrong = sigmoid(-z)
    dz = (-dloss * cache / len(cache)).astype(cache.dtype)
    # z = chosen - rejected
    return dz, -dz


def dpo_loss(
    chosen: np.ndarray, rejected: np.ndarray, reference_chosen: np.ndarray, reference_rejected: np.ndarray,
    beta: float = 0.1,
) -> tuple[np.ndarray, tuple[np.ndarray, float]]:
    """Direct preference optimization. The four arrays are log-probabilities, from `sequence_log_probability`.

    Formula: loss = mean of -log sigmoid(beta (chosen - reference_chosen) - beta (rejected - reference_rejected))

    Shapes: four arrays (B,) -> loss, a single number

    Units: nats.

    Raises: ValueError when the shapes differ or beta is not above 0; TypeError for arrays that are not floats of one
    dtype.

    Source: Rafailov et al., Direct Preference Optimization (2023), equation 7.

    >>> start = np.array([-7.0]), np.array([-9.0])
    >>> dpo_loss(*start, *start)[0].round(3)  # the policy is the reference
    np.float64(0.693)
    """
    check_shapes(
        "dpo_loss", SHAPES["dpo_loss"], chosen=chosen, rejected=rejected, reference_chosen=reference_chosen,
        reference_rejected=reference_rejected,
    )
    beta = require_number("dpo_loss", "beta", beta, above=0)
    loss, wrong = bradley_terry_loss(beta * (chosen - reference_chosen), beta * (rejected - reference_rejected))
    return loss, (wrong, beta)


def dpo_loss_backward(dloss: np.ndarray | float, cache: tuple[np.ndarray, float]) -> tuple[np.ndarray, ...]:
    """Gradients of `dpo_loss`: dchosen = -dloss beta sigmoid(-z) / B = -drejected; the opposite for the references.

    Shapes: dloss a single number -> four arrays (B,)
    """
    wrong, beta = cache
    # loss = bradley_terry_loss(beta * (chosen - reference_chosen), beta * (rejected - reference_rejected))
    dreward_chosen, dreward_rejected = bradley_terry_loss_backward(dloss, wrong)
    dchosen, drejected = beta * dreward_chosen, beta * dreward_rejected
    return dchosen, drejected, -dchosen, -drejected
