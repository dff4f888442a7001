"""The catalogue: all pages together, as entries, known mistakes and exercises.

The cells of a page's tables are Python. They may use the public names of the package, `tiny`, `generator`, the sizes
of the case, and the names of the page's module, `pages/NAME.py`, if there is one. Such a module may define:

    TRIALS       {"Adam": trial}: checks of functions and classes without a gradient
    QUESTIONS    {"top_p": Quiz(ask)}: questions of an exercise, or a Trial

It also defines the functions and classes that the cells name.
"""

import importlib
import sys
import types
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from numpy_attention import beyond, inside, layers, models, ops, recent, training
from numpy_attention.pretrained.c37_low_rank import LowRank
from numpy_attention.tutor import tiny
from numpy_attention.tutor.change import module_of
from numpy_attention.tutor.entry import Entry, entry_of, generator
from numpy_attention.tutor.exercise import Check, Exercise, Quiz, Try
from numpy_attention.tutor.mistake import Mistake
from numpy_attention.tutor.page import FOLDER, ExerciseText, Page, all_pages, exercise_texts

_PARTS = (inside, ops, layers, models, training, recent, beyond)
_PUBLIC: dict[str, Any] = {name: getattr(part, name) for part in _PARTS for name in part.__all__}
NAMES: dict[str, Any] = {**vars(tiny), **_PUBLIC, "LowRank": LowRank, "np": np, "generator": generator}


@cache
def names_of(page: str) -> dict[str, Any]:
    """The names that the cells of a page may use."""
    return {**NAMES, **vars(module_of_page(page))}


def module_of_page(name: str) -> types.ModuleType:
    """The module with the functions of a page. A page without such a file gets an empty module."""
    if not (FOLDER / f"{name}.py").is_file():
        return types.ModuleType(name)
    return importlib.import_module(f"numpy_attention.tutor.pages.{name}")


@cache
def exercise_module(name: str) -> types.ModuleType:
    """The file of an exercise, followed by the solution of its page."""
    text = exercise_texts()[name]
    source = f"{text.file.read_text('utf-8')}\n\n{text.code}\n"
    return module_of(source, f"exercise_{name}", f"<solution of {name}>")


def _home(covers: str, page: Page) -> types.ModuleType:
    """The module of a right op, layer or function: of the package, of the page, or the solution of an exercise."""
    made = names_of(page.name).get(covers)
    if made is not None:
        return sys.modules[made.__module__]
    for module in map(exercise_module, (one.name for one in page.exercises)):
        if hasattr(module, covers):
            return module
    raise ValueError(f"{page.name}.md: there is no op, layer or function {covers}")


def _exercise(text: ExerciseText, page: Page) -> Exercise:
    names, lists = names_of(page.name), text.lists
    quizzes = {name: names["QUESTIONS"][name] for name in lists.get("Questions", ())}
    right = {name: getattr(_home(name, page), name) for name in quizzes}
    quizzes = {name: replace(one, right=right[name]) if isinstance(one, Quiz) else one for name, one in quizzes.items()}
    memory = lists.get("Memory")
    made = Exercise(
        text.name, tuple(Try(row, names) for row in text.rows), quizzes, memory=names[memory[0]] if memory else None,
        parts=lists.get("Allowed", ()), from_scratch="Forward" in lists, not_allowed=lists.get("Not allowed", ()),
    )
    subjects = made.subjects
    known = [one for one in MISTAKES.values() if one.name not in lists.get("Not recognized", ())]
    return replace(
        made, mistakes=tuple(one for one in known if one.covers in subjects),
        in_parts=tuple(
            one.in_a_part_of(subject, home) for subject in subjects for home in [_home(subject, page)]
            for one in known if one.home is not home and _calls(home, one)
        ),
    )


def _calls(home: types.ModuleType, mistake: Mistake) -> bool:
    """Whether a module imports the op or the layer of a mistake."""
    name = mistake.covers if mistake.covers[0].isupper() else f"{mistake.covers}_backward"
    return hasattr(home, name) and getattr(home, name) is getattr(mistake.home, name, None)


def _all(name: str) -> dict[str, Any]:
    """The items of the dicts with this name in the modules of all pages."""
    return {key: one for page in PAGES for key, one in getattr(module_of_page(page.name), name, {}).items()}


PAGES = all_pages()
CATALOGUE: dict[str, Entry] = {row["case"]: entry_of(row, names_of(page.name)) for page in PAGES for row in page.rows}
TRIALS: dict[str, Check] = _all("TRIALS")
MISTAKES: dict[str, Mistake] = {
    text.name: Mistake(**vars(text), home=_home(text.covers, page)) for page in PAGES for text in page.mistakes
}
_EXERCISES = {text.name: _exercise(text, page) for page in PAGES for text in page.exercises}
EXERCISES: dict[str, Exercise] = {name: _EXERCISES[name] for name in exercise_texts()}
_OURS = SimpleNamespace(**{
    name: getattr(_home(name, page), name)
    for page in PAGES for text in page.exercises for name in _EXERCISES[text.name].needed
})


def ours() -> Any:
    """The right answers to the exercises, by name."""
    return _OURS
