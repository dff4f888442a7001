"""Properties of what is in no catalogue of gradients: a mask, optimizers, clipping, tied steps, stored keys, a start.

Each takes the thing on trial and raises AssertionError when it is wrong. `square`, `plain_descent` and the like are
the weaker trials that some mistakes survive.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.gradcheck.spec import draw_sizes
from numpy_attention.layers.kv_cache import KeyValueCache
from numpy_attention.models.gpt import GPT
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.ops.masks import causal_mask
from numpy_attention.pretrained.low_rank import LowRank
from numpy_attention.training.clipping import clip_by_global_norm
from numpy_attention.training.optimizers import Adam, AdamW


def trial_of_causal_mask(make: Callable[..., np.ndarray], seed: int, square: bool = False) -> None:
    """Key j is visible to query i when j <= i + T_k - T_q: the last query stands at the last key."""
    sizes = draw_sizes("x: T_q T_k", np.random.default_rng(seed))
    T_q = sizes["T_q"]
    T_k = T_q if square else sizes["T_k"]
    assert isinstance(T_q, int)
    assert isinstance(T_k, int)
    if seed == 0:  # first the case with a use: newest queries, and stored keys before them
        T_q, T_k = min(T_q, T_k), max(T_q, T_k)
    mask = np.asarray(make(T_q, T_k))
    assert mask.shape == (T_q, T_k), f"causal_mask({T_q}, {T_k}) has shape {mask.shape}, expected {(T_q, T_k)}"
    assert mask.dtype == bool, f"causal_mask({T_q}, {T_k}) is of {mask.dtype}; a mask is of bool"
    for i in range(T_q):
        for j in range(T_k):
            sees = j <= i + T_k - T_q
            assert mask[i, j] == sees, (
                f"causal_mask({T_q}, {T_k})[{i}, {j}] is {bool(mask[i, j])}: query {i} of {T_q} stands at position "
                f"{i + T_k - T_q} of {T_k}, so key {j} must be {'visible' if sees else 'hidden'}"
            )


def trial_of_adam(optimizer: Callable[..., Any], seed: int, steps: int = 4, weight_decay: float | None = None) -> None:
    """Some steps by hand, elementwise, in Python floats; with weight_decay AdamW, which spares vectors."""
    rng = np.random.default_rng(seed)
    rate, beta_1, beta_2, eps = 0.02, 0.8, 0.9, 1e-7
    p = {"w": rng.standard_normal((3, 2)), "gamma": rng.standard_normal(4), "small": rng.standard_normal(2)}
    options = {} if weight_decay is None else {"weight_decay": weight_decay}
    mine = {name: value.copy() for name, value in p.items()}
    held = dict(mine)  # by the model, whose arrays these are
    stepper = optimizer(mine, learning_rate=rate, beta_1=beta_1, beta_2=beta_2, eps=eps, **options)
    m, v = ({name: np.zeros_like(x) for name, x in p.items()} for _ in range(2))
    for t in range(1, steps + 1):
        g = {name: rng.standard_normal(x.shape) * (1e-6 if name == "small" else 1.0) for name, x in p.items()}
        stepper.step({name: x.copy() for name, x in g.items()})
        assert any(not np.array_equal(held[name], value) for name, value in p.items()), (
            f"step {t}: the arrays that were handed over have not moved; p -= ... moves them in place, p = p - ... "
            "makes new ones, of which the model knows nothing"
        )
        for name, value in p.items():
            for i in np.ndindex(value.shape):
                m[name][i] = beta_1 * m[name][i] + (1 - beta_1) * g[name][i]
                v[name][i] = beta_2 * v[name][i] + (1 - beta_2) * g[name][i] ** 2
                if weight_decay is not None and value.ndim >= 2:
                    value[i] *= 1 - rate * weight_decay
                m_hat, v_hat = m[name][i] / (1 - beta_1**t), v[name][i] / (1 - beta_2**t)
                value[i] -= rate * m_hat / (math.sqrt(v_hat) + eps)
                assert math.isclose(mine[name][i], value[i], rel_tol=1e-9, abs_tol=1e-12), (
                    f"step {t}: {name}[{', '.join(map(str, i))}] is {mine[name][i]:.9g}, by hand {value[i]:.9g} "
                    f"(gradient {g[name][i]:.3g}, m_hat {m_hat:.3g}, v_hat {v_hat:.3g}"
                    f"{'; 0 / 0? the steps count from one' if np.isnan(mine[name][i]) else ''})"
                )


def trial_of_adamw(optimizer: Callable[..., Any], seed: int) -> None:
    """Adam by hand, matrices shrinking by learning_rate weight_decay."""
    trial_of_adam(optimizer, seed, weight_decay=0.1)


def trial_of_descent(optimizer: Callable[..., Any], seed: int) -> None:
    """The weak trial: the loss falls."""
    rng = np.random.default_rng(seed)
    goal = rng.standard_normal((3, 2))
    p = {"w": np.zeros_like(goal)}
    stepper = optimizer(p, learning_rate=0.05)
    for _ in range(100):
        stepper.step({"w": p["w"] - goal})
    loss = float(np.sum((p["w"] - goal) ** 2))
    assert loss < 0.5 * float(np.sum(goal**2)), f"the loss fell only to {loss:.3g}"


def trial_of_clipping(clip: Callable[..., Any], seed: int, arrays: int = 3) -> None:
    """One factor for all arrays: the direction stays, the joint norm is at most the limit."""
    rng = np.random.default_rng(seed)
    g = {f"p{i}": rng.standard_normal((i + 2, 3)) * 4.0**i for i in range(arrays)}
    norm = math.sqrt(sum(float(np.sum(x * x)) for x in g.values()))
    for limit in (0.3 * norm, 3.0 * norm):
        mine = {name: x.copy() for name, x in g.items()}
        said = float(clip(mine, limit))
        assert math.isclose(said, norm, rel_tol=1e-9), f"the norm before is {norm:.6g}, clip says {said:.6g}"
        for name, x in g.items():
            assert np.allclose(mine[name], x * min(1.0, limit / norm), rtol=1e-9), (
                f"{name} is scaled by {float(np.sum(mine[name] * x) / np.sum(x * x)):.4g}, "
                f"the joint norm asks for {min(1.0, limit / norm):.4g} for every array"
            )


def trial_of_tied_step(step: Callable[..., None], seed: int, optimizer: Any = Adam) -> None:
    """A table used twice takes one step along the sum of its two gradients."""
    rng = np.random.default_rng(seed)
    table, *uses = rng.standard_normal((3, 4, 2))
    expected, mine = table.copy(), table.copy()
    optimizer({"table": expected}, learning_rate=0.05).step({"table": uses[0] + uses[1]})
    step(mine, uses, optimizer, learning_rate=0.05)
    off = float(np.max(np.abs(mine - expected)))
    assert off < 1e-9, f"the tied table is off by {off:.2g} from one step along the sum of its gradients"


def trial_of_stored_keys(logits_step_by_step: Callable[..., np.ndarray], seed: int, length: int = 4) -> None:
    """Token by token with stored keys gives the logits of the whole text at once."""
    rng = np.random.default_rng(seed)
    config = GPTConfig(vocab_size=7, context_length=6, d_model=6, num_heads=2, num_layers=2, d_ff=8)
    model = GPT(config, rng, np.float64)
    for p in model.parameters().values():
        p[...] = rng.standard_normal(p.shape)
    ids = rng.integers(0, 7, (2, length))
    whole, _ = model.forward(ids)
    stepped = logits_step_by_step(model, ids)
    off = np.abs(whole - stepped).max(axis=(0, 2))
    assert np.all(off < 1e-9), f"the logits of token {int(np.argmax(off >= 1e-9))} are off by {off.max():.2g}"


def trial_of_low_rank_start(start: Callable[..., LowRank], seed: int, look_first: bool = True) -> None:
    """A fresh change of low rank changes nothing, and learns one of rank 1 almost whole in 200 steps."""
    rng = np.random.default_rng(seed)
    w, x = rng.standard_normal((5, 4)), rng.standard_normal((20, 5))
    goal = x @ (w + np.outer(rng.standard_normal(5), rng.standard_normal(4)))
    layer = start(w.copy(), 2, rng)
    before = layer.forward(x)[0] - goal
    off = float(np.max(np.abs(before + goal - x @ w)))
    assert off < 1e-12 or not look_first, (
        f"before the first step y is off from x w by {off:.2g}: the pretrained model is not the start"
    )
    optimizer = Adam(layer.parameters(), learning_rate=0.05)
    for _ in range(200):
        y, cache = layer.forward(x)
        optimizer.step(layer.backward(y - goal, cache)[1])
    left = float(np.sum((layer.forward(x)[0] - goal) ** 2) / np.sum(before**2))
    assert left < 0.01, f"after 200 steps {left:.0%} of the squared error is left: does a gradient come through at all?"


def tied_step(table: np.ndarray, uses: list[np.ndarray], optimizer: Any, **options: Any) -> None:
    """The right way: one step along the sum."""
    optimizer({"table": table}, **options).step({"table": np.sum(uses, axis=0)})


def logits_step_by_step(model: GPT, ids: np.ndarray) -> np.ndarray:
    """The right way: stored keys, each token at its own position, looking at itself too."""
    past = [KeyValueCache(ids.shape[1]) for _ in model.blocks]
    return np.concatenate([model.forward(ids[:, t : t + 1], past=past)[0] for t in range(ids.shape[1])], axis=1)


def low_rank_start(w: np.ndarray, rank: int, rng: np.random.Generator) -> LowRank:
    """The right way: a at random, b zero."""
    return LowRank(w, rank, rng=rng)


Trial = Callable[[Any, int], None]
TRIALS: dict[str, tuple[Any, Trial]] = {
    "causal_mask": (causal_mask, trial_of_causal_mask),
    "Adam": (Adam, trial_of_adam),
    "AdamW": (AdamW, trial_of_adamw),
    "clip_by_global_norm": (clip_by_global_norm, trial_of_clipping),
    "tied_step": (tied_step, trial_of_tied_step),
    "logits_step_by_step": (logits_step_by_step, trial_of_stored_keys),
    "low_rank_start": (low_rank_start, trial_of_low_rank_start),
}
