"""Trials of Adam, AdamW and clipping, which compare each element with the formula; and a step of a tied table."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.training.c25_optimizers import Adam
from numpy_attention.tutor.entry import Array
from numpy_attention.tutor.exercise import Trial


def trial_of_adam(optimizer: Callable[..., Any], seed: int, weight_decay: float | None = None) -> None:
    """Compares four steps with the formula in Python floats; weight_decay adds the decay of AdamW, for matrices."""
    rng = np.random.default_rng(seed)
    rate, beta_1, beta_2, eps = 0.02, 0.8, 0.9, 1e-7
    p = {"w": rng.standard_normal((3, 2)), "gamma": rng.standard_normal(4), "small": rng.standard_normal(2)}
    options = {} if weight_decay is None else {"weight_decay": weight_decay}
    given = {name: value.copy() for name, value in p.items()}
    original = dict(given)  # the arrays of the model
    stepper = optimizer(given, learning_rate=rate, beta_1=beta_1, beta_2=beta_2, eps=eps, **options)
    m, v = ({name: np.zeros_like(x) for name, x in p.items()} for _ in range(2))
    for t in range(1, 5):
        g = {name: rng.standard_normal(x.shape) * (1e-6 if name == "small" else 1.0) for name, x in p.items()}
        stepper.step({name: x.copy() for name, x in g.items()})
        assert any(not np.array_equal(original[name], value) for name, value in p.items()), (
            f"step {t}: the given arrays have not changed; p -= ... changes an array in place, p = p - ... creates a "
            "new array, which the model does not use"
        )
        for name, value in p.items():
            for i in np.ndindex(value.shape):
                m[name][i] = beta_1 * m[name][i] + (1 - beta_1) * g[name][i]
                v[name][i] = beta_2 * v[name][i] + (1 - beta_2) * g[name][i] ** 2
                if weight_decay is not None and value.ndim >= 2:
                    value[i] *= 1 - rate * weight_decay
                m_hat, v_hat = m[name][i] / (1 - beta_1**t), v[name][i] / (1 - beta_2**t)
                value[i] -= rate * m_hat / (math.sqrt(v_hat) + eps)
                assert math.isclose(given[name][i], value[i], rel_tol=1e-9, abs_tol=1e-12), (
                    f"step {t}: {name}[{', '.join(map(str, i))}] is {given[name][i]:.9g}, but must be {value[i]:.9g} "
                    f"(gradient {g[name][i]:.3g}, m_hat {m_hat:.3g}, v_hat {v_hat:.3g}"
                    f"{'; 0 / 0? the first step has t = 1' if np.isnan(given[name][i]) else ''})"
                )


def trial_of_clipping(clip: Callable[..., Any], seed: int, arrays: int = 3) -> None:
    """Checks that all arrays get the same factor, so the joint norm is at most the limit and the direction stays."""
    rng = np.random.default_rng(seed)
    g = {f"p{i}": rng.standard_normal((i + 2, 3)) * 4.0**i for i in range(arrays)}
    norm = math.sqrt(sum(float(np.sum(x * x)) for x in g.values()))
    for limit in (0.3 * norm, 3.0 * norm):
        clipped = {name: x.copy() for name, x in g.items()}
        returned = float(clip(clipped, limit))
        assert math.isclose(returned, norm, rel_tol=1e-9), (
            f"the norm before clipping is {norm:.6g}, but clip returns {returned:.6g}"
        )
        for name, x in g.items():
            assert np.allclose(clipped[name], x * min(1.0, limit / norm), rtol=1e-9), (
                f"{name} is scaled by {float(np.sum(clipped[name] * x) / np.sum(x * x)):.4g}, "
                f"but for the joint norm every array must be scaled by {min(1.0, limit / norm):.4g}"
            )


def trial_of_tied_step(step: Callable[..., None], seed: int, optimizer: Any = Adam) -> None:
    """Checks that a table with two uses takes one step along the sum of its two gradients."""
    rng = np.random.default_rng(seed)
    table, *uses = rng.standard_normal((3, 4, 2))
    expected, found = table.copy(), table.copy()
    optimizer({"table": expected}, learning_rate=0.05).step({"table": uses[0] + uses[1]})
    step(found, uses, optimizer, learning_rate=0.05)
    off = float(np.max(np.abs(found - expected)))
    assert off < 1e-9, f"the tied table differs by {off:.2g} from one step along the sum of its gradients"


def tied_step(table: Array, uses: list[Array], optimizer: Any, **options: Any) -> None:
    """The right answer: one step along the sum of the gradients."""
    optimizer({"table": table}, **options).step({"table": np.sum(uses, axis=0)})


def outcome_of_adam(optimizer: Callable[..., Any]) -> list[Array]:
    """The parameters after three steps."""
    rng = np.random.default_rng(4)
    p = {"w": rng.standard_normal((2, 3)), "b": rng.standard_normal(2)}
    stepper = optimizer(p, learning_rate=0.1, beta_1=0.7, beta_2=0.8, eps=1e-3)
    for _ in range(3):
        stepper.step({name: rng.standard_normal(x.shape) for name, x in p.items()})
    return list(p.values())


TRIALS = {
    "Adam": trial_of_adam, "AdamW": partial(trial_of_adam, weight_decay=0.1),
    "clip_by_global_norm": trial_of_clipping, "tied_step": trial_of_tied_step,
}
QUESTIONS = {"Adam": Trial(trial_of_adam, outcome_of_adam)}
