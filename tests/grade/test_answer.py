"""The student's functions: an exception names its line, and what they print is kept."""

import io
from pathlib import Path
from typing import Any

import pytest

from numpy_attention.grade.answer import MAX_STORED, Printed, printed_lines, with_place
from numpy_attention.grade.guard import NotOwnWork


def answer(folder: Path, line: str) -> Any:
    """A student's function with this line, and its class with the function as its method `step`."""
    file = folder / "softmax.py"
    text = f"def f(x):\n    {line}\nclass F:\n    step = f\n"
    file.write_text(text, encoding="utf-8")
    own: dict[str, Any] = {}
    exec(compile(text, str(file), "exec"), own)
    return with_place(own["f"], file), with_place(own["F"], file)


def failure(folder: Path, line: str) -> Any:
    try:
        return answer(folder, line)[0](3)
    except Exception as error:
        return error


@pytest.mark.parametrize(("line", "name", "kind"), [
    ("return {}['w']", "KeyError", LookupError), ("return 1 / 0", "ZeroDivisionError", ArithmeticError),
    ("raise NotImplementedError", "NotImplementedError", NotImplementedError), ("exit(3)", "SystemExit", Exception),
    ("raise UnicodeDecodeError('utf-8', b'', 0, 1, 'right')", "UnicodeDecodeError", ValueError),
    ("raise ExceptionGroup('right', [ValueError('1')])", "ExceptionGroup", Exception),
])
def test_exception_keeps_its_name_and_kind_and_has_its_line(
    tmp_path: Path, line: str, name: str, kind: type[Exception]
) -> None:
    error = failure(tmp_path, line)
    assert type(error).__name__ == name
    assert isinstance(error, kind)
    assert error.place == f" (softmax.py, line 2: {line})"


def test_message_is_short_and_printable(tmp_path: Path) -> None:
    message = str(failure(tmp_path, "raise ValueError('a\\x1b[31m\\udc80\\x07' + 'b' * 5000)"))
    assert message.startswith("a\\x1b[31m\\udc80\\x07bbb")
    assert len(message) < 2100
    error = failure(tmp_path, "raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()")
    assert (type(error).__name__, str(error)) == ("Odd", "(its message cannot be shown)")


def test_methods_of_a_class_have_places_and_results(tmp_path: Path) -> None:
    _, cls = answer(tmp_path, "return x")
    instance = cls()
    assert instance.step() is instance
    assert cls.__name__ == "F"
    _, cls = answer(tmp_path, "return x.p")
    with pytest.raises(AttributeError, match="no attribute 'p'") as raised:
        cls().step()
    assert vars(type(raised.value))["place"] == " (softmax.py, line 2: return x.p)"


def test_refusal_of_our_own_answer_is_not_changed() -> None:
    def refused() -> None:
        raise NotOwnWork("derive it")

    with pytest.raises(NotOwnWork, match="derive it"):
        with_place(refused, Path("a.py"))()


def test_only_the_first_printed_characters_and_lines_are_shown() -> None:
    out = io.StringIO()
    for _ in range(3):
        print("x" * (MAX_STORED // 2), file=Printed(out))
    print("x" * 2 * MAX_STORED, file=Printed(out))
    assert len(out.getvalue()) < 5 * MAX_STORED
    shown = printed_lines("".join(f"line {i}\n" for i in range(20)), "The file")
    assert shown[:3] == ["", "  The file printed:", "    line 0"]
    assert shown[-2:] == ["    line 11", "    ... and 8 more lines"]
    assert printed_lines("x" * MAX_STORED, "The file")[-1] == "    ... and many more lines"
    assert printed_lines(" \n", "The file") == []
