"""Convolutions and pooling in one and two dimensions."""

import numpy as np

from tests.gradcheck.acceptance.fresh.pairs import Pairs
from tests.gradcheck.acceptance.fresh.words import MEAN_LEFT_OUT, TERM_MISSING, TWICE

PAIRS = Pairs()
FLIPPED = (r"flip", r"revers", r"transpos", r"other end", r"wrong places", r"order", r"correlat", r"permut")
SHIFTED = (r"shift", r"by one", r"neighbour", r"one place", r"padding", r"offset", r"wrong places")


def conv1d(x, w, b, *, stride=2, padding=1):
    """x (N, C, L), w (F, C, K), b (F,)."""
    K = w.shape[-1]
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding)))
    starts = range(0, padded.shape[-1] - K + 1, stride)
    windows = np.stack([padded[:, :, i : i + K] for i in starts], axis=2)
    return np.einsum("nctk,fck->nft", windows, w) + b[:, None], (w, windows, padded.shape, stride, padding)


def conv1d_backward(dy, cache):
    w, windows, shape, stride, padding = cache
    K = w.shape[-1]
    dpadded = np.zeros(shape)
    for t in range(dy.shape[-1]):
        dpadded[:, :, t * stride : t * stride + K] += np.einsum("nf,fck->nck", dy[:, :, t], w)
    dx = dpadded[:, :, padding : shape[-1] - padding]
    return dx, np.einsum("nft,nctk->fck", dy, windows), dy.sum((0, 2))


CONV1D = PAIRS.right(conv1d, conv1d_backward, lambda rng: {
    "x": rng.standard_normal((2, 2, 7)), "w": rng.standard_normal((4, 2, 3)), "b": rng.standard_normal(4)})
PAIRS.wrong(CONV1D, "kernel flipped", {"dy[:, :, t], w)": "dy[:, :, t], w[:, :, ::-1])"},
            "dx uses the kernel in reversed order.", *FLIPPED)
PAIRS.wrong(CONV1D, "padding not cut off", {"padding : shape[-1] - padding": ": shape[-1] - 2 * padding"},
            "The padding is not cut off at the start: dx is shifted by the padding, one place.", *SHIFTED)
PAIRS.wrong(CONV1D, "overlap overwritten", {"+ K] += np": "+ K] = np"},
            "Where windows overlap, an assignment keeps only the last window instead of the sum.",
            r"overlap", r"assignment", r"instead of (the|a) sum", r"only the last", r"\+=", r"repeat", *TERM_MISSING)
PAIRS.wrong(CONV1D, "bias averaged", {"dy.sum((0, 2))": "dy.sum(2).mean(0)"},
            "db is a mean over the batch, but it must be a sum.", *TWICE(2), r"half", r"divided by 2", r"factor 2")
PAIRS.wrong(CONV1D, "bias of the batch", {"dy.sum((0, 2))": "dy.sum((0, 1))"},
            "db is summed over the channels instead of over time: a wrong axis.", r"axis", r"axes", r"shape")


def conv_transpose(x, w, *, stride=2):
    """x (N, C, L), w (C, F, K): each number of x adds a multiple of the kernel to the result."""
    y = np.zeros((len(x), w.shape[1], stride * (x.shape[-1] - 1) + w.shape[-1]), np.result_type(x, w))
    for t in range(x.shape[-1]):
        y[:, :, t * stride : t * stride + w.shape[-1]] += np.einsum("nc,cfk->nfk", x[:, :, t], w)
    return y, (x, w, stride)


def conv_transpose_backward(dy, cache):
    x, w, stride = cache
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    for t in range(x.shape[-1]):
        part = dy[:, :, t * stride : t * stride + w.shape[-1]]
        dx[:, :, t] = np.einsum("nfk,cfk->nc", part, w)
        dw += np.einsum("nfk,nc->cfk", part, x[:, :, t])
    return dx, dw


CONV_TRANSPOSE = PAIRS.right(conv_transpose, conv_transpose_backward, lambda rng: {
    "x": rng.standard_normal((3, 2, 4)), "w": rng.standard_normal((2, 5, 3))})
PAIRS.wrong(CONV_TRANSPOSE, "stride ignored", {"part = dy[:, :, t * stride : t * stride +": "part = dy[:, :, t : t +"},
            "The backward ignores the stride.", r"stride")
PAIRS.wrong(CONV_TRANSPOSE, "last place of the kernel", {"dw += ": "dw = "},
            "dw is the gradient of the last time only: an assignment replaces the sum.",
            r"assignment", r"only the last", r"sum over.*missing", r"instead of (the|a) sum", r"\+=")


