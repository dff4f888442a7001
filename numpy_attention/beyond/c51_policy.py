"""Chapter 51. Rewards: make better answers more probable

Nobody wrote the right answer, but a checker can say how good an answer is. The model writes several answers to a
question, and each gets a reward. The **advantage** A of an answer says how much better it is than the others of its
group (GRPO):

    A = (reward - mean of the group) / standard deviation of the group

Answers with A > 0 shall become more probable. The **ratio** of a token compares the model with the model that wrote
the answer (`old`):

    ratio = exp(log p - log p_old)        objective = min(ratio A, clip(ratio, 1 - c, 1 + c') A)        usually c' = c

Without the clip, dobjective / dlog p = A ratio. At the first step the model is the one that wrote the answers: every
ratio is 1, nothing is clipped, and since the advantages of a group sum to 0, the loss is 0 (a mean over answers). Its
gradient is not. The clip acts from the second step with the same answers on. A token that already moved enough in the
direction of its advantage (ratio > 1 + c' with A > 0, or ratio < 1 - c with A < 0) has the gradient 0; a token that
moved the wrong way keeps its gradient, because of the minimum. PPO has the same loss, with advantages from a value
network.

The KL penalty keeps the model near a reference. With x = log p_reference - log p of the written token,

    kl = exp(x) - x - 1        dkl / dlog p = 1 - exp(x)

is never negative, 0 only at x = 0. Its mean over texts of the model is the divergence KL(p, p_reference), because the
mean of exp(x) is 1; its gradient, with the texts as constants, is on average that of KL(p_reference, p).

Averages. An answer has n tokens. "answers" first takes the mean over the tokens of each answer: a token of a long
answer counts less, so a long wrong answer is punished too little. "tokens" takes one mean over all tokens of the batch:
a long answer counts more than a short one. With ratio="sequence" all tokens of an answer have one ratio, the geometric
mean of theirs, so an answer is clipped as a whole (GSPO).
"""

from typing import NamedTuple

import numpy as np

from numpy_attention.beyond.c50_preferences import token_shares
from numpy_attention.errors import require_choice, require_number, value_error
from numpy_attention.ops.c11_losses import require_single
from numpy_attention.shapes import check_shapes

SHAPES = {
    "group_advantages": "rewards: float groups answers; answers >= 1",
    "clipped_policy_loss":
        "log_probs: B T, old_log_probs: B T, advantages: B, mask?: bool B T, reference_log_probs?: B T; B >= 1",
}


class ClippedPolicyCache(NamedTuple):
    """What the backward needs, and what a log of the training shows: the ratios and which tokens are clipped."""

    ratio: np.ndarray  # (B, T), or (B, 1) for a whole answer
    clipped: np.ndarray  # of bool, as the ratio: where the objective is constant
    slope: np.ndarray  # the objective is this times A
    advantages: np.ndarray  # (B, 1)
    share: np.ndarray  # (B, T), the weight of each token in the loss
    mean: np.ndarray  # (B, T), the weight of each token in the mean of its answer
    estimate: np.ndarray | None  # (B, T), exp(x) - x - 1, of the KL divergence
    kl_slope: np.ndarray | None  # (B, T), kl (exp(x) - 1)


def group_advantages(rewards: np.ndarray) -> np.ndarray:
    """How much better an answer is than the mean of its group, in standard deviations.

    Formula: (reward - mean) / standard deviation, of each row; a row of equal rewards gives zeros.

    Shapes: rewards (groups, answers) -> (groups, answers). Rewards are data, so there is no backward.

    Raises: ValueError when rewards is not (groups, answers); TypeError when it is not an array of floats.

    Source: Shao et al., DeepSeekMath (2024), section 4.1.2.

    >>> group_advantages(np.array([[1.0, 0.0, 0.0, 1.0], [0.3, 0.3, 0.3, 0.3]]))
    array([[ 1., -1., -1.,  1.],
           [ 0.,  0.,  0.,  0.]])
    """
    check_shapes("group_advantages", SHAPES["group_advantages"], rewards=rewards)
    largest = np.abs(rewards).max(axis=1, keepdims=True)
    rewards = rewards / np.where(largest > 0, largest, 1)  # now the squares neither overflow nor vanish
    difference, spread = rewards - rewards.mean(axis=1, keepdims=True), rewards.std(axis=1, keepdims=True)
    equal = spread <= np.finfo(rewards.dtype).eps  # up to rounding
    return np.where(equal, 0, difference) / np.where(equal, 1, spread)


