"""Held-out pairs: they measure the progress, so do not read them to improve the checker."""

import numpy as np

from tests.gradcheck.acceptance.fresh.pairs import Pairs
from tests.gradcheck.acceptance.fresh.words import (
    FACTOR_2,
    LEAK,
    MEAN_LEFT_OUT,
    PERMUTED,
    REPEATED,
    SIGN,
    STALE,
    TERM_MISSING,
    TRANSPOSED,
    TWICE,
)

PAIRS = Pairs()
LAST = {}


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def gaussian_kl(mean, log_variance):
    """mean, log_variance (B, D): the distance from the standard normal distribution, summed over D, a mean over B."""
    variance = np.exp(log_variance)
    return 0.5 * (variance + mean**2 - 1 - log_variance).sum() / len(mean), (mean, variance)


def gaussian_kl_backward(dy, cache):
    mean, variance = cache
    dy = dy / len(mean)
    return dy * mean, 0.5 * dy * (variance - 1)


KL = PAIRS.right(gaussian_kl, gaussian_kl_backward, lambda rng: {
    "mean": rng.standard_normal((5, 3)), "log_variance": rng.standard_normal((5, 3))})
PAIRS.wrong(KL, "constant forgotten", {"(variance - 1)": "variance"},
            "The derivative of - log_variance, the constant -1, is missing.",
            r"constant (?!factor)", r"off by the same number", *TERM_MISSING)
PAIRS.wrong(KL, "sum for mean", {"    dy = dy / len(mean)\n": ""},
            "The division by the batch size is missing.", *MEAN_LEFT_OUT(5))


def focal(logits, labels, *, gamma=2.0):
    """logits (B, T), labels True or False: the binary focal loss, summed."""
    sign = np.where(labels, 1.0, -1.0)
    p = sigmoid(sign * logits)
    return -((1 - p) ** gamma * np.log(p)).sum(), (p, sign, gamma)


def focal_backward(dy, cache):
    p, sign, gamma = cache
    dp = dy * (gamma * (1 - p) ** (gamma - 1) * np.log(p) - (1 - p) ** gamma / p)
    return dp * p * (1 - p) * sign


FOCAL = PAIRS.right(focal, focal_backward, lambda rng: {
    "logits": rng.standard_normal((3, 4)), "labels": rng.random((3, 4)) < 0.5})
PAIRS.wrong(FOCAL, "weight detached", {"gamma * (1 - p) ** (gamma - 1) * np.log(p) - ": "-"},
            "The weight (1 - p)^gamma is taken as a constant: its path is missing.",
            *TERM_MISSING, r"detach", r"constant (?!factor)")
PAIRS.wrong(FOCAL, "slope of the sigmoid left out", {"dp * p * (1 - p) * sign": "dp * sign"},
            "The derivative of the sigmoid, p (1 - p), is missing.",
            r"p \(1 - p\)", r"sigmoid", r"(factor|derivative) .*(missing|left out)", r"y \(1 - y\)")
PAIRS.wrong(FOCAL, "labels ignored at the end", {"dp * p * (1 - p) * sign": "dp * p * (1 - p)"},
            "The sign of the label is missing: wrong sign where labels is False.", *SIGN, r"sign lost", r"labels")


def render(density, colour, step):
    """Volume rendering: density, step (R, S), colour (R, S, 3): the colour of each ray."""
    alpha = 1 - np.exp(-density * step)
    clear = np.cumprod(1 - alpha, axis=1)
    before = np.concatenate([np.ones_like(clear[:, :1]), clear[:, :-1]], axis=1)
    weight = alpha * before
    return (weight[:, :, None] * colour).sum(1), (density, colour, step, alpha, before, weight)


def render_backward(dy, cache):
    density, colour, step, alpha, before, weight = cache
    dcolour = weight[:, :, None] * dy[:, None]
    dweight = (colour * dy[:, None]).sum(-1)
    total = dweight * weight
    behind = np.cumsum(total[:, ::-1], axis=1)[:, ::-1] - total
    depth = dweight * before * (1 - alpha) - behind
    return depth * step, dcolour, depth * density


