"""The catalogue: every op, layer and model in every variant, and the properties that each of them must have.

    pages        one page for each topic: its entries, a plain second implementation, known mistakes, exercises
    table        all pages together, and `run`, which checks the gradients of the entries
    properties   further checks of every entry: dtypes, unchanged inputs, any strides, errors for wrong calls
    gallery      the known mistakes: `catch(mistake)` returns the report that catches it, `print_gallery` shows all

Pages use the modules entry, mistake, exercise, compare and tiny. A test fails if a public backward, layer or model has
no entry.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy_attention.catalogue.gallery import GALLERY, catch, print_gallery
    from numpy_attention.catalogue.mistake import MISTAKES, Mistake, mistakes_of
    from numpy_attention.catalogue.table import CATALOGUE

__all__ = ["CATALOGUE", "GALLERY", "MISTAKES", "Mistake", "catch", "mistakes_of", "print_gallery"]
_ELSEWHERE = {"CATALOGUE": "table", "MISTAKES": "mistake", "Mistake": "mistake", "mistakes_of": "mistake"}


def __getattr__(name: str) -> Any:
    """Imports all pages at the first use, so the import of a single module of this folder stays fast."""
    if name in __all__:
        importlib.import_module(f"{__name__}.table")
        return getattr(importlib.import_module(f"{__name__}.{_ELSEWHERE.get(name, 'gallery')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
