"""The student's functions and classes: an exception names its line."""

from pathlib import Path
from typing import Any

import pytest

from numpy_attention.tutor.answer import Exit, with_place


def answer(folder: Path, line: str) -> Any:
    """A student's function with this line, and its class with the function as its method `step`."""
    file = folder / "softmax.py"
    text = f"def f(x):\n    {line}\nclass F:\n    step = f\n"
    file.write_text(text, encoding="utf-8")
    own: dict[str, Any] = {}
    exec(compile(text, str(file), "exec"), own)
    return with_place(own["f"], file), with_place(own["F"], file)


@pytest.mark.parametrize(("line", "kind"), [
    ("return {}['w']", KeyError), ("raise NotImplementedError", NotImplementedError), ("exit(3)", Exit),
])
def test_exception_has_its_line(tmp_path: Path, line: str, kind: type[Exception]) -> None:
    with pytest.raises(kind) as error:
        answer(tmp_path, line)[0](3)
    assert vars(error.value)["place"] == f" (softmax.py, line 2: {line})"


def test_methods_of_a_class_have_places_and_results(tmp_path: Path) -> None:
    _, cls = answer(tmp_path, "return x")
    instance = cls()
    assert instance.step() is instance
    assert cls.__name__ == "F"
    _, cls = answer(tmp_path, "return x.p")
    with pytest.raises(AttributeError, match="no attribute 'p'") as raised:
        cls().step()
    assert vars(raised.value)["place"] == " (softmax.py, line 2: return x.p)"
