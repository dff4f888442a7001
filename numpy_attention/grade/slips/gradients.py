"""Slips in a derivation: a factor that went missing, a sign, a mean for a sum."""

import math
from typing import Any

import numpy as np

from numpy_attention.gallery.training import AdamByTheBook
from numpy_attention.grade.slips.registry import slip
from numpy_attention.ops.attention import AttentionCache, scaled_dot_product_attention_backward
from numpy_attention.ops.embedding import EmbeddingCache, embedding_backward
from numpy_attention.ops.softmax import SoftmaxCache


@slip("softmax")
def sign_of_the_sum(dy: np.ndarray, cache: SoftmaxCache) -> np.ndarray:
    """The sum is there and its sign is flipped: dx = y (dy + sum(dy y)), where the other weights fall, so it is minus.

    Hides: nowhere, but in a row whose dy averages to zero.
    """
    y, axis = cache
    return y * (dy + (dy * y).sum(axis=axis, keepdims=True))


@slip("softmax")
def mean_not_weighted(dy: np.ndarray, cache: SoftmaxCache) -> np.ndarray:
    """The plain mean of dy is subtracted, where the average weighted by y belongs: sum(dy y).

    Hides: right where all weights of a row are equal, as they nearly are at the start of training.
    """
    y, axis = cache
    return np.asarray(y * (dy - dy.mean(axis=axis, keepdims=True)))


@slip("softmax")
def y_missing_from_dy(dy: np.ndarray, cache: SoftmaxCache) -> np.ndarray:
    """The sum is right, the factor y before dy is missing: dx = y dy - y sum(dy y), and here stands dy - y sum(dy y).

    Hides: in a row of one number, where y is 1.
    """
    y, axis = cache
    return dy - y * (dy * y).sum(axis=axis, keepdims=True)


@slip("softmax")
def y_missing_before_the_bracket(dy: np.ndarray, cache: SoftmaxCache) -> np.ndarray:
    """The bracket dy - sum(dy y) is right, the factor y before it is missing.

    Hides: in a row of one number, and in its signs.
    """
    y, axis = cache
    return dy - (dy * y).sum(axis=axis, keepdims=True)


@slip("softmax")
def log_softmax(dy: np.ndarray, cache: SoftmaxCache) -> np.ndarray:
    """dy - y sum(dy) is the gradient of log(softmax(x)), the cross-entropy's half; that of the softmax has another sum.

    Hides: it is a right gradient, of another function.
    """
    y, axis = cache
    return dy - y * dy.sum(axis=axis, keepdims=True)


@slip("embedding")
def mean_of_all_places(dy: np.ndarray, cache: EmbeddingCache) -> np.ndarray:
    """Every row of the table gets the mean of all dy, whichever ids stood there: a row collects from its own places.

    Hides: in a table of one row that is read once.
    """
    return np.zeros_like(cache.table) + dy.reshape(-1, dy.shape[-1]).mean(axis=0)


@slip("embedding")
def mean_of_all_places_for_the_rows_read(dy: np.ndarray, cache: EmbeddingCache) -> np.ndarray:
    """Every row that was read gets the mean of all dy, not the sum of the dy of its own places.

    Hides: where a single id is read once, and in the rows that nobody reads.
    """
    dtable = np.zeros_like(cache.table)
    dtable[cache.ids] = dy.reshape(-1, dy.shape[-1]).mean(axis=0)
    return dtable


@slip("embedding")
def mean_of_its_places(dy: np.ndarray, cache: EmbeddingCache) -> np.ndarray:
    """A row that is read n times gets the mean of its n terms, where they must be added up: each use has its effect.

    Hides: right as long as all ids differ.
    """
    uses = np.bincount(cache.ids.reshape(-1), minlength=len(cache.table))
    return embedding_backward(dy, cache) / np.maximum(uses, 1).astype(dy.dtype)[:, None]


@slip("embedding")
def ids_not_flattened(dy: np.ndarray, cache: EmbeddingCache) -> np.ndarray:
    """The loop takes ids for one list: of two axes each v is a whole row of ids, and += keeps the last of its repeats.

    Hides: right for ids of one axis, a sentence without a batch, and for a batch of which no row repeats an id.
    """
    dtable = np.zeros_like(cache.table)
    for n, v in enumerate(cache.ids):
        dtable[v] += dy[n]
    return dtable


