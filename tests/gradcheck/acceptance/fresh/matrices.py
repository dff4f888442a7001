"""Matrices: Cholesky, QR, eigenvectors, solve, inverse, determinant, exponential and kernel ridge regression."""

import numpy as np

from tests.gradcheck.acceptance.fresh.pairs import Pairs
from tests.gradcheck.acceptance.fresh.words import FACTOR_2, PERMUTED, SIGN, TERM_MISSING, TRANSPOSED

PAIRS = Pairs()
SYMMETRY = (r"symmetr", r"transpose")


def near_identity(rng, *shape):
    return np.eye(shape[-1]) * 2 + rng.standard_normal(shape) / 2


def symmetric(a):
    return (a + np.swapaxes(a, -1, -2)) / 2


def cholesky(a):
    """The lower triangle L with L L^T = (a + a^T) / 2."""
    L = np.linalg.cholesky(symmetric(a))
    return L, L


def cholesky_backward(dy, L):
    phi = np.tril(L.T @ dy)
    phi = phi - np.diag(np.diag(phi)) / 2
    inverse = np.linalg.inv(L)
    return symmetric(inverse.T @ phi @ inverse)


def draw_spd(rng):
    root = rng.standard_normal((4, 4))
    return {"a": root @ root.T + 4 * np.eye(4)}


CHOLESKY = PAIRS.right(cholesky, cholesky_backward, draw_spd)
PAIRS.wrong(CHOLESKY, "diagonal not halved", {"phi - np.diag(np.diag(phi)) / 2": "phi + 0.0"},
            "The diagonal of the lower triangle must be halved before the solves.", r"diagonal")
PAIRS.wrong(CHOLESKY, "inverse transposed", {"inverse.T @ phi @ inverse": "inverse @ phi @ inverse.T"},
            "The transposes of the two inverses are exchanged.", *TRANSPOSED)
PAIRS.wrong(CHOLESKY, "not symmetric", {"symmetric(inverse.T @ phi @ inverse)": "inverse.T @ phi @ inverse"},
            "The result must be made symmetric, because the forward uses (a + a^T) / 2.", *SYMMETRY)


def solve(a, b):
    """a (B, n, n), b (B, n, m): x with a x = b."""
    x = np.linalg.solve(a, b)
    return x, (a, x)


def solve_backward(dy, cache):
    a, x = cache
    db = np.linalg.solve(np.swapaxes(a, -1, -2), dy)
    da = -db @ np.swapaxes(x, -1, -2)
    return da, db


SOLVE = PAIRS.right(solve, solve_backward, lambda rng: {
    "a": near_identity(rng, 2, 3, 3), "b": rng.standard_normal((2, 3, 4))})
PAIRS.wrong(SOLVE, "matrix not transposed", {"solve(np.swapaxes(a, -1, -2), dy)": "solve(a, dy)"},
            "The backward solves with a instead of its transpose.", *TRANSPOSED)
PAIRS.wrong(SOLVE, "minus forgotten", {"-db @": "db @"}, "da has the wrong sign.", *SIGN)
PAIRS.wrong(SOLVE, "da transposed", {"-db @ np.swapaxes(x, -1, -2)": "-x @ np.swapaxes(db, -1, -2)"},
            "da is transposed.", *TRANSPOSED, *PERMUTED)


def logdet(a):
    """The logarithm of the determinant of each matrix of a (B, n, n)."""
    return np.linalg.slogdet(a)[1], np.linalg.inv(a)


def logdet_backward(dy, inverse):
    return dy[:, None, None] * np.swapaxes(inverse, -1, -2)


LOGDET = PAIRS.right(logdet, logdet_backward, lambda rng: {"a": near_identity(rng, 2, 3, 3)})
PAIRS.wrong(LOGDET, "inverse not transposed", {"np.swapaxes(inverse, -1, -2)": "inverse"},
            "The inverse must be transposed.", *TRANSPOSED, *PERMUTED)
PAIRS.wrong(LOGDET, "slope of the determinant", {
    "np.swapaxes(inverse, -1, -2)": "np.swapaxes(inverse, -1, -2) / np.linalg.det(inverse)[:, None, None]"},
    "The derivative of the determinant is used, not that of its logarithm: a factor det(a) too much.",
    r"determinant|\bdet\b", r"logarithm|\blog\b", r"exp\(y\)|exp\b", r"factor that differs from (row|matrix|sample)")


