"""Chapter 27, continued. The baseline: predicting text by counting

What does a held-out loss of 1.6 nats per character mean? Compare it with predictors that only count. A bigram
predictor looks up how often each character c followed the previous character in the training text. An n-gram
predictor, of order n, looks up how often c followed the n - 1 previous characters, the context h. A long context
predicts better but occurs rarely, so each order is mixed with the next shorter order. Witten and Bell weight the two
by how often h was followed by a new character: if h occurred N(h) times and was followed by D(h) different characters,
then the next character was new in D(h) of these N(h) cases, and

    P(c | h) = (N(h, c) + D(h) P(c | h')) / (N(h) + D(h)),        h' = h without its oldest character,

which sums to one over c if P(. | h') does. For a context that never occurred, N = D = 0 and P(c | h) = P(c | h'). The
order below the single characters is the uniform P = 1 / V. A GPT that does not beat the trigram has learned nothing
more than a table of three-letter counts contains; a GPT that beats the trigram must have used characters further back.

Source: Witten, Bell, The Zero-Frequency Problem (1991), method C; Chen, Goodman, An Empirical Study of Smoothing
Techniques for Language Modeling (1998), the section on Witten-Bell smoothing.
"""

import numpy as np


def ngram_losses(
    training_ids: np.ndarray, held_out_ids: np.ndarray, vocabulary_size: int, order: int = 4
) -> list[float]:
    """Held-out losses of the interpolated Witten-Bell predictors of order 1 (single characters) to `order`.

    Shapes: training_ids (N,), held_out_ids (M,); the held-out text follows the training text directly.

    Units: nats per character, the mean over all M held-out characters.

    Raises: ValueError if vocabulary_size^order is too large for an integer code, or if there are too few ids.
    """
    if vocabulary_size**order >= 2**62:
        raise ValueError(f"ngram_losses: vocabulary_size**order must be below 2**62, got {vocabulary_size}**{order}")
    if len(training_ids) < order or len(held_out_ids) < 1:
        raise ValueError(f"ngram_losses: training_ids must hold at least {order} ids and held_out_ids one")
    held_out = np.concatenate([training_ids[-order:], held_out_ids])  # with the context of its first characters
    probability = np.full(len(held_out_ids), 1 / vocabulary_size)  # P(c | h'), order by order
    losses = []
    for n in range(1, order + 1):
        seen, counts = np.unique(_codes(training_ids, n - 1, n, vocabulary_size), return_counts=True)
        contexts, place = np.unique(seen // vocabulary_size, return_inverse=True)
        codes = _codes(held_out, order, n, vocabulary_size)
        N_hc = _look_up(seen, counts, codes)
        N_h = _look_up(contexts, np.bincount(place, weights=counts), codes // vocabulary_size)
        D_h = _look_up(contexts, np.bincount(place), codes // vocabulary_size)
        mixed = (N_hc + D_h * probability) / np.maximum(N_h + D_h, 1)
        probability = np.where(N_h > 0, mixed, probability)
        losses.append(float(-np.log(probability).mean()))
    return losses


def _codes(ids: np.ndarray, start: int, n: int, base: int) -> np.ndarray:
    """The n characters that end at each place from `start` on, as one integer; this integer divided by `base` is the
    context."""
    code = np.zeros(len(ids) - start, dtype=np.int64)
    for back in range(n - 1, -1, -1):
        code *= base
        code += ids[start - back : len(ids) - back]
    return code


def _look_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The value of each wanted key, or 0 if the key is missing; `keys` are sorted."""
    index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[index] == wanted, values[index], 0)
