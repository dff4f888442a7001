"""Chapter 25. Optimizers: from gradients to steps

A gradient is the direction in which the loss rises; an optimizer decides how far to move in the opposite direction.

Stochastic gradient descent with momentum adds up the gradients g_t of successive batches, with smaller weights for
older gradients. The sum grows in directions that most gradients share, and noise cancels:

    u_t = momentum u_{t-1} + g_t            p_t = p_{t-1} - learning_rate u_t

The weights 1, momentum, momentum^2, ... sum to 1 / (1 - momentum). With momentum 0.9, a constant gradient moves a
parameter ten times as far, so use a ten times smaller rate.

In a transformer the gradients of different parameters differ in size by orders of magnitude, so one learning rate does
not suit all parameters. Adam divides each element of the gradient by the root of its mean square. Then every element
moves by about the learning rate, for any scale of its gradient:

    m_t = beta_1 m_{t-1} + (1 - beta_1) g_t             the mean of the gradient
    v_t = beta_2 v_{t-1} + (1 - beta_2) g_t^2           the mean of its square

m and v, the **moments**, start at zero, so they are too small at first. For a constant g,
m_t = (1 - beta_1^t) g, so a division by 1 - beta_1^t corrects the mean exactly; v_t is corrected in the same way:

    m_hat = m_t / (1 - beta_1^t)        v_hat = v_t / (1 - beta_2^t)
    p_t = p_{t-1} - learning_rate m_hat / (sqrt(v_hat) + eps)

L2 regularization adds weight_decay p to g. Adam would divide this term by sqrt(v_hat), too, so the parameters with the
largest gradients would decay least. AdamW leaves the term out of m and v and shrinks the parameters directly, p <- (1 -
learning_rate weight_decay) p. Our AdamW differs from the paper in two ways. The paper does not multiply the decay by
the learning rate; we do, as PyTorch does. And we shrink only matrices, since there is no reason to pull a bias or the
gamma of a norm towards zero.
"""

from collections.abc import Mapping

import numpy as np

from numpy_attention.errors import require_arrays, require_number, require_size
from numpy_attention.pieces import in_pieces
from numpy_attention.threads import share


class SGD:
    """Gradient descent with momentum.

    Raises: TypeError or ValueError if the parameters are not contiguous arrays of floats, or if one is listed twice.

    Source: Polyak, Some Methods of Speeding up the Convergence of Iteration Methods (1964).
    """

    def __init__(self, parameters: Mapping[str, np.ndarray], learning_rate: float = 0.1, momentum: float = 0.0) -> None:
        self.parameters = _checked("SGD", parameters)
        self.learning_rate = require_number("SGD", "learning_rate", learning_rate, at_least=0)
        self.momentum = require_number("SGD", "momentum", momentum, at_least=0, below=1)
        self.steps = 0
        self.u = {name: np.zeros_like(p) for name, p in self.parameters.items()} if momentum else {}

    def step(self, grads: Mapping[str, np.ndarray], learning_rate: float | None = None) -> None:
        """Update every parameter in place; `grads` has the names and shapes of the parameters and is not changed."""
        rate = _begin_step(self, grads, learning_rate)
        self.steps += 1
        for name, p in self.parameters.items():
            u = grads[name]
            if self.momentum:
                u = self.u[name]
                u[...] = self.momentum * u + grads[name]
            p -= rate * u

    def state(self) -> dict[str, np.ndarray]:
        """Everything besides the parameters that the next step needs, as arrays to save."""
        return {"steps": np.asarray(self.steps), **{f"u.{name}": u for name, u in self.u.items()}}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Copy a result of `state()` into the arrays of this optimizer."""
        _load(self, state)


class Adam:
    """Adam: each element moves by its mean gradient divided by its root mean square gradient.

    Raises: TypeError or ValueError if the parameters are not contiguous arrays of floats, or if one is listed twice.

    Source: Kingma, Ba, Adam (2015), algorithm 1.
    """

    weight_decay = 0.0  # changed by AdamW

    def __init__(
        self, parameters: Mapping[str, np.ndarray], learning_rate: float = 1e-3, beta_1: float = 0.9,
        beta_2: float = 0.999, eps: float = 1e-8,
    ) -> None:
        kind = type(self).__name__
        self.parameters = _checked(kind, parameters)
        self.learning_rate = require_number(kind, "learning_rate", learning_rate, at_least=0)
        self.beta_1 = require_number(kind, "beta_1", beta_1, at_least=0, below=1)
        self.beta_2 = require_number(kind, "beta_2", beta_2, at_least=0, below=1)
        self.eps = require_number(kind, "eps", eps, above=0, fix="it prevents 0 / 0 for a gradient of zero")
        self.steps = 0
        self.m = {name: np.zeros_like(p) for name, p in self.parameters.items()}
        self.v = {name: np.zeros_like(p) for name, p in self.parameters.items()}

    def step(self, grads: Mapping[str, np.ndarray], learning_rate: float | None = None) -> None:
        """Update every parameter in place; `grads` has the names and shapes of the parameters and is not changed."""
        rate = _begin_step(self, grads, learning_rate)
        self.steps += 1
        pieces = [  # views: `_update` changes the parameters themselves
            (*piece, rate, self.weight_decay if m.ndim >= 2 else 0.0)
            for name, m in self.m.items()
            for piece in in_pieces(self.parameters[name], grads[name], m, self.v[name])
        ]
        share(lambda piece: self._update(*piece), pieces)  # one after the other, or on several threads (Chapter 30)

    def _update(
        self, p: np.ndarray, g: np.ndarray, m: np.ndarray, v: np.ndarray, rate: float, decay: float
    ) -> None:
        t = self.steps
        if decay:  # AdamW
            p *= 1 - rate * decay
        m *= self.beta_1
        m += (1 - self.beta_1) * g
        v *= self.beta_2
        v += (1 - self.beta_2) * g**2
        m_hat = m / (1 - self.beta_1**t)
        v_hat = v / (1 - self.beta_2**t)
        p -= rate * m_hat / (np.sqrt(v_hat) + self.eps)

    def state(self) -> dict[str, np.ndarray]:
        """Everything besides the parameters that the next step needs, as arrays to save."""
        moments = {f"m.{name}": m for name, m in self.m.items()} | {f"v.{name}": v for name, v in self.v.items()}
        return {"steps": np.asarray(self.steps), **moments}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Copy a result of `state()` into the arrays of this optimizer."""
        _load(self, state)


