"""Linear algebra, distances, iterations."""

import numpy as np

from tests.gradcheck.acceptance.third_party.function import MATRIX, MODEST, ROWS, Arrays, ThirdParty


def solve(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.linalg.solve(a, b)


def solve_vjp(dy: np.ndarray, a: np.ndarray, b: np.ndarray) -> Arrays:
    db = np.linalg.solve(a.T, dy)
    return -db @ np.linalg.solve(a, b).T, db


def inverse(a: np.ndarray) -> np.ndarray:
    return np.linalg.inv(a)


def inverse_vjp(dy: np.ndarray, a: np.ndarray) -> Arrays:
    y = np.linalg.inv(a)
    return (-y.T @ dy @ y.T,)


def cholesky(a: np.ndarray) -> np.ndarray:  # of the symmetric part, so y depends on every element of a
    return np.linalg.cholesky((a + a.T) / 2)


def cholesky_vjp(dy: np.ndarray, a: np.ndarray) -> Arrays:
    l = np.linalg.cholesky((a + a.T) / 2)
    middle = np.tril(l.T @ np.tril(dy))
    middle[np.diag_indices(len(l))] /= 2
    inner = np.linalg.solve(l.T, np.linalg.solve(l.T, middle.T).T)
    return ((inner + inner.T) / 2,)


def log_determinant(a: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.slogdet(a)[1])


def log_determinant_vjp(dy: np.ndarray, a: np.ndarray) -> Arrays:
    return (dy * np.linalg.inv(a).T,)


def least_squares(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.linalg.solve(a.T @ a, a.T @ b)


def least_squares_vjp(dy: np.ndarray, a: np.ndarray, b: np.ndarray) -> Arrays:
    x = np.linalg.solve(a.T @ a, a.T @ b)
    z = np.linalg.solve(a.T @ a, dy)
    return np.outer(b - a @ x, z) - np.outer(a @ z, x), a @ z


def ridge(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.linalg.solve(a.T @ a + 0.1 * np.eye(a.shape[1]), a.T @ b)


def ridge_vjp(dy: np.ndarray, a: np.ndarray, b: np.ndarray) -> Arrays:
    x = ridge(a, b)
    z = np.linalg.solve(a.T @ a + 0.1 * np.eye(a.shape[1]), dy)
    return np.outer(b - a @ x, z) - np.outer(a @ z, x), a @ z


def eigenvalues(a: np.ndarray) -> np.ndarray:
    return np.linalg.eigvalsh((a + a.T) / 2)


def eigenvalues_vjp(dy: np.ndarray, a: np.ndarray) -> Arrays:
    v = np.linalg.eigh((a + a.T) / 2)[1]
    return ((v * dy) @ v.T,)


def nuclear_norm(a: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.svd(a, compute_uv=False).sum())


def nuclear_norm_vjp(dy: np.ndarray, a: np.ndarray) -> Arrays:
    u, _, vt = np.linalg.svd(a, full_matrices=False)
    return (dy * (u @ vt),)


def triangular_solve(l: np.ndarray, b: np.ndarray) -> np.ndarray:  # written out; uses only the lower triangle
    x = np.zeros_like(b)
    for i in range(len(b)):
        x[i] = (b[i] - l[i, :i] @ x[:i]) / l[i, i]
    return x


def triangular_solve_vjp(dy: np.ndarray, l: np.ndarray, b: np.ndarray) -> Arrays:
    db = np.linalg.solve(np.tril(l).T, dy)
    return -np.tril(db @ triangular_solve(l, b).T), db


def kronecker(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.kron(a, b)


def kronecker_vjp(dy: np.ndarray, a: np.ndarray, b: np.ndarray) -> Arrays:
    blocks = dy.reshape(a.shape[0], b.shape[0], a.shape[1], b.shape[1])
    return np.einsum("ikjl,kl->ij", blocks, b), np.einsum("ikjl,ij->kl", blocks, a)


def quadratic_form(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.einsum("ni,ij,nj->n", x, a, x)


def quadratic_form_vjp(dy: np.ndarray, a: np.ndarray, x: np.ndarray) -> Arrays:
    return np.einsum("n,ni,nj->ij", dy, x, x), dy[:, None] * (x @ (a + a.T))


def matrix_power(a: np.ndarray) -> np.ndarray:
    return a @ a @ a


def matrix_power_vjp(dy: np.ndarray, a: np.ndarray) -> Arrays:
    t = a.T
    return (dy @ t @ t + t @ dy @ t + t @ t @ dy,)


def conjugate_gradients(a: np.ndarray, b: np.ndarray) -> np.ndarray:  # until the residual is 1e-10 of b
    x, r = np.zeros_like(b), b.copy()
    p, rr = r, r @ r
    for _ in range(10 * len(b)):
        ap = a @ p
        step = rr / (p @ ap)
        x, r = x + step * p, r - step * ap
        before, rr = rr, r @ r
        if rr <= 1e-20 * (b @ b):
            break
        p = r + rr / before * p
    return x


def conjugate_gradients_vjp(dy: np.ndarray, a: np.ndarray, b: np.ndarray) -> Arrays:
    z = np.linalg.solve(a.T, dy)
    return -np.outer(z, np.linalg.solve(a, b)), z


def fixed_point(w: np.ndarray, x: np.ndarray) -> np.ndarray:  # z = tanh(0.2 w z + x), until it moves by 1e-10
    z = np.zeros_like(x)
    for _ in range(500):
        before, z = z, np.tanh(0.2 * (w @ z) + x)
        if np.max(np.abs(z - before)) < 1e-10:
            break
    return z


def fixed_point_vjp(dy: np.ndarray, w: np.ndarray, x: np.ndarray) -> Arrays:
    z = fixed_point(w, x)
    slope = 1 - z * z
    u = slope * np.linalg.solve((np.eye(len(x)) - 0.2 * slope[:, None] * w).T, dy)
    return 0.2 * np.outer(u, z), u


def pairwise_distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def pairwise_distances_vjp(dy: np.ndarray, x: np.ndarray, y: np.ndarray) -> Arrays:
    terms = 2 * dy[..., None] * (x[:, None] - y[None])
    return terms.sum(1), -terms.sum(0)


def cosine_similarity(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1))


def cosine_similarity_vjp(dy: np.ndarray, x: np.ndarray, y: np.ndarray) -> Arrays:
    xx, yy = (x * x).sum(-1, keepdims=True), (y * y).sum(-1, keepdims=True)
    norm, cosine = np.sqrt(xx * yy), cosine_similarity(x, y)[..., None]
    return dy[..., None] * (y / norm - cosine * x / xx), dy[..., None] * (x / norm - cosine * y / yy)


def mahalanobis(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.sqrt((x * np.linalg.solve(a, x.T).T).sum(-1))


def mahalanobis_vjp(dy: np.ndarray, a: np.ndarray, x: np.ndarray) -> Arrays:
    z = np.linalg.solve(a, x.T).T
    t = np.linalg.solve(a.T, x.T).T
    g = dy / (2 * mahalanobis(a, x))
    return -np.einsum("n,ni,nj->ij", g, t, z), g[:, None] * (z + t)


def sinkhorn(cost: np.ndarray) -> np.ndarray:  # three rounds, rows then columns, in logarithms
    logs = -cost
    for _ in range(3):
        for axis in (1, 0):
            logs = logs - _logsumexp(logs, axis)
    return np.exp(logs)


def sinkhorn_vjp(dy: np.ndarray, cost: np.ndarray) -> Arrays:
    logs, states = -cost, []
    for _ in range(3):
        for axis in (1, 0):
            states.append((axis, logs))
            logs = logs - _logsumexp(logs, axis)
    d = dy * np.exp(logs)
    for axis, before in reversed(states):
        d = d - np.exp(before - _logsumexp(before, axis)) * d.sum(axis, keepdims=True)
    return (-d,)


def _logsumexp(x: np.ndarray, axis: int) -> np.ndarray:
    top = x.max(axis, keepdims=True)
    return top + np.log(np.exp(x - top).sum(axis, keepdims=True))


R = "real"
ALGEBRA = [
    ThirdParty(solve, solve_vjp, (("square", (4, 4)), (R, (4, 3))), MATRIX),
    ThirdParty(inverse, inverse_vjp, (("square", (4, 4)),), MATRIX),
    ThirdParty(cholesky, cholesky_vjp, (("spd", (4, 4)),), MATRIX),
    ThirdParty(log_determinant, log_determinant_vjp, (("square", (5, 5)),), MATRIX),
    ThirdParty(least_squares, least_squares_vjp, ((R, (7, 3)), (R, (7,))), ("normal", "small", "large", "float32")),
    ThirdParty(ridge, ridge_vjp, ((R, (6, 3)), (R, (6,)))),
    ThirdParty(eigenvalues, eigenvalues_vjp, (("spd", (4, 4)),), MATRIX),
    ThirdParty(nuclear_norm, nuclear_norm_vjp, ((R, (5, 3)),), ("normal", "small", "large", "float32")),
    ThirdParty(triangular_solve, triangular_solve_vjp, (("spd", (4, 4)), (R, (4, 3))), MATRIX),
    ThirdParty(kronecker, kronecker_vjp, ((R, (3, 2)), (R, (2, 4)))),
    ThirdParty(quadratic_form, quadratic_form_vjp, ((R, (4, 4)), (R, (3, 4)))),
    ThirdParty(matrix_power, matrix_power_vjp, ((R, (4, 4)),)),
    ThirdParty(conjugate_gradients, conjugate_gradients_vjp, (("spd", (5, 5)), (R, (5,))),
             ("normal", "small", "large"), 1e-6),
    ThirdParty(fixed_point, fixed_point_vjp, ((R, (4, 4)), (R, (4,))), ("normal", "small"), 1e-6),
    ThirdParty(pairwise_distances, pairwise_distances_vjp, ((R, (4, 3)), (R, (5, 3))), ROWS),
    ThirdParty(cosine_similarity, cosine_similarity_vjp, ((R, (4, 3)), (R, (4, 3))),
             ("normal", "small", "large", "mixed", "float32")),
    ThirdParty(mahalanobis, mahalanobis_vjp, (("spd", (4, 4)), (R, (3, 4))), MATRIX),
    ThirdParty(sinkhorn, sinkhorn_vjp, ((R, (3, 4)),), MODEST),
]
