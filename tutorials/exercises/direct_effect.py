"""Exercise: the direct effect of a part of the residual stream on a logit

The stream is the sum of the embedding and of what each block adds. The last layer norm and the table give the logit:

    mu_t = mean of stream_t                sigma_t = sqrt(variance of stream_t + eps)
    logit_t = sum_j ((stream_tj - mu_t) / sigma_t * gamma_j + beta_j) * direction_tj

where direction_t is the token's row of the table. If sigma is held fixed, the logit is linear in the stream, so each
part of the sum has a share of the logit:

    effect_t = sum_j (part_tj - mean of part_t) / sigma_t * gamma_j * direction_tj

Write direct_effect(part, stream, gamma, direction, eps), which returns the effect of a part at each position.

The effects of all parts add up to the logit without the term of beta.

    python -m numpy_attention grade tutorials/exercises/direct_effect.py            check your function
    python -m numpy_attention grade tutorials/exercises/direct_effect.py --hint 1   three hints, one at a time
"""

import numpy as np


def direct_effect(part, stream, gamma, direction, eps):
    """part, stream and direction (T, d_model), gamma (d_model,), eps a number -> (T,)."""
    raise NotImplementedError