def depthwise(x, w):
    """x (N, C, H, W), w (C, k, k): one kernel for each channel."""
    k = w.shape[-1]
    H, W = x.shape[2] - k + 1, x.shape[3] - k + 1
    y = sum(x[:, :, i : i + H, j : j + W] * w[:, i, j, None, None] for i in range(k) for j in range(k))
    return y, (x, w)


def depthwise_backward(dy, cache):
    x, w = cache
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    H, W = dy.shape[2:]
    for i in range(w.shape[-1]):
        for j in range(w.shape[-1]):
            dx[:, :, i : i + H, j : j + W] += dy * w[:, i, j, None, None]
            dw[:, i, j] = (dy * x[:, :, i : i + H, j : j + W]).sum((0, 2, 3))
    return dx, dw


DEPTHWISE = PAIRS.right(depthwise, depthwise_backward, lambda rng: {
    "x": rng.standard_normal((2, 3, 5, 4)), "w": rng.standard_normal((3, 2, 2))})
PAIRS.wrong(DEPTHWISE, "rows and columns exchanged", {"dy * w[:, i, j, None, None]": "dy * w[:, j, i, None, None]"},
            "dx uses the transposed kernel: rows and columns are exchanged.",
            r"transpos", r"exchanged", r"swapped", r"wrong places", r"permut")
PAIRS.wrong(DEPTHWISE, "first picture only", {".sum((0, 2, 3))": "[0].sum((1, 2))"},
            "dw uses the first picture of the batch only: the sum over the batch is missing.",
            r"only the first", r"batch", r"axis 0", r"sum over")


def max_pool(x, *, size=2):
    """x (N, C, H, W): the largest number of each square."""
    N, C, H, W = x.shape
    tiles = x.reshape(N, C, H // size, size, W // size, size).transpose(0, 1, 2, 4, 3, 5).reshape(
        N, C, H // size, W // size, size * size)
    best = tiles.real.argmax(-1)
    return np.take_along_axis(tiles, best[..., None], -1)[..., 0], (best, size)


def max_pool_backward(dy, cache):
    best, size = cache
    N, C, H, W = dy.shape
    dtiles = np.zeros((*dy.shape, size * size))
    np.put_along_axis(dtiles, best[..., None], dy[..., None], -1)
    return dtiles.reshape(N, C, H, W, size, size).transpose(0, 1, 2, 4, 3, 5).reshape(N, C, H * size, W * size)


MAX_POOL = PAIRS.right(max_pool, max_pool_backward, lambda rng: {"x": rng.standard_normal((2, 2, 4, 6))})
PAIRS.wrong(MAX_POOL, "spread over the square", {
    "np.put_along_axis(dtiles, best[..., None], dy[..., None], -1)": "dtiles += dy[..., None] / size**2"},
    "The gradient is spread over the whole square, as for a mean; only the largest number gets it.",
    r"largest", r"maxim", r"\bmax\b", r"argmax", r"spread")
PAIRS.wrong(MAX_POOL, "axes not moved back", {".transpose(0, 1, 2, 4, 3, 5)": ""},
            "The reshape lacks the transpose: the right numbers are in the wrong places.",
            r"wrong places", r"transpose", r"permut")


def average_pool(x, *, size=2, stride=1):
    """x (N, H, W): the mean of each square; the squares overlap."""
    H, W = (x.shape[1] - size) // stride + 1, (x.shape[2] - size) // stride + 1
    squares = [x[:, i : i + H * stride : stride, j : j + W * stride : stride] for i in range(size) for j in range(size)]
    return sum(squares) / size**2, (x.shape, size, stride)


def average_pool_backward(dy, cache):
    shape, size, stride = cache
    dx = np.zeros(shape)
    H, W = dy.shape[1:]
    for i in range(size):
        for j in range(size):
            dx[:, i : i + H * stride : stride, j : j + W * stride : stride] += dy / size**2
    return dx


AVERAGE_POOL = PAIRS.right(average_pool, average_pool_backward, lambda rng: {"x": rng.standard_normal((2, 5, 4))})
PAIRS.wrong(AVERAGE_POOL, "sum of the square", {"dy / size**2": "dy"}, "The division by size squared is missing.",
            *MEAN_LEFT_OUT(4), r"4 times", r"factor (of )?4\b", r"size")
PAIRS.wrong(AVERAGE_POOL, "divided by the length", {"dy / size**2": "dy / size"},
            "The gradient is divided by size instead of size squared: a factor 1/2 is missing.",
            r"twice as (large|big)", r"factor 1/2", r"division by 2", r"2 times too", r"size", r"double",
            r"factor (of )?2\b")
