"""Norms, sampling in a picture, a graph layer and physics."""

import numpy as np

from tests.gradcheck.acceptance.fresh.pairs import Pairs
from tests.gradcheck.acceptance.fresh.words import IN_PLACE, PERMUTED, REPEATED, SIGN, STALE, TERM_MISSING

PAIRS = Pairs()
MEAN_PATH = (r"- ?(mean|sum)\(", r"mean.*(missing|left out)", r"(missing|left out).*mean", r"off by the same number")
WORK = {}


def group_norm(x, gamma, beta, *, groups=2, eps=1e-2):
    """x (N, C, L), gamma, beta (C,)."""
    g = x.reshape(len(x), groups, -1)
    centred = g - g.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    x_hat = (centred * scale).reshape(x.shape)
    return x_hat * gamma[:, None] + beta[:, None], (x_hat, scale, gamma, groups)


def group_norm_backward(dy, cache):
    x_hat, scale, gamma, groups = cache
    d_hat = (dy * gamma[:, None]).reshape(len(dy), groups, -1)
    h = x_hat.reshape(d_hat.shape)
    dx = scale * (d_hat - d_hat.mean(-1, keepdims=True) - h * (d_hat * h).mean(-1, keepdims=True))
    return dx.reshape(dy.shape), (dy * x_hat).sum((0, 2)), dy.sum((0, 2))


GROUP_NORM = PAIRS.right(group_norm, group_norm_backward, lambda rng: {
    "x": rng.standard_normal((3, 4, 5)), "gamma": rng.uniform(0.5, 2, 4), "beta": rng.standard_normal(4)})
PAIRS.wrong(GROUP_NORM, "variance path", {" - h * (d_hat * h).mean(-1, keepdims=True)": ""},
            "The path through the variance, - x_hat mean(d x_hat), is missing.",
            r"variance", *TERM_MISSING, r"- x_hat", r"mean\(.*x_hat")
PAIRS.wrong(GROUP_NORM, "gamma at the end", {
    "d_hat = (dy * gamma[:, None])": "d_hat = dy",
    "return dx.reshape(dy.shape)": "return dx.reshape(dy.shape) * gamma[:, None]"},
    "gamma is multiplied after the means, but it must be multiplied before them.",
    r"gamma is applied at the wrong place", r"gamma.*(before|after)")
PAIRS.wrong(GROUP_NORM, "each channel alone", {"len(dy), groups, -1)": "len(dy), gamma.size, -1)",
                                              "dx = scale *": "dx = np.repeat(scale, gamma.size // groups, 1) *"},
            "The means of the backward run over each channel alone instead of over the group.",
            r"group", r"axis", r"mixes", r"axes")


def batch_norm(x, gamma, beta, *, eps=1e-2):
    """x (B, D): the mean and the variance of each column."""
    centred = x - x.mean(0)
    scale = 1 / np.sqrt((centred**2).mean(0) + eps)
    return centred * scale * gamma + beta, (centred, scale, gamma)


def batch_norm_backward(dy, cache):
    centred, scale, gamma = cache
    d_hat = dy * gamma
    dscale = (d_hat * centred).sum(0)
    dvariance = -0.5 * dscale * scale**3
    dcentred = d_hat * scale + 2 * centred * dvariance / len(dy)
    return dcentred - dcentred.mean(0), (dy * centred * scale).sum(0), dy.sum(0)


BATCH_NORM = PAIRS.right(batch_norm, batch_norm_backward, lambda rng: {
    "x": rng.standard_normal((5, 3)), "gamma": rng.uniform(0.5, 2, 3), "beta": rng.standard_normal(3)})
PAIRS.wrong(BATCH_NORM, "mean path", {"return dcentred - dcentred.mean(0)": "return dcentred"},
            "The path through the mean is missing: dx of each column must sum to zero.", *MEAN_PATH)
PAIRS.wrong(BATCH_NORM, "mean of the rows", {
    "dcentred - dcentred.mean(0)": "dcentred - dcentred.mean(1, keepdims=True)"},
            "The mean in dx runs over the columns (axis 1) instead of over the batch (axis 0).",
            r"axis", r"mixes", r"axes")
PAIRS.wrong(BATCH_NORM, "scale left out of dgamma", {"(dy * centred * scale)": "(dy * centred)"},
            "dgamma uses centred instead of x_hat: the factor scale is missing.", r"cache\[1\]", r"factor scale",
            r"scale.*(missing|left out)", r"(missing|left out).*scale", r"normali[sz]ed", r"1/std|1/sigma",
            r"`x - x\.mean\(0\)` \(line \d+\) in place of")
PAIRS.wrong(BATCH_NORM, "power of the scale", {"scale**3": "scale**2"},
            "The derivative of 1/sqrt(v) is -1/2 v^(-3/2): the third power of scale is needed, not the second.",
            r"cache\[1\]", r"\*\*3|cube|third power|power", r"factor scale", r"v\*\*\(?-3/2|variance")