RENDER = PAIRS.right(render, render_backward, lambda rng: {
    "density": rng.uniform(0.2, 2, (2, 5)), "colour": rng.uniform(0, 1, (2, 5, 3)),
    "step": rng.uniform(0.2, 1, (2, 5))})
PAIRS.wrong(RENDER, "what is behind", {" - behind": ""},
            "The path through the light that reaches the places behind is missing.",
            *TERM_MISSING, r"mixes the places along axis 1", r"sum .*(missing|too short)", r"later places")
PAIRS.wrong(RENDER, "its own place too", {"[:, ::-1] - total": "[:, ::-1]"},
            "The running sum includes the place itself: one place too many.",
            r"by one", r"shift", r"itself", r"one place", r"inclu")
PAIRS.wrong(RENDER, "sum from the start", {"np.cumsum(total[:, ::-1], axis=1)[:, ::-1]": "np.cumsum(total, axis=1)"},
            "The running sum is taken from the start instead of from the end.",
            r"other end", r"revers", r"wrong direction", r"from the (start|end)", r"from the last", r"later|earlier")
PAIRS.wrong(RENDER, "step and density", {
    "return depth * step, dcolour, depth * density":
    "return depth * density, dcolour, depth * step"},
            "The factors of two arguments are exchanged: density gets the gradient of step and the reverse.",
            r"exchanged|swapped", r"wrong order", r"other argument|gradient of (step|density)",
            r"factor (step|density)")


def rotate(q, v):
    """q (n, 4) quaternions, of any length, v (n, 3): the rotated vectors."""
    length = np.sqrt((q * q).sum(-1, keepdims=True))
    unit = q / length
    w, u = unit[:, :1], unit[:, 1:]
    c = np.cross(u, v)
    return v + 2 * (w * c + np.cross(u, c)), (v, length, unit, w, u, c)


def rotate_backward(dy, cache):
    v, length, unit, w, u, c = cache
    dc = 2 * (w * dy + np.cross(dy, u))
    dw = 2 * (dy * c).sum(-1, keepdims=True)
    du = 2 * np.cross(c, dy) + np.cross(v, dc)
    dv = dy + np.cross(dc, u)
    dunit = np.concatenate([dw, du], axis=1)
    return (dunit - unit * (unit * dunit).sum(-1, keepdims=True)) / length, dv


ROTATE = PAIRS.right(rotate, rotate_backward, lambda rng: {
    "q": rng.standard_normal((3, 4)), "v": rng.standard_normal((3, 3))})
PAIRS.wrong(ROTATE, "cross product turned round", {"np.cross(dc, u)": "np.cross(u, dc)"},
            "The cross product is in the wrong order, so this term of dv has the wrong sign.",
            *SIGN, r"cross product", r"\btranspos", r"antisymmetr", r"negative angle")
PAIRS.wrong(ROTATE, "first cross product only", {
    "2 * np.cross(c, dy) + np.cross(v, dc)": "2 * np.cross(c, dy)"},
            "u is used in two cross products; the path through the first one is missing.", *TERM_MISSING)
PAIRS.wrong(ROTATE, "projection forgotten", {"(dunit - unit * (unit * dunit).sum(-1, keepdims=True))": "dunit"},
            "The projection of the normalization is missing: dq must be orthogonal to q.",
            r"projection", r"orthogonal", r"path through the length", r"normali[sz]")
PAIRS.wrong(ROTATE, "length twice", {"keepdims=True)) / length, dv": "keepdims=True)) / length**2, dv"},
            "The division by the length is applied twice.",
            r"length.*twice", r"1/length", r"length.*once too often", r"right direction and a wrong length")


def kalman(m, P, H, R, z):
    """One update: m (n,), P (n, n), H (k, n), R (k, k), z (k,): the new mean and covariance."""
    S = H @ P @ H.T + R
    inverse = np.linalg.inv(S)
    K = P @ H.T @ inverse
    e = z - H @ m
    return (m + K @ e, P - K @ H @ P), (P, H, inverse, K, e, m)


