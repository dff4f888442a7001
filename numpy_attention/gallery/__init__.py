"""The gallery of wrong backwards: mistakes of a kind that hand-written transformers have, in our contracts.

    MUTANTS                 all of them by name; `wrong` says why it is wrong, `hides` how it goes unnoticed
    mutants_of("softmax")   those of one op, layer or function
    kill(mutant)            what the full check says against it
    print_gallery(stream)   kill them all, and show what weaker checks let through

The mistakes: basics, softmax_and_loss, norms, attention, layers, training, edits. Beside them:

    registry                what a mutant is, and the decorators that put it in its place
    imprint                 all that one run shows: are two answers the same mistake?
    weaker                  the check with one thing taken away, as tests often are
    killing, show           the properties against the mutants, and the whole on the screen
"""

from numpy_attention.gallery import attention, basics, edits, layers, norms, softmax_and_loss, training
from numpy_attention.gallery.killing import kill
from numpy_attention.gallery.registry import MUTANTS, Mutant, mutants_of
from numpy_attention.gallery.show import missed_by_weaker, print_gallery

__all__ = [
    "MUTANTS", "Mutant", "attention", "basics", "edits", "kill", "layers", "missed_by_weaker", "mutants_of", "norms",
    "print_gallery", "softmax_and_loss", "training",
]
