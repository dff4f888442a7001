"""What a slip is: a mutant that is in the tutor's list and not in the gallery.

    @slip("softmax")                          takes the place of softmax_backward
    @slip("rotary", "op", op_backward=...)    takes the place of the op and of its backward
    @slip("Adam", "stand_in")                 takes the place of a class or function as a whole

The docstring is that of a mutant: why it is wrong, and after `Hides:` where it is right all the same.
"""

from collections.abc import Callable
from typing import Any

from numpy_attention.gallery.registry import Made, Mutant, enter

SLIPS: dict[str, Mutant] = {}


def slip(covers: str, part: str = "op_backward", **others: Any) -> Callable[[Made], Made]:
    """Enter what is decorated among the slips, as a mutant of this part."""
    return enter(SLIPS, "slips", covers, part, **others)


def slips_of(*covers: str) -> list[Mutant]:
    """All slips in these functions or classes."""
    return [mutant for mutant in SLIPS.values() if mutant.covers in covers]