PAIRS.wrong(BATCH_NORM, "centred in place", {"d_hat = dy * gamma\n": "d_hat = dy * gamma\n    centred *= scale\n",
                                            "2 * centred * dvariance": "2 * centred / scale * dvariance",
                                            "(d_hat * centred).sum(0)": "(d_hat * centred / scale).sum(0)",
                                            "(dy * centred * scale)": "(dy * centred)"},
            "The backward changes the cached array in place, so a second backward with this cache is wrong.", *IN_PLACE)


def bilinear(picture, points):
    """picture (H, W, C), points (n, 2) as row and column: the colours at the points."""
    cell = np.floor(points.real).astype(int)
    f = points - cell
    r, c = cell.T
    fr, fc = f[:, :1], f[:, 1:]
    corners = picture[r, c], picture[r, c + 1], picture[r + 1, c], picture[r + 1, c + 1]
    y = (1 - fr) * ((1 - fc) * corners[0] + fc * corners[1]) + fr * ((1 - fc) * corners[2] + fc * corners[3])
    return y, (picture.shape, r, c, fr, fc, corners)


def bilinear_backward(dy, cache):
    shape, r, c, fr, fc, corners = cache
    dpicture = np.zeros(shape)
    np.add.at(dpicture, (r, c), (1 - fr) * (1 - fc) * dy)
    np.add.at(dpicture, (r, c + 1), (1 - fr) * fc * dy)
    np.add.at(dpicture, (r + 1, c), fr * (1 - fc) * dy)
    np.add.at(dpicture, (r + 1, c + 1), fr * fc * dy)
    drow = ((1 - fc) * (corners[2] - corners[0]) + fc * (corners[3] - corners[1])) * dy
    dcolumn = ((1 - fr) * (corners[1] - corners[0]) + fr * (corners[3] - corners[2])) * dy
    return dpicture, np.stack([drow.sum(-1), dcolumn.sum(-1)], axis=1)


BILINEAR = PAIRS.right(bilinear, bilinear_backward, lambda rng: {
    "picture": rng.standard_normal((4, 5, 2)), "points": np.array([[0.3, 0.6], [0.45, 0.2], [1.7, 3.4], [2.2, 1.55]])})
PAIRS.wrong(BILINEAR, "rows and columns exchanged", {
    "[drow.sum(-1), dcolumn.sum(-1)]": "[dcolumn.sum(-1), drow.sum(-1)]"},
            "The gradients of the row and of the column of each point are exchanged.", *PERMUTED)
PAIRS.wrong(BILINEAR, "points in one cell", {
    "np.add.at(dpicture, (r, c), (1 - fr) * (1 - fc) * dy)": "dpicture[r, c] += (1 - fr) * (1 - fc) * dy"},
    "Two points in one cell: only the last one adds its gradient.", *REPEATED)
PAIRS.wrong(BILINEAR, "no gradient of points", {
    "return dpicture, np.stack([drow.sum(-1), dcolumn.sum(-1)], axis=1)":
    "return dpicture, np.zeros((len(r), 2))"}, "The points get a gradient of zero, as if they were constants.",
            r"returns zero", r"is zero", r"zero instead", r"detach", r"constant")
PAIRS.wrong(BILINEAR, "weights of the other corner", {
    "(r, c + 1), (1 - fr) * fc * dy": "(r, c + 1), fr * (1 - fc) * dy",
    "(r + 1, c), fr * (1 - fc) * dy": "(r + 1, c), (1 - fr) * fc * dy"},
            "The weights of two corners are exchanged.", *PERMUTED)


def graph_layer(x, edge, w, *, source, target):
    """x (n, D), edge (m,) weights, w (D, O): relu of the weighted mean of the neighbours, times w."""
    h = x @ w
    total = np.zeros(len(x), edge.dtype)
    np.add.at(total, target, edge)
    mixed = np.zeros((len(x), w.shape[1]), np.result_type(h, edge))
    np.add.at(mixed, target, edge[:, None] * h[source])
    mean = mixed / total[:, None]
    return mean * (mean > 0), (x, edge, w, h, total, mean, source, target)


def graph_layer_backward(dy, cache):
    x, edge, w, h, total, mean, source, target = cache
    dmean = dy * (mean > 0)
    dmixed = dmean / total[:, None]
    dtotal = -(dmixed * mean).sum(-1)
    dedge = (dmixed[target] * h[source]).sum(-1) + dtotal[target]
    dh = np.zeros(h.shape)
    np.add.at(dh, source, edge[:, None] * dmixed[target])
    return dh @ w.T, dedge, x.T @ dh


GRAPH = PAIRS.right(graph_layer, graph_layer_backward, lambda rng: {
    "x": rng.standard_normal((4, 3)), "edge": rng.uniform(0.5, 2, 7), "w": rng.standard_normal((3, 5))},
    source=np.array([0, 1, 1, 2, 3, 0, 3]), target=np.array([1, 0, 2, 3, 0, 2, 1]))
PAIRS.wrong(GRAPH, "edges turned round", {"np.add.at(dh, source, edge[:, None] * dmixed[target])":
                                         "np.add.at(dh, target, edge[:, None] * dmixed[source])"},
            "Source and target are exchanged: the gradient flows along the edges instead of against them.",
            r"transpose", r"exchanged|swapped", r"wrong places", r"forward applied", r"revers", r"source.*target")
