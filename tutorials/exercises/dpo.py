"""Exercise: the gradient of DPO

    reward = beta (L - L_reference)            of the chosen and of the rejected answer of a pair
    z      = reward_chosen - reward_rejected
    loss   = mean over the pairs of log(1 + exp(-z))

L is the log-probability of an answer. Given: the forward. Write: dpo_loss_backward(dloss, cache), which returns the
gradients of all four arguments. In training the references are constants, but the loss is a function of them too.

    python -m numpy_attention grade tutorials/exercises/dpo.py            check your function
    python -m numpy_attention grade tutorials/exercises/dpo.py --hint 1   the first of three hints
"""

import numpy as np


def dpo_loss(chosen, rejected, reference_chosen, reference_rejected, beta=0.1):
    """Four arrays (B,) of log-probabilities -> a single number."""
    z = beta * (chosen - reference_chosen) - beta * (rejected - reference_rejected)  # (B,)
    return np.logaddexp(0.0, -z).mean(), (z, beta)


def dpo_loss_backward(dloss, cache):
    """dloss, a single number -> dchosen, drejected, dreference_chosen, dreference_rejected, all (B,)."""
    z, beta = cache
    raise NotImplementedError
