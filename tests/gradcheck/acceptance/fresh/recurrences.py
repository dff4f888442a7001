"""Recurrences: LSTM cell, GRU cell, a tanh network over time, a selective scan and a decay as in RWKV."""

import numpy as np

from tests.gradcheck.acceptance.fresh.pairs import Pairs
from tests.gradcheck.acceptance.fresh.preferences import sigmoid
from tests.gradcheck.acceptance.fresh.words import PERMUTED, SIGN, STALE, TERM_MISSING

PAIRS = Pairs()
KEPT = {}


def lstm_cell(x, h, c, w, u, b):
    """x (B, D), h and c (B, H), w (D, 4H), u (H, 4H), b (4H,): the new h and c."""
    a = x @ w + h @ u + b
    ai, af, ag, ao = np.split(a, 4, axis=-1)
    i, f, g, o = sigmoid(ai), sigmoid(af), np.tanh(ag), sigmoid(ao)
    new = f * c + i * g
    t = np.tanh(new)
    return (o * t, new), (x, h, c, w, u, i, f, g, o, t)


def lstm_cell_backward(dy, cache):
    x, h, c, w, u, i, f, g, o, t = cache
    dh_new, dc_new = dy
    dc = dc_new + dh_new * o * (1 - t**2)
    di = dc * g * i * (1 - i)
    df = dc * c * f * (1 - f)
    dg = dc * i * (1 - g**2)
    do = dh_new * t * o * (1 - o)
    da = np.concatenate([di, df, dg, do], axis=-1)
    return da @ w.T, da @ u.T, dc * f, x.T @ da, h.T @ da, da.sum(0)


LSTM = PAIRS.right(lstm_cell, lstm_cell_backward, lambda rng: {
    "x": rng.standard_normal((3, 2)), "h": rng.standard_normal((3, 4)), "c": rng.standard_normal((3, 4)),
    "w": rng.standard_normal((2, 16)) / 2, "u": rng.standard_normal((4, 16)) / 2, "b": rng.standard_normal(16)})
PAIRS.wrong(LSTM, "path from h to c", {"dc_new + dh_new * o * (1 - t**2)": "dc_new"},
            "The gradient of the new h does not reach the new c: the path o (1 - tanh^2) is missing.",
            *TERM_MISSING, r"dh_new|y\[0\]|output 0|first output")
PAIRS.wrong(LSTM, "slope of a sigmoid", {"(1 - g**2)": "g * (1 - g)"},
            "g is a tanh, but its gradient is g (1 - g), that of a sigmoid.",
            r"sigmoid", r"tanh", r"1 - [a-z]+ ?(\*\*|\^) ?2")
PAIRS.wrong(LSTM, "gates exchanged", {"[di, df, dg, do]": "[df, di, dg, do]"},
            "The gradients of the input gate and of the forget gate are exchanged.", *PERMUTED)
PAIRS.wrong(LSTM, "forget gate left out", {"dc * f, x.T": "dc, x.T"},
            "The gradient of the old c lacks the factor f, the forget gate.", r"factor f\b",
            r"\bf\b.*(missing|left out)", r"(missing|left out).*\bf\b", r"cache\[6\]", r"forget", r"factor sigmoid")


def gru_cell(x, h, wz, uz, wr, ur, wn, un):
    """x (B, D), h (B, H), w (D, H), u (H, H): the new h."""
    z, r = sigmoid(x @ wz + h @ uz), sigmoid(x @ wr + h @ ur)
    s = h @ un
    n = np.tanh(x @ wn + r * s)
    return (1 - z) * n + z * h, (x, h, wz, uz, wr, ur, wn, un, z, r, s, n)


