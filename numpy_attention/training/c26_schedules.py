"""Chapter 26. The learning rate over time: warm-up, then a cosine

In the first steps, Adam's means contain few gradients, so the direction of a step is mostly noise. With the full rate,
a transformer can move into a region that it leaves only slowly. So the rate rises linearly over the first `warmup`
steps, counted from 0:

    rate(step) = peak (step + 1) / warmup                                               step < warmup

Late in training, the noise of the batches keeps the parameters moving around the minimum, at a distance that grows with
the rate. So the rate falls along half a cosine down to `minimum`, slowly at the start and slowly at the end:

    rate(step) = minimum + (peak - minimum) (1 + cos(pi progress)) / 2                  step >= warmup
    progress = (step - warmup + 1) / (steps - warmup)

    peak     |    _--._
             |   /      `.
             |  /         `.
    minimum  | /            `-._
             +----------------------- step
             0  warmup          steps

The last step, steps - 1, has progress 1 and the rate `minimum`.
"""

import math

from numpy_attention.errors import require_number, require_size


def warmup_cosine(step: int, steps: int, warmup: int, peak: float, minimum: float = 0.0) -> float:
    """The rate at `step` (from 0) of a run of `steps`: linear up to `peak`, then a cosine down to `minimum`.

    Raises: ValueError or TypeError if a number of steps is not a valid integer, or if a rate is negative.

    Source: Vaswani et al., Attention Is All You Need (2017), section 5.3; Loshchilov, Hutter, SGDR (2017), equation 5.

    >>> [round(warmup_cosine(step, steps=6, warmup=2, peak=1.0), 3) for step in range(6)]
    [0.5, 1.0, 0.854, 0.5, 0.146, 0.0]
    """
    op = "warmup_cosine"
    step, steps = require_size(op, "step", step, at_least=0), require_size(op, "steps", steps)
    warmup = require_size(op, "warmup", warmup, at_least=0)
    peak, minimum = require_number(op, "peak", peak, at_least=0), require_number(op, "minimum", minimum, at_least=0)
    if step < warmup:
        return peak * (step + 1) / warmup
    if steps <= warmup:
        return peak
    progress = min((step - warmup + 1) / (steps - warmup), 1.0)
    return minimum + (peak - minimum) * (1 + math.cos(math.pi * progress)) / 2
