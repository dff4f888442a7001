"""Wrong optimizers, clipping, tied steps, generation with stored keys, and starts of a change of low rank."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from numpy_attention.gallery.registry import stands_in_for
from numpy_attention.layers.kv_cache import KeyValueCache
from numpy_attention.models.gpt import GPT
from numpy_attention.pretrained.low_rank import LowRank
from numpy_attention.training.optimizers import Adam, AdamW


@stands_in_for("clip_by_global_norm")
def clip_each_array(grads: Mapping[str, np.ndarray], max_norm: float) -> np.ndarray:
    """Each array is clipped by its own norm, which bends the direction of the step.

    Hides: no error at all, and with a single array it is right.
    """
    squares = np.zeros(())
    for g in grads.values():
        norm = np.sqrt((g * g).sum())
        squares = squares + norm * norm
        g *= max_norm / np.maximum(norm, max_norm)
    return np.sqrt(squares)


class AdamByTheBook(Adam):
    """Adam line by line as the formula stands; `move` is for a mistake to change."""

    def step(self, grads: Mapping[str, np.ndarray], learning_rate: float | None = None) -> None:
        """One step."""
        rate = self.learning_rate if learning_rate is None else learning_rate
        self.steps += 1
        for name, p in self.parameters.items():
            m, v, g = self.m[name], self.v[name], grads[name]
            m += (1 - self.beta_1) * (g - m)
            v += (1 - self.beta_2) * (g * g - v)
            self.move(p, m, v, rate)

    def move(self, p: np.ndarray, m: np.ndarray, v: np.ndarray, rate: float) -> None:
        """Change p in place."""
        m_hat, v_hat = m / (1 - self.beta_1**self.steps), v / (1 - self.beta_2**self.steps)
        p -= rate * m_hat / (np.sqrt(v_hat) + self.eps)


@stands_in_for("Adam")
class NoBiasCorrection(AdamByTheBook):
    """The moments start at zero and are never corrected, so the first steps are far too small or too large.

    Hides: it trains anyway, and after a thousand steps it is Adam.
    """

    def move(self, p: np.ndarray, m: np.ndarray, v: np.ndarray, rate: float) -> None:
        """With the moments as they are."""
        p -= rate * m / (np.sqrt(v) + self.eps)


@stands_in_for("Adam")
class CorrectedFromStepZero(Adam):
    """The bias correction counts steps from one too many: the first step is corrected as if it were the second.

    Hides: it trains anyway; only the first few steps are too small.
    """

    def step(self, grads: Mapping[str, np.ndarray], learning_rate: float | None = None) -> None:
        """One step with 1 - beta^(t + 1)."""
        if self.steps == 0:
            self.steps = 1
        super().step(grads, learning_rate)


@stands_in_for("Adam")
class EpsInsideTheRoot(AdamByTheBook):
    """It divides by sqrt(v_hat + eps), so the step vanishes for gradients below 1e-4.

    Hides: the same wherever gradients are large.
    """

    def move(self, p: np.ndarray, m: np.ndarray, v: np.ndarray, rate: float) -> None:
        """With eps under the root."""
        m_hat, v_hat = m / (1 - self.beta_1**self.steps), v / (1 - self.beta_2**self.steps)
        p -= rate * m_hat / np.sqrt(v_hat + self.eps)


@stands_in_for("AdamW")
class DecayInTheMoments(AdamW):
    """The decay is added to the gradient and then divided by its root mean square: L2, not decoupled decay.

    Hides: it trains anyway; the weights with the largest gradients decay least.
    """

    def step(self, grads: Mapping[str, np.ndarray], learning_rate: float | None = None) -> None:
        """One step of Adam on g + weight_decay p."""
        decayed = {
            name: g + self.weight_decay * self.parameters[name] if g.ndim >= 2 else g for name, g in grads.items()
        }
        decay, self.weight_decay = self.weight_decay, 0.0
        super().step(decayed, learning_rate)
        self.weight_decay = decay


@stands_in_for("AdamW")
class DecayOnEverything(AdamW):
    """Biases and the gains of norms decay too, though nothing says that they should be near zero.

    Hides: it trains anyway, and a gain a little too near zero looks like any other.
    """

    def step(self, grads: Mapping[str, np.ndarray], learning_rate: float | None = None) -> None:
        """One step that shrinks vectors as well."""
        rate = self.learning_rate if learning_rate is None else learning_rate
        for p in self.parameters.values():
            if p.ndim < 2:
                p *= 1.0 - rate * self.weight_decay
        super().step(grads, learning_rate)


@stands_in_for("AdamW")
class DecayWithoutTheRate(AdamW):
    """Weights shrink by weight_decay a step, not by learning_rate times weight_decay.

    Hides: with a tiny weight_decay it looks like a strong regulariser.
    """

    def step(self, grads: Mapping[str, np.ndarray], learning_rate: float | None = None) -> None:
        """One step that shrinks a thousand times too much."""
        decay, self.weight_decay = self.weight_decay, 0.0
        for p in self.parameters.values():
            if p.ndim >= 2:
                p *= 1.0 - decay
        super().step(grads, learning_rate)
        self.weight_decay = decay


@stands_in_for("tied_step")
def stepped_twice(table: np.ndarray, uses: list[np.ndarray], optimizer: Any, **options: Any) -> None:
    """A tied table is listed under two names, and the optimizer takes a step for each of its two gradients.

    Hides: with plain gradient descent two steps are the step of the sum; with Adam they are not.
    """
    for use in uses:
        optimizer({"table": table}, **options).step({"table": use})


@stands_in_for("logits_step_by_step")
def position_from_zero_again(model: GPT, ids: np.ndarray) -> np.ndarray:
    """Every new token is given position 0, since it is the first of its own little input.

    Hides: the first token is right; wrong only from the second on.
    """
    return _step_by_step(model, ids, lambda t: {"positions": np.zeros(1, dtype=np.int64)})


@stands_in_for("logits_step_by_step")
def new_key_not_attended(model: GPT, ids: np.ndarray) -> np.ndarray:
    """The new query looks at the stored keys but not at its own, which is appended too late.

    Hides: the first token is right; wrong only from the second on, and the text still reads well.
    """
    return _step_by_step(model, ids, lambda t: {"mask": np.arange(t + 1) < max(t, 1)} if t else {})


@stands_in_for("logits_step_by_step")
def keys_not_kept(model: GPT, ids: np.ndarray) -> np.ndarray:
    """The stored keys are lost between the steps, so every token believes that it stands alone.

    Hides: the first token is right; wrong only from the second on.
    """
    rows = []
    for t in range(ids.shape[1]):
        positions = np.full(1, t, dtype=np.int64)
        rows.append(model.forward(ids[:, t : t + 1], positions=positions)[0])
    return np.concatenate(rows, axis=1)


@stands_in_for("low_rank_start")
def both_sides_at_zero(w: np.ndarray, rank: int, rng: np.random.Generator) -> LowRank:
    """a starts at zero like b: then z = x a and dz = dy b^T are zero, both gradients are, and it never learns.

    Hides: the gradients are those of the formula, so every check of gradients passes.
    """
    return LowRank(w, rank)


@stands_in_for("low_rank_start")
def both_sides_at_random(w: np.ndarray, rank: int, rng: np.random.Generator) -> LowRank:
    """b starts at random like a: the first step starts from a disturbed model, not from the pretrained one.

    Hides: it trains anyway, and has made up for the disturbance after a while.
    """
    layer = LowRank(w, rank, rng=rng)
    layer.b[...] = rng.standard_normal(layer.b.shape) * rank**-0.5
    return layer


def _step_by_step(model: GPT, ids: np.ndarray, options: Any) -> np.ndarray:
    past = [KeyValueCache(ids.shape[1]) for _ in model.blocks]
    rows = [model.forward(ids[:, t : t + 1], past=past, **options(t))[0] for t in range(ids.shape[1])]
    return np.concatenate(rows, axis=1)
