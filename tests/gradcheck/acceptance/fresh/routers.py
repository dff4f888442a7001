"""Routers: a top-k mixture of experts, a load-balancing loss, a switch layer and a straight softmax gate."""

import numpy as np

from tests.gradcheck.acceptance.fresh.pairs import Pairs
from tests.gradcheck.acceptance.fresh.words import MEAN_LEFT_OUT, REPEATED, TERM_MISSING, TRANSPOSED

PAIRS = Pairs()
DIAGONAL = (r"diagonal", r"- (sum|mean)\(", r"sums? to zero", r"every output.*depends on every", r"normali[sz]",
            r"softmax")


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def mixture(x, gate, experts, *, k=2):
    """x (B, D), gate (D, E), experts (E, D, O): the k likeliest experts, their weights normalized to one."""
    p = softmax(x @ gate)
    chosen = np.zeros(p.shape, bool)
    np.put_along_axis(chosen, np.argsort(-p.real, axis=-1)[:, :k], True, -1)
    total = (p * chosen).sum(-1, keepdims=True)
    weight = p * chosen / total
    each = np.einsum("bd,edo->beo", x, experts)
    return np.einsum("be,beo->bo", weight, each), (x, gate, experts, p, chosen, total, weight, each)


def mixture_backward(dy, cache):
    x, gate, experts, p, chosen, total, weight, each = cache
    dweight = np.einsum("bo,beo->be", dy, each)
    deach = np.einsum("bo,be->beo", dy, weight)
    dp = chosen * (dweight - (dweight * weight).sum(-1, keepdims=True)) / total
    ds = p * (dp - (dp * p).sum(-1, keepdims=True))
    dx = ds @ gate.T + np.einsum("beo,edo->bd", deach, experts)
    return dx, x.T @ ds, np.einsum("bd,beo->edo", x, deach)


MIXTURE = PAIRS.right(mixture, mixture_backward, lambda rng: {
    "x": rng.standard_normal((6, 3)), "gate": rng.standard_normal((3, 4)), "experts": rng.standard_normal((4, 3, 2))})
PAIRS.wrong(MIXTURE, "gate without a path to x", {"ds @ gate.T + ": ""},
            "dx lacks the path through the gate: x is used by the gate and by the experts.", *TERM_MISSING)
PAIRS.wrong(MIXTURE, "normalization forgotten", {" - (dweight * weight).sum(-1, keepdims=True)": ""},
            "The normalization of the chosen weights is taken as constant: the term - sum(dweight weight) is missing.",
            *DIAGONAL, *TERM_MISSING)
PAIRS.wrong(MIXTURE, "all experts", {"dp = chosen * (": "dp = ("},
            "Experts that were not chosen get a gradient: the mask of the top k is applied only in the forward.",
            r"leak", r"mask", r"not chosen", r"zero (where|at|for)", r"chosen", r"top\b", r"must be (zero|0)")


def balance(logits, *, weight=0.1):
    """logits (B, E): E times the sum of the share of tokens and the mean probability of each expert."""
    B, E = logits.shape
    p = softmax(logits)
    share = np.bincount(logits.real.argmax(-1), minlength=E) / B
    return weight * E * (share * p.mean(0)).sum(), (p, share, weight)


def balance_backward(dy, cache):
    p, share, weight = cache
    B, E = p.shape
    dp = dy * weight * E * share / B
    return p * (dp - (dp * p).sum(-1, keepdims=True))


BALANCE = PAIRS.right(balance, balance_backward, lambda rng: {"logits": rng.standard_normal((7, 4))})
PAIRS.wrong(BALANCE, "sum over the tokens", {" * share / B": " * share"},
            "The 1/B of the mean over the tokens is missing.", *MEAN_LEFT_OUT(7))
PAIRS.wrong(BALANCE, "number of experts", {"weight * E * share": "weight * share"},
            "The factor E, the number of experts, is missing.", r"factor (of )?4\b", r"4 times too small",
            r"divided by 4 .*once too often", r"multiplication by 4", r"1/4\b")
