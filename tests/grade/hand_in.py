"""Helpers that act as a student: they hand in a file, or a module with one known mistake."""

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from numpy_attention import layers
from numpy_attention.catalogue import Mistake
from numpy_attention.catalogue.exercise import Exercise
from numpy_attention.catalogue.table import EXERCISES, ours
from numpy_attention.grade.grading import grade_module
from numpy_attention.grade.run import main

UNWRITTEN = "raise NotImplementedError"
FOLDER = Path(__file__).parents[2] / "tutorials" / "exercises"


def grade(tmp_path: Path, name: str, backward: str, time_limit: float = 60.0, before: str = "") -> tuple[int, str]:
    """Hand in the exercise with `raise NotImplementedError` replaced."""
    text = (FOLDER / f"{name}.py").read_text("utf-8")
    file = tmp_path / f"{name}.py"
    file.write_text(before + text.replace(UNWRITTEN, backward, 1))
    out = StringIO()
    code = main([str(file)], time_limit=time_limit, stream=out)
    return code, out.getvalue()


def tutor_text(name: str, *answers: str, examples: int = 4) -> str:
    """The tutor's text in one line; each answer replaces one `raise NotImplementedError`. All runs in this process."""
    first, *others = (FOLDER / f"{name}.py").read_text("utf-8").split(UNWRITTEN)
    text = first + "".join(map(str.__add__, answers, others))
    own: dict[str, Any] = {}
    exec(compile(text, f"{name}.py", "exec"), own)
    return " ".join(grade_module(EXERCISES[name], SimpleNamespace(**own), examples).text.split())


def answer_of(exercise: Exercise, mistake: Mistake) -> Any:
    """A module with the right answers, except for one known mistake."""
    module = SimpleNamespace(**vars(ours()))
    if mistake.covers in exercise.trials:
        setattr(module, mistake.covers, mistake.stand_in)
    elif mistake.covers == "EncoderBlock":
        cls = mistake.class_with_mistake(layers.EncoderBlock)
        module.EncoderBlock = lambda *sizes, dtype: cls(*sizes, pre_norm=True, activation="gelu", dtype=dtype)
    elif mistake.method:
        setattr(module, mistake.covers, mistake.class_with_mistake(getattr(ours(), mistake.covers)))
    else:
        if mistake.op is not None:
            setattr(module, mistake.covers, mistake.op)
        if mistake.op_backward is not None:
            setattr(module, f"{mistake.covers}_backward", mistake.op_backward)
    return module
