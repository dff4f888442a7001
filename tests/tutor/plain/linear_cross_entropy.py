"""The plain form of the cross-entropy of a linear head."""

from typing import Any

import numpy as np

from numpy_attention.tutor.entry import Array
from tests.tutor.plain.losses import plain_cross_entropy


def plain_linear_cross_entropy(x: Array, table: Array, targets: Array, **options: Any) -> Array:
    """Computes all logits, then their loss."""
    options.pop("block_size", None)
    return plain_cross_entropy(np.einsum("...d,vd->...v", x, table), targets, **options)


PLAIN = {"linear_cross_entropy": plain_linear_cross_entropy}