def gru_cell_backward(dy, cache):
    x, h, wz, uz, wr, ur, wn, un, z, r, s, n = cache
    dan = dy * (1 - z) * (1 - n**2)
    daz = dy * (h - n) * z * (1 - z)
    dar = dan * s * r * (1 - r)
    ds = dan * r
    dx = dan @ wn.T + daz @ wz.T + dar @ wr.T
    dh = dy * z + ds @ un.T + daz @ uz.T + dar @ ur.T
    return dx, dh, x.T @ daz, h.T @ daz, x.T @ dar, h.T @ dar, x.T @ dan, h.T @ ds


def draw_gru(rng):
    rows = {"x": (5, 2), "h": (5, 3)}
    weights = {name: (2 if name[0] == "w" else 3, 3) for name in ("wz", "uz", "wr", "ur", "wn", "un")}
    return {name: rng.standard_normal(shape) for name, shape in (rows | weights).items()}


GRU = PAIRS.right(gru_cell, gru_cell_backward, draw_gru)
PAIRS.wrong(GRU, "h directly", {"dy * z + ds": "ds"}, "The direct path z h to the new state is missing in dh.",
            *TERM_MISSING, r"residual|direct path|skip")
PAIRS.wrong(GRU, "reset gate left out", {"ds = dan * r": "ds = dan"},
            "The gradient of h un lacks the factor r, the reset gate.",
            r"cache\[9\]", r"factor r\b", r"\br\b.*(missing|left out)", r"(missing|left out).*\br\b", r"reset")
PAIRS.wrong(GRU, "gate turned round", {"(h - n)": "(n - h)"},
            "The gradient of the gate z has the wrong sign: it must be h - n.", *SIGN)
PAIRS.wrong(GRU, "reset gate without a path", {" + dar @ ur.T": ""},
            "The path of h through the reset gate is missing in dh.", *TERM_MISSING)
PAIRS.wrong(GRU, "slopes of tanh", {"(h - n) * z * (1 - z)": "(h - n) * (1 - z**2)"},
            "z is a sigmoid, but the slope of a tanh, 1 - z^2, is used.", r"sigmoid", r"tanh", r"z \(1 - z\)")


def rnn(x, w, u, b):
    """x (B, T, D): all states (B, T, H) of a tanh network that starts at zero."""
    h = np.zeros((x.shape[0], x.shape[1] + 1, b.size), x.dtype)
    for t in range(x.shape[1]):
        h[:, t + 1] = np.tanh(x[:, t] @ w + h[:, t] @ u + b)
    return h[:, 1:].copy(), (x, w, u, h)


def rnn_backward(dy, cache):
    x, w, u, h = cache
    dx, dw, du, db = np.zeros_like(x), np.zeros_like(w), np.zeros_like(u), np.zeros(len(u))
    dh = np.zeros_like(h[:, 0])
    for t in reversed(range(x.shape[1])):
        da = (dy[:, t] + dh) * (1 - h[:, t + 1] ** 2)
        dx[:, t] = da @ w.T
        dw += x[:, t].T @ da
        du += h[:, t].T @ da
        db += da.sum(0)
        dh = da @ u.T
    return dx, dw, du, db


def draw_rnn(rng):
    u = rng.standard_normal((4, 4)) / 2
    return {"x": rng.standard_normal((2, 5, 3)), "w": rng.standard_normal((3, 4)) / 2, "u": u,
            "b": rng.standard_normal(4)}


RNN = PAIRS.right(rnn, rnn_backward, draw_rnn)
PAIRS.wrong(RNN, "future forgotten", {"(dy[:, t] + dh)": "dy[:, t]"},
            "The gradient of later steps is not carried back: each step sees only its own dy.", r"later", r"carried",
            r"through time", r"recurren", r"mixes the (places|positions) along axis 1", r"future", *TERM_MISSING)
PAIRS.wrong(RNN, "last step wins", {"dw += x[:, t].T @ da": "dw = x[:, t].T @ da"},
            "dw holds the gradient of one time step (the first one) only: an assignment replaces the sum.",
            r"assignment", r"only the (first|last)", r"sum over.*missing", r"instead of (the|a) sum", r"\+=")
