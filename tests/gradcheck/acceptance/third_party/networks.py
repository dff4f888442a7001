"""Layers of neural networks, written by hand."""

import numpy as np

from tests.gradcheck.acceptance.third_party.function import MODEST, ROWS, Arrays, ThirdParty

IDS = np.array([[0, 2, 2], [4, 0, 1]])
TARGETS = np.array([3, 0, 3, 1])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))


def conv1d(x: np.ndarray, w: np.ndarray) -> np.ndarray:  # x (N, C, L), w (O, C, K)
    windows = np.stack([x[:, :, k : k + x.shape[2] - w.shape[2] + 1] for k in range(w.shape[2])], -1)
    return np.einsum("nclk,ock->nol", windows, w)


def conv1d_vjp(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> Arrays:
    dx, dw, length = np.zeros_like(x), np.zeros_like(w), dy.shape[2]
    for k in range(w.shape[2]):
        dx[:, :, k : k + length] += np.einsum("nol,oc->ncl", dy, w[:, :, k])
        dw[:, :, k] = np.einsum("nol,ncl->oc", dy, x[:, :, k : k + length])
    return dx, dw


def conv2d(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:  # stride 2, padding 1
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = ((n + 2 - k) // 2 + 1 for n, k in zip(x.shape[2:], w.shape[2:]))
    y = np.zeros((x.shape[0], w.shape[0], rows, columns), x.dtype)
    for i in range(rows):
        for j in range(columns):
            patch = padded[:, :, 2 * i : 2 * i + w.shape[2], 2 * j : 2 * j + w.shape[3]]
            y[:, :, i, j] = np.einsum("nchw,ochw->no", patch, w)
    return y + b[:, None, None]


def conv2d_vjp(dy: np.ndarray, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> Arrays:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    dpadded, dw = np.zeros_like(padded), np.zeros_like(w)
    for i in range(dy.shape[2]):
        for j in range(dy.shape[3]):
            where = (slice(None), slice(None), slice(2 * i, 2 * i + w.shape[2]), slice(2 * j, 2 * j + w.shape[3]))
            dpadded[where] += np.einsum("no,ochw->nchw", dy[:, :, i, j], w)
            dw += np.einsum("no,nchw->ochw", dy[:, :, i, j], padded[where])
    return dpadded[:, :, 1:-1, 1:-1].copy(), dw, dy.sum((0, 2, 3))


def depthwise_conv(x: np.ndarray, w: np.ndarray) -> np.ndarray:  # x (C, L), w (C, K), causal
    y = np.zeros_like(x)
    for k in range(w.shape[1]):
        y[:, k:] += w[:, k : k + 1] * x[:, : x.shape[1] - k]
    return y


def depthwise_conv_vjp(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> Arrays:
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    for k in range(w.shape[1]):
        dx[:, : x.shape[1] - k] += w[:, k : k + 1] * dy[:, k:]
        dw[:, k] = (x[:, : x.shape[1] - k] * dy[:, k:]).sum(1)
    return dx, dw


def _blocks(x: np.ndarray) -> np.ndarray:
    n, height, width = x.shape
    return x.reshape(n, height // 2, 2, width // 2, 2).swapaxes(2, 3).reshape(n, height // 2, width // 2, 4)


def max_pool(x: np.ndarray) -> np.ndarray:  # (N, H, W), 2 by 2
    return _blocks(x).max(-1)


def max_pool_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    blocks = _blocks(x)
    first = np.zeros_like(blocks)
    np.put_along_axis(first, blocks.argmax(-1)[..., None], dy[..., None], -1)
    n, height, width = x.shape
    return (first.reshape(n, height // 2, width // 2, 2, 2).swapaxes(2, 3).reshape(x.shape),)


def average_pool(x: np.ndarray) -> np.ndarray:
    return _blocks(x).mean(-1)


def average_pool_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    return (np.repeat(np.repeat(dy, 2, 1), 2, 2) / 4,)


def _normalised(x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    spread = np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    return (x - x.mean(axes, keepdims=True)) / spread, spread


def _normalised_vjp(dz: np.ndarray, z: np.ndarray, spread: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (dz - dz.mean(axes, keepdims=True) - z * (dz * z).mean(axes, keepdims=True)) / spread


def batch_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    return _normalised(x, (0,))[0] * gamma + beta


def batch_norm_vjp(dy: np.ndarray, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> Arrays:
    z, spread = _normalised(x, (0,))
    return _normalised_vjp(dy * gamma, z, spread, (0,)), (dy * z).sum(0), dy.sum(0)


def group_norm(x: np.ndarray, gamma: np.ndarray) -> np.ndarray:  # x (N, 4, L) in two groups
    z, _ = _normalised(x.reshape(x.shape[0], 2, -1), (2,))
    return z.reshape(x.shape) * gamma[:, None]


def group_norm_vjp(dy: np.ndarray, x: np.ndarray, gamma: np.ndarray) -> Arrays:
    z, spread = _normalised(x.reshape(x.shape[0], 2, -1), (2,))
    dx = _normalised_vjp((dy * gamma[:, None]).reshape(z.shape), z, spread, (2,))
    return dx.reshape(x.shape), (dy * z.reshape(x.shape)).sum((0, 2))


def instance_norm(x: np.ndarray) -> np.ndarray:  # (N, C, H, W)
    return _normalised(x, (2, 3))[0]


def instance_norm_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    return (_normalised_vjp(dy, *_normalised(x, (2, 3)), (2, 3)),)


def lstm_cell(x: np.ndarray, h: np.ndarray, c: np.ndarray, w: np.ndarray, u: np.ndarray, b: np.ndarray) -> Arrays:
    i, f, o, g = np.split(x @ w + h @ u + b, 4, -1)
    new = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(new), new


def lstm_cell_vjp(
    dy: Arrays, x: np.ndarray, h: np.ndarray, c: np.ndarray, w: np.ndarray, u: np.ndarray, b: np.ndarray
) -> Arrays:
    i, f, o, g = np.split(x @ w + h @ u + b, 4, -1)
    i, f, o, g = sigmoid(i), sigmoid(f), sigmoid(o), np.tanh(g)
    t = np.tanh(f * c + i * g)
    dc = dy[1] + dy[0] * o * (1 - t * t)
    dz = np.concatenate([dc * g * i * (1 - i), dc * c * f * (1 - f), dy[0] * t * o * (1 - o), dc * i * (1 - g * g)], -1)
    return dz @ w.T, dz @ u.T, dc * f, x.T @ dz, h.T @ dz, dz.sum(0)


def gru_cell(x: np.ndarray, h: np.ndarray, w: np.ndarray, u: np.ndarray) -> np.ndarray:
    xr, xz, xn = np.split(x @ w, 3, -1)
    hr, hz, hn = np.split(h @ u, 3, -1)
    z = sigmoid(xz + hz)
    return (1 - z) * np.tanh(xn + sigmoid(xr + hr) * hn) + z * h


def gru_cell_vjp(dy: np.ndarray, x: np.ndarray, h: np.ndarray, w: np.ndarray, u: np.ndarray) -> Arrays:
    xr, xz, xn = np.split(x @ w, 3, -1)
    hr, hz, hn = np.split(h @ u, 3, -1)
    r, z = sigmoid(xr + hr), sigmoid(xz + hz)
    n = np.tanh(xn + r * hn)
    dn = dy * (1 - z) * (1 - n * n)
    dr, dz = dn * hn * r * (1 - r), dy * (h - n) * z * (1 - z)
    of_x, of_h = np.concatenate([dr, dz, dn], -1), np.concatenate([dr, dz, dn * r], -1)
    return of_x @ w.T, dy * z + of_h @ u.T, x.T @ of_x, h.T @ of_h


def rnn(x: np.ndarray, h: np.ndarray, w: np.ndarray, u: np.ndarray) -> np.ndarray:  # x (T, N, D), all states
    states = []
    for step in x:
        h = np.tanh(step @ w + h @ u)
        states.append(h)
    return np.stack(states)


def rnn_vjp(dy: np.ndarray, x: np.ndarray, h: np.ndarray, w: np.ndarray, u: np.ndarray) -> Arrays:
    states = rnn(x, h, w, u)
    dx, dw, du, dh = np.zeros_like(x), np.zeros_like(w), np.zeros_like(u), np.zeros_like(h)
    for t in reversed(range(len(x))):
        dz = (dy[t] + dh) * (1 - states[t] ** 2)
        before = states[t - 1] if t else h
        dx[t], dh = dz @ w.T, dz @ u.T
        dw += x[t].T @ dz
        du += before.T @ dz
    return dx, dh, dw, du


def glu(x: np.ndarray) -> np.ndarray:
    a, b = np.split(x, 2, -1)
    return a * sigmoid(b)


def glu_vjp(dy: np.ndarray, x: np.ndarray) -> Arrays:
    a, b = np.split(x, 2, -1)
    s = sigmoid(b)
    return (np.concatenate([dy * s, dy * a * s * (1 - s)], -1),)


def highway(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    gate = sigmoid(x @ w)
    return gate * np.tanh(x) + (1 - gate) * x


def highway_vjp(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> Arrays:
    gate, t = sigmoid(x @ w), np.tanh(x)
    dz = dy * (t - x) * gate * (1 - gate)
    return dy * (gate * (1 - t * t) + 1 - gate) + dz @ w.T, x.T @ dz


def embedding_bag(table: np.ndarray) -> np.ndarray:
    return table[IDS].sum(1)


def embedding_bag_vjp(dy: np.ndarray, table: np.ndarray) -> Arrays:
    dtable = np.zeros_like(table)
    np.add.at(dtable, IDS, dy[:, None])
    return (dtable,)


def bilinear(x: np.ndarray, a: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.einsum("ni,kij,nj->nk", x, a, y)


def bilinear_vjp(dy: np.ndarray, x: np.ndarray, a: np.ndarray, y: np.ndarray) -> Arrays:
    return (np.einsum("nk,kij,nj->ni", dy, a, y), np.einsum("nk,ni,nj->kij", dy, x, y),
            np.einsum("nk,kij,ni->nj", dy, a, x))


def scatter_add(x: np.ndarray, updates: np.ndarray) -> np.ndarray:
    y = x.copy()
    np.add.at(y, TARGETS, updates)
    return y


def scatter_add_vjp(dy: np.ndarray, x: np.ndarray, updates: np.ndarray) -> Arrays:
    return dy.copy(), dy[TARGETS]


def prelu(x: np.ndarray, a: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, a * x)


def prelu_vjp(dy: np.ndarray, x: np.ndarray, a: np.ndarray) -> Arrays:
    return np.where(x > 0, dy, a * dy), np.where(x > 0, 0, dy * x).sum(0)


R = "real"
NETWORKS = [
    ThirdParty(conv1d, conv1d_vjp, ((R, (2, 3, 7)), (R, (4, 3, 2))), ROWS),
    ThirdParty(conv2d, conv2d_vjp, ((R, (2, 2, 5, 6)), (R, (3, 2, 3, 2)), (R, (3,))), ROWS),
    ThirdParty(depthwise_conv, depthwise_conv_vjp, ((R, (3, 7)), (R, (3, 4)))),
    ThirdParty(max_pool, max_pool_vjp, ((R, (2, 4, 6)),), ROWS),
    ThirdParty(average_pool, average_pool_vjp, ((R, (2, 4, 6)),), ROWS),
    ThirdParty(batch_norm, batch_norm_vjp, ((R, (7, 3)), (R, (3,)), (R, (3,))), ROWS),
    ThirdParty(group_norm, group_norm_vjp, ((R, (2, 4, 5)), (R, (4,))), ROWS),
    ThirdParty(instance_norm, instance_norm_vjp, ((R, (2, 3, 4, 5)),), ROWS),
    ThirdParty(lstm_cell, lstm_cell_vjp,
             ((R, (2, 3)), (R, (2, 4)), (R, (2, 4)), (R, (3, 16)), (R, (4, 16)), (R, (16,))), MODEST),
    ThirdParty(gru_cell, gru_cell_vjp, ((R, (2, 3)), (R, (2, 4)), (R, (3, 12)), (R, (4, 12))), MODEST),
    ThirdParty(rnn, rnn_vjp, ((R, (5, 2, 3)), (R, (2, 4)), (R, (3, 4)), (R, (4, 4))), MODEST),
    ThirdParty(glu, glu_vjp, ((R, (3, 10)),), ROWS),
    ThirdParty(highway, highway_vjp, ((R, (3, 4)), (R, (4, 4))), MODEST),
    ThirdParty(embedding_bag, embedding_bag_vjp, ((R, (5, 4)),)),
    ThirdParty(bilinear, bilinear_vjp, ((R, (3, 4)), (R, (2, 4, 5)), (R, (3, 5))), ROWS),
    ThirdParty(scatter_add, scatter_add_vjp, ((R, (5, 3)), (R, (4, 3)))),
    ThirdParty(prelu, prelu_vjp, ((R, (5, 3)), (R, (3,))), ROWS),
]
