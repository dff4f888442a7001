"""Exercise: the gradient of the clipped policy loss, which GRPO and PPO use

    r    = exp(log_probs - old_log_probs)
    loss = mean over answers of the mean over their tokens of -min(r A, clip(r, 1 - clip, 1 + clip) A)

Every answer has one advantage A for all its tokens. mask is True for the tokens that the model wrote. Given: the
forward. Write: clipped_policy_loss_backward(dloss, cache), which returns dlog_probs, dold_log_probs and dadvantages.

    python -m numpy_attention grade tutorials/exercises/grpo.py            check your function
    python -m numpy_attention grade tutorials/exercises/grpo.py --hint 1   the first of three hints
"""

import numpy as np


def clipped_policy_loss(log_probs, old_log_probs, advantages, mask, clip=0.2):
    """log_probs, old_log_probs (B, T), advantages (B,), mask (B, T) -> a single number."""
    A = advantages[:, None]  # (B, 1)
    r = np.exp(log_probs - old_log_probs)  # (B, T)
    objective = np.minimum(r * A, np.clip(r, 1 - clip, 1 + clip) * A)
    counts = np.maximum(mask.sum(axis=1, keepdims=True), 1)  # (B, 1), the tokens of each answer
    share = (mask / counts / len(mask)).astype(r.dtype)  # (B, T), the weight of each token in the loss
    return -(share * objective).sum(), (r, A, share, clip)


def clipped_policy_loss_backward(dloss, cache):
    """dloss, a single number -> dlog_probs (B, T), dold_log_probs (B, T), dadvantages (B,)."""
    r, A, share, clip = cache
    raise NotImplementedError
