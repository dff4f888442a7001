"""Wrong answers that the tutor knows by name, beside those of the gallery: slips of the pen.

The gallery keeps mistakes that get past the tests of real projects. A slip is caught at once, by almost any test; but
whoever has made it sees only that all numbers are wrong, and is helped by hearing which factor or sign it was.

    registry     what a slip is
    gradients    in a derivation: a factor, a sign, a mean for a sum
    attention, parts, text, numbers, inside    in exercises that start from nothing
"""

from numpy_attention.grade.slips import attention, gradients, inside, numbers, parts, text
from numpy_attention.grade.slips.registry import SLIPS, slips_of

__all__ = ["SLIPS", "attention", "gradients", "inside", "numbers", "parts", "slips_of", "text"]
