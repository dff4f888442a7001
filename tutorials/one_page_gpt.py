"""A whole GPT on one page: `python one_page_gpt.py [TEXT]` trains on a file, then writes.

`python one_page_gpt.py check` compares each gradient with differences of the loss."""
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from pydoc_data.topics import topics

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of BLAS: the matrices are small
find_spec("numpy") or sys.exit(f"This file needs NumPy 2: {sys.executable} -m pip install numpy")
import numpy as np

T, d_model, num_heads, d_ff, num_layers = 32, 64, 4, 256, 2  # the model sees T characters

def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)

def softmax_backward(dy, y):
    return y * (dy - (dy * y).sum(-1, keepdims=True))

def rms_norm(x):
    r = 1 / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    return x * r, (x * r, r)

def rms_norm_backward(dy, cache):
    y, r = cache
    return r * (dy - y * (dy * y).mean(-1, keepdims=True))

def dw(x, dy):  # the gradient of w in y = x @ w: a sum over all positions of all texts
    return x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])

def split(x):  # (B, T, d_model) -> (B, num_heads, T, d_k)
    return x.reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2)

def merge(x):  # (B, num_heads, T, d_k) -> (B, T, d_model)
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)

def attention(x, w_q, w_k, w_v, w_o):
    q, k, v = split(x @ w_q), split(x @ w_k), split(x @ w_v)
    scores = q @ k.mT / q.shape[-1] ** 0.5           # (B, num_heads, T, T)
    causal = np.tri(x.shape[1], dtype=bool)          # a character sees no later one
    weights = softmax(np.where(causal, scores, -np.inf))
    heads = merge(weights @ v)                       # (B, T, d_model)
    return heads @ w_o, (x, w_q, w_k, w_v, w_o, q, k, v, weights, heads)

def attention_backward(dy, cache):
    x, w_q, w_k, w_v, w_o, q, k, v, weights, heads = cache
    dheads = split(dy @ w_o.T)                       # y = heads @ w_o
    dweights = dheads @ v.mT                         # heads = weights @ v
    dv = merge(weights.mT @ dheads)
    dscores = softmax_backward(dweights, weights) / q.shape[-1] ** 0.5
    dq = merge(dscores @ k)                          # scores = q @ k.mT / sqrt(d_k)
    dk = merge(dscores.mT @ q)
    dx = dq @ w_q.T + dk @ w_k.T + dv @ w_v.T        # q, k and v read x: dx is a sum
    return dx, dw(x, dq), dw(x, dk), dw(x, dv), dw(heads, dy)

def feed_forward(x, w_1, w_2):
    h = np.maximum(x @ w_1, 0)                       # (B, T, d_ff)
    return h @ w_2, (x, w_1, w_2, h)

def feed_forward_backward(dy, cache):
    x, w_1, w_2, h = cache
    dh = dy @ w_2.T * (h > 0)                        # no gradient where the maximum was 0
    return dh @ w_1.T, dw(x, dh), dw(h, dy)

def forward(p, ids):
    x = p["table"][ids] + p["positions"][: ids.shape[1]]        # (B, T, d_model)
    caches = []
    for i in range(num_layers):
        y, norm_1 = rms_norm(x)
        y, attended = attention(y, p["w_q"][i], p["w_k"][i], p["w_v"][i], p["w_o"][i])
        x = x + y
        y, norm_2 = rms_norm(x)
        y, fed = feed_forward(y, p["w_1"][i], p["w_2"][i])
        x = x + y
        caches.append((norm_1, attended, norm_2, fed))
    y, norm = rms_norm(x)
    return y @ p["table"].T, (caches, y, norm)               # logits (B, T, V)