PAIRS.wrong(GRAPH, "total weight as a constant", {" + dtotal[target]": ""},
            "dedge lacks the path through the total weight of the mean.",
            *TERM_MISSING, r"total", r"off by the same number", r"- (mean|sum)\(")
PAIRS.wrong(GRAPH, "corner in the forward only", {"dy * (mean > 0)": "dy + 0.0"},
            "The relu acts only in the forward: negative means must get no gradient.", r"relu", r"must be (zero|0)",
            r"zero (where|at)", r"negative", r"flat", r"mean > 0", r"forward is (constant|zero)")
PAIRS.wrong(GRAPH, "buffered plus", {"np.add.at(dh, source, edge[:, None] * dmixed[target])":
                                    "dh[source] += edge[:, None] * dmixed[target]"},
            "A node with several outgoing edges gets the gradient of one edge only.", *REPEATED)


def pendulum(angle, speed, length, *, dt=0.1, gravity=9.8):
    """One leapfrog step for each pendulum (n,)."""
    half = speed - 0.5 * dt * gravity / length * np.sin(angle)
    new = angle + dt * half
    return (new, half - 0.5 * dt * gravity / length * np.sin(new)), (angle, length, new, dt, gravity)


def pendulum_backward(dy, cache):
    angle, length, new, dt, gravity = cache
    dnew, dspeed = dy
    pull = 0.5 * dt * gravity / length
    dnew = dnew - dspeed * pull * np.cos(new)
    dhalf = dspeed + dt * dnew
    dangle = dnew - dhalf * pull * np.cos(angle)
    dlength = pull / length * (dspeed * np.sin(new) + dhalf * np.sin(angle))
    return dangle, dhalf, dlength


PENDULUM = PAIRS.right(pendulum, pendulum_backward, lambda rng: {
    "angle": rng.standard_normal(4), "speed": rng.standard_normal(4), "length": rng.uniform(0.5, 2, 4)})
PAIRS.wrong(PENDULUM, "length once", {"(dspeed * np.sin(new) + dhalf * np.sin(angle))": "(dhalf * np.sin(angle))"},
            "length is used in both half steps; the path of the second half step is missing.", *TERM_MISSING)
PAIRS.wrong(PENDULUM, "sign of the cosine", {"dnew - dhalf * pull": "dnew + dhalf * pull"},
            "The term of the first half step has the wrong sign in dangle.", *SIGN)
PAIRS.wrong(PENDULUM, "old angle", {"dspeed * pull * np.cos(new)": "dspeed * pull * np.cos(angle)"},
            "The slope of the second half step is taken at the old angle instead of at the new one.",
            r"\bold\b|\bnew\b", r"at the wrong (place|point|argument)", r"cos")
PAIRS.wrong(PENDULUM, "new angle of the last call", {
    "    return (new, half": "    WORK['new'] = new\n    return (new, half",
    "angle, length, new, dt, gravity = cache": "angle, length, _, dt, gravity = cache\n    new = WORK['new']"},
    "The new angle is kept in a global, so another forward overwrites it before the backward.", *STALE)


def springs(x, rest, stiffness, *, first, second):
    """Points x (n, D); spring i joins two of them. The energy, half the sum of stiffness times stretch squared."""
    step = x[first] - x[second]
    length = np.sqrt((step**2).sum(-1))
    stretch = length - rest
    return 0.5 * (stiffness * stretch**2).sum(), (x, step, length, stretch, stiffness, first, second)


def springs_backward(dy, cache):
    x, step, length, stretch, stiffness, first, second = cache
    force = dy * stiffness * stretch
    pull = (force / length)[:, None] * step
    dx = np.zeros_like(x)
    np.add.at(dx, first, pull)
    np.add.at(dx, second, -pull)
    return dx, -force, 0.5 * dy * stretch**2


SPRINGS = PAIRS.right(springs, springs_backward, lambda rng: {
    "x": rng.standard_normal((4, 2)), "rest": rng.uniform(0.5, 1, 5), "stiffness": rng.uniform(1, 3, 5)},
    first=np.array([0, 1, 2, 3, 0]), second=np.array([1, 2, 3, 0, 2]))
PAIRS.wrong(SPRINGS, "other end", {"    np.add.at(dx, second, -pull)\n": ""},
            "Each spring pulls at both ends; the second end is missing.", *TERM_MISSING, r"second")
PAIRS.wrong(SPRINGS, "direction not normalized", {"(force / length)": "force"},
            "The direction must have length one: the division by the length of each spring is missing.", r"cache\[2\]",
            r"length", r"normali[sz]", r"\bnorm\b", r"unit", r"`np\.sqrt.*without the division by y")
PAIRS.wrong(SPRINGS, "half twice", {"force = dy * stiffness": "force = 0.5 * dy * stiffness"},
            "The factor 1/2 cancels the 2 of the square; it is applied once too often in the force.",
            r"half", r"factor (of )?2\b", r"(divided|division) by 2", r"2 times", r"twice", r"once too often")
