"""Exercise: the direct effect of a part of the residual stream on a logit

The residual stream is a sum: the embedding plus the output of each layer. We call each term of this sum a part. The
last layer norm and the embedding table compute the logit of a token from the stream, at each position t:

    mu_t = mean of stream_t                sigma_t = sqrt(variance of stream_t + eps)
    logit_t = sum_j ((stream_tj - mu_t) / sigma_t * gamma_j + beta_j) * direction_tj

Here direction_t is the row of this token in the table. If we take sigma as a constant, the logit is linear in the
stream (apart from the term with beta). So each part has a share of the logit, its direct effect:

    effect_t = sum_j (part_tj - mean of part_t) / sigma_t * gamma_j * direction_tj

Write direct_effect(part, stream, gamma, direction, eps), which returns the effect of one part at each position.

The sum of the effects of all parts is the logit minus the term that contains beta.

    python -m numpy_attention grade tutorials/exercises/direct_effect.py            check your function
    python -m numpy_attention grade tutorials/exercises/direct_effect.py --hint 1   the first of three hints
"""

import numpy as np


def direct_effect(part, stream, gamma, direction, eps):
    """part, stream and direction (T, d_model), gamma (d_model,), eps a number -> (T,)."""
    raise NotImplementedError
