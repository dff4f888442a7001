"""Chapter 27, continued. The yardstick: predicting text by counting

What does a held-out loss of 1.6 nats a character mean? Compare it with predictors that only count. A bigram predictor
looks up how often each character c followed the previous one in the training text; an n-gram predictor, how often it
followed the n - 1 previous ones, the context h. Long contexts predict better and are rarely seen, so each order is
mixed with the next shorter one. Witten and Bell weigh by how often h was followed by something new: if h was seen
N(h) times and followed by D(h) different characters, D(h) of those N(h) times were surprises, and

    P(c | h) = (N(h, c) + D(h) P(c | h')) / (N(h) + D(h)),        h' = h without its oldest character,

which sums to one over c if P(. | h') does. A context never seen has N = D = 0 and hands over to h' whole. Below the
single characters lies the uniform P = 1 / V. A GPT that does not beat the trigram has learned nothing that a table of
three-letter counts does not know; one that does must have used what stands further back.

Source: Witten, Bell, The Zero-Frequency Problem (1991), method C; Chen, Goodman, An Empirical Study of Smoothing
Techniques for Language Modeling (1998), section 2.3.
"""

import numpy as np


def ngram_losses(
    training_ids: np.ndarray, held_out_ids: np.ndarray, vocabulary_size: int, order: int = 4
) -> list[float]:
    """Held-out losses of the interpolated Witten-Bell predictors of order 1 (single characters) to `order`.

    Shapes: training_ids (N,), held_out_ids (M,); the held-out text follows the training text directly.

    Units: nats per character, the mean over all M held-out characters.

    Raises: ValueError where vocabulary_size^order does not fit a code, or there are too few ids.
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
    """The n characters that end at each place from `start` on, read as one number; divided by `base` it is the
    context."""
    code = np.zeros(len(ids) - start, dtype=np.int64)
    for back in range(n - 1, -1, -1):
        code *= base
        code += ids[start - back : len(ids) - back]
    return code


def _look_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The value of each wanted key, 0 for a key that is not there; `keys` are sorted."""
    index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[index] == wanted, values[index], 0)
