"""The gallery of wrong backwards: mistakes seen in public hand-written transformers, each anew in our contracts.

    MUTANTS                 all of them by name; `wrong` says why it is wrong, `hides` how it goes unnoticed
    mutants_of("softmax")   those of one op, layer or function
    print_gallery(stream)   kill them all, and show what weaker checks let through
"""

from numpy_attention.gallery import attention, basics, layers, norms, softmax_and_loss, training
from numpy_attention.gallery.registry import MUTANTS, Mutant, mutants_of
from numpy_attention.gallery.show import kill, missed_by_weaker, print_gallery

__all__ = [
    "MUTANTS", "Mutant", "attention", "basics", "kill", "layers", "missed_by_weaker", "mutants_of", "norms",
    "print_gallery", "softmax_and_loss", "training",
]  # fmt: skip
