"""Chapter 25. Optimizers: from gradients to steps.

A gradient says which way the loss rises; an optimizer decides how far to walk the other way.

Stochastic gradient descent with momentum averages the gradients g_t of successive batches, so that directions
on which they agree add up and noise cancels:

    u_t = momentum u_{t-1} + g_t            p_t = p_{t-1} - learning_rate u_t

In a transformer the gradients of different parameters differ in size by orders of magnitude: one learning rate
cannot suit them all. Adam divides each element by the root of its own mean square, so every element moves by
about the learning rate, whatever the scale of its gradient:

    m_t = beta_1 m_{t-1} + (1 - beta_1) g_t             the mean of the gradient
    v_t = beta_2 v_{t-1} + (1 - beta_2) g_t^2           the mean of its square

Both start at zero and are too small at first. With a constant g, m_t = (1 - beta_1^t) g, so dividing by
1 - beta^t repairs it exactly:

    m_hat = m_t / (1 - beta_1^t)        v_hat = v_t / (1 - beta_2^t)
    p_t = p_{t-1} - learning_rate m_hat / (sqrt(v_hat) + eps)

L2 regularisation adds weight_decay p to g. Inside Adam that term would be divided by sqrt(v_hat) as well, and the
weights with the largest gradients would decay least. AdamW takes it out of the moments and shrinks the weights
directly, p <- (1 - learning_rate weight_decay) p, and only matrices: a bias or the gain of a norm has no reason
to be near zero.

Sources: Kingma and Ba 2015, "Adam", algorithm 1; Loshchilov and Hutter 2019, "Decoupled weight decay
regularization", algorithm 2.
"""

import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np

from numpy_attention.blocks import in_blocks

WORTH_SHARING = 1_000_000  # parameters; below, threads cost more than they bring


class SGD:
    """Gradient descent with momentum: u = momentum u + g, p = p - learning_rate u."""

    def __init__(self, parameters: Mapping[str, np.ndarray], learning_rate: float = 0.1, momentum: float = 0.0) -> None:
        self.parameters = _checked("SGD", parameters)
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.steps = 0
        self.u = {name: np.zeros_like(p) for name, p in self.parameters.items()} if momentum else {}
        self.workers: Any = None  # as in Adam; here the work is too little to share

    def step(self, grads: Mapping[str, np.ndarray], learning_rate: float | None = None) -> None:
        """Move every parameter in place; `grads` has the names and shapes of the parameters and is not changed."""
        rate = self.learning_rate if learning_rate is None else learning_rate
        _check_gradients("SGD", self.parameters, grads)
        self.steps += 1
        for name, parameter in self.parameters.items():
            if not self.momentum:
                for p, g in in_blocks(parameter, grads[name]):
                    p -= rate * g
                continue
            for p, g, u in in_blocks(parameter, grads[name], self.u[name]):
                # u = momentum u + g
                u *= self.momentum
                u += g
                # p = p - learning_rate u
                p -= rate * u

    def state(self) -> dict[str, np.ndarray]:
        """All that the next step depends on besides the parameters, as arrays to save."""
        return {"steps": np.asarray(self.steps), **{f"u.{name}": u for name, u in self.u.items()}}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over what `state()` gave, into the arrays already here."""
        _load("SGD", self.state(), state)
        self.steps = int(state["steps"])


class Adam:
    """Adam: each element moves by its mean gradient over its root mean square gradient."""

    def __init__(
        self,
        parameters: Mapping[str, np.ndarray],
        learning_rate: float = 1e-3,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        eps: float = 1e-8,
    ) -> None:
        self.parameters = _checked(type(self).__name__, parameters)
        self.learning_rate = learning_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.eps = eps
        self.steps = 0
        self.m = {name: np.zeros_like(p) for name, p in self.parameters.items()}
        self.v = {name: np.zeros_like(p) for name, p in self.parameters.items()}
        self.workers: Any = None  # `Workers` of the training loop, or None
        self._size = sum(p.size for p in self.parameters.values())

    def step(self, grads: Mapping[str, np.ndarray], learning_rate: float | None = None) -> None:
        """Move every parameter in place; `grads` has the names and shapes of the parameters and is not changed.

        Every element moves by itself, so `self.workers`, if there are any, share the blocks with the same result.
        """
        rate = self.learning_rate if learning_rate is None else learning_rate
        _check_gradients(type(self).__name__, self.parameters, grads)
        self.steps += 1
        parts = self.workers.count if self.workers and self._size >= WORTH_SHARING else 1
        if parts == 1:
            self._move(grads, rate, 0, 1)
        else:
            list(self.workers.map(lambda i: self._move(grads, rate, i, parts), range(parts)))

    def _move(self, grads: Mapping[str, np.ndarray], rate: float, part: int, parts: int) -> None:
        correction_1 = 1 - self.beta_1**self.steps
        correction_2 = 1 - self.beta_2**self.steps
        root_2 = math.sqrt(correction_2)
        for name, parameter in self.parameters.items():
            shrink = self._shrink(parameter, rate)
            for p, g, m, v in islice(in_blocks(parameter, grads[name], self.m[name], self.v[name]), part, None, parts):
                if shrink != 1.0:
                    p *= shrink
                # m = beta_1 m + (1 - beta_1) g
                m *= self.beta_1
                m += (1 - self.beta_1) * g
                # v = beta_2 v + (1 - beta_2) g^2
                v *= self.beta_2
                square = g * g
                square *= 1 - self.beta_2
                v += square
                # p = p - learning_rate m_hat / (sqrt(v_hat) + eps), the two corrections multiplied out of the arrays:
                # m_hat / (sqrt(v_hat) + eps) = (sqrt(c_2) / c_1) m / (sqrt(v) + sqrt(c_2) eps)
                move = np.sqrt(v, out=square)
                move += root_2 * self.eps
                np.divide(m, move, out=move)
                move *= rate * root_2 / correction_1
                p -= move

    def _shrink(self, parameter: np.ndarray, rate: float) -> float:
        return 1.0

    def state(self) -> dict[str, np.ndarray]:
        """All that the next step depends on besides the parameters, as arrays to save."""
        moments = {f"m.{name}": m for name, m in self.m.items()} | {f"v.{name}": v for name, v in self.v.items()}
        return {"steps": np.asarray(self.steps), **moments}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over what `state()` gave, into the arrays already here."""
        _load(type(self).__name__, self.state(), state)
        self.steps = int(state["steps"])


