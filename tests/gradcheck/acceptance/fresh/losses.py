"""Losses: Gaussian likelihood, InfoNCE, triplets, a forward sum over alignments and a Sinkhorn distance."""

import numpy as np

from tests.gradcheck.acceptance.fresh.pairs import Pairs
from tests.gradcheck.acceptance.fresh.routers import softmax
from tests.gradcheck.acceptance.fresh.words import FACTOR_2, MEAN_LEFT_OUT, SIGN, TERM_MISSING

PAIRS = Pairs()


def gaussian(mean, log_variance, target, *, eps=0.05):
    """The mean of the negative log-likelihood; all arguments (B, D)."""
    variance = np.exp(log_variance) + eps
    error = target - mean
    return 0.5 * np.mean(np.log(variance) + error**2 / variance), (error, log_variance, variance)


def gaussian_backward(dy, cache):
    error, log_variance, variance = cache
    dy = dy / error.size
    dmean = -dy * error / variance
    dvariance = 0.5 * dy * (1 / variance - error**2 / variance**2)
    return dmean, dvariance * np.exp(log_variance), -dmean


GAUSSIAN = PAIRS.right(gaussian, gaussian_backward, lambda rng: {
    "mean": rng.standard_normal((3, 4)), "log_variance": rng.standard_normal((3, 4)),
    "target": rng.standard_normal((3, 4))})
PAIRS.wrong(GAUSSIAN, "logarithm forgotten", {"(1 / variance - error**2 / variance**2)": "-(error**2) / variance**2"},
            "The path of the variance through its logarithm, 1 / variance, is missing.",
            *TERM_MISSING, r"1 ?/ ?variance", r"logarithm")
PAIRS.wrong(GAUSSIAN, "deviation for variance", {"-dy * error / variance": "-dy * error / np.sqrt(variance)"},
            "dmean is divided by the standard deviation instead of the variance.", r"sqrt", r"square root",
            r"(factor|division|divided|by|of) .*\bvariance", r"cache\[2\]", r"deviation", r"factor 1/(s|std|sigma)")
PAIRS.wrong(GAUSSIAN, "target and mean", {"variance), -dmean": "variance), dmean"},
            "The gradient of target is that of mean: the sign is wrong.", *SIGN)
PAIRS.wrong(GAUSSIAN, "eps left out", {"dvariance * np.exp(log_variance)": "dvariance * variance"},
            "The backward multiplies by variance, with eps, instead of exp(log_variance), the derivative without eps.",
            r"\beps\b", r"exp\(log_variance\)", r"derivative of exp")
PAIRS.wrong(GAUSSIAN, "mean of rows", {"dy / error.size": "dy / len(error)"},
            "The mean runs over all B D numbers, but the backward divides by B only: a factor 1/D is missing.",
            *MEAN_LEFT_OUT(4))


def info_nce(a, b, *, tau=0.5):
    """Unit vectors of the rows of a, b (B, D): each row of a must find its partner in b, and the reverse."""
    a_length, b_length = np.sqrt((a * a).sum(-1, keepdims=True)), np.sqrt((b * b).sum(-1, keepdims=True))
    a, b = a / a_length, b / b_length
    s = a @ b.T / tau
    rows, columns = softmax(s), softmax(s.T).T
    y = -(np.log(np.diag(rows)).mean() + np.log(np.diag(columns)).mean()) / 2
    return y, (a, b, a_length, b_length, rows, columns, tau)


def info_nce_backward(dy, cache):
    a, b, a_length, b_length, rows, columns, tau = cache
    ds = dy * ((rows + columns) / 2 - np.eye(len(a))) / len(a)
    da, db = ds @ b / tau, ds.T @ a / tau
    da = (da - a * (da * a).sum(-1, keepdims=True)) / a_length
    db = (db - b * (db * b).sum(-1, keepdims=True)) / b_length
    return da, db


