"""Exercise: one step of Adam

    m <- beta_1 m + (1 - beta_1) g          the mean of the gradient
    v <- beta_2 v + (1 - beta_2) g^2        the mean of its square
    p <- p - learning_rate m_hat / (sqrt(v_hat) + eps)

Both means start at zero, so they are too small at first. m_hat and v_hat are the corrected means.

This file has everything except the step. Write Adam.step(grads), which changes the parameters in place.

    python -m numpy_attention grade tutorials/exercises/adam.py            check your function
    python -m numpy_attention grade tutorials/exercises/adam.py --hint 1   three hints, one at a time
"""

import numpy as np


class Adam:
    """The step of each element is its mean gradient, divided by its root mean square gradient."""

    def __init__(self, parameters, learning_rate=1e-3, beta_1=0.9, beta_2=0.999, eps=1e-8):
        self.parameters = parameters  # {"w": array, ...}: change them in place, as in p -= ...
        self.learning_rate, self.beta_1, self.beta_2, self.eps = learning_rate, beta_1, beta_2, eps
        self.steps = 0
        self.m = {name: np.zeros_like(p) for name, p in parameters.items()}
        self.v = {name: np.zeros_like(p) for name, p in parameters.items()}

    def step(self, grads):
        """grads: a dict with the names and shapes of the parameters."""
        raise NotImplementedError
