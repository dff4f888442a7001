"""Exercise: one step of Adam

    m <- beta_1 m + (1 - beta_1) g          the mean of the gradient
    v <- beta_2 v + (1 - beta_2) g^2        the mean of the squared gradient
    p <- p - learning_rate m_hat / (sqrt(v_hat) + eps)

Both means start at zero, so both are too small at first. m_hat and v_hat are the corrected means. If the gradient g is
constant, m_hat is g and v_hat is g^2 at every step.

This file has the class Adam, but its method step is missing. Write step(grads). It must change the parameters
(p in the formulas) in place.

    python -m numpy_attention grade tutorials/exercises/adam.py            check your function
    python -m numpy_attention grade tutorials/exercises/adam.py --hint 1   the first of three hints
"""

import numpy as np


class Adam:
    """Each element moves by learning_rate times m_hat, divided by the root of v_hat."""

    def __init__(self, parameters, learning_rate=1e-3, beta_1=0.9, beta_2=0.999, eps=1e-8):
        self.parameters = parameters  # {"w": array, ...}: change the arrays in place, for example with p -= ...
        self.learning_rate, self.beta_1, self.beta_2, self.eps = learning_rate, beta_1, beta_2, eps
        self.steps = 0
        self.m = {name: np.zeros_like(p) for name, p in parameters.items()}
        self.v = {name: np.zeros_like(p) for name, p in parameters.items()}

    def step(self, grads):
        """grads: {"w": array, ...}, with the same names and shapes as the parameters."""
        raise NotImplementedError
