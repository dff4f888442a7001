"""The catalogue: every op, layer and model in every variant, and what each must do.

    pages        a page a topic: its entries, the plain second form, its known mistakes, its exercises
    table        all pages together, and `run`, which checks the gradients of the entries
    properties   what every entry must also do: keep dtypes, change no input, take any strides, refuse wrong calls
    show         the known mistakes: `catch(mistake)` returns the report that catches one, `print_gallery` shows all
    weaker       the check with one thing taken away, as tests often are

Pages are made of the parts in entry, mistake, exercise, compare and tiny. A test fails if a public backward, layer or
model has no entry.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy_attention.catalogue.mistake import MISTAKES, Mistake, mistakes_of
    from numpy_attention.catalogue.show import GALLERY, catch, missed_by_weaker, print_gallery
    from numpy_attention.catalogue.table import CATALOGUE

__all__ = ["CATALOGUE", "GALLERY", "MISTAKES", "Mistake", "catch", "missed_by_weaker", "mistakes_of", "print_gallery"]
_ELSEWHERE = {"CATALOGUE": "table", "MISTAKES": "mistake", "Mistake": "mistake", "mistakes_of": "mistake"}


def __getattr__(name: str) -> Any:
    """All pages are imported at the first use, so an import of one file of this folder is fast."""
    if name in __all__:
        importlib.import_module(f"{__name__}.table")
        return getattr(importlib.import_module(f"{__name__}.{_ELSEWHERE.get(name, 'show')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
