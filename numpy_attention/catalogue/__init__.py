"""The catalogue: every op, layer and model in every variant, and what each must do.

    pages        a page a topic: its entries, the plain second form, its known mistakes, its exercises
    table        all pages together, and `run`, which checks the entries by complex steps and differences
    properties   what every entry must do beside: keep dtypes, change nothing, not mind strides, refuse wrong calls
    show         the known mistakes: `catch(mistake)` says how the full check catches one, `print_gallery` shows all
    weaker       the check with one thing taken away, as tests often are

Pages are made of: entry, mistake, exercise, compare, tiny. The entries of a page test gradients, dtypes, purity,
strides, errors, and the same op on a GPU. A public backward, layer or model without an entry fails a test.
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
    """All pages are read with the first use; who imports one file of this folder need not wait for them."""
    if name in __all__:
        importlib.import_module(f"{__name__}.table")
        return getattr(importlib.import_module(f"{__name__}.{_ELSEWHERE.get(name, 'show')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