def loss_and_gradients(p, ids, targets):
    logits, (caches, y, norm) = forward(p, ids)
    probability = softmax(logits)
    one_hot = np.eye(len(p["table"]), dtype=logits.dtype)[targets]
    loss = -np.log((probability * one_hot).sum(-1)).mean()      # nats per character
    dlogits = (probability - one_hot) / targets.size
    g = {name: np.zeros_like(a) for name, a in p.items()}
    g["table"] += dw(dlogits, y)                                # logits = y @ table.T
    dx = rms_norm_backward(dlogits @ p["table"], norm)
    for i in reversed(range(num_layers)):
        norm_1, attended, norm_2, fed = caches[i]
        dy, g["w_1"][i], g["w_2"][i] = feed_forward_backward(dx, fed)
        dx = dx + rms_norm_backward(dy, norm_2)                 # x + f(x): dx takes both ways
        dy, g["w_q"][i], g["w_k"][i], g["w_v"][i], g["w_o"][i] = attention_backward(dx, attended)
        dx = dx + rms_norm_backward(dy, norm_1)
    np.add.at(g["table"], ids, dx)                              # the table is used twice: add
    g["positions"][: ids.shape[1]] = dx.sum(0)
    return loss, g

def new_parameters(V, rng, dtype=np.float32):
    L, d = num_layers, d_model
    shapes = {"table": (V, d), "positions": (T, d), "w_q": (L, d, d), "w_k": (L, d, d),
              "w_v": (L, d, d), "w_o": (L, d, d), "w_1": (L, d, d_ff), "w_2": (L, d_ff, d)}
    return {name: (0.05 if name[0] == "w" else 0.2) * rng.standard_normal(shape, dtype)
            for name, shape in shapes.items()}

def check(rng, h=1e-5):
    p = new_parameters(11, rng, float)
    ids, targets = rng.integers(11, size=(2, 3, 7))
    g, results = loss_and_gradients(p, ids, targets)[1], []
    for name, a in p.items():
        u = rng.normal(0, a.size**-0.5, a.shape)     # a random direction, of length about 1
        up, down = (loss_and_gradients(p | {name: a + s * u}, ids, targets)[0] for s in (h, -h))
        by_hand, slope = (g[name] * u).sum(), (up - down) / (2 * h)
        results.append(abs(by_hand - slope) < 1e-6 * np.linalg.norm(g[name]))
        print(f"{name:9} {by_hand:12.9f} {slope:12.9f} {'right' if results[-1] else 'WRONG'}")
    return all(results)

def write(p, ids, length, rng):
    for _ in range(length):
        logits, _ = forward(p, ids[None, -T:])
        probability = softmax(logits[0, -1].astype(float))
        ids = np.append(ids, rng.choice(len(probability), p=probability))
    return ids

def train(text, rng, steps=1000, batch_size=16):
    assert len(text) > T, f"text: must hold more than {T} characters, got {len(text)}"
    characters = sorted(set(text))
    ids = np.array([characters.index(c) for c in text])
    p, losses = new_parameters(len(characters), rng), []
    m, v = ({name: np.zeros_like(a) for name, a in p.items()} for _ in range(2))
    for step in range(1, steps + 1):
        batch = ids[rng.integers(len(ids) - T, size=(batch_size, 1)) + np.arange(T + 1)]
        loss, g = loss_and_gradients(p, batch[:, :-1], batch[:, 1:])
        for name in p:                               # Adam; the rate falls from 0.006 to 0
            m[name] += 0.1 * (g[name] - m[name])
            v[name] += 0.01 * (g[name] ** 2 - v[name])
            mean, size = m[name] / (1 - 0.9**step), np.sqrt(v[name] / (1 - 0.99**step))
            p[name] -= 6e-3 * (1 - step / steps) * mean / (size + 1e-8)
        losses.append(loss)
        if step == 1 or step % 100 == 0:
            print(f"step {step}: {np.mean(losses[-100:]):.2f} nats per character", flush=True)
    print("".join(characters[i] for i in write(p, ids[:1], 500, rng)))

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    if sys.argv[1:] == ["check"]:
        sys.exit(not check(rng))
    train(Path(sys.argv[1]).read_text("utf-8") if sys.argv[1:] else "".join(topics.values()), rng)