@slip("scaled_dot_product_attention")
def scale_upside_down(dy: np.ndarray, cache: AttentionCache) -> Any:
    """dq and dk are divided by the scale 1/sqrt(d_k), where they must be multiplied by it: sqrt(d_k) is upside down.

    Hides: the direction is right, and at d_k = 1 all is.
    """
    dq, dk, dv, dbias = scaled_dot_product_attention_backward(dy, cache)
    return dq / cache.scale**2, dk / cache.scale**2, dv, dbias


def _gelu_slope(x: np.ndarray, du: np.ndarray) -> np.ndarray:
    t = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return (1 + t) / 2 + x * (1 - t * t) / 2 * du


def _keeps_x(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    t = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return x * (1 + t) / 2, x


def _root_missing(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    return dy * _gelu_slope(x, 1 + 3 * 0.044715 * x * x)


def _three_missing(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    return dy * _gelu_slope(x, math.sqrt(2 / math.pi) * (1 + 0.044715 * x * x))


@slip("gelu", "op", op_backward=_root_missing)
def root_missing_in_du(x: np.ndarray) -> Any:
    """u' = 1 + 3 * 0.044715 x^2 lacks the factor sqrt(2 / pi), which stands before the bracket in u.

    Hides: at x = 0, and far out where the tanh is flat.
    """
    return _keeps_x(x)


@slip("gelu", "op", op_backward=_three_missing)
def three_missing_in_du(x: np.ndarray) -> Any:
    """u' holds 0.044715 x^2, where the derivative of 0.044715 x^3 is 3 * 0.044715 x^2: the 3 is missing.

    Hides: near x = 0 and far out; it is a few hundredths off at most.
    """
    return _keeps_x(x)


@slip("Adam", "stand_in")
class RootLeftOut(AdamByTheBook):
    """It divides by v_hat, the mean of the squares; the step must be divided by its root, which is as large as g is.

    Hides: where gradients are near 1, the root is near 1 too.
    """

    def move(self, p: np.ndarray, m: np.ndarray, v: np.ndarray, rate: float) -> None:
        """With v_hat in the place of its root."""
        m_hat, v_hat = m / (1 - self.beta_1**self.steps), v / (1 - self.beta_2**self.steps)
        p -= rate * m_hat / (v_hat + self.eps)


@slip("Adam", "stand_in")
class PowerOfTheBracket(AdamByTheBook):
    """It divides by (1 - beta)^t, where the correction is 1 - beta^t: only beta is raised to the power of the step.

    Hides: the first step is right; by the third the division is by almost nothing.
    """

    def move(self, p: np.ndarray, m: np.ndarray, v: np.ndarray, rate: float) -> None:
        """With the bracket's power."""
        m_hat, v_hat = m / (1 - self.beta_1) ** self.steps, v / (1 - self.beta_2) ** self.steps
        p -= rate * m_hat / (np.sqrt(v_hat) + self.eps)


@slip("Adam", "stand_in")
class CorrectedMeansStored(AdamByTheBook):
    """m_hat and v_hat are stored as the new m and v; they are for this step only, the means must go on uncorrected.

    Hides: the first step is right.
    """

    def move(self, p: np.ndarray, m: np.ndarray, v: np.ndarray, rate: float) -> None:
        """With both means corrected where they are stored."""
        m /= 1 - self.beta_1**self.steps
        v /= 1 - self.beta_2**self.steps
        p -= rate * m / (np.sqrt(v) + self.eps)


@slip("Adam", "stand_in")
class CorrectedMeanStored(AdamByTheBook):
    """m_hat is stored as the new m; it is for this step only, the mean must go on uncorrected.

    Hides: the first step is right.
    """

    def move(self, p: np.ndarray, m: np.ndarray, v: np.ndarray, rate: float) -> None:
        """With the mean of the gradient corrected where it is stored."""
        m /= 1 - self.beta_1**self.steps
        p -= rate * m / (np.sqrt(v / (1 - self.beta_2**self.steps)) + self.eps)