PAIRS.wrong(RNN, "the new state", {"du += h[:, t].T": "du += h[:, t + 1].T"},
            "du uses the new state where the forward multiplies the old state: the index is shifted by one.", r"shift",
            r"by one", r"previous|next|neighbour", r"one (step|place)", r"in place of `h\[:, t\]`")
PAIRS.wrong(RNN, "u not transposed", {"dh = da @ u.T": "dh = da @ u"},
            "The carried gradient is multiplied by u instead of its transpose.", r"transpos")
PAIRS.wrong(RNN, "not summed over the batch", {"db += da.sum(0)": "db += da.mean(0)"},
            "db is a mean over the batch, but it must be a sum.",
            r"once too often", r"mean instead of a sum", r"divided by 2", r"half", r"factor 2")
PAIRS.wrong(RNN, "cache of the last call", {
    "    return h[:, 1:].copy(), (x, w, u, h)": "    KEPT['h'] = h\n    return h[:, 1:].copy(), (x, w, u)",
    "x, w, u, h = cache": "(x, w, u), h = cache, KEPT['h']"},
    "The states are stored in a global, so a second forward overwrites them before the first backward.", *STALE)


def scan(x, delta, a, b, c):
    """A selective scan: x, delta (T, D), a (D, N), b, c (T, N); h = exp(delta a) h + delta x b, y = h c."""
    decay = np.exp(delta[:, :, None] * a)
    h = np.zeros((len(x) + 1, *a.shape), np.result_type(x, delta, a, b, c))
    for t in range(len(x)):
        h[t + 1] = decay[t] * h[t] + (delta[t] * x[t])[:, None] * b[t]
    return np.einsum("tdn,tn->td", h[1:], c), (x, delta, a, b, c, decay, h)


def scan_backward(dy, cache):
    x, delta, a, b, c, decay, h = cache
    dx, ddelta, da, db = np.zeros_like(x), np.zeros_like(delta), np.zeros_like(a), np.zeros_like(b)
    dc = np.einsum("td,tdn->tn", dy, h[1:])
    dh = np.zeros_like(a)
    for t in reversed(range(len(x))):
        dh = dh + dy[t][:, None] * c[t]
        dz = dh * decay[t] * h[t]
        da += dz * delta[t][:, None]
        into = dh @ b[t]
        ddelta[t] = (dz * a).sum(-1) + into * x[t]
        dx[t] = into * delta[t]
        db[t] = (dh * (delta[t] * x[t])[:, None]).sum(0)
        dh = dh * decay[t]
    return dx, ddelta, da, db, dc


SCAN = PAIRS.right(scan, scan_backward, lambda rng: {
    "x": rng.standard_normal((5, 2)), "delta": rng.uniform(0.2, 1, (5, 2)), "a": -rng.uniform(0.2, 2, (2, 3)),
    "b": rng.standard_normal((5, 3)), "c": rng.standard_normal((5, 3))})
PAIRS.wrong(SCAN, "delta of the decay only", {"(dz * a).sum(-1) + into * x[t]": "(dz * a).sum(-1)"},
            "delta is used twice; its path through the input, delta x b, is missing.", *TERM_MISSING)
PAIRS.wrong(SCAN, "state after the step", {"decay[t] * h[t]\n": "decay[t] * h[t + 1]\n"},
            "The gradient of the decay uses the state after the step instead of the state before it.", r"shift",
            r"by one", r"previous|next", r"one (step|place)", r"(state|step) before", r"in place of `h\[t\]`")
PAIRS.wrong(SCAN, "forward in time", {"in reversed(range(len(x)))": "in range(len(x))"},
            "The backward loop runs forward in time, so the gradient comes from earlier outputs.",
            r"transpose", r"later", r"earlier", r"other end", r"in time", r"wrong order", r"revers")