def eigen(a):
    """The eigenvalues and eigenvectors of (a + a^T) / 2; each vector has a positive first number."""
    values, vectors = np.linalg.eigh(symmetric(a))
    vectors = vectors * np.sign(vectors[:1])
    return (values, vectors), (values, vectors)


def eigen_backward(dy, cache):
    values, vectors = cache
    dvalues, dvectors = dy
    gaps = values - values[:, None]
    np.fill_diagonal(gaps, 1)
    inner = vectors.T @ dvectors / gaps
    np.fill_diagonal(inner, dvalues)
    return symmetric(vectors @ inner @ vectors.T)


EIGEN = PAIRS.right(eigen, eigen_backward, lambda rng: {
    "a": np.diag([1.0, 2.5, 4.5, 7.0]) + rng.standard_normal((4, 4)) / 2})
PAIRS.wrong(EIGEN, "gaps turned round", {"values - values[:, None]": "values[:, None] - values"},
            "The differences of the eigenvalues have the wrong sign, so the part of the eigenvectors is negated.",
            *SIGN)
PAIRS.wrong(EIGEN, "eigenvalues forgotten", {"np.fill_diagonal(inner, dvalues)": "np.fill_diagonal(inner, 0)"},
            "The path of the eigenvalues is missing: dvalues, the gradient of the first output, is never used.",
            *TERM_MISSING, r"(first output|y\[0\]|output 0|dy\[0\]).*", r"ignored|never used")
PAIRS.wrong(EIGEN, "vectors exchanged with rows", {"vectors @ inner @ vectors.T": "vectors.T @ inner @ vectors"},
            "The transposes of the eigenvectors are exchanged.", *TRANSPOSED)


def inverse(a):
    """The inverse of each matrix of a (B, n, n)."""
    y = np.linalg.inv(a)
    return y, y


def inverse_backward(dy, y):
    turned = np.swapaxes(y, -1, -2)
    return -turned @ dy @ turned


INVERSE = PAIRS.right(inverse, inverse_backward, lambda rng: {"a": near_identity(rng, 2, 3, 3)})
PAIRS.wrong(INVERSE, "one inverse", {"-turned @ dy @ turned": "-turned @ dy"},
            "The inverse must be on both sides of dy: one factor a^-T is missing.", r"factor (y|turned|a)\b", r"cache",
            r"(missing|left out).*(factor|inverse)", r"(factor|inverse).*(missing|left out)")
PAIRS.wrong(INVERSE, "not transposed", {"np.swapaxes(y, -1, -2)": "y"}, "Both inverses must be transposed.",
            *TRANSPOSED)
PAIRS.wrong(INVERSE, "slope of 1/x", {"-turned @ dy @ turned": "-dy * turned**2"},
            "The derivative of 1/x is used element by element; a matrix needs the matrix product.",
            r"matrix product|matmul|@", r"element by element|elementwise|element-wise", r"diagonal", r"mixes")
PAIRS.wrong(INVERSE, "sign", {"-turned @": "turned @"}, "The sign is wrong.", *SIGN)


def qr(a):
    """a (n, n): the orthogonal factor and the triangle, whose diagonal is positive."""
    q, r = np.linalg.qr(a)
    sign = np.sign(np.diag(r))
    q, r = q * sign, r * sign[:, None]
    return (q, r), (q, r)


def qr_backward(dy, cache):
    q, r = cache
    dq, dr = dy
    m = r @ dr.T - dq.T @ q
    both = np.tril(m) + np.tril(m, -1).T
    return (dq + q @ both) @ np.linalg.inv(r).T


QR = PAIRS.right(qr, qr_backward, lambda rng: {"a": near_identity(rng, 4, 4)})
PAIRS.wrong(QR, "triangle not mirrored", {" + np.tril(m, -1).T": ""},
            "The lower triangle must be mirrored to the upper one; the mirrored half is missing.",
            r"symmetr", r"triang", r"mirror", *TERM_MISSING)