class AdamW(Adam):
    """Adam with decoupled weight decay: in each step, matrices (two or more axes) shrink by learning_rate weight_decay.

    Raises: TypeError or ValueError if the parameters are not contiguous arrays of floats, or if one is listed twice.

    Source: Loshchilov, Hutter, Decoupled Weight Decay Regularization (2019), algorithm 2.
    """

    def __init__(
        self, parameters: Mapping[str, np.ndarray], learning_rate: float = 1e-3, beta_1: float = 0.9,
        beta_2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.01,
    ) -> None:
        super().__init__(parameters, learning_rate, beta_1, beta_2, eps)
        self.weight_decay = require_number(type(self).__name__, "weight_decay", weight_decay, at_least=0)


def _checked(optimizer: str, parameters: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    require_arrays(optimizer, "parameters", parameters, written=True)
    for name, p in parameters.items():
        if not p.flags.c_contiguous:
            raise ValueError(f"{optimizer}: parameters[{name!r}] must be contiguous, got strides {p.strides}; copy it")
    names = {id(p): name for name, p in parameters.items()}
    if twice := [name for name, p in parameters.items() if names[id(p)] != name]:
        raise ValueError(
            f"{optimizer}: parameters[{twice[0]!r}] must have its own memory, got the array of another parameter; "
            "list a tied parameter once, with its gradients added"
        )
    return dict(parameters)


def _begin_step(optimizer: SGD | Adam, grads: Mapping[str, np.ndarray], learning_rate: float | None) -> float:
    """Check the arguments of a step; return its learning rate."""
    op, rate = type(optimizer).__name__, optimizer.learning_rate if learning_rate is None else learning_rate
    rate = require_number(op, "learning_rate", rate, at_least=0)
    require_arrays(op, "grads", grads)
    _check_same(op, "grads", grads, optimizer.parameters)
    return rate


def _check_same(
    optimizer: str, what: str, given: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> None:
    if given.keys() != expected.keys():
        different = ", ".join(sorted(given.keys() ^ expected.keys()))
        raise ValueError(f"{optimizer}: {what} must have the expected names, got a difference in {different}")
    for name, array in expected.items():
        if given[name].shape != array.shape:
            raise ValueError(f"{optimizer}: {what}[{name!r}] must be of shape {array.shape}, got {given[name].shape}")


def _load(optimizer: SGD | Adam, state: Mapping[str, np.ndarray]) -> None:
    op, current = type(optimizer).__name__, optimizer.state()
    require_arrays(op, "state", state, counts=("steps",))
    _check_same(op, "state", state, current)
    optimizer.steps = require_size(op, "state['steps']", state["steps"].item(), at_least=0)
    for name, array in current.items():
        if name != "steps":
            array[...] = np.asarray(state[name], like=array)
