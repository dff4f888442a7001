"""Adam, AdamW and clipping (Chapter 25): trials compare each element with the formula."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array
from numpy_attention.catalogue.exercise import Exercise, Trial
from numpy_attention.catalogue.mistake import stands_in_for
from numpy_attention.training.clipping import clip_by_global_norm
from numpy_attention.training.optimizers import Adam, AdamW

CHAPTER = 25


def trial_of_adam(optimizer: Callable[..., Any], seed: int, steps: int = 4, weight_decay: float | None = None) -> None:
    """Compares steps with the formula in Python floats; weight_decay adds the decay of AdamW, for matrices only."""
    rng = np.random.default_rng(seed)
    rate, beta_1, beta_2, eps = 0.02, 0.8, 0.9, 1e-7
    p = {"w": rng.standard_normal((3, 2)), "gamma": rng.standard_normal(4), "small": rng.standard_normal(2)}
    options = {} if weight_decay is None else {"weight_decay": weight_decay}
    given = {name: value.copy() for name, value in p.items()}
    original = dict(given)  # the arrays of the model
    stepper = optimizer(given, learning_rate=rate, beta_1=beta_1, beta_2=beta_2, eps=eps, **options)
    m, v = ({name: np.zeros_like(x) for name, x in p.items()} for _ in range(2))
    for t in range(1, steps + 1):
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


TRIALS = {
    "Adam": (Adam, trial_of_adam), "AdamW": (AdamW, partial(trial_of_adam, weight_decay=0.1)),
    "clip_by_global_norm": (clip_by_global_norm, trial_of_clipping), "tied_step": (tied_step, trial_of_tied_step),
}


@stands_in_for("clip_by_global_norm", diagnosis="for the joint norm every array must be scaled by")
def clip_each_array(grads: Mapping[str, Array], max_norm: float) -> Array:
    """Each array is clipped by its own norm, which changes the direction of the step.

    Hides: there is no error, and for a single array it is right.
    """
    squares = np.zeros(())
    for g in grads.values():
        norm = np.sqrt((g * g).sum())
        squares = squares + norm * norm
        g *= max_norm / np.maximum(norm, max_norm)
    return np.sqrt(squares)


class AdamByFormula(Adam):
    """Adam as in its formula; each mistake replaces the method `move`."""

    def step(self, grads: Mapping[str, Array], learning_rate: float | None = None) -> None:
        rate = self.learning_rate if learning_rate is None else learning_rate
        self.steps += 1
        for name, p in self.parameters.items():
            m, v, g = self.m[name], self.v[name], grads[name]
            m += (1 - self.beta_1) * (g - m)
            v += (1 - self.beta_2) * (g * g - v)
            self.move(p, m, v, rate)

    def move(self, p: Array, m: Array, v: Array, rate: float) -> None:
        m_hat, v_hat = m / (1 - self.beta_1**self.steps), v / (1 - self.beta_2**self.steps)
        p -= rate * m_hat / (np.sqrt(v_hat) + self.eps)


@stands_in_for("Adam", diagnosis="step 1:")
class NoBiasCorrection(AdamByFormula):
    """The moments start at zero and are not corrected, so the first steps are far too small or too large.

    Hides: it trains anyway, and after a thousand steps it is equal to Adam.
    """

    def move(self, p: Array, m: Array, v: Array, rate: float) -> None:
        p -= rate * m / (np.sqrt(v) + self.eps)


@stands_in_for("Adam", diagnosis="step 1:")
class CorrectedFromStepZero(Adam):
    """The bias correction counts one step too many: the first step is corrected as if it were the second.

    Hides: it trains anyway; only the first few steps are too small.
    """

    def step(self, grads: Mapping[str, Array], learning_rate: float | None = None) -> None:
        if self.steps == 0:
            self.steps = 1
        super().step(grads, learning_rate)


@stands_in_for("Adam", diagnosis="step 1:")
class EpsInsideTheRoot(AdamByFormula):
    """It divides by sqrt(v_hat + eps), so the step vanishes for gradients below 1e-4.

    Hides: equal to Adam wherever gradients are large.
    """

    def move(self, p: Array, m: Array, v: Array, rate: float) -> None:
        m_hat, v_hat = m / (1 - self.beta_1**self.steps), v / (1 - self.beta_2**self.steps)
        p -= rate * m_hat / np.sqrt(v_hat + self.eps)


@stands_in_for("AdamW", diagnosis="step 1:")
class DecayInTheMoments(AdamW):
    """The decay is added to the gradient and then divided by its root mean square: this is L2, not decoupled decay.

    Hides: it trains anyway; the weights with the largest gradients decay least.
    """

    def step(self, grads: Mapping[str, Array], learning_rate: float | None = None) -> None:
        decayed = {
            name: g + self.weight_decay * self.parameters[name] if g.ndim >= 2 else g for name, g in grads.items()
        }
        decay, self.weight_decay = self.weight_decay, 0.0
        super().step(decayed, learning_rate)
        self.weight_decay = decay


@stands_in_for("AdamW", diagnosis="gamma[0] is")
class DecayOnEverything(AdamW):
    """Biases and the gammas of norms decay too, although there is no reason to keep them near zero.

    Hides: it trains anyway, and a gamma that is a little too small is not visible.
    """

    def step(self, grads: Mapping[str, Array], learning_rate: float | None = None) -> None:
        rate = self.learning_rate if learning_rate is None else learning_rate
        for p in self.parameters.values():
            if p.ndim < 2:
                p *= 1.0 - rate * self.weight_decay
        super().step(grads, learning_rate)


@stands_in_for("AdamW", diagnosis="step 1:")
class DecayWithoutTheRate(AdamW):
    """Weights shrink by weight_decay per step instead of learning_rate times weight_decay.

    Hides: with a tiny weight_decay it acts like a strong regulariser.
    """

    def step(self, grads: Mapping[str, Array], learning_rate: float | None = None) -> None:
        decay, self.weight_decay = self.weight_decay, 0.0
        for p in self.parameters.values():
            if p.ndim >= 2:
                p *= 1.0 - decay
        super().step(grads, learning_rate)
        self.weight_decay = decay


@stands_in_for("tied_step", diagnosis="one step along the sum of its gradients")
def stepped_twice(table: Array, uses: list[Array], optimizer: Any, **options: Any) -> None:
    """A tied table is listed under two names, so the optimizer takes one step for each of its two gradients.

    Hides: with plain gradient descent two steps equal the step of the sum; with Adam they do not.
    """
    for use in uses:
        optimizer({"table": table}, **options).step({"table": use})


@stands_in_for("Adam")
class RootLeftOut(AdamByFormula):
    """It divides by v_hat, a mean of squares, instead of sqrt(v_hat), which is about as large as g.

    Hides: nearly right if gradients are close to 1.
    """

    def move(self, p: Array, m: Array, v: Array, rate: float) -> None:
        m_hat, v_hat = m / (1 - self.beta_1**self.steps), v / (1 - self.beta_2**self.steps)
        p -= rate * m_hat / (v_hat + self.eps)


@stands_in_for("Adam")
class PowerOfTheBracket(AdamByFormula):
    """It divides by (1 - beta)^t instead of 1 - beta^t.

    Hides: the first step is right.
    """

    def move(self, p: Array, m: Array, v: Array, rate: float) -> None:
        m_hat, v_hat = m / (1 - self.beta_1) ** self.steps, v / (1 - self.beta_2) ** self.steps
        p -= rate * m_hat / (np.sqrt(v_hat) + self.eps)


@stands_in_for("Adam")
class CorrectedMeansStored(AdamByFormula):
    """m_hat and v_hat are stored as the new m and v, but the next step needs the uncorrected means.

    Hides: the first step is right.
    """

    def move(self, p: Array, m: Array, v: Array, rate: float) -> None:
        m /= 1 - self.beta_1**self.steps
        v /= 1 - self.beta_2**self.steps
        p -= rate * m / (np.sqrt(v) + self.eps)


@stands_in_for("Adam")
class CorrectedMeanStored(AdamByFormula):
    """m_hat is stored as the new m, but the next step needs the uncorrected mean.

    Hides: the first step is right.
    """

    def move(self, p: Array, m: Array, v: Array, rate: float) -> None:
        m /= 1 - self.beta_1**self.steps
        p -= rate * m / (np.sqrt(v / (1 - self.beta_2**self.steps)) + self.eps)


def outcome_of_adam(optimizer: Callable[..., Any]) -> list[Array]:
    """The parameters after three steps."""
    rng = np.random.default_rng(4)
    p = {"w": rng.standard_normal((2, 3)), "b": rng.standard_normal(2)}
    stepper = optimizer(p, learning_rate=0.1, beta_1=0.7, beta_2=0.8, eps=1e-3)
    for _ in range(3):
        stepper.step({name: rng.standard_normal(x.shape) for name, x in p.items()})
    return list(p.values())


OURS = {"Adam": Adam}
EXERCISES = (Exercise("adam", 11, quizzes={"Adam": Trial(trial_of_adam, outcome_of_adam)}),)
