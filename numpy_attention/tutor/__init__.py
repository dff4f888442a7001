"""What is checked of every op, layer and model, the known mistakes, the exercises, and the tutor that grades answers.

    python -m numpy_attention gradcheck softmax      check the gradients of the package      checks
    python -m numpy_attention gradcheck --gallery    catch every known mistake               gallery
    python -m numpy_attention grade softmax.py       grade an answer to an exercise          run
    na.grade("softmax", softmax_backward)            grade a function in a notebook          notebook

The pages: text that a student or a teacher can read, and data for everything below

    pages        one page in Markdown for each chapter; see pages/README.md
    page         reads a page;  entry, mistake, exercise: what is on a page;  change: a chapter with a few lines changed
    tiny         very small models;  compare: whether two results are equal
    catalogue    all pages together
    properties   what must hold for every entry, besides right gradients

The tutor

    child        a second Python process, which imports a student's file and prints the grade
    answer       the student's functions, with the line of an exception;  guard: refuses our own backward
    grading      checks one property after another; if one fails, it looks for the smallest example
                 form: number, shapes and dtypes of the gradients;  result: the grade
    explain      explains this example: with the known mistake that `recognize` finds, or the checker's diagnosis
                 one_change: the change of the page's solution that gives the answer;  other_code: such changes
                 outputs: what changes the right result of a function without a gradient into the given result
"""

import importlib
from typing import TYPE_CHECKING, Any

from numpy_attention.errors import InputError

if TYPE_CHECKING:
    from numpy_attention.tutor.catalogue import CATALOGUE, MISTAKES
    from numpy_attention.tutor.gallery import GALLERY, catch, print_gallery
    from numpy_attention.tutor.mistake import Mistake

if not __debug__:
    raise InputError("the tutor checks with assert: run Python without -O and without PYTHONOPTIMIZE")
__all__ = ["CATALOGUE", "GALLERY", "MISTAKES", "Mistake", "catch", "print_gallery"]
_ELSEWHERE = {"CATALOGUE": "catalogue", "MISTAKES": "catalogue", "Mistake": "mistake"}


def __getattr__(name: str) -> Any:
    """Reads all pages at the first use, so the import of a single module of this folder stays fast."""
    if name in __all__:
        return getattr(importlib.import_module(f"{__name__}.{_ELSEWHERE.get(name, 'gallery')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