def clipped_policy_loss(
    log_probs: np.ndarray, old_log_probs: np.ndarray, advantages: np.ndarray, mask: np.ndarray | None = None,
    clip: float = 0.2, clip_high: float | None = None, reference_log_probs: np.ndarray | None = None, kl: float = 0.0,
    average: str = "answers", ratio: str = "token",
) -> tuple[np.ndarray, ClippedPolicyCache]:
    """The loss of PPO and GRPO on answers that the model `old` wrote.

    Formula: loss = average of -min(r A, clip(r, 1 - clip, 1 + clip_high) A) + kl (exp(x) - x - 1), with
    r = exp(log_probs - old_log_probs) and x = reference_log_probs - log_probs; clip_high is clip if it is None

    Shapes: log_probs, old_log_probs and reference_log_probs (B, T), advantages (B,), mask (B, T), True for a token of
    the answer -> loss, a single number

    Units: nats; a log-probability is minus the loss that `weighted_cross_entropy` with reduction="none" gives.

    Raises: ValueError when shapes do not fit, for a clip outside [0, 1), a negative clip_high or kl, an unknown average
    or ratio, or a kl without a reference; TypeError for a mask that is not bool, or dtypes that differ.

    Source: Schulman et al., Proximal Policy Optimization Algorithms (2017), equation 7; with groups and the KL
    estimate: Shao et al., DeepSeekMath (2024), equations 3 and 4; clip_high and "tokens": Yu et al., DAPO (2025);
    "sequence": Zheng et al., Group Sequence Policy Optimization (2025), equations 5 and 7.

    >>> log_probs = np.log(np.array([[0.5, 0.2], [0.1, 0.4]]))
    >>> float(clipped_policy_loss(log_probs, log_probs, np.array([1.0, -1.0]))[0])  # the first step
    0.0
    """
    op, fixes = "clipped_policy_loss", {"advantages": "one number for each answer"}
    check_shapes(
        op, SHAPES[op], fixes=fixes, log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages,
        mask=mask, reference_log_probs=reference_log_probs,
    )
    low = 1 - require_number(op, "clip", clip, at_least=0, below=1)
    high = 1 + (clip if clip_high is None else require_number(op, "clip_high", clip_high, at_least=0))
    require_choice(op, "average", average, ("answers", "tokens"))
    require_choice(op, "ratio", ratio, ("token", "sequence"))
    require_number(op, "kl", kl, at_least=0)
    if kl and reference_log_probs is None:
        raise value_error(op, "kl", "0 without reference_log_probs", kl)
    counted = token_shares(mask, log_probs, average=False)  # (B, T), 1 or 0
    mean = token_shares(mask, log_probs, average=True)  # (B, T), 1 / n or 0
    A = advantages[:, None]  # (B, 1)

    shown = counted != 0
    change = np.where(shown, log_probs, 0) - np.where(shown, old_log_probs, 0)  # (B, T)
    if ratio == "sequence":
        change = (change * mean).sum(axis=1, keepdims=True)  # (B, 1)
    with np.errstate(over="ignore"):  # a ratio may be inf: if A > 0, it is clipped
        r = np.exp(change)
    slope = np.where(A.real < 0, np.maximum(r, low), np.minimum(r, high))  # min(r A, clip(r) A) = slope A
    losses, estimate, kl_slope = -slope * A, None, None
    if reference_log_probs is not None:
        x = np.where(shown, reference_log_probs, 0) - np.where(shown, log_probs, 0)
        with np.errstate(over="ignore"):
            slope_of_estimate = np.expm1(x)
            estimate = slope_of_estimate - x
            kl_slope = np.zeros_like(x)
            if kl:  # 0 times inf would be NaN
                kl_slope = kl * slope_of_estimate
                losses = losses + kl * estimate  # (B, T)
    share = mean / len(mean) if average == "answers" else counted / np.maximum(counted.sum(), 1)
    cache = ClippedPolicyCache(r, (slope != r) & (r == r), slope, A, share, mean, estimate, kl_slope)
    return (share * losses).sum(), cache


def clipped_policy_loss_backward(
    dloss: np.ndarray | float, cache: ClippedPolicyCache
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Gradients of `clipped_policy_loss`: dlog_probs, and those of three arrays that are constants in training.

    Shapes: dloss a single number -> dlog_probs (B, T), dold_log_probs (B, T), dadvantages (B,), dreference_log_probs
    (B, T), or None without a reference
    """
    require_single("clipped_policy_loss_backward", dloss)
    r, clipped, slope, A, share, mean, _, kl_slope = cache
    dlosses = (dloss * share).astype(r.dtype)  # (B, T)
    # losses = -slope * A
    dslope = -dlosses * A
    dadvantages = (-dlosses * slope).sum(axis=1)
    # slope = r, or a bound
    if r.shape != share.shape:
        dslope = dslope.sum(axis=1, keepdims=True)  # all tokens of an answer have one ratio
    # r = exp(log_probs - old_log_probs)
    dchange = np.where(clipped, 0, dslope) * np.where(clipped, 0, r)
    if r.shape != share.shape:
        dchange = dchange * mean  # (B, T)
    if kl_slope is None:
        return dchange, -dchange, dadvantages, None
    # losses += kl * (exp(x) - x - 1), x = reference_log_probs - log_probs
    dreference = dlosses * kl_slope
    return dchange - dreference, -dchange, dadvantages, dreference