def kalman_backward(dy, cache):
    P, H, inverse, K, e, m = cache
    dnew, dcov = dy
    dK = np.outer(dnew, e) - dcov @ P.T @ H.T
    de = K.T @ dnew
    dP = dcov - (K @ H).T @ dcov
    dH = -K.T @ dcov @ P.T - np.outer(de, m)
    dP = dP + dK @ inverse.T @ H
    dH = dH + inverse @ dK.T @ P
    dS = -inverse.T @ (H @ P.T @ dK) @ inverse.T
    dP = dP + H.T @ dS @ H
    dH = dH + dS @ H @ P.T + dS.T @ H @ P
    return dnew - H.T @ de, dP, dH, dS, de


def draw_kalman(rng):
    return {"m": rng.standard_normal(3), "P": 2 * np.eye(3) + rng.standard_normal((3, 3)) / 3,
            "H": rng.standard_normal((2, 3)), "R": np.eye(2) + rng.standard_normal((2, 2)) / 5,
            "z": rng.standard_normal(2)}


KALMAN = PAIRS.right(kalman, kalman_backward, draw_kalman)
PAIRS.wrong(KALMAN, "H once in S", {" + dS.T @ H @ P": ""}, "H is used twice in S; the second path is missing.",
            *TERM_MISSING)
PAIRS.wrong(KALMAN, "old mean through the error", {"dnew - H.T @ de": "dnew"},
            "The path of m through the error z - H m is missing.", *TERM_MISSING, r"mixes")
PAIRS.wrong(KALMAN, "inverse not transposed", {"dS = -inverse.T @": "dS = -inverse @"},
            "The inverse of S must be transposed.", *TRANSPOSED)
PAIRS.wrong(KALMAN, "covariance ignored", {"dnew, dcov = dy": "dnew, dcov = dy[0], 0 * dy[1]"},
            "The gradient of the second output, the covariance, is ignored.", r"output 1", r"second output")


def squeeze(x, w1, w2):
    """x (N, C, L), w1 (C, R), w2 (R, C): each channel times a gate that depends on the means of all channels."""
    pooled = x.mean(-1)
    h = pooled @ w1
    r = h * (h > 0)
    gate = sigmoid(r @ w2)
    return x * gate[:, :, None], (x, w1, w2, pooled, h, r, gate)


def squeeze_backward(dy, cache):
    x, w1, w2, pooled, h, r, gate = cache
    da = (dy * x).sum(-1) * gate * (1 - gate)
    dh = da @ w2.T * (h > 0)
    dpooled = dh @ w1.T
    dx = dy * gate[:, :, None] + dpooled[:, :, None] / x.shape[-1]
    return dx, pooled.T @ dh, r.T @ da


SQUEEZE = PAIRS.right(squeeze, squeeze_backward, lambda rng: {
    "x": rng.standard_normal((3, 4, 5)), "w1": rng.standard_normal((4, 6)), "w2": rng.standard_normal((6, 4))})
PAIRS.wrong(SQUEEZE, "gate without a path to x", {" + dpooled[:, :, None] / x.shape[-1]": ""},
            "The path of x through the gate is missing.",
            *TERM_MISSING, r"mixes the places along axis", r"off by the same number")
PAIRS.wrong(SQUEEZE, "mean left out", {"dpooled[:, :, None] / x.shape[-1]": "dpooled[:, :, None]"},
            "The 1/L of the mean over L is missing in the path through the gate.",
            *MEAN_LEFT_OUT(5), r"off by the same number")
PAIRS.wrong(SQUEEZE, "relu in the forward only", {"da @ w2.T * (h > 0)": "da @ w2.T"},
            "The relu acts only in the forward.", r"relu", r"h > 0", r"must be (zero|0)", r"zero where")
PAIRS.wrong(SQUEEZE, "gate of the last call", {
    "    return x * gate[:, :, None], (x": "    LAST['gate'] = gate\n    return x * gate[:, :, None], (x",
    "r, gate = cache": "r, _ = cache\n    gate = LAST['gate']"},
    "The gate is kept in a global, so another forward overwrites it.", *STALE)