class AdamW(Adam):
    """Adam, and matrices (two or more axes) shrink by learning_rate weight_decay a step, outside the moments."""

    def __init__(
        self,
        parameters: Mapping[str, np.ndarray],
        learning_rate: float = 1e-3,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(parameters, learning_rate, beta_1, beta_2, eps)
        self.weight_decay = weight_decay

    def _shrink(self, parameter: np.ndarray, rate: float) -> float:
        return 1.0 - rate * self.weight_decay if parameter.ndim >= 2 else 1.0


def _checked(optimizer: str, parameters: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    if not parameters:
        raise ValueError(f"{optimizer}: parameters must hold at least one array, got none")
    seen: dict[int, str] = {}
    for name, p in parameters.items():
        if p.dtype.kind != "f":
            raise TypeError(f"{optimizer}: parameters[{name!r}] must be an array of floats, got {p.dtype}")
        if not p.flags.c_contiguous:
            raise ValueError(f"{optimizer}: parameters[{name!r}] must be contiguous, got strides {p.strides}; copy it")
        if id(p) in seen:
            raise ValueError(
                f"{optimizer}: parameters[{name!r}] must be an array of its own, got that of {seen[id(p)]!r}; "
                "list a tied parameter once, with its gradients added"
            )
        seen[id(p)] = name
    return dict(parameters)


def _check_gradients(optimizer: str, parameters: Mapping[str, np.ndarray], grads: Mapping[str, np.ndarray]) -> None:
    if grads.keys() != parameters.keys():
        odd = sorted(grads.keys() ^ parameters.keys())
        raise ValueError(f"{optimizer}: grads must name the parameters exactly, got a difference in {', '.join(odd)}")
    for name, p in parameters.items():
        if grads[name].shape != p.shape:
            raise ValueError(f"{optimizer}: grads[{name!r}] must be {p.shape} like it, got {grads[name].shape}")


def _load(optimizer: str, mine: dict[str, np.ndarray], state: Mapping[str, np.ndarray]) -> None:
    if mine.keys() != state.keys():
        odd = sorted(mine.keys() ^ state.keys())
        raise ValueError(f"{optimizer}: state must be that of this optimizer, got a difference in {', '.join(odd)}")
    for name, array in mine.items():
        if state[name].shape != array.shape:
            raise ValueError(f"{optimizer}: state[{name!r}] must be {array.shape}, got {state[name].shape}")
        if name != "steps":
            array[...] = np.asarray(state[name], like=array)
