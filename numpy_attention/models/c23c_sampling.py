"""Chapter 23, appendix. Choosing the next token

Temperature divides the logits: below 1, likely tokens become more likely; at 0 the most likely token is taken
(greedy). Top-k keeps the k most likely tokens. Top-p ("nucleus") then keeps the smallest set of them whose
probabilities sum to at least p. Min-p keeps the tokens that are at least min_p times as likely as the most likely one,
so it keeps many tokens when the model is unsure. A token of this set is drawn by inverting the cumulative distribution:
the first token whose cumulative sum exceeds a uniform random number u.

    token               a     b     c     d
    p                  0.50  0.25  0.15  0.10
    top_k = 3          0.56  0.28  0.17   .        normalized: the sum is 1 again
    top_p = 0.7        0.56  0.28   .     .        a alone is below 0.7, a and b are above
    min_p = 0.4        0.56  0.28   .     .        b is half as likely as a
    cumulative         0.56  0.83                  u = 0.6, uniform in [0, 0.83), takes b

A model that repeats itself makes its last words likely again. A repetition penalty above 1 lowers the logits x of all
tokens that the text already contains, before anything else: x / penalty if x is positive, x penalty if it is negative.
"""

from collections.abc import Iterable

import numpy as np

from numpy_attention.errors import InputError, require_generator, require_number, require_size, value_error


def sample(
    logits: np.ndarray, rng: np.random.Generator | None, temperature: float = 1.0, top_k: int | None = None,
    top_p: float | None = None, min_p: float | None = None,
) -> np.ndarray:
    """One token for each row of logits.

    Shapes: logits (B, V) -> tokens (B,) integers.

    Raises: ValueError for logits that contain NaN or have no finite maximum.

    Source: top-p: Holtzman et al., The Curious Case of Neural Text Degeneration (2020), section 3.1; min-p: Nguyen et
    al., Turning Up the Heat: Min-p Sampling (2024), section 3.
    """
    require_finite("sample", logits)
    if temperature == 0.0 or rng is None:
        return np.argmax(logits, axis=-1)
    logits = logits.astype(np.float64)
    order = np.argsort(-logits, axis=-1, kind="stable")  # (B, V), the most likely token first
    if top_k is not None:
        order = order[:, :top_k]  # (B, k)
    logits = np.take_along_axis(logits, order, axis=-1)
    with np.errstate(over="ignore"):  # near temperature 0, -inf is right except for the first token
        p = np.exp((logits - logits[:, :1]) / temperature)
    p /= p.sum(axis=-1, keepdims=True)
    if top_p is not None:
        before = np.cumsum(p, axis=-1) - p  # the sum over all more likely tokens
        before[:, 0] = 0.0  # exactly 0: the first token always stays
        p = np.where(before < top_p, p, 0.0)
    if min_p is not None:
        p = np.where(p >= min_p * p[:, :1], p, 0.0)
    cumulative = np.cumsum(p, axis=-1)
    u = rng.random((len(p), 1)) * cumulative[:, -1:]  # uniform in [0, total)
    chosen = (cumulative <= u).sum(axis=-1, keepdims=True)  # the first place where the sum exceeds u
    return np.take_along_axis(order, chosen, axis=-1)[:, 0]


def penalized(logits: np.ndarray, texts: Iterable[np.ndarray], penalty: float) -> np.ndarray:
    """The logits with those of all tokens lowered that the text of their row contains.

    Formula: x / penalty for x > 0, x penalty for x < 0

    Shapes: logits (B, V), texts: B arrays of ids -> (B, V)

    Source: Keskar et al., CTRL (2019), section 4.1, equation 2; negative logits: the published code, since a division
    would raise them.

    >>> penalized(np.array([[4.0, -4.0, 1.0]]), [np.array([0, 1, 1])], penalty=2.0)
    array([[ 2., -8.,  1.]])
    """
    if penalty == 1:
        return logits
    y = logits.copy()
    for row, ids in zip(y, texts, strict=True):
        seen = np.unique(ids)
        row[seen] = np.where(row[seen] > 0, row[seen] / penalty, row[seen] * penalty)
    return y


def check_sampling(
    rng: np.random.Generator | None, temperature: float, top_k: int | None, top_p: float | None,
    min_p: float | None = None, repetition_penalty: float = 1.0,
) -> None:
    """Refuse invalid settings of a sampler.

    Raises: ValueError for a temperature below 0, or above 0 without an rng; top_k below 1; top_p outside (0, 1]; min_p
    outside [0, 1]; or a repetition_penalty that is not above 0.
    """
    require_number("generate", "temperature", temperature, at_least=0, fix="0 takes the most likely token")
    if top_k is not None:
        require_size("generate", "top_k", top_k)
    if top_p is not None:
        require_number("generate", "top_p", top_p, above=0, at_most=1)
    if min_p is not None:
        require_number("generate", "min_p", min_p, at_least=0, at_most=1)
    require_number("generate", "repetition_penalty", repetition_penalty, above=0, fix="1 is no penalty")
    require_generator("generate", "rng", rng)
    if temperature > 0.0 and rng is None:
        raise value_error("generate", "rng", "a np.random.Generator when temperature > 0", rng, "or pass temperature=0")


def quiet() -> np.errstate:
    """Turn off NumPy's overflow warnings; `require_finite` refuses the result afterwards."""
    return np.errstate(over="ignore", invalid="ignore")


def require_finite(op: str, logits: np.ndarray) -> None:
    """Refuse rows of logits with NaN or with an infinite maximum: no token can be drawn from them.

    Raises: InputError, because the cause is the weights in a file.
    """
    largest = logits.max(axis=-1)  # NaN if the row has a NaN
    if not np.isfinite(largest).all():
        odd = largest[~np.isfinite(largest)][0]
        raise InputError(f"{op}: the logits are {odd}: the weights are too large or damaged")