def spectrum(x, window):
    """x (B, T), window (T,): the power of each frequency, divided by T."""
    f = np.exp(-2j * np.pi * np.outer(np.arange(x.shape[-1]), np.arange(x.shape[-1] // 2 + 1)) / x.shape[-1])
    re, im = (x * window) @ f.real, (x * window) @ f.imag
    return (re**2 + im**2) / x.shape[-1], (x, window, f, re, im)


def spectrum_backward(dy, cache):
    x, window, f, re, im = cache
    dy = 2 * dy / x.shape[-1]
    dh = (dy * re) @ f.real.T + (dy * im) @ f.imag.T
    return dh * window, (dh * x).sum(0)


SPECTRUM = PAIRS.right(spectrum, spectrum_backward, lambda rng: {
    "x": rng.standard_normal((3, 6)), "window": rng.uniform(0.5, 1, 6)})
PAIRS.wrong(SPECTRUM, "imaginary part forgotten", {" + (dy * im) @ f.imag.T": ""},
            "The path through the imaginary part is missing.", *TERM_MISSING)
PAIRS.wrong(SPECTRUM, "two forgotten", {"2 * dy /": "dy /"}, "The factor 2 of the square is missing.", *FACTOR_2)
PAIRS.wrong(SPECTRUM, "window left out", {"return dh * window": "return dh"}, "dx lacks the factor window.",
            r"factor window", r"window.*(missing|left out)", r"(missing|left out).*window")


def interpolate(values, knots, places):
    """Values (K,) at increasing knots (K,): straight lines between them, at the places (n,)."""
    i = np.clip(np.searchsorted(knots.real, places.real) - 1, 0, len(knots) - 2)
    width = knots[i + 1] - knots[i]
    t = (places - knots[i]) / width
    return values[i] * (1 - t) + values[i + 1] * t, (values, i, t, width)


def interpolate_backward(dy, cache):
    values, i, t, width = cache
    dvalues, dknots = np.zeros(values.shape), np.zeros(values.shape)
    np.add.at(dvalues, i, dy * (1 - t))
    np.add.at(dvalues, i + 1, dy * t)
    slope = dy * (values[i + 1] - values[i]) / width
    np.add.at(dknots, i, slope * (t - 1))
    np.add.at(dknots, i + 1, -slope * t)
    return dvalues, dknots, slope


INTERPOLATE = PAIRS.right(interpolate, interpolate_backward, lambda rng: {
    "values": rng.standard_normal(6), "knots": np.array([0.0, 0.7, 1.5, 2.1, 3.2, 4.0]),
    "places": np.array([0.3, 0.5, 1.0, 1.8, 2.6, 2.9, 3.7, 1.2])})
PAIRS.wrong(INTERPOLATE, "several places in one piece", {
    "np.add.at(dvalues, i, dy * (1 - t))": "dvalues[i] += dy * (1 - t)"},
            "Two places in the same piece: only the last one adds its gradient.", *REPEATED, r"overwritten")
PAIRS.wrong(INTERPOLATE, "piece exchanged", {"np.add.at(dvalues, i + 1, dy * t)": "np.add.at(dvalues, i - 1, dy * t)"},
            "The right end of each piece is taken one place too far to the left: a wrong index.",
            r"shift", r"index", r"neighbour", r"wrong places", r"by one")
PAIRS.wrong(INTERPOLATE, "width as a constant", {"slope * (t - 1)": "-slope"},
            "The path of the left knot through the width is missing.", *TERM_MISSING)


def gravity(x, mass, *, soft=0.1):
    """Points x (n, 3), mass (n,): the energy, summed over all pairs."""
    step = x[:, None] - x
    inverse = 1 / np.sqrt((step**2).sum(-1) + soft)
    np.einsum("ii->i", inverse)[:] = 0
    return -0.5 * np.einsum("i,j,ij->", mass, mass, inverse), (step, inverse, mass)


def gravity_backward(dy, cache):
    step, inverse, mass = cache
    pull = dy * np.outer(mass, mass) * inverse**3
    return np.einsum("ij,ijd->id", pull, step), -dy * inverse @ mass


GRAVITY = PAIRS.right(gravity, gravity_backward, lambda rng: {
    "x": rng.standard_normal((4, 3)), "mass": rng.uniform(0.5, 2, 4)})
PAIRS.wrong(GRAVITY, "half of the pairs", {"-dy * inverse @ mass": "-0.5 * dy * inverse @ mass"},
            "mass is used twice in each pair, so the 1/2 cancels: dmass is half of the right one.", *FACTOR_2)
PAIRS.wrong(GRAVITY, "square for cube", {"inverse**3": "inverse**2"},
            "The force falls with the third power of the inverse length, but the backward uses the second.",
            r"cube|third power|\*\*3|power", r"cache\[1\]", r"factor inverse", r"factor 1/", r"1/length")
PAIRS.wrong(GRAVITY, "attraction", {"-dy * inverse @ mass": "dy * inverse @ mass"}, "dmass has the wrong sign.", *SIGN)


def dice(logits, target, mask):
    """logits, target (B, N), mask (B, N) True = counts: one minus the overlap of each row, a mean over the rows."""
    p = sigmoid(logits) * mask
    both, total = (p * target).sum(-1), p.sum(-1) + (target * mask).sum(-1)
    return (1 - 2 * both / total).mean(), (p, target, mask, both, total)


def dice_backward(dy, cache):
    p, target, mask, both, total = cache
    dy = dy / len(p)
    dboth, dtotal = -2 * dy / total, 2 * dy * both / total**2
    dp = dboth[:, None] * target + dtotal[:, None]
    return dp * p * (1 - p), dboth[:, None] * p + dtotal[:, None] * mask


DICE = PAIRS.right(dice, dice_backward, lambda rng: {
    "logits": rng.standard_normal((3, 5)), "target": rng.uniform(0, 1, (3, 5)),
    "mask": np.arange(5) < np.array([5, 3, 4])[:, None]})
PAIRS.wrong(DICE, "denominator as a constant", {" + dtotal[:, None]\n": "\n"},
            "The path of p through the denominator is missing.", *TERM_MISSING, r"denominator", r"- (mean|sum)\(")
PAIRS.wrong(DICE, "mask in the forward only", {"dtotal[:, None] * mask": "dtotal[:, None]"},
            "Hidden elements of target get a gradient.", *LEAK("mask"), r"only where the gradient must be zero")
PAIRS.wrong(DICE, "rows averaged twice", {"dy = dy / len(p)": "dy = dy / len(p) ** 2"},
            "The division by the number of rows is applied twice.", *TWICE(3))


def coupling(x, w, b):
    """x (B, 2 D), w (D, 2 D), b (2 D,): the first half scales and moves the second half; also log |determinant|."""
    first, second = np.split(x, 2, axis=1)
    s, t = np.split(first @ w + b, 2, axis=1)
    s = np.tanh(s)
    return (np.concatenate([first, second * np.exp(s) + t], axis=1), s.sum(1)), (first, second, s, w)


def coupling_backward(dy, cache):
    first, second, s, w = cache
    dfirst, dsecond = np.split(dy[0], 2, axis=1)
    ds = dsecond * second * np.exp(s) + dy[1][:, None]
    da = np.concatenate([ds * (1 - s**2), dsecond], axis=1)
    return np.concatenate([dfirst + da @ w.T, dsecond * np.exp(s)], axis=1), first.T @ da, da.sum(0)


COUPLING = PAIRS.right(coupling, coupling_backward, lambda rng: {
    "x": rng.standard_normal((3, 4)), "w": rng.standard_normal((2, 4)), "b": rng.standard_normal(4)})
PAIRS.wrong(COUPLING, "determinant ignored", {" + dy[1][:, None]": ""},
            "The gradient of the second output, the log-determinant, is ignored.", r"output 1", r"second output")
PAIRS.wrong(COUPLING, "identity half", {"dfirst + da @ w.T": "da @ w.T"},
            "The direct path of the first half to the output is missing.", *TERM_MISSING, r"direct path|residual")
PAIRS.wrong(COUPLING, "halves exchanged", {"[ds * (1 - s**2), dsecond]": "[dsecond, ds * (1 - s**2)]"},
            "The gradients of s and t are exchanged.", *PERMUTED)
PAIRS.wrong(COUPLING, "slope of the tanh", {"ds * (1 - s**2), dsecond": "ds * s * (1 - s), dsecond"},
            "The slope of a sigmoid is used for a tanh.", r"sigmoid", r"tanh", r"1 - [a-z]+ ?(\*\*|\^) ?2")