PAIRS.wrong(QR, "path of the triangle", {"r @ dr.T - dq.T @ q": "-dq.T @ q"},
            "The gradient of r, the second output, is not used.",
            *TERM_MISSING, r"(second output|y\[1\]|output 1|dy\[1\])", r"ignored|never used")


def exponential(a, *, terms=12):
    """The matrix exponential by its series."""
    powers = [np.eye(len(a))]
    for n in range(1, terms):
        powers.append(powers[-1] @ a / n)
    return sum(powers), (a, powers)


def exponential_backward(dy, cache):
    a, powers = cache
    da = np.zeros_like(a)
    dpower = np.zeros_like(dy)
    for n in reversed(range(1, len(powers))):
        dpower = dpower + dy
        da += powers[n - 1].T @ dpower / n
        dpower = dpower @ a.T / n
    return da


EXPONENTIAL = PAIRS.right(exponential, exponential_backward, lambda rng: {"a": rng.standard_normal((3, 3)) / 2})
PAIRS.wrong(EXPONENTIAL, "as for a number", {
    "    return da\n": "    return dy @ sum(powers).T\n"},
    "The derivative of exp of a number is used: dy exp(a)^T is right only if a and dy commute.",
    r"commut", r"order of the (factors|products?)", r"number|scalar", r"series")
PAIRS.wrong(EXPONENTIAL, "direct paths of the powers", {
    "dpower = dpower + dy": "dpower = dy if n == len(powers) - 1 else dpower"},
            "Each power enters the sum directly too; this path, + dy, is missing for all powers but the last.",
            *TERM_MISSING)
PAIRS.wrong(EXPONENTIAL, "power not transposed", {"powers[n - 1].T": "powers[n - 1]"}, "The power must be transposed.",
            *TRANSPOSED)


def kernel_ridge(x, y, z, log_length, *, ridge=0.1):
    """Points x (n, D) with the values y (n,); the prediction at z (m, D)."""
    def kernel(p, q):
        square = ((p[:, None] - q) ** 2).sum(-1) * np.exp(-2 * log_length)
        return np.exp(-square / 2), square

    (k, k_square), (kz, kz_square) = kernel(x, x), kernel(z, x)
    a = k + ridge * np.eye(len(x))
    alpha = np.linalg.solve(a, y)
    return kz @ alpha, (x, z, k, k_square, kz, kz_square, a, alpha, log_length)


def kernel_ridge_backward(dy, cache):
    x, z, k, k_square, kz, kz_square, a, alpha, log_length = cache
    dy_values = np.linalg.solve(a, kz.T @ dy)
    dk = -np.outer(dy_values, alpha) * k
    dkz = np.outer(dy, alpha) * kz
    dlog = (dk * k_square).sum() + (dkz * kz_square).sum()
    dk, dkz = dk * np.exp(-2 * log_length), dkz * np.exp(-2 * log_length)
    step = x[:, None] - x
    across = z[:, None] - x
    dx = -(dk[:, :, None] * step).sum(1) + (dk[:, :, None] * step).sum(0) + (dkz[:, :, None] * across).sum(0)
    return dx, dy_values, -(dkz[:, :, None] * across).sum(1), dlog


RIDGE = PAIRS.right(kernel_ridge, kernel_ridge_backward, lambda rng: {
    "x": rng.standard_normal((5, 2)), "y": rng.standard_normal(5), "z": rng.standard_normal((3, 2)),
    "log_length": np.array(0.2)})
PAIRS.wrong(RIDGE, "ridge left out", {"np.linalg.solve(a, kz.T @ dy)": "np.linalg.solve(k, kz.T @ dy)"},
            "The backward solves with the kernel without the ridge.", r"\bridge",
            r"`np\.exp\(-square / 2\)` \(line \d+\) in place of `a`")
PAIRS.wrong(RIDGE, "points of the rows only", {" + (dk[:, :, None] * step).sum(0)": ""},
            "x enters the kernel twice, as row and as column; the path of the columns is missing.",
            *TERM_MISSING, *FACTOR_2, *SYMMETRY)
PAIRS.wrong(RIDGE, "length squared", {"(dkz * kz_square).sum()": "2 * (dkz * kz_square).sum()"},
            "The term of the second kernel has a factor 2 too much in dlog_length.", *FACTOR_2, r"twice")