PAIRS.wrong(SCAN, "decay of the next step", {
    "    dh = np.zeros_like(a)\n": "    dh = np.zeros_like(a)\n    decay = np.roll(decay, 1, axis=0)\n",
    "dz = dh * decay[t] * h[t]": "dz = dh * cache[5][t] * h[t]"},
    "The carried gradient is multiplied by the decay of the step before: the index is shifted by one.",
    r"shift", r"by one", r"previous|next|neighbour", r"one (step|place)", r"index")


def wkv(w, k, v):
    """w (D,), k and v (T, D): a mean of the values so far, with the weights exp(k - w times the age)."""
    T = len(k)
    age = np.arange(T)[:, None] - np.arange(T)
    weights = np.where(age[:, :, None] >= 0, np.exp(k - np.maximum(age, 0)[:, :, None] * w), 0.0)
    total = weights.sum(1)
    y = np.einsum("tid,id->td", weights, v) / total
    return y, (age, weights, total, v, y)


def wkv_backward(dy, cache):
    age, weights, total, v, y = cache
    share = dy / total
    dv = np.einsum("tid,td->id", weights, share)
    dlog = weights * (v - y[:, None]) * share[:, None]
    return -(dlog * age[:, :, None]).sum((0, 1)), dlog.sum(0), dv


WKV = PAIRS.right(wkv, wkv_backward, lambda rng: {
    "w": rng.uniform(0.2, 1, 2), "k": rng.standard_normal((5, 2)), "v": rng.standard_normal((5, 2))})
PAIRS.wrong(WKV, "denominator forgotten", {"(v - y[:, None])": "v"},
            "The path of k and w through the denominator is missing: it must be v - y, not v.",
            *TERM_MISSING, r"- (sum|mean)\(", r"denominator", r"normali[sz]", r"weights.*sum", r"v - y")
PAIRS.wrong(WKV, "slower with age", {"-(dlog * age": "(dlog * age"}, "dw has the wrong sign: weights fall with w.",
            *SIGN)
PAIRS.wrong(WKV, "age from one", {"(dlog * age[:, :, None])": "(dlog * (age[:, :, None] + 1) * (age[:, :, None] > 0))"},
            "dw counts the age from one: the age of each key is too large by one.",
            r"by one", r"shift", r"index", r"too large by 1", r"\bage\b")


def cumulative(x, *, decay=0.7):
    """A running sum with decay over time, x (B, T)."""
    y = np.array(x, copy=True)
    for t in range(1, x.shape[1]):
        y[:, t] += decay * y[:, t - 1]
    return y, decay


def cumulative_backward(dy, decay):
    dx = np.array(dy, copy=True)
    for t in reversed(range(dy.shape[1] - 1)):
        dx[:, t] += decay * dx[:, t + 1]
    return dx


CUMULATIVE = PAIRS.right(cumulative, cumulative_backward, lambda rng: {"x": rng.standard_normal((2, 6))})
PAIRS.wrong(CUMULATIVE, "in dy itself", {"np.array(dy, copy=True)": "dy"}, "The backward writes its result into dy.",
            r"\bdy\b.*(chang|written|writ|modif|in place)", r"(chang|writ|modif)\w* .*\bdy\b", r"in[ -]place")
PAIRS.wrong(CUMULATIVE, "one step only", {"decay * dx[:, t + 1]": "decay * dy[:, t + 1]"},
            "Each step gets the gradient of the next step only: the recurrence is cut after one step.",
            r"later", r"one step", r"sum too short", r"recurren", r"carried", *TERM_MISSING, r"cut")
PAIRS.wrong(CUMULATIVE, "forward in time", {
    "reversed(range(dy.shape[1] - 1))": "range(1, dy.shape[1])", "dx[:, t + 1]": "dx[:, t - 1]"},
    "The backward is the forward applied to dy: it runs forward in time.",
    r"transpose", r"other end", r"forward applied", r"in time", r"revers")
