"""`na.grade` in a notebook: grades functions of this process, with the text of the command `grade`.

    def softmax_backward(dy, cache):
        y, axis = cache
        return y * dy

    na.grade("softmax", softmax_backward)            check your function
    na.grade("softmax", hint=1)                      the first of three hints

What you do not pass, such as the forward, comes from the file of the exercise, tutorials/exercises/softmax.py.
"""

import io
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.tutor.answer import Printed, printed_lines, with_place
from numpy_attention.tutor.catalogue import EXERCISES
from numpy_attention.tutor.exercise import Exercise
from numpy_attention.tutor.grading import grade_module
from numpy_attention.tutor.page import exercise_texts
from numpy_attention.tutor.result import Grade
from numpy_attention.tutor.run import answer_text, exercise_of, hint_text


def grade(exercise: str, *answers: Callable[..., Any], hint: int | None = None, solution: bool = False) -> Grade | None:
    """Grade your functions, print the result, and return it; the result is true if all properties hold.

    `answers` are the functions or classes of the exercise, with their names. If the exercise has only one backward,
    your function may have any name. With `hint`, print this hint instead. With `solution`, also print the solution if
    your answer is right.

    Your code runs in this process, unlike with the command `grade`. So an endless loop is not stopped: interrupt it
    with Ctrl-C, or with "Interrupt" in the menu "Kernel". Time and memory have no limit, and nothing is refused
    except the package's own functions.

    Raises: InputError, with a message of one line, for an unknown exercise or function.

    >>> grade("gelu", hint=1)
    Hint 1 of 3: Use the product rule: y = x P(x), so y' = P + x P'.
    Try again. If this hint does not help: hint=2
    """
    found = EXERCISES[exercise_of("", str(exercise))]
    if hint is not None:
        print(hint_text(found.name, hint, "hint="))
        return None
    named = {name: _with_file(made) for name, made in _named(found, answers).items()}
    module, printed = SimpleNamespace(**{**_exercise_file(exercise), **named}), io.StringIO()
    with redirect_stdout(Printed(printed)), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        result = grade_module(found, module)
    result.lines += printed_lines(printed.getvalue(), "Your code")
    call = f'na.grade("{exercise}"'
    print(answer_text(found.name, result, f"{call}, hint=1)", f"{call}, {', '.join(named)}, solution=True)"))
    if solution:
        print(exercise_texts()[exercise].solution if result else "The solution is shown after all properties hold.")
    return result


def _named(exercise: Exercise, answers: tuple[Any, ...]) -> dict[str, Any]:
    """The answers by the names that the exercise needs."""
    needed = exercise.needed
    written = [name for name in needed if exercise.from_scratch or f"{name}_backward" not in needed]
    call = f'na.grade("{exercise.name}", {", ".join(written)})'
    if not answers:
        raise InputError(f"grade: no function is given; write {call}")
    named = {getattr(made, "__name__", type(made).__name__): made for made in answers}
    if len(answers) == len(written) == 1 and not named.keys() & needed.keys():
        named = {written[0]: answers[0]}
    for name, made in named.items():
        if name not in needed:
            raise InputError(f"grade: {exercise.name} needs {', '.join(written)}, got {name}; write {call}")
        if not callable(made) or isinstance(made, type) != (needed[name] == "class"):
            raise InputError(f"grade: {name} must be a {needed[name]}, got {made!r:.80}")
        if str(getattr(made, "__module__", "")).startswith("numpy_attention."):
            raise InputError(f"grade: {name} of the package is not your own answer; write your own {needed[name]}")
    return named


def _exercise_file(name: str) -> dict[str, Any]:
    """The names that the file of the exercise defines."""
    file = exercise_texts()[name].file
    namespace: dict[str, Any] = {"__name__": name}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), namespace)
    return namespace


def _with_file(made: Any) -> Any:
    """The function or class; its exceptions have the line in its file or cell."""
    f = getattr(made, "__init__", None) if isinstance(made, type) else made
    file = Path(getattr(getattr(f, "__code__", None), "co_filename", ""))
    return with_place(made, file, name="" if file.is_file() else "your cell")
