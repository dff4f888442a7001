"""Losses, order statistics and sums over paths: functions with corners, masks and logarithms."""

import numpy as np

from tests.gradcheck.acceptance.third_party.function import MODEST, ROWS, Arrays, ThirdParty

LABELS = np.array([2, 0, 3])
MASK = np.array([[True, False, True, True, False], [True, True, True, False, False], [True] * 5])
SIGNS = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
TARGET = np.array([1, 2])  # target of the CTC loss; 0 is the blank


def sort(x: np.ndarray) -> np.ndarray:
    return np.sort(x, -1)


def sort_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    dx = np.zeros_like(x)
    np.put_along_axis(dx, np.argsort(x, -1, kind="stable"), dy, -1)
    return (dx,)


def top_k(x: np.ndarray) -> np.ndarray:  # the largest two, the largest first
    return np.sort(x, -1)[..., :-3:-1]


def top_k_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    dx = np.zeros_like(x)
    np.put_along_axis(dx, np.argsort(x, -1, kind="stable")[..., :-3:-1], dy, -1)
    return (dx,)


def median(x: np.ndarray) -> np.ndarray:
    return np.median(x, -1)


def median_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    dx = np.zeros_like(x)
    middle = np.argsort(x, -1, kind="stable")[..., x.shape[-1] // 2]
    np.put_along_axis(dx, middle[..., None], dy[..., None], -1)
    return (dx,)


def clip_norm(x: np.ndarray) -> np.ndarray:  # rows longer than 1 are shortened to 1
    return x / np.maximum(1, np.sqrt((x * x).sum(-1, keepdims=True)))


def clip_norm_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    norm = np.sqrt((x * x).sum(-1, keepdims=True))
    long = norm > 1
    norm = np.where(long, norm, 1)
    return (np.where(long, dy / norm - x * (dy * x).sum(-1, keepdims=True) / norm**3, dy),)


def huber(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    d = np.abs(x - t)
    return np.where(d < 1, 0.5 * d * d, d - 0.5).sum(-1)


def huber_vjp(dy: np.ndarray, x: np.ndarray, t: np.ndarray) -> Arrays:
    g = dy[..., None] * np.clip(x - t, -1, 1)
    return g, -g


def hinge(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(0, 1 - SIGNS.astype(x.dtype) * (x @ w)).mean())


def hinge_vjp(dy: np.ndarray, w: np.ndarray, x: np.ndarray) -> Arrays:
    signs = SIGNS.astype(x.dtype)
    g = -dy * signs * (signs * (x @ w) < 1) / len(x)
    return x.T @ g, np.outer(g, w)


def quantile_loss(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    d = t - x
    return np.maximum(0.9 * d, -0.1 * d).mean(-1)


def quantile_loss_vjp(dy: np.ndarray, x: np.ndarray, t: np.ndarray) -> Arrays:
    g = dy[..., None] * np.where(t > x, 0.9, -0.1).astype(x.dtype) / x.shape[-1]
    return -g, g


def masked_mean(x: np.ndarray) -> np.ndarray:
    return (x * MASK).sum(-1) / MASK.sum(-1).astype(x.dtype)


def masked_mean_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    return (dy[:, None] * MASK / MASK.sum(-1, keepdims=True).astype(x.dtype),)


def cross_entropy(x: np.ndarray) -> np.ndarray:  # with labels smoothed by 0.1
    logs = x - _logsumexp(x)
    return -0.9 * logs[np.arange(3), LABELS] - 0.1 * logs.mean(-1)


def cross_entropy_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    dx = np.exp(x - _logsumexp(x)) - 0.1 / x.shape[-1]
    dx[np.arange(3), LABELS] -= 0.9
    return ((dy[:, None] * dx).astype(x.dtype),)


def focal_loss(x: np.ndarray) -> np.ndarray:
    logp = -np.logaddexp(0, -x)
    return -((1 - np.exp(logp)) ** 2) * logp


def focal_loss_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    logp = -np.logaddexp(0, -x)
    p = np.exp(logp)
    return (dy * (2 * (1 - p) ** 2 * p * logp - (1 - p) ** 3),)


def kl_divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return (p * np.log(p / q)).sum(-1)


def kl_divergence_vjp(dy: np.ndarray, p: np.ndarray, q: np.ndarray) -> Arrays:
    return dy[..., None] * (np.log(p / q) + 1), -dy[..., None] * p / q


def dice(p: np.ndarray, t: np.ndarray) -> np.ndarray:
    return 1 - 2 * (p * t).sum(-1) / (p.sum(-1) + t.sum(-1))


def dice_vjp(dy: np.ndarray, p: np.ndarray, t: np.ndarray) -> Arrays:
    both, total = (p * t).sum(-1, keepdims=True), (p + t).sum(-1, keepdims=True)
    d = -2 * dy[..., None] / total**2
    return d * (t * total - both), d * (p * total - both)


def gaussian_likelihood(x: np.ndarray, mean: np.ndarray, log_variance: np.ndarray) -> np.ndarray:
    return 0.5 * (log_variance + (x - mean) ** 2 * np.exp(-log_variance)).sum(-1)


def gaussian_likelihood_vjp(dy: np.ndarray, x: np.ndarray, mean: np.ndarray, log_variance: np.ndarray) -> Arrays:
    g = dy[..., None] * (x - mean) * np.exp(-log_variance)
    return g, -g, 0.5 * (dy[..., None] - g * (x - mean))


def contrastive(x: np.ndarray, y: np.ndarray) -> np.ndarray:  # pairs along the diagonal
    scores = x @ y.T
    return _logsumexp(scores)[:, 0] - np.diag(scores)


def contrastive_vjp(dy: np.ndarray, x: np.ndarray, y: np.ndarray) -> Arrays:
    scores = x @ y.T
    g = dy[:, None] * (np.exp(scores - _logsumexp(scores)) - np.eye(len(x), dtype=x.dtype))
    return g @ y, g.T @ x


def triplet(a: np.ndarray, p: np.ndarray, n: np.ndarray) -> np.ndarray:
    return np.maximum(0, ((a - p) ** 2).sum(-1) - ((a - n) ** 2).sum(-1) + 1)


def triplet_vjp(dy: np.ndarray, a: np.ndarray, p: np.ndarray, n: np.ndarray) -> Arrays:
    g = 2 * (dy * (triplet(a, p, n) > 0))[..., None]
    return g * (n - p), -g * (a - p), g * (a - n)


def hidden_markov(start: np.ndarray, transition: np.ndarray, emission: np.ndarray) -> np.ndarray:
    alpha = start * emission[0]
    for e in emission[1:]:
        alpha = (alpha @ transition) * e
    return np.asarray(np.log(alpha.sum()))


def hidden_markov_vjp(dy: np.ndarray, start: np.ndarray, transition: np.ndarray, emission: np.ndarray) -> Arrays:
    alphas = [start * emission[0]]
    for e in emission[1:]:
        alphas.append((alphas[-1] @ transition) * e)
    d = np.full_like(start, dy / alphas[-1].sum())
    dtransition, demission = np.zeros_like(transition), np.zeros_like(emission)
    for t in range(len(emission) - 1, 0, -1):
        demission[t] = d * (alphas[t - 1] @ transition)
        d = d * emission[t]
        dtransition += np.outer(alphas[t - 1], d)
        d = transition @ d
    demission[0] = d * start
    return d * emission[0], dtransition, demission


def ctc(logits: np.ndarray) -> np.ndarray:  # (T, V): minus the log of the sum over all alignments of TARGET
    logs = logits - _logsumexp(logits)
    return np.asarray(-np.logaddexp.reduce(_ctc_alphas(logs, _ctc_states())[-1][-2:]))


def ctc_vjp(dy: np.ndarray, logits: np.ndarray) -> Arrays:
    logs, states = logits - _logsumexp(logits), _ctc_states()
    forward = np.array(_ctc_alphas(logs, states))
    backward = np.array(_ctc_alphas(logs[::-1], states[::-1]))[::-1, ::-1]
    total = np.logaddexp.reduce(forward[-1][-2:])
    dlogs = np.zeros_like(logits)
    for s, label in enumerate(states):
        dlogs[:, label] -= np.exp(forward[:, s] + backward[:, s] - logs[:, label] - total)
    return (dy * (dlogs - np.exp(logs) * dlogs.sum(-1, keepdims=True)),)


def _ctc_states() -> np.ndarray:
    states = np.zeros(2 * len(TARGET) + 1, int)
    states[1::2] = TARGET
    return states


def _ctc_alphas(logs: np.ndarray, states: np.ndarray) -> list[np.ndarray]:
    alpha = np.full(len(states), -np.inf, logs.dtype)
    alpha[:2] = logs[0, states[:2]]
    alphas = [alpha]
    for row in logs[1:]:
        new = np.full_like(alpha, -np.inf)
        for s, label in enumerate(states):
            ways = [alpha[s], *alpha[max(s - 1, 0) : s]]
            if s > 1 and label and label != states[s - 2]:
                ways.append(alpha[s - 2])
            new[s] = np.logaddexp.reduce(np.array(ways)) + row[label]
        alpha = new
        alphas.append(alpha)
    return alphas


def _logsumexp(x: np.ndarray) -> np.ndarray:
    top = x.max(-1, keepdims=True)
    return top + np.log(np.exp(x - top).sum(-1, keepdims=True))


R = "real"
LOSSES = [
    ThirdParty(sort, sort_vjp, ((R, (3, 5)),), ROWS),
    ThirdParty(top_k, top_k_vjp, ((R, (3, 5)),), ROWS),
    ThirdParty(median, median_vjp, ((R, (3, 5)),), ROWS),
    ThirdParty(clip_norm, clip_norm_vjp, ((R, (4, 3)),), ROWS),
    ThirdParty(huber, huber_vjp, ((R, (3, 5)), (R, (3, 5))), ROWS),
    ThirdParty(hinge, hinge_vjp, ((R, (4,)), (R, (5, 4)))),
    ThirdParty(quantile_loss, quantile_loss_vjp, ((R, (3, 5)), (R, (3, 5))), ROWS),
    ThirdParty(masked_mean, masked_mean_vjp, ((R, (3, 5)),)),
    ThirdParty(cross_entropy, cross_entropy_vjp, ((R, (3, 4)),), MODEST),
    ThirdParty(focal_loss, focal_loss_vjp, ((R, (3, 4)),), MODEST),
    ThirdParty(kl_divergence, kl_divergence_vjp, (("simplex", (3, 4)), ("simplex", (3, 4))), ("normal", "float32")),
    ThirdParty(dice, dice_vjp, (("unit interval", (2, 6)), ("unit interval", (2, 6))), ("normal", "float32")),
    ThirdParty(gaussian_likelihood, gaussian_likelihood_vjp, ((R, (3, 4)), (R, (3, 4)), (R, (3, 4))), MODEST),
    ThirdParty(contrastive, contrastive_vjp, ((R, (4, 3)), (R, (4, 3))), MODEST),
    ThirdParty(triplet, triplet_vjp, ((R, (4, 3)), (R, (4, 3)), (R, (4, 3))), ROWS),
    ThirdParty(hidden_markov, hidden_markov_vjp,
             (("simplex", (3,)), ("simplex", (3, 3)), ("unit interval", (5, 3))), ("normal", "float32")),
    ThirdParty(ctc, ctc_vjp, ((R, (6, 4)),), MODEST),
]
