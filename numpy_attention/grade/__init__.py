"""The tutor: grades an answer to an exercise and explains a wrong answer with a small example in numbers.

    python -m numpy_attention grade softmax.py       a file
    na.grade("softmax", softmax_backward)            a function in a notebook

    run          finds the exercise of the file, and starts with a time limit:
    child        a second Python process, which imports the file and prints the grade
    notebook     grades functions of this process
     |           answer: the student's functions, with the line of an exception;  guard: refuses our own backward
    grading      checks one property after another; if one fails, it looks for the smallest example
     |           form: number, shapes and dtypes of the gradients;  the gradients are compared with our own;
     |           if they differ, the checker finds the reason
    tutor        explains this example: with the docstring of the known mistake (in catalogue/pages) if `recognize`
                 finds it, else with the diagnosis of the checker (gradcheck: terms, diagnosis)
    page         what is checked, the hints and the solution of an exercise, from pages/NAME.md;  result: the grade

The pages of the catalogue contain the inputs, the right answer and the known mistakes of each exercise.
"""

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """A package that can be called, like numpy_attention.gradcheck; the first call imports the grader."""

    @staticmethod
    def __call__(exercise: str, *answers: Any, hint: int | None = None, solution: bool = False) -> Any:
        """Grade your functions of an exercise, for example na.grade("softmax", softmax_backward)."""
        from numpy_attention.grade.notebook import grade

        return grade(exercise, *answers, hint=hint, solution=solution)


sys.modules[__name__].__class__ = _CallableModule
