"""The cases of the benchmark in JAX, compiled by `jit`."""

from functools import partial
from typing import Any

import numpy as np

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    raise ImportError("JAX is not installed: pip install '.[bench]'") from None

from tests.benchmarks.peers.gpt_in import gpt_loss, softmax_of
from tests.benchmarks.work import (
    BETA_2,
    DECAY,
    RATE,
    Case,
    Unavailable,
    Work,
    cotangent,
    model_and_batches,
    op_of,
)


def make(case: Case, variant: str, threads: int) -> Work:
    if case["kind"] == "step":
        return _step(case["size"])
    if case["kind"] == "attention":
        return _attention(case)
    raise Unavailable(f"the benchmark has no {case['kind']} for JAX")


@partial(jax.jit, static_argnums=5, donate_argnums=(0, 1))
def adamw_step(p: Any, moments: Any, t: Any, ids: Any, targets: Any, size: str) -> Any:
    loss, grads = jax.value_and_grad(lambda p: gpt_loss(jnp, p, ids, targets, size))(p)
    correction_1, correction_2 = 1 - 0.9**t, 1 - BETA_2**t
    new_p, new_moments = {}, {}
    for name, g in grads.items():
        m, v = moments[name]
        m, v = 0.9 * m + 0.1 * g, BETA_2 * v + (1 - BETA_2) * g * g
        shrink = 1 - RATE * DECAY if g.ndim > 1 else 1.0
        new_p[name] = p[name] * shrink - RATE * (m / correction_1) / (jnp.sqrt(v / correction_2) + 1e-8)
        new_moments[name] = m, v
    return loss, new_p, new_moments


def _step(size: str) -> Work:
    model, batches = model_and_batches(size)
    p = {name: jnp.asarray(array) for name, array in model.parameters().items()}
    del model
    moments = {name: (jnp.zeros_like(array), jnp.zeros_like(array)) for name, array in p.items()}
    now = {"p": p, "moments": moments, "t": 0}

    def step() -> float:
        ids, targets = batches[now["t"] % 4]
        now["t"] += 1
        loss, now["p"], now["moments"] = adamw_step(now["p"], now["moments"], float(now["t"]), ids, targets, size)
        jax.block_until_ready(now["p"])
        return float(loss)

    return Work(step, lambda: [step() for _ in range(3)])


def _attention(case: Case) -> Work:
    name, inputs, _ = op_of(case)
    T = case["T"]
    hidden = np.triu(np.ones((T, T), dtype=bool), 1) if case["causal"] else None
    q, k, v = (jnp.asarray(array) for array in inputs.values())
    dy = jnp.asarray(cotangent(name, inputs))

    @jax.jit
    def both(q: Any, k: Any, v: Any, dy: Any) -> Any:
        y, backward = jax.vjp(lambda q, k, v: softmax_of(jnp, q, k, hidden) @ v, q, k, v)
        return y, *backward(dy)

    def call() -> Any:
        return jax.block_until_ready(both(q, k, v, dy))

    return Work(call, lambda: [float(jnp.linalg.norm(array.reshape(-1))) for array in call()])