PAIRS.wrong(BALANCE, "weight twice", {"dy * weight * E": "dy * weight**2 * E"}, "The factor weight is applied twice.",
            r"weight.*twice", r"twice.*weight", r"10 times too small", r"factor weight", r"factor (of )?(0\.1|10)\b")
PAIRS.wrong(BALANCE, "diagonal only", {"p * (dp - (dp * p).sum(-1, keepdims=True))": "dp * p * (1 - p)"},
            "Only the diagonal of the softmax's Jacobian is used.", *DIAGONAL)


def switch(x, gate, experts):
    """x (B, D), gate (D, E), experts (E, D, O): the likeliest expert, times its probability."""
    p = softmax(x @ gate)
    best = p.real.argmax(-1)
    top = p[np.arange(len(x)), best]
    h = np.einsum("bd,bdo->bo", x, experts[best])
    return top[:, None] * h, (x, gate, experts, p, best, top, h)


def switch_backward(dy, cache):
    x, gate, experts, p, best, top, h = cache
    dtop = (dy * h).sum(-1)
    dh = dy * top[:, None]
    ds = -p * (dtop * top)[:, None]
    ds[np.arange(len(x)), best] += dtop * top
    dexperts = np.zeros_like(experts)
    np.add.at(dexperts, best, x[:, :, None] * dh[:, None])
    return ds @ gate.T + np.einsum("bo,bdo->bd", dh, experts[best]), x.T @ ds, dexperts


SWITCH = PAIRS.right(switch, switch_backward, lambda rng: {
    "x": rng.standard_normal((6, 3)), "gate": rng.standard_normal((3, 4)), "experts": rng.standard_normal((4, 3, 2))})
PAIRS.wrong(SWITCH, "last token wins", {
    "np.add.at(dexperts, best, x[:, :, None] * dh[:, None])": "dexperts[best] = x[:, :, None] * dh[:, None]"},
    "An expert that is used by several tokens gets the gradient of the last one only.",
    *REPEATED, r"assignment", r"instead of (the|a) sum", r"overwritten instead of added", r"only the last", r"\+=")
PAIRS.wrong(SWITCH, "gate detached", {"return ds @ gate.T + np": "ds *= 0\n    return np"},
            "The gate gets no gradient: the path through the probability is detached.",
            r"returns zero", r"is zero", r"zero instead", r"detach", *TERM_MISSING)
PAIRS.wrong(SWITCH, "probability left out", {"dh = dy * top[:, None]": "dh = dy"},
            "The gradient of the expert lacks the factor top, the probability of the gate.", r"factor top",
            r"top.*(missing|left out)", r"(missing|left out).*top\b", r"softmax", r"cache\[5\]", r"probabilit")
PAIRS.wrong(SWITCH, "gate not transposed", {"x.T @ ds": "(ds.T @ x)"}, "dgate is transposed.", *TRANSPOSED, r"shape")


def attention_pool(x, query, value):
    """x (B, T, D), query (D,), value (D, O): one vector for each row, a softmax over the places."""
    p = softmax(x @ query)
    pooled = np.einsum("bt,btd->bd", p, x)
    return pooled @ value, (x, query, value, p, pooled)


def attention_pool_backward(dy, cache):
    x, query, value, p, pooled = cache
    dpooled = dy @ value.T
    dp = np.einsum("bd,btd->bt", dpooled, x)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    dx = p[:, :, None] * dpooled[:, None] + ds[:, :, None] * query
    return dx, np.einsum("bt,btd->d", ds, x), pooled.T @ dy


POOL = PAIRS.right(attention_pool, attention_pool_backward, lambda rng: {
    "x": rng.standard_normal((2, 4, 3)), "query": rng.standard_normal(3), "value": rng.standard_normal((3, 5))})
PAIRS.wrong(POOL, "scores without a path to x", {" + ds[:, :, None] * query": ""},
            "dx lacks the path through the scores.", *TERM_MISSING)
PAIRS.wrong(POOL, "sum over the batch", {"(p * dp).sum(-1, keepdims=True)": "(p * dp).sum(0, keepdims=True)"},
            "The sum in the softmax backward runs over the batch instead of the places.", r"axis", r"batch", r"mixes")
