"""Mistakes of derivations by hand, one or more in each of many functions."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.gradcheck.acceptance.mistakes.trial import Trial, trial
from tests.gradcheck.acceptance.third_party import THIRD_PARTY
from tests.gradcheck.acceptance.third_party.losses import MASK
from tests.gradcheck.acceptance.third_party.networks import IDS, TARGETS, sigmoid
from tests.gradcheck.acceptance.third_party.signals import PLACES

ORDINARY = "ordinary"


def _conv1d_flipped(g: Any, dy: Any, x: Any, w: Any) -> Any:
    return THIRD_PARTY["conv1d"].vjp(dy, x, w[:, :, ::-1])[0]


def _rnn_truncated(g: Any, dy: Any, x: Any, h: Any, w: Any, u: Any) -> Any:
    before = np.concatenate([h[None], THIRD_PARTY["rnn"].f(x, h, w, u)[:-1]])
    return sum(b.T @ (d * (1 - np.tanh(step @ w + b @ u) ** 2)) for b, d, step in zip(before, dy, x))


def _last_id_wins(g: Any, dy: Any, table: Any) -> Any:
    d = np.zeros_like(table)
    d[IDS] += dy[:, None]
    return d


def _projection_missing(g: Any, dy: Any, x: Any) -> Any:
    return dy / np.linalg.norm(x, axis=-1, keepdims=True)


def _where(test: Any, factor: float) -> Any:
    return lambda g, dy, *arrays: np.where(test(*arrays), factor * g, g)


def _roll(axis: int) -> Any:
    return lambda g, *_: np.roll(g, 1, axis)


def _times(factor: float) -> Any:
    return lambda g, *_: factor * g


BRANCH = r"where|wherever|when|side|x [<>]|branch|above|below|negative|positive"
AXES = r"transpos"
SUM = r"mean|sum|divi"
# function, number of the gradient, the mistake in words, the mistake in code, a pattern that a right diagnosis contains
TABLE: list[tuple[str, int, str, Any, str]] = [
    ("conv1d", 0, "kernel flipped", _conv1d_flipped, r"revers|flip|mirror"),
    ("conv1d", 1, "divided by the batch", _times(1 / 2), r"divid|half|mean"),
    ("conv2d", 0, "cropped one off", _roll(3), r"shift|offset"),
    ("conv2d", 1, "channels swapped", lambda g, *_: g[:, ::-1], r"revers|swap|order|roll|shift|wrong places"),
    ("conv2d", 2, "mean over the batch", _times(1 / 2), r"divid|half|mean"),
    ("depthwise_conv", 1, "taps reversed", lambda g, *_: g[:, ::-1], r"revers"),
    ("depthwise_conv", 0, "last tap left out",
     lambda g, dy, x, w: THIRD_PARTY["depthwise_conv"].vjp(dy, x, w * [1, 1, 1, 0])[0], r"term|tap|last"),
    ("max_pool", 0, "spread as by a mean",
     lambda g, dy, x: np.repeat(np.repeat(dy, 2, 1), 2, 2) / 4, r"zero|mean|average|hidden|leak"),
    ("average_pool", 0, "not divided", _times(4), r"division by 4"),
    ("average_pool", 0, "rows and columns of a block mixed", _roll(1), r"shift"),
    ("batch_norm", 0, "statistics taken as constants",
     lambda g, dy, x, gamma, beta: dy * gamma / np.sqrt(x.var(0) + 1e-5), r"mean|sum|statistic|centred|normal"),
    ("batch_norm", 0, "variance taken as constant",
     lambda g, dy, x, gamma, beta: (dy - dy.mean(0)) * gamma / np.sqrt(x.var(0) + 1e-5),
     r"varian|multiple|spread|x - mean|normal"),
    ("batch_norm", 2, "mean over the batch", _times(1 / 7), r"divid|mean"),
    ("batch_norm", 1, "of dy, not dy z", lambda g, dy, *_: dy.sum(0), r"sum of dy|dbeta|normal|without"),
    ("group_norm", 0, "gamma left out",
     lambda g, dy, x, gamma: THIRD_PARTY["group_norm"].vjp(dy, x, np.ones_like(gamma))[0], r"gamma"),
    ("group_norm", 1, "one group only", lambda g, *_: np.where(np.arange(4) < 2, g, 0), r"zero|part|axis 0|half"),
    ("instance_norm", 0, "variance taken as constant",
     lambda g, dy, x: (dy - dy.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5),
     r"varian|multiple|spread|x - mean|normal"),
    ("lstm_cell", 3, "the first of two outputs ignored",
     lambda g, dy, *a: THIRD_PARTY["lstm_cell"].vjp((0 * dy[0], dy[1]), *a)[3], r"output 0|first output|first of"),
    ("lstm_cell", 2, "the second of two outputs ignored",
     lambda g, dy, *a: THIRD_PARTY["lstm_cell"].vjp((dy[0], 0 * dy[1]), *a)[2], r"output 1|second output|second of"),
    ("lstm_cell", 5, "gates in another order", lambda g, *_: np.roll(g, 4), r"shift|order|roll|wrong places"),
    ("gru_cell", 1, "the carried state forgotten",
     lambda g, dy, x, h, w, u: g - dy * sigmoid(x @ w + h @ u)[:, 4:8], r"path|term|dy|direct"),
    ("rnn", 3, "not carried back in time", _rnn_truncated, r"time|step|earlier|path|carr"),
    ("rnn", 1, "scaled by the steps", _times(5), r"division by 5"),
    ("glu", 0, "halves swapped", _roll(1), r"shift|swap|half|order"),
    ("glu", 0, "gate's slope s instead of s (1 - s)",
     lambda g, dy, x: np.concatenate([g[:, :5], g[:, 5:] / (1 - sigmoid(x[:, 5:]))], 1), r"half|last|axis 1|5"),
    ("highway", 0, "the way around left out",
     lambda g, dy, x, w: g - dy * (1 - sigmoid(x @ w)), r"path|term|residual|direct|dy"),
    ("embedding_bag", 0, "repeated ids kept once", _last_id_wins, r"repeat|several|add\.at|only the last"),
    ("bilinear", 1, "first index reversed", lambda g, *_: g[:, ::-1], r"revers"),
    ("scatter_add", 1, "rows in order", lambda g, dy, *_: dy[np.sort(TARGETS)], r"order|wrong places|sort|permut"),
    ("prelu", 1, "from positive x too", lambda g, dy, x, a: (dy * x).sum(0), BRANCH + "|" + SUM),
    ("prelu", 0, "slope a on both sides", lambda g, dy, x, a: a * dy, BRANCH),
    ("solve", 0, "sign", _times(-1), r"sign"),
    ("solve", 1, "not transposed", lambda g, dy, a, b: np.linalg.solve(a, dy), AXES),
    ("solve", 0, "transposed", lambda g, *_: g.T, AXES),
    ("inverse", 0, "sign", _times(-1), r"sign"),
    ("inverse", 0, "transposed", lambda g, *_: g.T, AXES),
    ("cholesky", 0, "diagonal not halved", lambda g, dy, a: g * (1 + np.eye(4)), r"diagonal"),
    ("log_determinant", 0, "transposed", lambda g, *_: g.T, AXES),
    ("log_determinant", 0, "dy forgotten", lambda g, dy, a: np.linalg.inv(a).T, r"dy"),
    ("least_squares", 0, "residual term left out",
     lambda g, dy, a, b: -np.outer(a @ np.linalg.solve(a.T @ a, dy), THIRD_PARTY["least_squares"].f(a, b)),
     r"term|residual|missing"),
    ("eigenvalues", 0, "in descending order",
     lambda g, dy, a: THIRD_PARTY["eigenvalues"].vjp(dy[::-1], a)[0], r"revers|order"),
    ("nuclear_norm", 0, "half", _times(0.5), r"half"),
    ("triangular_solve", 0, "upper triangle too",
     lambda g, dy, l, b: -np.linalg.solve(np.tril(l).T, dy) @ THIRD_PARTY["triangular_solve"].f(l, b).T,
     r"zero|above|triang"),
    ("kronecker", 1, "sign", _times(-1), r"sign"),
    ("kronecker", 0, "one row of blocks left out",
     lambda g, *_: g * np.array([[1.0], [1.0], [0.0]]), r"last|axis 0|loop"),
    ("quadratic_form", 1, "one of two uses",
     lambda g, dy, a, x: dy[:, None] * (x @ a), r"transpos|two uses|use|half|symmetr|twice"),
    ("quadratic_form", 0, "symmetrised", lambda g, *_: (g + g.T), r"twice|transpos"),
    ("matrix_power", 0, "three times one term", lambda g, dy, a: 3 * dy @ a.T @ a.T, r"transpos|order|commut|term"),
    ("pairwise_distances", 0, "without the 2", _times(0.5), r"half"),
    ("pairwise_distances", 1, "sign", _times(-1), r"sign"),
    ("cosine_similarity", 0, "second term left out",
     lambda g, dy, x, y: dy[:, None] * y / np.sqrt((x * x).sum(-1) * (y * y).sum(-1))[:, None],
     r"multiple of x|norm|project|output"),
    ("mahalanobis", 1, "twice", _times(2), r"[Tt]wice"),
    ("sinkhorn", 0, "sign", _times(-1), r"sign"),
    ("power_spectrum", 0, "without n", _times(1 / 7), r"divided by 7"),
    ("fft_filter", 1, "not conjugated", lambda g, dy, x, h: np.roll(g[::-1], 1), r"revers|conj|order|wrong places"),
    ("cumulative_sum", 0, "not reversed",
     lambda g, dy, x: np.cumsum(dy, -1), r"revers|cumul|direction|backwards|other end"),
    ("cumulative_product", 0, "the factor itself kept",
     lambda g, dy, x: g * x, r"times x|factor|once too often|multipl"),
    ("logsumexp", 0, "weights left out",
     lambda g, dy, x: np.broadcast_to(dy[:, None], x.shape), r"weight|softmax|average"),
    ("interpolate", 0, "shared points kept once",
     lambda g, dy, v: _interpolate_buffered(dy, v), r"several|repeat|add\.at|only the last"),
    ("spline", 0, "without the cubic term",
     lambda g, dy, t, p: g - 1.5 * dy * t**2 * (3 * p[1] - p[0] - 3 * p[2] + p[3]), r"term|power|multiple"),
    ("spline", 1, "points reversed", lambda g, *_: g[::-1], r"revers"),
    ("bilinear_resize", 0, "upper neighbours only",
     lambda g, dy, x: g - 0.5 * np.pad(dy[1::2, ::2], ((1, 0), (0, 0))), r"axis 0|row|term|first|place|path"),
    ("autocorrelation", 0, "one of two uses",
     lambda g, dy, x: sum(np.pad(dy[k] * x[k:], (0, k)) for k in range(4)), r"two uses|use|half|twice|term"),
    ("total_variation", 0, "one neighbour only", lambda g, dy, x: g * np.r_[0, np.ones(6)], r"first|axis 1|begin"),
    ("softplus", 0, "wrong where x is above 1", _where(lambda x: x > 1, 1.5), BRANCH),
    ("elu", 0, "slope 1 everywhere", lambda g, dy, x: dy, BRANCH),
    ("gelu_by_tanh", 0, "as x times sigmoid",
     lambda g, dy, x: dy * sigmoid(1.702 * x) * (1 + 1.702 * x * (1 - sigmoid(1.702 * x))),
     r"formula|approx|close, but"),
    ("gelu_by_tanh", 0, "zero below -0.3", _where(lambda x: x < -0.3, 0.0), BRANCH),
    ("unit", 0, "projection left out", _projection_missing, r"multiple|project|output"),
    ("polynomial", 0, "powers reversed", lambda g, *_: g[::-1], r"revers"),
    ("polynomial", 1, "powers not lowered", lambda g, dy, c, x: g * x, r"times x|factor|once too often|multipl"),
    ("rotate", 0, "real part halved", lambda g, *_: g * [0.5, 1, 1, 1], r"first|element|half"),
    ("oscillator", 1, "one step left out", lambda g, dy, x, k: g + 0.1 * np.sin(x[0]) * 0.01, r"step|term|close, but"),
    ("sort", 0, "not sorted back", lambda g, dy, x: dy, r"order|permut|sort|wrong places"),
    ("sort", 0, "descending",
     lambda g, dy, x: THIRD_PARTY["sort"].vjp(dy[:, ::-1], x)[0], r"revers|order|wrong places"),
    ("top_k", 0, "in the wrong order",
     lambda g, dy, x: THIRD_PARTY["top_k"].vjp(dy[:, ::-1], x)[0], r"revers|order|swap|wrong places"),
    ("median", 0, "to the next", lambda g, *_: np.roll(g, 1, -1), r"shift|place|index"),
    ("clip_norm", 0, "norm taken as constant",
     lambda g, dy, x: dy / np.maximum(1, np.linalg.norm(x, axis=-1, keepdims=True)),
     r"multiple|norm|project|row|" + BRANCH),
    ("huber", 0, "not clipped", lambda g, dy, x, t: dy[:, None] * (x - t), BRANCH + "|clip"),
    ("hinge", 0, "mean forgotten", _times(5), r"division by 5|mean"),
    ("quantile_loss", 0, "levels exchanged",
     lambda g, dy, x, t: -dy[:, None] * np.where(t > x, 0.1, -0.9) / 5, BRANCH + "|same number"),
    ("masked_mean", 0, "mask forgotten",
     lambda g, dy, x: np.broadcast_to(dy[:, None] / MASK.sum(-1, keepdims=True), x.shape), r"zero|hid|mask"),
    ("cross_entropy", 0, "label forgotten",
     lambda g, dy, x: g + 0.9 * dy[:, None] * np.eye(4)[[2, 0, 3]], r"label|element|target|axis 1|one of"),
    ("cross_entropy", 0, "mean over the rows twice", _times(1 / 3), r"divided by 3"),
    ("focal_loss", 0, "exponent not derived", lambda g, dy, x: -dy * (1 - sigmoid(x)) ** 3, r"term|close, but"),
    ("kl_divergence", 0, "+ 1 left out", lambda g, dy, p, q: dy[:, None] * np.log(p / q), r"same number|constant|dy"),
    ("kl_divergence", 1, "sign", _times(-1), r"sign"),
    ("dice", 1, "that of p",
     lambda g, dy, p, t: THIRD_PARTY["dice"].vjp(dy, p, t)[0], r"dp|of p|other argument|swap|exchang"),
    ("gaussian_likelihood", 2, "constant left out",
     lambda g, dy, *_: g - 0.5 * dy[:, None], r"same number|constant|dy"),
    ("gaussian_likelihood", 1, "sign", _times(-1), r"sign"),
    ("contrastive", 1, "diagonal left out", lambda g, dy, x, y: g + dy[:, None] * x, r"diagonal|term|multiple"),
    ("triplet", 2, "sign", _times(-1), r"sign"),
    ("hidden_markov", 0, "emission left out", lambda g, dy, s, t, e: g / e[0], r"emission|factor"),
    ("hidden_markov", 1, "transposed", lambda g, *_: g.T, AXES),
    ("hidden_markov", 2, "the last left out", lambda g, *_: g * (np.arange(5) < 4)[:, None], r"last|loop"),
    ("ctc", 0, "softmax left out", lambda g, dy, x: g - _softmax(x) * dy * 1.0, r"sum|softmax|multiple|term"),
]


def _interpolate_buffered(dy: np.ndarray, values: np.ndarray) -> np.ndarray:
    i = np.minimum(PLACES.astype(int), values.shape[-1] - 2)
    t, d = PLACES - i, np.zeros_like(values)
    d[..., i] += dy * (1 - t)
    d[..., i + 1] += dy * t
    return d


def _softmax(x: np.ndarray) -> np.ndarray:
    w = np.exp(x - x.max(-1, keepdims=True))
    return w / w.sum(-1, keepdims=True)


def ordinary() -> Iterator[Trial]:
    """All mistakes of the table."""
    for function, which, what, change, words in TABLE:
        yield trial(ORDINARY, function, which, what, change, words)