INFO_NCE = PAIRS.right(info_nce, info_nce_backward, lambda rng: {
    "a": rng.standard_normal((5, 3)), "b": rng.standard_normal((5, 3))})
PAIRS.wrong(INFO_NCE, "one direction", {"((rows + columns) / 2 - np.eye(len(a)))": "(rows - np.eye(len(a)))"},
            "Only the direction from a to b has a gradient: the softmax over the columns is missing.",
            *TERM_MISSING, r"column", r"both directions", r"softmax")
PAIRS.wrong(INFO_NCE, "temperature left out", {"ds.T @ a / tau": "ds.T @ a"}, "db lacks the factor 1/tau.", r"\btau\b",
            r"half", r"factor (of )?2\b", r"2 times")
PAIRS.wrong(INFO_NCE, "length kept", {"da - a * (da * a).sum(-1, keepdims=True)": "da"},
            "The projection of the normalization is missing: da must be orthogonal to a.",
            r"projection", r"orthogonal", r"perpendicular", r"normali[sz]", r"length", r"sum\(", r"\bnorm\b")
PAIRS.wrong(INFO_NCE, "length left out", {" / b_length\n    return": "\n    return"},
            "The division by the length of each row of b is missing.",
            r"cache\[3\]", r"length", r"right direction and a wrong length", r"\bnorm\b", r"differs from row to row")


def triplet(anchor, positive, negative, *, margin=1.0):
    """Squared distances of the rows (B, D): the mean hinge loss."""
    to, away = anchor - positive, anchor - negative
    loss = (to**2).sum(-1) - (away**2).sum(-1) + margin
    active = loss > 0
    return (loss * active).mean(), (to, away, active)


def triplet_backward(dy, cache):
    to, away, active = cache
    dloss = dy * active[:, None] / len(active)
    return 2 * dloss * (to - away), -2 * dloss * to, 2 * dloss * away


TRIPLET = PAIRS.right(triplet, triplet_backward, lambda rng: {
    "anchor": rng.standard_normal((6, 3)), "positive": rng.standard_normal((6, 3)),
    "negative": rng.standard_normal((6, 3))})
PAIRS.wrong(TRIPLET, "hinge in the forward only", {"dy * active[:, None]": "dy * np.ones((len(active), 1))"},
            "Triplets with loss zero must have no gradient: the hinge acts only in the forward.",
            r"active", r"hinge|relu|clip", r"must be (zero|0)", r"zero (where|at)", r"forward is (constant|flat)",
            r"flat", r"does not depend")
PAIRS.wrong(TRIPLET, "anchor of one distance", {"2 * dloss * (to - away)": "2 * dloss * to"},
            "The path of the anchor through the second distance is missing.", *TERM_MISSING)
PAIRS.wrong(TRIPLET, "two forgotten", {"2 * dloss * away": "dloss * away"}, "dnegative lacks the factor 2.", *FACTOR_2)


def alignments(logp, mask):
    """logp, mask (T, U): log of the summed probability of all monotonic paths from (0, 0) to the last visible place."""
    T, U = logp.shape
    hidden = np.where(mask, logp, -50.0)
    log = np.full((T, U), -100.0, logp.dtype)
    log[0, 0] = hidden[0, 0]
    for t in range(1, T):
        before = np.concatenate([[-100.0], log[t - 1, :-1]])
        top = np.maximum(log[t - 1].real, before.real)
        log[t] = hidden[t] + top + np.log(np.exp(log[t - 1] - top) + np.exp(before - top))
    return -log[-1, -1], (log, hidden, mask)


def alignments_backward(dy, cache):
    log, hidden, mask = cache
    d = np.zeros(log.shape)
    d[-1, -1] = -dy
    dlogp = np.zeros(log.shape)
    for t in reversed(range(1, len(d))):
        dlogp[t] = d[t]
        total = log[t] - hidden[t]
        stay = np.exp(log[t - 1] - total)
        move = np.exp(log[t - 1, :-1] - total[1:])
        d[t - 1] += d[t] * stay
        d[t - 1, :-1] += d[t, 1:] * move
    dlogp[0, 0] = d[0, 0]
    return dlogp * mask


