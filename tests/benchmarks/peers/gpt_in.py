"""The GPT of the benchmark as a function of its parameters, for libraries with NumPy's functions: JAX and autograd."""

from typing import Any

import numpy as np

from tests.benchmarks.work import SIZES


def gpt_loss(xp: Any, p: dict[str, Any], ids: Any, targets: Any, size: str) -> Any:
    """The mean of -log p(target); xp is jax.numpy or autograd.numpy."""
    _, T, _, d_model, layers, H = SIZES[size]
    hidden = np.triu(np.ones((T, T), dtype=bool), 1)
    x = p["token_embedding.table"][ids] + p["position_embedding.table"]
    for i in range(layers):
        at = f"blocks.{i}."
        h = layer_norm(xp, x, p[at + "norm_1.gamma"], p[at + "norm_1.beta"])
        q, k, v = (heads(xp, h @ p[f"{at}attention.w_{n}"] + p[f"{at}attention.b_{n}"], H) for n in "qkv")
        y = xp.matmul(softmax_of(xp, q, k, hidden), v)
        y = xp.reshape(xp.swapaxes(y, 1, 2), x.shape)
        x = x + y @ p[at + "attention.w_o"] + p[at + "attention.b_o"]
        h = layer_norm(xp, x, p[at + "norm_2.gamma"], p[at + "norm_2.beta"])
        h = gelu(xp, h @ p[at + "feed_forward.w_1"] + p[at + "feed_forward.b_1"])
        x = x + h @ p[at + "feed_forward.w_2"] + p[at + "feed_forward.b_2"]
    x = layer_norm(xp, x, p["norm.gamma"], p["norm.beta"])
    logits = xp.reshape(x, (-1, d_model)) @ p["token_embedding.table"].T
    logits = logits - xp.max(logits, axis=-1, keepdims=True)
    log_p = logits - xp.log(xp.sum(xp.exp(logits), axis=-1, keepdims=True))
    return -xp.mean(log_p[np.arange(ids.size), xp.reshape(targets, (-1,))])


def heads(xp: Any, x: Any, H: int) -> Any:
    return xp.swapaxes(xp.reshape(x, (*x.shape[:2], H, x.shape[2] // H)), 1, 2)


def softmax_of(xp: Any, q: Any, k: Any, hidden: Any) -> Any:
    scores = xp.matmul(q * np.float32(q.shape[-1] ** -0.5), xp.swapaxes(k, -1, -2))
    if hidden is not None:
        scores = xp.where(hidden, np.float32(-1e30), scores)
    w = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    return w / xp.sum(w, axis=-1, keepdims=True)


def layer_norm(xp: Any, x: Any, gamma: Any, beta: Any) -> Any:
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + np.float32(1e-5)) * gamma + beta


def gelu(xp: Any, x: Any) -> Any:
    c = np.float32(np.sqrt(2 / np.pi))
    return np.float32(0.5) * x * (1 + xp.tanh(c * (x + np.float32(0.044715) * x * x * x)))
