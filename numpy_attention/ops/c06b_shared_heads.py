"""Chapter 6, appendix. Products for query heads that share a head of keys and values

With several heads (Chapter 7), every head has its own scores, and `a @ b` multiplies head by head. In grouped-query
attention (Chapter 17), G heads of q share one head of k and v. Copies of k and v would be a waste. A key does not care
from which head a query comes: G heads with T_q queries each are like one head with G T_q queries. So `fold_heads` puts
the queries of the G heads one below the other:

    a (..., H_q, T_q, n)  -->  (..., H_kv, G T_q, n)        H_q = G H_kv

The sum of a transposed product runs over the rows of a. So the gradient of a key is a sum over the queries of all
heads that share it. With as many heads of k as of q, `product` is `a @ b` and `transposed_product` is a^T b.
"""

import math

import numpy as np


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a @ b, head by head.

    Shapes: a (..., H_q, T_q, n), b (..., H_kv, n, d) -> (..., H_q, T_q, d)
    """
    shape = *a.shape[:-1], b.shape[-1]
    a = fold_heads(a, b)
    return (a @ b).reshape(shape)


def transposed_product(a: np.ndarray, b: np.ndarray, k: np.ndarray) -> np.ndarray:
    """a^T @ b, head by head, summed over the heads that share a head of k.

    Shapes: a (..., H_q, T_q, T_k), b (..., H_q, T_q, d), k (..., H_kv, T_k, n) -> (..., H_kv, T_k, d)
    """
    a, b = fold_heads(a, k), fold_heads(b, k)
    return a.swapaxes(-1, -2) @ b


def fold_heads(x: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Some query heads share a key head. Put the queries of these heads one below the other, in one axis.

    Shapes: x (..., H_q, T_q, n) or (..., H_kv, G, T_q, n), k (..., H_kv, any, any) -> (..., H_kv, G T_q, n)
    """
    if x.shape[:-2] == k.shape[:-2]:
        return x
    rows = math.prod(x.shape[:-1]) // max(math.prod(k.shape[:-2]), 1)  # G T_q
    return x.reshape(*k.shape[:-2], rows, x.shape[-1])