def draw_alignments(rng):
    mask = np.ones((5, 3), bool)
    mask[1, 1] = False
    return {"logp": -rng.uniform(0.1, 2, (5, 3)), "mask": mask}


ALIGNMENTS = PAIRS.right(alignments, alignments_backward, draw_alignments)
PAIRS.wrong(ALIGNMENTS, "move forgotten", {"        d[t - 1, :-1] += d[t, 1:] * move\n": ""},
            "The path of a move to the next place is missing; only staying is counted.",
            *TERM_MISSING, r"mixes", r"only the last")
PAIRS.wrong(ALIGNMENTS, "moved to the wrong side", {
    "d[t - 1, :-1] += d[t, 1:] * move": "d[t - 1, 1:] += d[t, 1:] * move"},
            "The gradient of a move goes to the wrong place: the index is shifted by one.",
            r"shift", r"by one", r"neighbour", r"wrong places", r"index", r"next|previous")
PAIRS.wrong(ALIGNMENTS, "log-likelihood", {"d[-1, -1] = -dy": "d[-1, -1] = dy"},
            "The sign is wrong: the loss is the negative logarithm.", *SIGN)
PAIRS.wrong(ALIGNMENTS, "not weighted", {"d[t] * stay": "d[t]", "d[t, 1:] * move": "d[t, 1:]"},
            "The two ways into a place must be weighted with their shares, the softmax of the log-sum-exp.",
            r"weight", r"softmax", r"log-?sum-?exp", r"share", r"probabilit")


def sinkhorn(cost, p, q, *, strength=0.7, steps=3):
    """cost (n, m), p (n,), q (m,): the cost of the plan after some Sinkhorn steps."""
    k = np.exp(-cost / strength)
    v = np.ones(len(q))
    history = []
    for _ in range(steps):
        u = p / (k @ v)
        history.append((u, v))
        v = q / (k.T @ u)
    plan = u[:, None] * k * v
    return (plan * cost).sum(), (cost, p, q, k, v, plan, history, strength)


def sinkhorn_backward(dy, cache):
    cost, p, q, k, v, plan, history, strength = cache
    dcost = dy * plan
    dplan = dy * cost
    u = history[-1][0]
    dk = dplan * u[:, None] * v
    du, dv = (dplan * k * v).sum(1), (dplan * k * u[:, None]).sum(0)
    dp, dq = np.zeros_like(p), np.zeros_like(q)
    for u, old in reversed(history):
        below = k.T @ u
        dq = dq + dv / below
        dbelow = -dv * q / below**2
        dk = dk + np.outer(u, dbelow)
        du = du + k @ dbelow
        below = k @ old
        dp = dp + du / below
        dbelow = -du * p / below**2
        dk = dk + np.outer(dbelow, old)
        dv = k.T @ dbelow
        du = 0.0
    return dcost - dk * k / strength, dp, dq


SINKHORN = PAIRS.right(sinkhorn, sinkhorn_backward, lambda rng: {
    "cost": rng.uniform(0.5, 2, (3, 4)), "p": rng.uniform(0.5, 1, 3), "q": rng.uniform(0.5, 1, 4)})
PAIRS.wrong(SINKHORN, "plan detached", {"dcost - dk * k / strength": "dcost"},
            "The plan is taken as a constant: the path of cost through the plan is missing.",
            *TERM_MISSING, r"detach", r"constant")
PAIRS.wrong(SINKHORN, "last step only", {"in reversed(history)": "in history[-1:]"},
            "Only the last step has a gradient: the loop over the earlier steps is missing.",
            r"last step", r"earlier steps", r"iteration", r"steps", r"only the last", *TERM_MISSING)
PAIRS.wrong(SINKHORN, "strength left out", {"dk * k / strength": "dk * k"},
            "The factor 1/strength of the exponent is missing.", r"strength")
