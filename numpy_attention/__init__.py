"""numpy_attention: how attention really works, gradient by gradient.

A book you can run. Part I (`ops`) holds every formula with its gradient below it; Part II (`layers`) adds parameters;
Part III (`models`) builds whole transformers; Part IV (`training`) trains them. `gradcheck` proves each gradient.

    >>> import numpy as np
    >>> import numpy_attention as na
    >>> q, k, v = np.random.default_rng(0).normal(size=(3, 5, 4))
    >>> y, cache = na.scaled_dot_product_attention(q, k, v, mask=na.causal_mask(5))
    >>> dq, dk, dv, _ = na.scaled_dot_product_attention_backward(y, cache)
"""

from numpy_attention.ops import *  # noqa: F403  the ops in reading order: see ops/__init__.py

__version__ = "0.1.0"
